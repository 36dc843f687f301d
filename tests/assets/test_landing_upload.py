from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyna_assets.errors import UploadError
from dyna_assets.landing.recording import FileInfo, Folder
from dyna_assets.landing.rfc3339 import format_rfc3339, parse_rfc3339_ns
from dyna_assets.landing.upload import (
    MAX_TASK,
    MAX_TEXT,
    UploadMarker,
    catalog_text,
    check_sizes,
    commit_upload,
    leaves_folder,
    parse_marker,
    read_marker,
    verify_hashes,
)

SAYS: dict[str, Any] = {"source": "lab", "kind": "teleoperation", "recorded_at": "2026-03-01T09:30:00Z"}


@pytest.fixture
def upload(tmp_path: Path) -> Path:
    """upload/ a.bin (3 bytes), data/b.bin (5 bytes), .partial"""
    root = tmp_path / "upload"
    (root / "data").mkdir(parents=True)
    (root / "a.bin").write_bytes(b"aaa")
    (root / "data/b.bin").write_bytes(b"bbbbb")
    (root / ".partial").write_bytes(b"x")
    return root


def marker_json(**changes: Any) -> bytes:
    data = {
        "schema": "dyna.upload/1",
        "files": [{"path": "a.bin", "size_bytes": 3, "sha256": "0" * 64}],
        "source": "lab",
        "recorded_at": 1,
        "kind": "teleoperation",
        **changes,
    }
    return json.dumps({key: value for key, value in data.items() if value is not None}).encode()


def test_commit_writes_a_marker_that_reads_back_equal_and_verifies(upload: Path) -> None:
    written = commit_upload(
        upload,
        **SAYS,
        robot="arm-1",
        task="stack",
        outcome="success",
        robot_software_version="1.2",
        metadata={"operator": "kim", "shift": 2},
    )
    folder = Folder.of(upload)
    assert read_marker(folder) == written
    assert [file.path for file in written.files] == ["a.bin", "data/b.bin"]
    assert written.hashes()["a.bin"] == hashlib.sha256(b"aaa").hexdigest()
    check_sizes(written, folder.files())
    verify_hashes(folder, written)


def test_the_marker_is_plain_json_with_a_readable_time(upload: Path) -> None:
    commit_upload(upload, **SAYS)
    data = json.loads((upload / "upload.json").read_text())
    assert data["schema"] == "dyna.upload/1"
    assert data["recorded_at"] == "2026-03-01T09:30:00.000000000Z"


def test_commit_touches_no_landed_file_and_leaves_nothing_but_the_marker(upload: Path) -> None:
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in upload.rglob("*") if path.is_file()
    }
    commit_upload(upload, **SAYS)
    after = {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in upload.rglob("*") if path.is_file()
    }
    assert {path: after[path] for path in before} == before
    assert set(after) - set(before) == {upload / "upload.json"}


def test_commit_refuses_a_second_marker(upload: Path) -> None:
    commit_upload(upload, **SAYS)
    with pytest.raises(
        UploadError, match=r"upload\.json: this upload is committed already.*folder of their own"
    ):
        commit_upload(upload, **SAYS)


def test_commit_refuses_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UploadError, match="expected the files of an upload, found none"):
        commit_upload(tmp_path, **SAYS)


def test_commit_refuses_a_link_out_of_the_folder(upload: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    (upload / "c.bin").symlink_to("../secret")
    with pytest.raises(UploadError, match=r"c\.bin: a link to \.\./secret\. Links must not leave"):
        commit_upload(upload, **SAYS)
    assert not (upload / "upload.json").exists()


def test_a_policy_rollout_names_its_policy(upload: Path) -> None:
    with pytest.raises(UploadError, match="kind 'policy_rollout' needs policy_id"):
        commit_upload(upload, **{**SAYS, "kind": "policy_rollout"})
    assert commit_upload(upload, **{**SAYS, "kind": "policy_rollout"}, policy_id="p7").policy_id == "p7"


def test_an_unknown_kind_is_refused_with_the_known_ones(upload: Path) -> None:
    with pytest.raises(UploadError, match=r"kind: Input should be 'teleoperation'.*found 'remote'"):
        commit_upload(upload, **{**SAYS, "kind": "remote"})


def test_a_time_without_offset_is_refused(upload: Path) -> None:
    with pytest.raises(UploadError, match=r"expected RFC 3339 with an offset.*found '2026-03-01T09:30:00'"):
        commit_upload(upload, **{**SAYS, "recorded_at": "2026-03-01T09:30:00"})


def test_a_time_that_no_clock_has_is_refused(upload: Path) -> None:
    with pytest.raises(UploadError, match=r"recorded_at: Input should be less than 9223372036854775808"):
        commit_upload(upload, **{**SAYS, "recorded_at": 10**30})


def test_metadata_is_what_json_can_hold(upload: Path) -> None:
    with pytest.raises(UploadError, match=r"metadata\.when.*JSON"):
        commit_upload(upload, **SAYS, metadata={"when": object()})


def test_a_folder_without_marker_is_refused_with_what_to_do(upload: Path) -> None:
    with pytest.raises(UploadError, match=r"upload\.json: no such file.*quiet_period_s"):
        read_marker(Folder.of(upload))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"schema": "dyna.up', r"u/upload\.json: not JSON .*; 19 bytes\. Write the marker in one piece"),
        (b"\xff\xfe\x00", r"u/upload\.json: not JSON"),
        (b"[]", "expected a JSON object with 'schema' and 'files', found list"),
        (marker_json(schema="dyna.upload/9"), "schema 'dyna.upload/9' is unknown; the newest known here is"),
        (marker_json(schema=None), "schema None is unknown; the newest known"),
        (marker_json(files=[]), "files: Tuple should have at least 1 item"),
        (marker_json(source=None), "key 'source' is missing"),
        (marker_json(colour="red"), "unknown key 'colour'; free-form facts belong under 'metadata'"),
        (
            marker_json(files=[{"path": "a", "size_bytes": 1, "sha256": "xyz"}]),
            r"files\.0\.sha256: String should match pattern",
        ),
        (
            marker_json(files=[{"path": "a", "size_bytes": 1, "sha256": "0" * 64}] * 2),
            "files lists a more than once",
        ),
    ],
)  # fmt: skip
def test_a_marker_that_breaks_the_schema_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(UploadError, match=message):
        parse_marker(content, where="u/upload.json")


