"""The path over S3: uploads land in a bucket, the lake lies in one, all through moto's server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from path_house import House, open_house, tick

from dyna_assets.home import Home
from dyna_assets.simulate import record_uploads
from dyna_train.files import open_store
from dyna_train.loader import EpisodeDataset
from dyna_train.manifest import Manifest, fetch_manifest
from dyna_train.window import WindowSpec

BUCKET = "robots"


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_house(home: Home, postgres_url: str, endpoint: str) -> Iterator[House]:
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket=BUCKET)
    lines = [f'lake = "s3://{BUCKET}/lake"', "workers = 1", "[s3]", f'endpoint_url = "{endpoint}"']
    lines += [f"{name} = {json.dumps(value)}" for name, value in keys.items()]
    with open_house(home, postgres_url, settings=lines) as house:
        yield house


def upload(house: House, local: Path, landing: str) -> None:
    """Copy recorded uploads to the bucket, each marker last, as the protocol says."""
    fs, root = open_store(landing, **house.workspace.settings.storage_options(landing))
    for path in sorted(local.rglob("*"), key=lambda path: path.name == "upload.json"):
        if path.is_file():
            fs.put_file(str(path), f"{root}/{path.relative_to(local)}")


def test_uploads_in_a_bucket_become_batches(s3_house: House, tmp_path: Path) -> None:
    record_uploads(tmp_path / "local", 3, seconds=1.0, size=(96, 128), faults=["bad_checksum"])
    landing = s3_house.workspace.lake.replace("/lake", "/landing")
    upload(s3_house, tmp_path / "local", landing)
    s3_house.add("sim", landing)
    assert [request.partition_key for request in tick(s3_house).run_requests or []] == ["shard-000000"]
    s3_house.run()
    assert [row.name for row in s3_house.workspace.catalog.quarantined()] == ["sim-0-000002-bad_checksum"]
    made = s3_house.curate(where="source = 'sim'")
    assert made.uri == f"{s3_house.workspace.lake}/manifests/test.arrow"
    assert made.totals.num_rows == 2
    fs, path = open_store(made.uri, **s3_house.workspace.settings.storage_options(made.uri))
    manifest = Manifest.open(fetch_manifest(fs, path, tmp_path / "manifest.arrow"))
    assert all(manifest.gops(row) is not None for row in range(2))
    episodes = fs.find(open_store(f"{s3_house.workspace.lake}/episodes")[1])
    assert sorted(manifest.episode_uri(row).removeprefix("s3://") for row in range(2)) == episodes
    fs.get(
        open_store(f"{s3_house.workspace.lake}/episodes")[1],
        str(tmp_path / "node" / "episodes"),
        recursive=True,
    )
    dataset = EpisodeDataset(
        manifest, WindowSpec(frames=(0,), state=(0,), action=(0,)), root=str(tmp_path / "node")
    )
    assert dataset[0]["frames"].float().std() > 5
