from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from bag_samples import (
    ARM,
    COMMAND,
    LATENCY_NS,
    STEP_NS,
    TOP,
    metadata_of,
    write_bag,
    write_metadata,
    write_split_bag,
)
from fsspec.implementations.memory import MemoryFileSystem
from recordings import T0_NS, number_in
from rosbags.rosbag2 import Reader

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import ExtraRecording, Folder, Recording, RecordingRef
from dyna_assets.landing.sources.messages.recording import MessageRecording
from dyna_assets.landing.sources.rosbag2.reader import Rosbag2Reader
from dyna_assets.landing.stills import decode_still

READER = Rosbag2Reader()


def opened(path: Path) -> MessageRecording:
    folder = Folder.of(path)
    (ref,) = READER.recordings(folder)
    recording = READER.open(folder, ref)
    assert isinstance(recording, MessageRecording) and isinstance(recording, ExtraRecording)
    return recording


def values(recording: Recording, topic: str) -> list[list[float]]:
    return [np.asarray(message.payload, np.float64).tolist() for message in recording.read([topic])]


def said_by_rosbags(path: Path) -> list[tuple[str, bytes]]:
    """(topic, data) of every message, read by rosbags itself: of a bag, or of a single file."""
    with Reader(path) as reader:
        return [(one.topic, bytes(data)) for one, _, data in reader.messages()]


@pytest.mark.parametrize("packed", ["", "file", "message"])
@pytest.mark.parametrize("storage", ["db3", "mcap"])
def test_a_bag_of_any_storage_is_one_recording(tmp_path: Path, storage: str, packed: str) -> None:
    write_bag(tmp_path / "bag", storage, packed=packed)
    with opened(tmp_path / "bag") as recording:
        captures = [T0_NS + step * STEP_NS for step in range(4)]
        assert recording.times("/arm.position").tolist() == recording.times(TOP).tolist() == captures
        assert recording.arrivals(TOP).tolist() == [time + LATENCY_NS for time in captures]
        assert values(recording, "/arm.position") == [[step, step + 0.5] for step in range(4)]
        assert values(recording, COMMAND) == [[step / 4] for step in range(4)]
        pictures = [decode_still(bytes(m.payload)) for m in recording.read([TOP])]  # type: ignore[arg-type]
        assert [number_in(picture) for picture in pictures] == [0, 1, 2, 3]
        assert recording.topics["/arm.position"].names == ("shoulder", "elbow")
        assert recording.meta.task == "stack"
        kept = sorted((row.topic, bytes(row.data)) for row in recording.extras(list(recording.topics)))
    assert kept == sorted(said_by_rosbags(tmp_path / "bag"))


@pytest.mark.parametrize("storage", ["db3", "mcap"])
def test_splits_follow_each_other_in_the_order_of_the_metadata(tmp_path: Path, storage: str) -> None:
    write_split_bag(tmp_path / "bag", storage, [range(3), range(3, 5), range(5, 9)])
    with opened(tmp_path / "bag") as recording:
        assert values(recording, "/arm.position") == [[step, step + 0.5] for step in range(9)]
        assert recording.times(TOP).tolist() == [T0_NS + step * STEP_NS for step in range(9)]
        assert recording.topics[COMMAND].num_messages == 9
        assert recording.meta.extra["splits"] == [f"bag_{number}.{storage}" for number in range(3)]


def test_only_sqlite_is_noted_to_keep_nothing_but_arrivals(tmp_path: Path) -> None:
    write_bag(tmp_path / "a", "db3")
    write_bag(tmp_path / "b", "mcap")
    with opened(tmp_path / "a") as recording:
        assert recording.times(COMMAND)[0] == T0_NS + LATENCY_NS
        assert "SQLite keeps no time but a message's arrival" in recording.meta.notes[0]
    with opened(tmp_path / "b") as recording:
        assert list(recording.meta.notes) == []