def test_check_sizes_names_missing_and_wrong_files_with_expected_and_found() -> None:
    marker = marker_of({"a.bin": 3, "b.bin": 1000, "c.bin": 2})
    files = {"b.bin": FileInfo(40, 0), "c.bin": FileInfo(2, 0)}
    with pytest.raises(
        UploadError,
        match=r"u7: a\.bin: expected 3 bytes, found no such file; b\.bin: expected 1,000 bytes, found 40\. Upload",
    ):
        check_sizes(marker, files, where="u7")


def test_check_sizes_shows_five_faults_and_counts_the_rest() -> None:
    with pytest.raises(UploadError, match="and 3 more"):
        check_sizes(marker_of({f"{k}.bin": 1 for k in range(8)}), {})


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "C:\\x", "a\\..\\..\\x", ".."])
def test_paths_that_leave_the_folder_are_refused_before_anything_is_read(path: str, tmp_path: Path) -> None:
    marker = marker_of({path: 1})
    with pytest.raises(
        UploadError, match="expected a path inside the upload's folder, found one that leaves it"
    ):
        check_sizes(marker, {path: FileInfo(1, 0)})
    with pytest.raises(UploadError, match="expected a path inside the upload's folder"):
        verify_hashes(Folder.of(tmp_path), marker)


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_not(tmp_path: Path) -> None:
    (tmp_path / "u").mkdir()
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "u/real").write_bytes(b"r")
    (tmp_path / "u/inside").symlink_to("real")
    (tmp_path / "u/outside").symlink_to("../secret")
    files = Folder.of(tmp_path / "u").files()
    check_sizes(marker_of({"real": 1, "inside": 1}), files)
    with pytest.raises(UploadError, match=r"outside: expected a file, found a link to \.\./secret, outside"):
        check_sizes(marker_of({"outside": 1}), files)


def test_verify_hashes_names_the_file_and_both_hashes(upload: Path) -> None:
    marker = commit_upload(upload, **SAYS)
    (upload / "data/b.bin").write_bytes(b"bbXbb")
    found = hashlib.sha256(b"bbXbb").hexdigest()
    expected = hashlib.sha256(b"bbbbb").hexdigest()
    with pytest.raises(
        UploadError, match=rf"data/b\.bin: expected sha256 {expected}, found {found}.*upload again"
    ):
        verify_hashes(Folder.of(upload), marker)


def test_verify_hashes_names_a_file_that_is_gone(upload: Path) -> None:
    marker = commit_upload(upload, **SAYS)
    (upload / "a.bin").unlink()
    with pytest.raises(UploadError, match=r"a\.bin: expected 3 bytes, found no such file"):
        verify_hashes(Folder.of(upload), marker)


@given(st.integers(-(2**61), 2**62))
def test_a_time_written_as_rfc3339_reads_back_to_the_nanosecond(time_ns: int) -> None:
    assert parse_rfc3339_ns(format_rfc3339(time_ns)) == time_ns


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T19:00:00.5-05:00", 500_000_000),
        ("2026-03-01 09:30:00.000000001z", 1_772_357_400_000_000_001),
    ],
)
def test_rfc3339_offsets_and_fractions_are_exact(text: str, time_ns: int) -> None:
    assert parse_rfc3339_ns(text) == time_ns


@given(st.lists(st.sampled_from(["a", "b.c", "..d", "e..", "f g"]), min_size=1, max_size=4))
def test_ordinary_names_with_dots_stay_inside(parts: list[str]) -> None:
    assert not leaves_folder("/".join(parts))


def marker_of(sizes: dict[str, int]) -> UploadMarker:
    files = [{"path": path, "size_bytes": size, "sha256": "0" * 64} for path, size in sizes.items()]
    return UploadMarker.model_validate({"files": files, **SAYS})


def test_a_task_may_be_pages_long_and_a_name_may_not() -> None:
    long = "叠毛巾 🤖 " * 1500
    assert parse_marker(marker_json(task=long), where="u").task == long
    with pytest.raises(UploadError, match=f"task: String should have at most {MAX_TASK} characters"):
        parse_marker(marker_json(task="x" * (MAX_TASK + 1)), where="u")
    with pytest.raises(UploadError, match=f"robot: String should have at most {MAX_TEXT} characters"):
        parse_marker(marker_json(robot="x" * (MAX_TEXT + 1)), where="u")


@given(st.text(max_size=20), st.integers(0, 2000), st.text(max_size=5))
def test_what_the_catalog_keeps_of_a_text_is_short_and_tells_it_from_others(
    text: str, times: int, end: str
) -> None:
    whole, other = text * times, text * times + end + "."
    assert len(catalog_text(whole)) <= MAX_TEXT
    assert catalog_text(whole) != catalog_text(other)
    assert len(whole) > MAX_TEXT or catalog_text(whole) == whole
