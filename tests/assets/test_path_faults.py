"""Planted faults: each costs its own row or upload, says why, and leaves the others alone."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from path_house import House

from dyna_assets.corpus import rejections
from dyna_assets.simulate import fault_names
from dyna_assets.worker import drain

EXPECTED = {
    "black_camera": r"camera\.dark: camera '\w+' is black: mean level \d+\.\d of 255 \(limit 16\)",
    "frozen_camera": r"camera\.frozen: camera '\w+' is frozen: \d+% of the frames",
    "missing_camera": r"topics\.present: camera '\w+' \(/\w+/image/compressed\): not in the recording; topics there: ",
    "length_mismatch": r"time\.length_mismatch: /\w+/image/compressed ends at \d+\.\d+ s \(\d+ .* are missing",
    "clock_jump": r"time\.monotonic: /\w+/.*: capture time goes back at \d+ of \d+ messages; .* Split the recording",
    "truncated_file": r"\.mcap.*(byte|bytes|ends|cut)",
}
QUARANTINED = {
    "missing_file": r"expected [\d,]+ bytes, found no such file.*",
    "bad_checksum": r"expected sha256 [0-9a-f]{64}, found [0-9a-f]{64}\. The bytes changed on the way",
}
WARNED = {"frozen_joint": "state.frozen_joint"}


@pytest.fixture(scope="module")
def clean() -> int:
    """Uploads without a fault beside one for each fault."""
    return 6


def test_the_expected_verdicts_cover_every_fault_that_can_be_planted() -> None:
    assert set(fault_names()) == {*EXPECTED, *QUARANTINED, *WARNED}


def test_each_planted_fault_is_found_named_and_costs_nothing_else(house: House, clean: int) -> None:
    faults = fault_names()
    house.simulate(clean + len(faults), faults=faults)
    done = drain(house.workspace, house.instance, house.definitions, "ingest_batch")
    assert not done.failed
    refused = {row.name: row.reason for row in rejections(house.workspace.warehouse)}
    for fault, reason in EXPECTED.items():
        (name,) = [name for name in refused if fault in name]
        assert re.search(reason, refused[name]), refused[name]
    uploads = {row.name: row.reason for row in house.workspace.catalog.quarantined()}
    assert len(uploads) == len(QUARANTINED)
    for fault, reason in QUARANTINED.items():
        (name,) = [name for name in uploads if fault in name]
        assert re.search(reason, uploads[name]), uploads[name]
    made = house.curate()
    assert made.totals.num_rows == clean + len(WARNED)
    warned = house.verdicts("warn")
    names = {row["episode_id"]: row["name"] for row in house.rows("episodes")}
    for fault, check in WARNED.items():
        assert [
            names[episode]
            for episode, checks in warned.items()
            if check in checks and fault in names[episode]
        ]


def test_a_shard_whose_rows_mostly_fail_is_stopped_before_anything_is_encoded(house: House) -> None:
    house.simulate(5, faults=["clock_jump"] * 5)
    done = drain(house.workspace, house.instance, house.definitions, "ingest_online")
    assert list(done.failed) == ["shard-000000"]
    assert "source_is_healthy" in done.failed["shard-000000"]
    assert house.objects() == {}
    assert len(house.verdicts("reject")) == 5


def test_one_bad_episode_in_a_small_shard_does_not_stop_it(house: House) -> None:
    house.simulate(2, faults=["missing_camera"])
    house.run()
    assert len(house.objects()) == 1


def test_a_failed_shard_is_left_to_a_person_after_its_attempts(house: House) -> None:
    house.simulate(5, faults=["clock_jump"] * 5)
    for _ in range(4):
        drain(house.workspace, house.instance, house.definitions, "ingest_online")
    (shard,) = house.workspace.catalog.due_shards()
    assert shard.attempts == 4


def test_a_half_written_upload_is_never_read(house: House, tmp_path: Path) -> None:
    house.simulate(1)
    house.run()
    arriving = house.landing / "sim" / "half"
    shutil.copytree(next((house.landing / "sim").glob("sim-*")), arriving)
    (arriving / "upload.json").unlink()
    done = house.run()
    assert [name for name in done.registration.ignored if "half" in name]
    assert len(house.rows("version_stamps", key="episode_id")) == 5


def test_landed_files_are_never_changed(house: House) -> None:
    house.simulate(3, faults=["bad_checksum"])
    files = [path for path in (house.landing / "sim").rglob("*") if path.is_file()]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    house.run()
    house.run("ingest_batch")
    after = {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in (house.landing / "sim").rglob("*")
        if path.is_file()
    }
    assert before == after


def test_an_upload_replaced_after_it_was_registered_is_quarantined_and_its_episode_stays(
    house: House,
) -> None:
    house.simulate(2)
    house.run()
    objects = house.objects()
    first, second = sorted((house.landing / "sim").iterdir())
    for path in first.iterdir():
        path.unlink()
    for path in second.iterdir():
        shutil.copy(path, first / path.name)
    done = house.run()
    (reason,) = done.registration.quarantined.values()
    assert re.search(
        "files changed after upload.json said it was complete.* Landed uploads are immutable", reason
    )
    assert house.objects() == objects