def test_old_files_without_definitions_and_columns_are_read(tmp_path: Path) -> None:
    write_bag(tmp_path / "bag", "db3")
    with sqlite3.connect(tmp_path / "bag/bag.db3") as file:
        file.execute("DROP TABLE message_definitions")
        for column in ("type_description_hash", "offered_qos_profiles"):
            file.execute(f"ALTER TABLE topics DROP COLUMN {column}")
    file.close()
    with opened(tmp_path / "bag") as recording:
        assert values(recording, "/arm.position") == [[step, step + 0.5] for step in range(4)]


def test_bags_are_found_at_any_depth_and_named_by_their_folder(tmp_path: Path) -> None:
    write_bag(tmp_path / "day/one", "db3")
    write_bag(tmp_path / "two", "mcap")
    (tmp_path / "two/metadata.yaml.txt").write_text("x")
    refs = READER.recordings(Folder.of(tmp_path))
    assert [(ref.name, ref.files) for ref in refs] == [
        ("day/one", ("day/one/metadata.yaml", "day/one/one.db3")),
        ("two", ("two/metadata.yaml", "two/two.mcap")),
    ]
    (ref,) = READER.recordings(Folder.of(tmp_path / "two"))
    assert (ref.name, ref.files) == ("two", ("metadata.yaml", "two.mcap"))


def test_a_bag_is_told_from_plain_mcap_and_from_other_metadata(tmp_path: Path) -> None:
    bag, plain = tmp_path / "bag", tmp_path / "plain"
    write_bag(bag, "mcap")
    plain.mkdir()
    shutil.copy(bag / "bag.mcap", plain / "a.mcap")
    (plain / "metadata.yaml").write_text("robot: x\n")
    for path, matches in ((bag, True), (plain, False), (tmp_path, False)):
        folder = Folder.of(path)
        assert READER.matches(folder.files(), folder) is matches
    (bag / "metadata.yaml").unlink()
    assert not READER.matches(Folder.of(bag).files(), Folder.of(bag))
    write_bag(tmp_path / "sql", "db3")
    (tmp_path / "sql/metadata.yaml").unlink()
    assert READER.matches(Folder.of(tmp_path / "sql").files(), Folder.of(tmp_path / "sql"))


@pytest.mark.parametrize(("storage", "num_splits"), [("db3", 2), ("mcap", 11)])
def test_splits_without_metadata_are_one_bag_with_a_note(
    tmp_path: Path, storage: str, num_splits: int
) -> None:
    bag = write_split_bag(tmp_path / "bag", storage, [[step] for step in range(num_splits)])
    (bag / "metadata.yaml").unlink()
    assert READER.notes(Folder.of(tmp_path / "bag")) == ["1 of 1 bags have no metadata.yaml, first bag"]
    with opened(bag) as recording:
        assert [row[0] for row in values(recording, "/arm.position")] == list(range(num_splits))
        assert "no metadata.yaml: read from its files" in recording.meta.notes[0]


def test_files_of_other_names_without_metadata_are_a_bag_each(tmp_path: Path) -> None:
    write_bag(tmp_path / "bag", "db3")
    for name in ("run_2023.db3", "run_2024.db3", "kitchen.db3"):
        shutil.copy(tmp_path / "bag/bag.db3", tmp_path / name)
    write_bag(tmp_path / "kitchen", "mcap")
    shutil.move(tmp_path / "kitchen/kitchen.mcap", tmp_path / "kitchen.mcap")
    shutil.rmtree(tmp_path / "kitchen")
    refs = READER.recordings(Folder.of(tmp_path))
    assert [ref.name for ref in refs] == ["bag", "kitchen.db3", "kitchen.mcap", "run_2023", "run_2024"]
    with READER.open(Folder.of(tmp_path), refs[3]) as recording:
        assert recording.topics[COMMAND].num_messages == 4


