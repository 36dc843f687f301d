"""Planted faults: each costs its own row or upload, says why, and leaves the others alone."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from path_house import House, again_on, tick

from dyna_assets.assets.landing import RETRY_S, is_busy
from dyna_assets.assets.resources import opened
from dyna_assets.corpus import rejections
from dyna_assets.errors import CurationError
from dyna_assets.profiles import profile_named
from dyna_assets.shard_session import open_shard
from dyna_assets.simulate import fault_names
from dyna_assets.warehouse.tables import Table
from dyna_assets.worker import drain

EXPECTED = {
    "black_camera": r"camera\.dark: camera '\w+' is dark: .* is brighter than \d+ of 255",
    "frozen_camera": r"camera\.frozen: camera '\w+' is frozen: its picture repeats for \d+\.\d+ s while",
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


def test_what_is_planted_here_are_faults_of_the_recorder() -> None:
    assert {*EXPECTED, *QUARANTINED, *WARNED} <= set(fault_names())  # benchmarks.quality plants them all


def test_each_planted_fault_is_found_named_and_costs_nothing_else(house: House, clean: int) -> None:
    faults = [*EXPECTED, *QUARANTINED, *WARNED]
    house.simulate(clean)
    house.simulate(len(faults), start=clean, seconds=2.5, faults=faults)
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
    loop: dict[str, Any] = {"retry_given_up": False}
    for _ in range(4):
        done = drain(house.workspace, house.instance, house.definitions, "ingest_online", **loop)
    assert done.failed == {}
    assert done.given_up == ["shard-000000"]
    by_hand = drain(house.workspace, house.instance, house.definitions, "ingest_online")
    assert list(by_hand.failed) == ["shard-000000"]
    asked = tick(house)
    assert not asked.run_requests
    assert isinstance(asked.skip_reason, dg.SkipReason)
    assert re.search(r"shard-000000 failed 3 times in a row; .* launch ingest_batch", str(asked.skip_reason))


def test_new_uploads_give_a_failed_shard_a_new_chance(house: House) -> None:
    house.simulate(5, faults=["clock_jump"] * 5)
    for _ in range(3):
        drain(house.workspace, house.instance, house.definitions, "ingest_online")
    house.simulate(6, start=5)
    assert tick(house).run_requests


def test_a_broken_source_stops_no_other(house: House) -> None:
    house.simulate(5, source="broken", faults=["clock_jump"] * 5)
    house.simulate(2, source="good")
    done = drain(house.workspace, house.instance, house.definitions, "ingest_online")
    assert len(done.failed) == len(done.succeeded) == 1
    assert house.curate(where="source = 'good'").totals.num_rows == 2


def test_a_source_whose_folder_or_description_is_gone_stops_no_other(full_house: House) -> None:
    full_house.simulate(1, source="gone")
    full_house.simulate(1, source="undescribed")
    full_house.run()
    shutil.rmtree(full_house.landing / "gone")
    (full_house.workspace.home.sources / "undescribed.toml").unlink()
    full_house.simulate(1, start=3)
    done = full_house.run()
    assert re.search(r"landing folder .*gone does not exist", done.registration.unreachable["gone"])
    full_house.run("ingest_batch")
    assert full_house.curate(where="source = 'sim'").totals.num_rows == 3


def test_a_half_written_upload_is_never_read(full_house: House) -> None:
    before = full_house.stamps()
    arriving = full_house.landing / "sim" / "half"
    shutil.copytree(next((full_house.landing / "sim").glob("sim-*")), arriving)
    (arriving / "upload.json").unlink()
    done = full_house.run()
    assert [name for name in done.registration.ignored if "half" in name]
    assert full_house.stamps() == before


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


def test_an_upload_replaced_after_it_was_registered_is_quarantined_with_its_rows(full_house: House) -> None:
    house = full_house
    objects = house.objects()
    first, second, _ = sorted((house.landing / "sim").iterdir())
    kept = {path.name: path.read_bytes() for path in first.iterdir()}
    replace_files(first, {path.name: path.read_bytes() for path in second.iterdir()})
    done = house.run()
    (reason,) = done.registration.quarantined.values()
    assert re.search(
        "files changed after upload.json said it was complete.* Landed uploads are immutable", reason
    )
    assert house.objects() == objects  # what was made from the old bytes stays where it is
    assert house.curate().totals.num_rows == 1  # but no new manifest takes it
    assert house.stamps()[1, "recordings"]["status"] == "rejected"
    replace_files(first, kept)
    house.run()
    assert house.curate().totals.num_rows == 2  # the old bytes are back, and with them the episode


def replace_files(folder: Path, files: dict[str, bytes]) -> None:
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def test_an_upload_that_its_reader_refused_gets_a_second_look_from_another_reader(house: House) -> None:
    house.simulate(1)
    house.edit_source("sim", 'reader = "mcap"', 'reader = "aloha_hdf5"')
    assert house.run().registration.quarantined
    house.edit_source("sim", 'reader = "aloha_hdf5"', 'reader = "mcap"')
    house.run()
    assert house.curate().totals.num_rows == 1


def test_a_file_that_no_gate_has_seen_is_in_no_manifest(full_house: House) -> None:
    full_house.edit_source("sim", 'quality = "default"', 'quality = "train"')
    shard = full_house.workspace.catalog.shard("shard-000000")
    assert shard is not None
    with open_shard(full_house.workspace, shard.key, profile_named("reprocess"), run_id="killed") as run:
        assert run is not None
        run.run("episodes")  # and the run is killed before the gate after
    with pytest.raises(CurationError, match=r"selects 0 of 3 episodes \(0 of them passed the gates\)"):
        full_house.curate()
    full_house.run("reprocess")
    assert full_house.curate().totals.num_rows == 2


def test_a_run_that_does_not_do_every_step_leaves_new_rows_due(full_house: House) -> None:
    before = full_house.objects()
    full_house.simulate(1, start=3)
    full_house.run("reprocess")
    (shard,) = full_house.workspace.catalog.due_shards()
    assert shard.attempts == 0  # a run that cannot settle a shard is no failed attempt at it
    full_house.run()
    assert len(full_house.objects()) == len(before) + 1


def test_a_missing_old_file_costs_its_row_and_not_the_shard(full_house: House) -> None:
    before = full_house.objects()
    next(Path(full_house.workspace.lake).rglob("1-*.mcap")).unlink()
    full_house.simulate(1, start=3)
    full_house.run()
    assert len(full_house.objects()) == len(before)


def test_a_step_that_failed_half_way_is_done_again_with_its_data(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.simulate(2)
    stamping = house.workspace.warehouse.append

    def refuse(table: Table, *args: Any, **options: Any) -> int:
        if table.name == "version_stamps" and len(house.objects()) == 2 and not refused:
            refused.append(table.name)
            raise OSError("the store went away between data and stamps")
        return stamping(table, *args, **options)

    refused: list[str] = []
    monkeypatch.setattr(type(house.workspace.warehouse), "append", lambda self, *a, **k: refuse(*a, **k))
    house.run()  # the step's retry does it again
    assert refused
    assert house.curate().totals.num_rows == 2
    assert {row["episode_id"] for row in house.rows("episodes")} == {1, 2}


def test_hashes_are_verified_also_where_only_the_probe_is_selected(house: House) -> None:
    house.simulate(2, faults=["bad_checksum"])
    house.workspace.register_landed()
    with open_shard(house.workspace, "shard-000000", profile_named("ingest_online"), run_id="probe") as run:
        assert run is not None
        assert run.run("recordings").num_rejected == 1
    assert len(house.workspace.catalog.quarantined()) == 1


def test_a_store_that_is_away_stops_no_other_source(house: House) -> None:
    house.simulate(1)
    away = (house.workspace.home.sources / "sim.toml").read_text().replace('name = "sim"', 'name = "away"')
    away = re.sub(r'landing = ".*"', 'landing = "s3://none/landing"', away)
    (house.workspace.home.sources / "away.toml").write_text(away)
    settings = house.workspace.home.settings
    settings.write_text(
        settings.read_text()
        + '[s3]\nendpoint_url = "http://127.0.0.1:1"\nmax_attempts = 1\naws_access_key_id = "k"\n'
        'aws_secret_access_key = "s"\n'
    )
    opened.cache_clear()
    with again_on(house) as again:
        done = again.run()
        reason = done.registration.unreachable["away"]
        assert "landing folder s3://none/landing cannot be listed" in reason
        assert again.curate().totals.num_rows == 1


def test_a_cancelled_run_is_not_asked_for_again_at_once(house: House) -> None:
    house.simulate(1)
    assert tick(house).run_requests
    (shard,) = house.workspace.catalog.due_shards()
    job = house.definitions.resolve_job_def("ingest_online")
    house.instance.add_dynamic_partitions("shards", [shard.key])
    run = house.instance.create_run_for_job(job, tags={"dagster/partition": shard.key})
    house.instance.report_run_canceled(run)
    assert is_busy(house.instance, shard, time.time())
    assert not is_busy(house.instance, shard, time.time() + RETRY_S + 60)
    assert not tick(house).run_requests
