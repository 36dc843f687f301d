from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bag_samples import metadata_of, write_bag, write_metadata, write_split_bag

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, Recording
from dyna_assets.landing.sources.rosbag2 import storage as bag_storage
from dyna_assets.landing.sources.rosbag2.reader import Rosbag2Reader

READER = Rosbag2Reader()


def opened(path: Path) -> Recording:
    folder = Folder.of(path)
    (ref,) = READER.recordings(folder)
    return READER.open(folder, ref)


def read_all(path: Path) -> int:
    with opened(path) as recording:
        return len(list(recording.extras(list(recording.topics))))  # type: ignore[attr-defined]


@pytest.mark.parametrize("storage", ["db3", "mcap"])
def test_a_missing_split_is_named(tmp_path: Path, storage: str) -> None:
    bag = write_split_bag(tmp_path / "bag", storage, [[0], [1], [2]])
    (bag / f"bag_1.{storage}").unlink()
    with pytest.raises(
        RecordingError, match=rf"metadata\.yaml: lists 3 files, of which bag_1\.{storage} is not here"
    ) as hit:
        opened(bag)
    assert hit.value.check == "recording.complete"
    (bag / "metadata.yaml").unlink()
    with pytest.raises(
        RecordingError, match=r"no metadata\.yaml, and of its splits number 1 is not here, though number 2"
    ):
        opened(bag)


@pytest.mark.parametrize("storage", ["db3", "mcap"])
def test_other_counts_than_the_metadata_says_are_refused_with_both(tmp_path: Path, storage: str) -> None:
    bag = write_bag(tmp_path / "bag", storage)
    values = metadata_of(bag)
    values["topics_with_message_count"][2]["message_count"] = 9
    write_metadata(bag, values)
    with pytest.raises(
        RecordingError,
        match=r"metadata\.yaml counts 17 messages, found 12: '/command' 9 \(found 4\)\. Upload all",
    ) as hit:
        opened(bag)
    assert hit.value.check == "recording.complete"


def test_messages_of_a_topic_the_metadata_does_not_list_are_refused(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", "db3")
    values = metadata_of(bag)
    values["topics_with_message_count"].pop()
    write_metadata(bag, values)
    with pytest.raises(RecordingError, match=r"counts 8 messages, found 12: '/command' 0 \(found 4\)"):
        opened(bag)


CHANGES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (
        lambda m: m.pop("relative_file_paths"),
        "no metadata of a ROS 2 bag: the key 'relative_file_paths' is missing",
    ),
    (
        lambda m: m.update(storage_identifier="rosbag_v2"),
        "storage 'rosbag_v2', expected one of sqlite3, mcap",
    ),
    (
        lambda m: m.update(compression_mode="FILE", compression_format="lz4"),
        "compressed with 'lz4', expected zstd",
    ),
    (lambda m: m.update(compression_mode="disk"), "compression mode 'disk', expected file or message"),
    (
        lambda m: m.update(topics_with_message_count=[3]),
        "no metadata of a ROS 2 bag: 'int' object is not subscriptable",
    ),
    (
        lambda m: [
            t["topic_metadata"].update(serialization_format="json") for t in m["topics_with_message_count"]
        ],
        "serialization format 'json', expected 'cdr'. Convert the bag",
    ),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_metadata_that_says_something_else_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    bag = write_bag(tmp_path / "bag", "db3")
    values = metadata_of(bag)
    change(values)
    write_metadata(bag, values)
    with pytest.raises(RecordingError, match=rf"metadata\.yaml: {reason}"):
        opened(bag)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rosbag2_bagfile_information: [", r"no metadata of a ROS 2 bag: while parsing"),
        ("rosbag2_bagfile_information: 3", "expected the key rosbag2_bagfile_information, found"),
        ("# rosbag2_bagfile_information\n" + "a" * (17 << 20), "over 16,777,216 bytes of YAML"),
    ],
)
def test_a_broken_metadata_refuses_its_bag_and_no_other(tmp_path: Path, text: str, reason: str) -> None:
    bag = write_bag(tmp_path / "bag", "db3")
    write_bag(tmp_path / "other", "db3")
    (bag / "metadata.yaml").write_text(text)
    folder = Folder.of(tmp_path)
    broken, whole = READER.recordings(folder)
    assert broken.files == ("bag/metadata.yaml", "bag/bag.db3")
    with pytest.raises(RecordingError, match=rf"bag/metadata\.yaml: {reason}"):
        READER.open(folder, broken)
    READER.open(folder, whole).close()