def test_landed_files_stay_as_they_are_and_nothing_appears_beside_them(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", "db3")
    (bag / "bag.db3-wal").touch()
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in bag.iterdir()}
    with opened(bag) as recording:
        list(recording.extras(list(recording.topics)))
        assert {path.name for path in bag.iterdir()} == before.keys()
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in bag.iterdir()} == before


def test_what_a_killed_recorder_left_in_the_journal_is_read_from_a_copy(tmp_path: Path) -> None:
    bag, killed = write_bag(tmp_path / "bag", "db3"), tmp_path / "killed"
    with sqlite3.connect(bag / "bag.db3") as file:
        file.execute("PRAGMA journal_mode = WAL")
        rows = file.execute("SELECT topic_id, timestamp, data FROM messages").fetchall()
        file.executemany("INSERT INTO messages (topic_id, timestamp, data) VALUES (?, ?, ?)", rows)
        file.commit()
        shutil.copytree(bag, killed)  # as the disk has it while the recorder still runs
    file.close()
    (killed / "metadata.yaml").unlink()
    before = {path.name: path.read_bytes() for path in killed.iterdir()}
    assert len(before["bag.db3-wal"]) > 0
    (ref,) = READER.recordings(Folder.of(killed))
    assert ref.files == ("bag.db3", "bag.db3-wal")
    with opened(killed) as recording:
        assert recording.topics[COMMAND].num_messages == 8
    assert {path.name: path.read_bytes() for path in killed.iterdir()} == before


@pytest.mark.parametrize(("storage", "packed"), [("db3", ""), ("db3", "file"), ("mcap", "")])
def test_bags_in_a_store_are_read_like_local_ones(tmp_path: Path, storage: str, packed: str) -> None:
    bag = write_bag(tmp_path / "bag", storage, packed=packed)
    store, root = MemoryFileSystem(), f"/{tmp_path.name}"
    for path in bag.iterdir():
        store.pipe(f"{root}/bag/{path.name}", path.read_bytes())
    folder = Folder(store, root)
    (ref,) = READER.recordings(folder)
    with READER.open(folder, ref) as recording:
        assert values(recording, "/arm.position") == [[step, step + 0.5] for step in range(4)]


def test_names_that_mean_something_in_an_address_are_only_names(tmp_path: Path) -> None:
    write_bag(tmp_path / "bag", "db3").rename(tmp_path / "a?mode=rw#1 %41")
    with opened(tmp_path / "a?mode=rw#1 %41") as recording:
        assert recording.topics[COMMAND].num_messages == 4


