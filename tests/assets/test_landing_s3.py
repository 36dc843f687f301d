"""The landing protocol and the readers against moto's S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import s3fs
from bag_samples import write_bag
from hand_samples import write_hand_video, write_poses
from moto.server import ThreadedMotoServer
from recordings import write_aloha, write_lerobot_v21, write_lerobot_v30, write_mcap
from tf_records import episode, example, write_records

from dyna_assets.errors import UploadError
from dyna_assets.landing.discover import list_uploads
from dyna_assets.landing.draft import draft_source
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources import READERS, detect, reader_named
from dyna_assets.landing.upload import check_sizes, commit_upload, read_marker, verify_hashes

SAYS: dict[str, Any] = {"source": "lab", "kind": "teleoperation", "recorded_at": 0}
LATER_NS = 4_000_000_000_000_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def bucket(server: str) -> Folder:
    """An empty bucket of the test's own."""
    name = f"b{uuid4().hex}"
    folder = Folder.of(
        f"s3://{name}/landing",
        key="k",
        secret="s",
        client_kwargs={"endpoint_url": server},
    )
    folder.fs.mkdir(name)
    return folder


def put(folder: Folder, root: Path) -> None:
    for path in sorted(root.rglob("*")):
        if path.is_file():
            folder.fs.put_file(str(path), f"{folder.path}/{path.relative_to(root).as_posix()}")


def look(folder: Folder, reader: str, quiet_s: float | None = None) -> dict[str, str]:
    found = list_uploads(
        folder.fs, folder.path, quiet_period_s=quiet_s, now_ns=LATER_NS, reader=reader_named(reader)
    )
    return {upload.name: upload.read().state for upload in found}


def test_an_upload_is_seen_once_its_marker_is_there_and_verifies(bucket: Folder, tmp_path: Path) -> None:
    write_mcap(tmp_path / "run1/a.mcap", 3)
    put(bucket, tmp_path)
    assert look(bucket, "mcap") == {"run1": "ignored"}
    upload = bucket.below("run1")
    assert upload.uri == f"s3://{bucket.path}/run1"
    marker = commit_upload(upload, **SAYS)
    assert look(bucket, "mcap") == {"run1": "ready"}
    assert read_marker(upload) == marker
    check_sizes(marker, upload.files())
    verify_hashes(upload, marker)
    upload.fs.pipe_file(f"{upload.path}/a.mcap", b"other bytes")
    with pytest.raises(UploadError, match=r"run1: a\.mcap: expected [\d,]+ bytes, found 11\. Upload"):
        check_sizes(marker, upload.files(), where=upload.uri)
    with pytest.raises(UploadError, match=r"s3://.*run1: a\.mcap: expected sha256 "):
        verify_hashes(upload, marker)


def test_a_listing_is_never_an_earlier_one(bucket: Folder, server: str) -> None:
    bucket.fs.pipe_file(f"{bucket.path}/u/one.bin", b"1")
    assert list(bucket.files()) == ["u/one.bin"]
    assert not bucket.exists("u/two.bin")
    other = s3fs.S3FileSystem(
        key="k",
        secret="s",
        client_kwargs={"endpoint_url": server},
        skip_instance_cache=True,
    )
    other.pipe_file(f"{bucket.path}/u/two.bin", b"22")
    assert bucket.exists("u/two.bin")
    assert {name: info.size_bytes for name, info in bucket.files().items()} == {
        "u/one.bin": 1,
        "u/two.bin": 2,
    }
    assert all(info.modified_ns > 1_700_000_000_000_000_000 for info in bucket.files().values())


def test_a_young_upload_without_marker_is_still_arriving(bucket: Folder, tmp_path: Path) -> None:
    write_mcap(tmp_path / "run1/a.mcap", 1)
    put(bucket, tmp_path)
    assert look(bucket, "mcap", quiet_s=10) == {"run1": "ready"}
    (upload,) = list_uploads(
        bucket.fs,
        bucket.path,
        quiet_period_s=10,
        now_ns=max(info.modified_ns for info in bucket.files().values()) + 10**9,
        reader=reader_named("mcap"),
    )
    assert upload.state == "arriving"


@pytest.mark.parametrize("name", list(READERS))
def test_every_format_is_read_from_the_bucket_as_from_disk(bucket: Folder, tmp_path: Path, name: str) -> None:
    root = tmp_path / "set"
    {
        "lerobot_v21": lambda: write_lerobot_v21(root, [5, 3]),
        "lerobot_v30": lambda: write_lerobot_v30(root, [5, 3], b_frames=2),
        "aloha_hdf5": lambda: write_aloha(root / "a.hdf5", 4),
        "rlds": lambda: write_records(root / "a.tfrecord", [example(episode(0, 4)), example(episode(9, 3))]),
        "rosbag2": lambda: write_bag(root, "db3", range(4)),
        "mcap": lambda: write_mcap(root / "a.mcap", 4),
        "hand_video": lambda: (write_hand_video(root, 4), write_poses(root, "wide.csv", 4)),
    }[name]()
    put(bucket, root)
    local, reader = Folder.of(root), detect(bucket)
    assert reader.name == name
    if name == "rlds":
        reader = reader.configured({"rate_hz": 5}, where="test")
    refs = reader.recordings(bucket)
    assert refs == reader.recordings(local)
    for ref in refs:
        with reader.open(bucket, ref) as far, reader.open(local, ref) as near:
            assert far.topics == near.topics
            topics = [topic for topic, info in far.topics.items() if info.kind != "other"]
            for topic in topics:
                assert far.times(topic).tolist() == near.times(topic).tolist()
            pairs = zip(far.read(topics), near.read(topics), strict=True)
            assert all((a.topic, a.time_ns) == (b.topic, b.time_ns) for a, b in pairs)
    assert draft_source("lab", bucket.uri, bucket).profile.reader == name


def test_an_absent_prefix_is_an_error_not_an_empty_landing(bucket: Folder) -> None:
    with pytest.raises(FileNotFoundError, match="landing"):
        look(bucket, "mcap")
