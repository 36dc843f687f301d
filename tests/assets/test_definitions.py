"""The asset graph as Dagster sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from path_house import House

from dyna_assets.definitions import build
from dyna_assets.home import Home

SNAPSHOT = Path(__file__).with_name("definitions_snapshot.json")
ROOT = Path(__file__).resolve().parents[2]


def describe(home: Home) -> dict[str, Any]:
    """Everything of the definitions that a person relies on, as plain data."""
    repository = build(home).get_repository_def()
    graph = repository.asset_graph
    return {
        "assets": {
            key.to_user_string(): {
                "group": node.group_name,
                "depends_on": sorted(parent.to_user_string() for parent in node.parent_keys),
                "partitions": node.partitions_def.name if node.partitions_def else None,  # type: ignore[attr-defined]
                "kinds": sorted(node.kinds),
                "owners": sorted(node.owners),
                "code_version": node.code_version,
                "description": node.description,
                "checks": sorted(check.name for check in node.check_keys),
                "backfill_policy": str(node.backfill_policy),
            }
            for key in sorted(graph.get_all_asset_keys())
            for node in [graph.get(key)]
        },
        "jobs": {
            job.name: {
                "assets": sorted(key.to_user_string() for key in job.asset_layer.executable_asset_keys),
                "tags": dict(job.tags),
                "executor": job.executor_def.name,
            }
            for job in repository.get_all_jobs()
            if not job.name.startswith("__")
        },
        "sensors": {
            sensor.name: {"job": sensor.job_name, "interval_s": sensor.minimum_interval_seconds}
            for sensor in repository.sensor_defs
        },
        "resources": sorted(repository.get_top_level_resources()),
    }


def test_assets_jobs_and_sensors_are_those_of_the_snapshot(tmp_path: Path) -> None:
    found = describe(Home.at(tmp_path))
    if os.environ.get("UPDATE_SNAPSHOT"):
        SNAPSHOT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert found == json.loads(SNAPSHOT.read_text()), "meant? then run this test with UPDATE_SNAPSHOT=1"


def test_every_asset_says_what_a_row_is_and_who_owns_it(tmp_path: Path) -> None:
    for name, asset in describe(Home.at(tmp_path))["assets"].items():
        assert asset["description"].startswith("One row per "), name
        assert asset["owners"], name
        assert asset["kinds"], name


def test_no_shard_asset_has_a_backfill_policy_whose_runs_would_lack_the_partition_tag(tmp_path: Path) -> None:
    assets = describe(Home.at(tmp_path))["assets"].values()
    assert {asset["backfill_policy"] for asset in assets if asset["partitions"] == "shards"} == {"None"}


def test_dagster_validates_the_workspace(tmp_path: Path) -> None:
    env = {**os.environ, "DYNA_HOME": str(tmp_path / "home"), "DAGSTER_HOME": ""}
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Validation successful for code location dyna" in done.stdout + done.stderr


def test_materializing_an_empty_shard_is_a_free_success(house: House) -> None:
    job = house.definitions.resolve_job_def("ingest_online")
    house.instance.add_dynamic_partitions("shards", ["shard-000007"])
    result = job.execute_in_process(instance=house.instance, partition_key="shard-000007")
    assert result.success
    assert house.rows("version_stamps", 7) == []


@pytest.mark.parametrize("asset", ["episodes/episode_files", "quality/gate_after"])
def test_a_materialization_tells_a_person_what_it_did(house: House, asset: str) -> None:
    house.simulate(2)
    house.run()
    from dagster import AssetKey

    event = house.instance.get_latest_materialization_event(AssetKey(asset.split("/")))
    assert event is not None
    assert event.asset_materialization is not None
    metadata = {name: entry.value for name, entry in event.asset_materialization.metadata.items()}
    assert metadata["num_rows"] == metadata["num_done"] == 2
    assert ("worst_episodes" in metadata) == asset.startswith("quality")
    if asset.startswith("episodes"):
        sheet = str(metadata["contact_sheet"])
        assert sheet.startswith("![contact sheet](data:image/jpeg;base64,/9j/")
        assert len(sheet) < 70_000
        assert 0.1 < metadata["mb_per_camera_minute"] < 50
        assert Path(str(metadata["example_file"])).is_file()
