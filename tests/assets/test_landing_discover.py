from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from recordings import write_aloha, write_lerobot_v21, write_mcap, write_text
from unprivileged import as_nobody, open_folder

from dyna_assets.landing.discover import FoundUpload, list_uploads
from dyna_assets.landing.recording import RecordingRef
from dyna_assets.landing.sources import reader_named
from dyna_assets.landing.upload import commit_upload
from dyna_train.files import open_store

NOW_NS = 2_000_000_000_000_000_000
SAYS: dict[str, Any] = {"source": "lab", "kind": "teleoperation", "recorded_at": 0}


def look(
    root: Path, *, reader: str = "aloha_hdf5", quiet_s: float | None = None, **options: int
) -> list[FoundUpload]:
    fs, path = open_store(root)
    found = list_uploads(
        fs, path, quiet_period_s=quiet_s, now_ns=NOW_NS, reader=reader_named(reader), **options
    )
    return [upload.read() for upload in found]


def states(found: list[FoundUpload]) -> dict[str, str]:
    return {upload.name: upload.state for upload in found}


def age(path: Path, seconds: float) -> None:
    """Make every file below so many seconds old."""
    for file in [path, *path.rglob("*")]:
        os.utime(file, ns=(0, NOW_NS - int(seconds * 1e9)))


def test_only_folders_with_a_marker_are_uploads_where_no_quiet_period_is_set(tmp_path: Path) -> None:
    write_aloha(tmp_path / "day1/run1/ep.hdf5")
    commit_upload(tmp_path / "day1/run1", **SAYS)
    write_aloha(tmp_path / "half/ep.hdf5")
    found = look(tmp_path)
    assert states(found) == {"day1/run1": "ready", "half": "ignored"}
    assert list(found[0].files) == ["ep.hdf5"]
    assert found[0].marker is not None and found[0].marker.source == "lab"
    assert (
        "no upload.json here, and the source sets no quiet_period_s; found 1 file (1 .hdf5)"
        in found[1].reason
    )


def test_a_half_written_upload_is_never_ready(tmp_path: Path) -> None:
    write_aloha(tmp_path / "u/ep.hdf5")
    (tmp_path / "u/.upload.json.part").write_text("{")
    assert states(look(tmp_path)) == {"u": "ignored"}


def test_a_marker_cut_while_it_was_written_makes_a_broken_upload_and_the_rest_goes_on(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_aloha(tmp_path / name / "ep.hdf5")
        commit_upload(tmp_path / name, **SAYS)
    marker = tmp_path / "a/upload.json"
    marker.write_bytes(marker.read_bytes()[:40])
    found = look(tmp_path)
    assert states(found) == {"a": "broken", "b": "ready"}
    assert "a/upload.json: not JSON" in found[0].reason


def test_the_root_itself_can_be_a_committed_upload(tmp_path: Path) -> None:
    write_aloha(tmp_path / "ep.hdf5")
    commit_upload(tmp_path, **SAYS)
    (found,) = look(tmp_path)
    assert (found.name, found.state, found.uri) == (".", "ready", str(tmp_path))


def test_files_belong_to_the_deepest_marked_folder(tmp_path: Path) -> None:
    write_aloha(tmp_path / "outer/inner/ep.hdf5")
    commit_upload(tmp_path / "outer/inner", **SAYS)
    write_aloha(tmp_path / "outer/other.hdf5")
    commit_upload(tmp_path / "outer", **SAYS)
    found = {upload.name: list(upload.files) for upload in look(tmp_path)}
    assert found == {"outer": ["other.hdf5"], "outer/inner": ["ep.hdf5"]}


def test_with_a_quiet_period_a_data_set_in_the_root_is_one_upload(tmp_path: Path) -> None:
    write_lerobot_v21(tmp_path, [3])
    age(tmp_path, 60)
    (found,) = look(tmp_path, reader="lerobot_v21", quiet_s=10)
    assert (found.name, found.state, found.marker) == (".", "ready", None)
    assert "meta/info.json" in found.files


def test_with_a_quiet_period_each_known_first_level_folder_is_an_upload(tmp_path: Path) -> None:
    write_mcap(tmp_path / "run1/a.mcap", 1)
    write_mcap(tmp_path / "run2/b.mcap", 1)
    write_text(tmp_path / "notes/readme.txt", "hello")
    age(tmp_path, 60)
    found = look(tmp_path, reader="mcap", quiet_s=10)
    assert states(found) == {"notes": "ignored", "run1": "ready", "run2": "ready"}
    assert "holds no recording of reader 'mcap'; found 1 file (1 .txt)" in found[0].reason


def test_an_upload_is_arriving_until_its_newest_file_is_older_than_the_quiet_period(tmp_path: Path) -> None:
    write_mcap(tmp_path / "old/a.mcap", 1)
    write_mcap(tmp_path / "young/a.mcap", 1)
    write_mcap(tmp_path / "young/b.mcap", 1)
    age(tmp_path / "old", 10)
    age(tmp_path / "young", 100)
    age(tmp_path / "young/b.mcap", 9.5)
    found = look(tmp_path, reader="mcap", quiet_s=10)
    assert states(found) == {"old": "ready", "young": "arriving"}
    assert "still arriving: its newest file is 9.5 s old, expected 10 s" in found[1].reason


def test_committed_uploads_do_not_wait_for_the_quiet_period(tmp_path: Path) -> None:
    write_mcap(tmp_path / "u/a.mcap", 1)
    commit_upload(tmp_path / "u", **SAYS)
    write_mcap(tmp_path / "loose.mcap", 1)
    age(tmp_path, 1)
    assert states(look(tmp_path, reader="mcap", quiet_s=10)) == {".": "arriving", "u": "ready"}


def test_an_empty_root_holds_nothing_and_an_absent_one_is_an_error(tmp_path: Path) -> None:
    assert look(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="absent"):
        look(tmp_path / "absent")


def test_the_digest_is_stable_and_changes_with_the_marker_or_the_listing(tmp_path: Path) -> None:
    write_mcap(tmp_path / "u/a.mcap", 1)
    age(tmp_path, 60)
    (first,) = look(tmp_path, reader="mcap", quiet_s=10)
    (again,) = look(tmp_path, reader="mcap", quiet_s=10)
    assert first.digest == again.digest
    write_mcap(tmp_path / "u/b.mcap", 1)
    age(tmp_path, 60)
    (grown,) = look(tmp_path, reader="mcap", quiet_s=10)
    assert grown.digest != first.digest
    commit_upload(tmp_path / "u", **SAYS)
    (committed,) = look(tmp_path)
    age(tmp_path, 30)  # copied again with another time: a marker's digest does not mind
    assert look(tmp_path)[0].digest == committed.digest != grown.digest


def test_the_input_hash_follows_the_recordings_own_files_only(tmp_path: Path) -> None:
    write_mcap(tmp_path / "u/a.mcap", 1)
    write_mcap(tmp_path / "u/b.mcap", 1)
    age(tmp_path, 60)
    a, b = RecordingRef("a", ("a.mcap",)), RecordingRef("b", ("b.mcap",))
    (before,) = look(tmp_path, reader="mcap", quiet_s=10)
    write_mcap(tmp_path / "u/b.mcap", 2)
    age(tmp_path / "u/b.mcap", 50)
    (after,) = look(tmp_path, reader="mcap", quiet_s=10)
    assert before.input_hash(a) == after.input_hash(a)
    assert before.input_hash(b) != after.input_hash(b)
    assert before.input_hash(a) != before.input_hash(b)


def test_with_a_marker_the_input_hash_is_that_of_the_bytes_whenever_they_were_copied(tmp_path: Path) -> None:
    write_mcap(tmp_path / "u/a.mcap", 1)
    commit_upload(tmp_path / "u", **SAYS)
    ref = RecordingRef("a", ("a.mcap",))
    before = look(tmp_path)[0].input_hash(ref)
    age(tmp_path / "u", 77)
    assert look(tmp_path)[0].input_hash(ref) == before


def test_a_link_between_uploads_is_seen_as_leaving_its_own(tmp_path: Path) -> None:
    write_aloha(tmp_path / "a/ep.hdf5")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/ep.hdf5").symlink_to("../a/ep.hdf5")
    (tmp_path / "b/upload.json").write_text("{}")
    (broken,) = [upload for upload in look(tmp_path) if upload.name == "b"]
    assert broken.files["ep.hdf5"].link_to == "../a/ep.hdf5"


def test_nothing_below_the_root_is_changed_by_looking(tmp_path: Path) -> None:
    write_lerobot_v21(tmp_path / "u", [2])
    age(tmp_path, 60)
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))}
    look(tmp_path, reader="lerobot_v21", quiet_s=1)
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))} == before


