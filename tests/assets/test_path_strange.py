"""Strange input: each ends as a quarantined upload or a rejected row with its reason, and stops nothing else."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from path_house import House
from recordings import write_aloha, write_lerobot_v21, write_lerobot_v30

from dyna_assets.corpus import rejections
from dyna_assets.errors import CurationError
from dyna_assets.landing.upload import commit_upload


def with_marker(house: House, name: str, change: Any) -> None:
    """One more upload whose marker is what `change` makes of an honest one (text in, bytes out)."""
    first = next(path for path in sorted((house.landing / "sim").iterdir()) if path.name.startswith("sim-0"))
    folder = house.landing / "sim" / name
    shutil.copytree(first, folder)
    marker = folder / "upload.json"
    marker.write_bytes(change(marker.read_text()))


ODD_MARKERS = {
    "nul in the task": lambda text: text.replace("cube", "cu\\u0000be").encode(),
    "half a surrogate": lambda text: text.replace("cube", "cu\\ud800be").encode(),
    "nul in a key": lambda text: text.replace('"operator"', '"oper\\u0000ator"').encode(),
    "not a number": lambda text: text.replace('"planted_fault":', '"x": NaN, "planted_fault":').encode(),
    "an integer of 5,000 digits": lambda text: text.replace(
        '"planted_fault":', f'"x": {"9" * 5000}, "planted_fault":'
    ).encode(),
    "200,000 brackets": lambda text: b"[" * 200_000,
    "no json at all": lambda text: b"\xff\xfe\x00",
    "an empty file": lambda text: b"",
    "another schema": lambda text: text.replace("dyna.upload/1", "dyna.upload/9").encode(),
    "a rollout without a policy": lambda text: text.replace('"simulation"', '"policy_rollout"').encode(),
    "a path out of the folder": lambda text: text.replace('"path": "', '"path": "../').encode(),
    "another source": lambda text: text.replace('"source": "sim"', '"source": "lab"').encode(),
}


def test_no_marker_however_odd_stops_the_other_uploads(house: House) -> None:
    house.simulate(1)
    for name, change in ODD_MARKERS.items():
        with_marker(house, name, change)
    done = house.run()
    assert set(done.registration.quarantined) == {f"sim: {name}" for name in ODD_MARKERS}
    assert all(len(reason) > 40 for reason in done.registration.quarantined.values())
    assert house.curate().totals.num_rows == 1
    assert not house.run().registration.quarantined  # nobody looks at them again


def test_a_file_that_the_marker_does_not_list_is_no_recording(house: House) -> None:
    house.simulate(1)
    upload = next((house.landing / "sim").glob("sim-0*"))
    shutil.copy(next(upload.glob("*.mcap")), upload / "half.mcap")
    done = house.run()
    assert house.curate().totals.num_rows == 1
    assert done.registration.notes == [
        f"sim: {upload.name}: 1 files are not in upload.json and were not read, first half.mcap"
    ]


def test_an_upload_inside_another_belongs_to_itself(house: House) -> None:
    house.simulate(2)
    outer, inner = sorted((house.landing / "sim").glob("sim-0*"))
    inner.rename(outer / "inner")
    house.run()
    assert house.curate().totals.num_rows == 2


def test_a_name_that_is_not_utf8_is_left_alone_and_named(house: House) -> None:
    house.simulate(1)
    odd = Path(str(house.landing / "sim") + "/bad\udcff")
    shutil.copytree(next((house.landing / "sim").glob("sim-0*")), odd)
    done = house.run()
    assert house.curate().totals.num_rows == 1
    (reason,) = done.registration.ignored.values()
    assert "not UTF-8" in reason and r"bad\xff" in reason


TEXTS = ("叠毛巾 🤖", "fold 'it'; DROP TABLE episodes; --", '"quoted"', "a\\b%c#d?e", "line\nbreak")


def test_any_text_may_be_a_task(house: House) -> None:
    house.simulate(1)
    for number, text in enumerate(TEXTS):
        said = '"task": ' + json.dumps(text)[:-1] + " "
        with_marker(
            house, f"odd {number}", lambda marker, said=said: marker.replace('"task": "', said).encode()
        )
    house.run()
    tasks = {row["task"] for row in house.rows("labels")}
    for text in TEXTS:
        assert any(task.startswith(text) for task in tasks), text
    assert house.curate().totals.num_rows == 1 + len(TEXTS)


def quiet(house: House, name: str, root: Path) -> None:
    house.add(name, root)
    house.edit_source(name, "quiet_period_s = 10.0", "quiet_period_s = 0.0")


def test_a_video_that_lost_frames_at_its_front_is_rejected_since_every_row_would_be_shifted(
    house: House, tmp_path: Path
) -> None:
    root = write_lerobot_v21(tmp_path / "set", [40, 40])
    table_path = root / "data/chunk-000/episode_000001.parquet"
    pq.write_table(pq.read_table(table_path).slice(5), table_path)
    quiet(house, "set", tmp_path / "set")
    house.run()
    (refused,) = rejections(house.workspace.warehouse)
    assert refused.name == "episode_000001"
    assert re.search(
        r"rows\.paired: .* has 35 messages, expected 40 .* a missing one shifts all after it", refused.reason
    )


def test_pictures_and_rows_of_hdf5_that_differ_in_number_are_rejected(house: House, tmp_path: Path) -> None:
    write_aloha(tmp_path / "set" / "good.hdf5", 60)
    write_aloha(tmp_path / "set" / "short.hdf5", 60)
    with h5py.File(tmp_path / "set" / "short.hdf5", "r+") as file:
        action = file["action"][:53]
        del file["action"]
        file["action"] = action
    quiet(house, "set", tmp_path / "set")
    house.run()
    (refused,) = rejections(house.workspace.warehouse)
    assert re.search(r"rows\.paired: action has 53 messages, expected 60", refused.reason)


def test_episodes_that_claim_the_same_frames_of_a_video_are_refused(house: House, tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path / "set", [30, 30])
    quiet(house, "set", root)
    (path,) = (root / "meta/episodes").rglob("*.parquet")
    table = pq.read_table(path)
    names = [name for name in table.column_names if name.endswith(("from_timestamp", "to_timestamp"))]
    for name in names:
        values = table[name].to_pylist()
        values[1] -= 0.2
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pq.write_table(table, path)
    done = house.run()
    (reason,) = done.registration.quarantined.values()
    assert re.search(r"episode_000000 and episode_000001 overlap in videos/", reason)


def test_a_number_that_the_episode_file_cannot_hold_is_rejected(house: House, tmp_path: Path) -> None:
    values = (np.nan, np.inf, 1e300)
    for value in values:
        path = write_aloha(tmp_path / "set" / f"{value}.hdf5", 60)
        with h5py.File(path, "r+") as file:
            qpos = file["observations/qpos"][:].astype(np.float64)
            qpos[30, 0] = value
            del file["observations/qpos"]
            file["observations/qpos"] = qpos
    quiet(house, "set", tmp_path / "set")
    house.run()
    refused = rejections(house.workspace.warehouse)
    assert len(refused) == len(values)
    for row in refused:
        assert re.search(
            r"vector\.finite: observations/qpos: 1 of 60 rows hold NaN, infinity or too large", row.reason
        )


def test_a_recording_without_cameras_is_refused_at_the_draft_by_what_it_lacks(
    house: House, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["observations/qpos"] = np.zeros((60, 7))
        file["action"] = np.zeros((60, 7))
    source = house.add("blind", tmp_path)
    assert source.cameras == ()


@pytest.mark.parametrize(
    "where",
    [
        "true) OR (true",
        "true) --",
        "true --",
        "NOT passed OR true",
        "1=1; SELECT 1",
        "true); COPY (SELECT 42) TO '{out}'; SELECT (true",
    ],
)
def test_no_condition_lets_a_rejected_episode_in_or_touches_a_file(
    full_house: House, tmp_path: Path, where: str
) -> None:
    out = tmp_path / "out.csv"
    try:
        made = full_house.curate(where=where.format(out=out))
    except CurationError as error:
        assert "curation 'test'" in str(error)
    else:
        assert made.totals.num_rows == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("sucess", r"did you mean 'success'\?"),
        ("nofunc(1)", r"cannot be evaluated.*nofunc"),
        ("task =", r"cannot be evaluated"),
        ("EXISTS (SELECT * FROM read_text('/etc/hostname'))", r"cannot be evaluated.*"),
        ("regexp_matches(task, '[')", r"cannot be evaluated.*"),
        ("duration_s > 1000", r"selects 0 of 3 episodes \(2 of them passed the gates\)"),
    ],
)
def test_a_condition_that_cannot_be_answered_says_why(full_house: House, where: str, message: str) -> None:
    with pytest.raises(CurationError, match=message):
        full_house.curate(where=where)


def test_two_kinds_of_robot_do_not_fit_in_one_manifest(full_house: House, tmp_path: Path) -> None:
    write_aloha(tmp_path / "set" / "a.hdf5", 60)
    quiet(full_house, "set", tmp_path / "set")
    full_house.run()
    with pytest.raises(
        CurationError, match=r"(?s)do not fit in one batch:.*2 of sim: .*1 of set: .*Select one kind"
    ):
        full_house.curate()


def test_the_query_in_a_manifest_is_the_one_that_was_asked(full_house: House) -> None:
    made = full_house.curate(where="task <> 'a  b'")
    assert "task <> 'a  b'" in made.info.query


def test_a_link_out_of_the_upload_is_refused(house: House, tmp_path: Path) -> None:
    write_aloha(tmp_path / "elsewhere" / "a.hdf5", 60)
    landing = tmp_path / "set"
    write_aloha(landing / "b.hdf5", 60)
    quiet(house, "set", landing)
    (landing / "a.hdf5").symlink_to(tmp_path / "elsewhere" / "a.hdf5")
    done = house.run()
    (reason,) = done.registration.quarantined.values()
    assert re.search(r"a\.hdf5 is a link to \.\./elsewhere/a\.hdf5, outside the upload's folder", reason)


def test_committing_twice_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.mcap").write_bytes(b"x")
    says: dict[str, Any] = {"source": "lab", "kind": "teleoperation", "recorded_at": 0}
    commit_upload(tmp_path, **says)
    before = (tmp_path / "upload.json").read_bytes()
    with pytest.raises(Exception, match="committed already, and landed files never change"):
        commit_upload(tmp_path, **says)
    assert (tmp_path / "upload.json").read_bytes() == before
