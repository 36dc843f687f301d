from __future__ import annotations

import os
from pathlib import Path

from dyna_assets.landing.recording import Folder, describe_files


def test_files_lists_every_file_below_by_relative_name_with_size_and_time(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/two.bin").write_bytes(b"22")
    (tmp_path / "one.txt").write_bytes(b"1")
    os.utime(tmp_path / "one.txt", ns=(0, 1_700_000_000_500_000_000))
    files = Folder.of(tmp_path).files()
    assert list(files) == ["b/two.bin", "one.txt"]
    assert files["b/two.bin"].size_bytes == 2
    assert files["one.txt"].modified_ns == 1_700_000_000_500_000_000
    assert files["one.txt"].link_to == ""


def test_files_says_where_a_link_leads_and_leaves_out_broken_ones(tmp_path: Path) -> None:
    (tmp_path / "outside.bin").write_bytes(b"123")
    upload = tmp_path / "upload"
    upload.mkdir()
    (upload / "real.bin").write_bytes(b"12345")
    (upload / "inside.bin").symlink_to("real.bin")
    (upload / "escape.bin").symlink_to("../outside.bin")
    (upload / "nowhere.bin").symlink_to("gone.bin")
    files = Folder.of(upload).files()
    assert {name: info.link_to for name, info in files.items()} == {
        "escape.bin": "../outside.bin",
        "inside.bin": "real.bin",
        "real.bin": "",
    }
    assert files["escape.bin"].size_bytes == 3


def test_a_folder_is_addressed_by_its_plain_path_and_opens_its_files(tmp_path: Path) -> None:
    (tmp_path / "u").mkdir()
    (tmp_path / "u/a.txt").write_bytes(b"abc")
    folder = Folder.of(tmp_path).below("u")
    assert folder.uri == str(tmp_path / "u")
    assert folder.at("a.txt") == str(tmp_path / "u/a.txt")
    assert folder.below(".") == folder
    assert folder.exists("a.txt") and not folder.exists("b.txt")
    with folder.open("a.txt") as file:
        assert file.read() == b"abc"


def test_an_empty_or_absent_folder_holds_no_files(tmp_path: Path) -> None:
    assert Folder.of(tmp_path).files() == {}
    assert Folder.of(tmp_path / "absent").files() == {}


def test_describe_files_counts_suffixes_and_gives_an_example() -> None:
    assert describe_files([]) == "no files"
    assert describe_files(["notes.txt"]) == "1 file (1 .txt), for example notes.txt"
    assert describe_files(["b.txt", "a.txt", "LICENSE"]) == (
        "3 files (2 .txt, 1 without suffix), for example LICENSE"
    )