def test_what_may_not_be_read_is_said_of_the_upload_that_it_belongs_to() -> None:
    with open_folder() as root:
        for name in ("a/data", "b", "c"):
            write_mcap(root / name / "x.mcap", 1)
        write_mcap(root / "a/y.mcap", 1)
        age(root, 60)
        for path in ("a/data", "b/x.mcap", "c"):
            (root / path).chmod(0)
        with as_nobody():
            found = {upload.name: upload for upload in look(root, reader="mcap", quiet_s=10)}
        (root / "c").chmod(0o755)
    assert found["a"].unseen == {"data": "may not be listed (Permission denied)"}
    assert found["b"].unseen == {"x.mcap": "may not be read (Permission denied)"}
    assert found["c"].state == "ignored"
    assert re.search(
        r"/c: may not be listed \(Permission denied\)\. Let this user read it", found["c"].reason
    )


def test_it_is_looked_at_again_once_it_can_be_read() -> None:
    with open_folder() as root:
        write_mcap(root / "a/x.mcap", 1)
        (root / "a/empty").mkdir()
        age(root, 60)
        (root / "a/empty").chmod(0)
        with as_nobody():
            (before,) = look(root, reader="mcap", quiet_s=10)
        (root / "a/empty").chmod(0o755)
        with as_nobody():
            (after,) = look(root, reader="mcap", quiet_s=10)
    assert (bool(before.unseen), bool(after.unseen)) == (True, False)
    assert before.looks != after.looks


def test_links_to_folders_outside_to_nothing_and_pipes_are_said(tmp_path: Path) -> None:
    write_mcap(tmp_path / "elsewhere/x.mcap", 1)
    write_mcap(tmp_path / "root/a/x.mcap", 1)
    inside = tmp_path / "root/a"
    (inside / "outside").symlink_to("../../elsewhere")
    (inside / "nothing").symlink_to("gone")
    (inside / "again").symlink_to(".")
    os.mkfifo(inside / "pipe")
    (tmp_path / "root/loose").symlink_to("../elsewhere")
    age(inside / "x.mcap", 60)
    found = {upload.name: upload for upload in look(tmp_path / "root", reader="mcap", quiet_s=10)}
    assert found["a"].unseen == {
        "outside": "is a link to a folder outside, ../../elsewhere, which is not followed",
        "nothing": "is a link to gone, where nothing is",
        "pipe": "is neither a file nor a folder",
    }
    assert (found["loose"].state, "which is not followed" in found["loose"].reason) == ("ignored", True)