def test_topics_without_a_message_are_listed(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", "mcap", topics=[ARM])
    values = metadata_of(bag)
    silent = {"name": "/silent", "type": "std_msgs/msg/String", "serialization_format": "cdr"}
    values["topics_with_message_count"].append({"topic_metadata": silent, "message_count": 0})
    write_metadata(bag, values)
    with opened(bag) as recording:
        assert (recording.topics["/silent"].kind, recording.topics["/silent"].num_messages) == ("other", 0)


def test_a_topic_that_changes_its_type_between_splits_is_kept_but_not_read(tmp_path: Path) -> None:
    bag = write_split_bag(tmp_path / "bag", "db3", [range(2), range(2, 4)])
    with sqlite3.connect(bag / "bag_1.db3") as file:
        file.execute("UPDATE topics SET type = 'std_msgs/msg/String' WHERE name = ?", (COMMAND,))
    file.close()
    with opened(bag) as recording:
        info = recording.topics[COMMAND]
        assert (info.kind, info.num_messages) == ("other", 4)
        assert (
            "its messages are of two types, std_msgs/msg/Float64MultiArray (cdr) and std_msgs"
            in info.encoding
        )
        assert len(list(recording.extras([COMMAND]))) == 4


WRONG = "serialization format 'wrong_format', expected 'cdr'"
VERDICTS: dict[str, int | str] = {
    "ros2bag/test/resources/empty_bag": 0,
    "rosbag2_cpp/test/rosbag2_cpp/bags/only_services": 12,
    "rosbag2_cpp/test/rosbag2_cpp/bags/only_topics": 7,
    "rosbag2_cpp/test/rosbag2_cpp/bags/topics_and_services.db3": 13,
    "rosbag2_cpp/test/rosbag2_cpp/bags/topics_and_services.mcap": 13,
    "rosbag2_py/test/resources/mcap/convert_a": 150,
    "rosbag2_py/test/resources/mcap/convert_b": 75,
    "rosbag2_py/test/resources/mcap/reindex_test_bags/multiple_files/multiple_files": 3177,
    "rosbag2_py/test/resources/mcap/talker": 20,
    "rosbag2_py/test/resources/mcap/wbag": 6074,
    "rosbag2_py/test/resources/sqlite3/convert_a": 150,
    "rosbag2_py/test/resources/sqlite3/convert_b": 75,
    "rosbag2_py/test/resources/sqlite3/reindex_test_bags/multiple_files/multiple_files": 3177,
    "rosbag2_py/test/resources/sqlite3/talker": 20,
    "rosbag2_py/test/resources/sqlite3/wbag": 6074,
    "rosbag2_tests/resources/mcap/bag_with_topics_and_service_events": 10,
    "rosbag2_tests/resources/mcap/cdr_test": 7,
    "rosbag2_tests/resources/mcap/wrong_rmw_test": WRONG,
    "rosbag2_tests/resources/sqlite3/bag_with_topics_and_service_events": 10,
    "rosbag2_tests/resources/sqlite3/cdr_test": 7,
    "rosbag2_tests/resources/sqlite3/wrong_rmw_test": WRONG,
    "rosbag2_transport/test/resources/mcap/rewriter_a": 150,
    "rosbag2_transport/test/resources/mcap/rewriter_b": 75,
    "rosbag2_transport/test/resources/mcap/test_bag_for_seek": 5,
    "rosbag2_transport/test/resources/sqlite3/rewriter_a": 150,
    "rosbag2_transport/test/resources/sqlite3/rewriter_b": 75,
    "rosbag2_transport/test/resources/sqlite3/test_bag_for_seek": 5,
}
"""Every real bag: how many messages it gives, or why it is refused."""


@pytest.fixture(scope="module")
def real_bags(shared_data: Path) -> dict[str, RecordingRef]:
    return {ref.name: ref for ref in READER.recordings(Folder.of(shared_data / "rosbag2_bags"))}


def test_every_real_bag_is_known(shared_data: Path, real_bags: dict[str, RecordingRef]) -> None:
    assert list(real_bags) == list(VERDICTS)
    used = {name for ref in real_bags.values() for name in ref.files}
    files = Folder.of(shared_data / "rosbag2_bags").files()
    others = {name for name in files if name not in used and not name.endswith(".db3-shm")}
    assert others == {"LICENSE", "SHA256SUMS", "SOURCE.md"}


@pytest.mark.parametrize("name", VERDICTS)
def test_every_real_bag_opens_whole_or_is_refused_with_the_reason(
    shared_data: Path, real_bags: dict[str, RecordingRef], name: str
) -> None:
    folder, expected, ref = Folder.of(shared_data / "rosbag2_bags"), VERDICTS[name], real_bags[name]
    if isinstance(expected, str):
        with pytest.raises(RecordingError, match=expected):
            READER.open(folder, ref)
        return
    with READER.open(folder, ref) as recording:
        assert isinstance(recording, ExtraRecording)
        kept = [(row.topic, bytes(row.data)) for row in recording.extras(list(recording.topics))]
        assert (
            len(kept) == sum(recording.topics[topic].num_messages for topic in recording.topics) == expected
        )
    # file by file: of a bag, rosbags leaves out what metadata.yaml gives another quality of service than the file
    files = [Path(folder.path) / file for file in ref.files if file.endswith((".db3", ".mcap"))]
    assert sorted(kept) == sorted(row for file in files for row in said_by_rosbags(file))