@pytest.mark.parametrize(
    ("keep", "reason"),
    [
        (0, "byte 0: expected the SQLite magic, found an empty file"),
        (9_000, "the file ends at byte 9,000, its pages need"),
        (50, "not readable as a bag's SQLite file"),
    ],
)
def test_a_cut_sqlite_file_is_refused_with_its_length(tmp_path: Path, keep: int, reason: str) -> None:
    bag = write_bag(tmp_path / "bag", "db3")
    path = bag / "bag.db3"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(RecordingError, match=rf"bag\.db3: {reason}"):
        opened(bag)


def test_a_cut_mcap_split_is_refused_by_its_name(tmp_path: Path) -> None:
    bag = write_split_bag(tmp_path / "bag", "mcap", [[0], [1]])
    path = bag / "bag_1.mcap"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(
        RecordingError, match=r"bag_1\.mcap: the file ends at byte .* without the closing MCAP magic"
    ):
        opened(bag)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            "DROP TABLE messages",
            "no table 'messages', which ROS 2 bags have; tables here: message_definitions, meta",
        ),
        (
            "DELETE FROM topics WHERE name = '/command'",
            "4 messages belong to topics that table 'topics' does not list",
        ),
        (
            "UPDATE messages SET data = 'x' WHERE id = 1",
            "row 1 of table messages, .* expected a time and bytes, found",
        ),
        ("ALTER TABLE topics DROP COLUMN name", "no column 'name' in table 'topics'"),
    ],
)
def test_tables_that_are_no_bags_are_refused(tmp_path: Path, statement: str, reason: str) -> None:
    bag = write_bag(tmp_path / "bag", "db3")
    with sqlite3.connect(bag / "bag.db3") as file:
        file.execute(statement)
    file.close()
    with pytest.raises(RecordingError, match=rf"bag\.db3: {reason}"):
        opened(bag)


def test_a_view_that_never_ends_is_no_table(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", "db3")
    with sqlite3.connect(bag / "bag.db3") as file:
        file.execute("DROP TABLE messages")
        endless = "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n) SELECT k AS id, 1 AS topic_id FROM n"
        file.execute(f"CREATE VIEW messages AS {endless}")
    file.close()
    with pytest.raises(RecordingError, match="no table 'messages'"):
        opened(bag)


@pytest.mark.parametrize("storage", ["db3", "mcap"])
def test_a_packed_file_that_is_cut_or_damaged_is_named(tmp_path: Path, storage: str) -> None:
    bag = write_bag(tmp_path / "bag", storage, packed="file")
    path = bag / f"bag.{storage}.zstd"
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(
        RecordingError, match=rf"bag\.{storage}\.zstd: the file ends inside its compressed data"
    ):
        opened(bag)
    path.write_bytes(whole[:20] + b"\xff" * 20 + whole[40:])
    with pytest.raises(RecordingError, match=rf"bag\.{storage}\.zstd: cannot be unpacked: "):
        opened(bag)


def test_a_packed_message_that_is_damaged_is_named_by_its_topic(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", "db3", packed="message")
    with sqlite3.connect(bag / "bag.db3") as file:
        file.execute("UPDATE messages SET data = X'28b52ffd' WHERE id = 6")
    file.close()
    with pytest.raises(
        RecordingError, match=r"topic '/command' message 1 cannot be unpacked|topic '/.*' message 1"
    ):
        read_all(bag)


def test_a_disk_without_room_for_a_copy_fails_the_run_and_blames_no_bag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = write_bag(tmp_path / "bag", "db3", packed="file")
    monkeypatch.setattr(bag_storage, "SPARE_BYTES", 1 << 60)
    with pytest.raises(OSError, match=r"to spare are needed for a temporary copy, .* are free"):
        opened(bag)


def test_a_folder_without_bags_is_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "metadata.yaml").write_text("robot: x")
    with pytest.raises(
        RecordingError, match=r"expected metadata\.yaml of a ROS 2 bag, or files \*\.db3, found 1 file"
    ):
        READER.recordings(Folder.of(tmp_path))


def test_mutated_sqlite_files_are_refused_or_read_and_never_crash(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", "db3")
    whole = (bag / "bag.db3").read_bytes()
    dice = random.Random(7)
    outcomes = set()
    for _ in range(80):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 8)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        (bag / "bag.db3").write_bytes(damaged[: dice.choice([len(damaged), dice.randrange(len(damaged))])])
        try:
            outcomes.add(read_all(bag) == 12)
        except RecordingError as error:
            assert "bag" in str(error)
            outcomes.add(False)
    assert outcomes == {True, False}
