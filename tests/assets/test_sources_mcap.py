from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from mcap.writer import CompressionType, IndexType
from recordings import (
    NAMES,
    T0_NS,
    RawMessage,
    encoded,
    number_in,
    painted,
    stamp,
    still,
    write_mcap,
    write_raw_mcap,
)

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, Recording, RecordingRef
from dyna_assets.landing.sources import reader_named
from dyna_assets.landing.stills import decode_still

READER = reader_named("mcap")
CAMERA = "/top/image/compressed"
VECTORS = ["/arm/joint_states.position", "/arm/joint_states.effort", "/leader/joint_states.position"]
ALL_FLAGS: list[dict[str, Any]] = [
    {},
    {"chunk_size": 1 << 20},
    {"compression": CompressionType.NONE},
    {"compression": CompressionType.LZ4},
    {"use_chunking": False},
    {"use_statistics": False},
    {"use_summary_offsets": False},
    {"repeat_channels": False},
    {"repeat_schemas": False},
    {"index_types": IndexType.NONE},
    {"index_types": IndexType.ALL & ~IndexType.MESSAGE},
    {"enable_crcs": False},
]


def opened(path: Path) -> Recording:
    return READER.open(Folder.of(path.parent), RecordingRef(path.stem, (path.name,)))


def picture(number: int, time_ns: int = T0_NS, form: str = "jpeg") -> bytes:
    data = still(number, "PNG" if form == "png" else "JPEG")
    return encoded(
        "sensor_msgs/msg/CompressedImage",
        {"header": stamp(time_ns), "format": form, "data": data},
    )


def joints(names: list[str], position: list[float], time_ns: int = T0_NS) -> bytes:
    message = {"header": stamp(time_ns), "name": names, "position": position, "velocity": [], "effort": []}
    return encoded("sensor_msgs/msg/JointState", message)


def floats(values: list[float]) -> bytes:
    message = {"layout": {"dim": [], "data_offset": 0}, "data": values}
    return encoded("std_msgs/msg/Float32MultiArray", message)


@pytest.mark.parametrize("flags", ALL_FLAGS, ids=str)
def test_every_message_comes_with_its_capture_time_however_the_file_was_written(
    tmp_path: Path, flags: dict[str, Any]
) -> None:
    with opened(write_mcap(tmp_path / "a.mcap", 6, **flags)) as recording:
        messages = list(recording.read([CAMERA, *VECTORS]))
        for topic, rate, count in [(CAMERA, 30, 6), *((name, 60, 12) for name in VECTORS)]:
            times = [message.time_ns for message in messages if message.topic == topic]
            assert (
                times == recording.times(topic).tolist() == [T0_NS + k * 10**9 // rate for k in range(count)]
            )
            assert recording.topics[topic].num_messages == count
        pictures = [m.payload for m in messages if m.topic == CAMERA]
        assert [number_in(decode_still(p)) for p in pictures if isinstance(p, bytes)] == list(range(6))
        positions = [m.payload for m in messages if m.topic == VECTORS[0]]
        assert [float(values[0]) for values in positions] == list(range(12))  # type: ignore[index]


def test_a_joint_state_becomes_a_topic_for_each_quantity_it_measures(tmp_path: Path) -> None:
    with opened(write_mcap(tmp_path / "a.mcap")) as recording:
        assert set(recording.topics) == {
            CAMERA,
            *VECTORS,
            "/leader/joint_states.velocity",
            "/leader/joint_states.effort",
            "/log",
        }
        assert recording.topics[VECTORS[0]].names == NAMES
        assert recording.topics["/log"].kind == "other"
        camera = recording.topics[CAMERA]
        assert (camera.kind, camera.width, camera.height, camera.encoding) == ("image", 64, 48, "jpeg")


def test_without_a_stamp_the_publish_time_counts_and_never_the_arrival(tmp_path: Path) -> None:
    with opened(write_mcap(tmp_path / "a.mcap", 2, stamped=False)) as recording:
        assert recording.times(CAMERA).tolist() == [T0_NS + 1_000_000, T0_NS + 10**9 // 30 + 1_000_000]


def test_a_message_without_any_capture_time_is_refused(tmp_path: Path) -> None:
    raw = RawMessage("/cmd", "std_msgs/msg/Float32MultiArray", floats([1.0]), publish_ns=0)
    with (
        opened(write_raw_mcap(tmp_path / "a.mcap", [raw])) as recording,
        pytest.raises(
            RecordingError, match=r"a\.mcap: topic '/cmd' message 0: no capture time: .* are both 0"
        ),
    ):
        recording.times("/cmd")


def test_metadata_records_say_task_success_operator_and_robot(tmp_path: Path) -> None:
    facts = {
        "task": "hand over",
        "success": "False",
        "operator": "kim",
        "robot": "arm-3",
        "robot_software_version": "2.1",
        "seed": "0/7",
    }
    with opened(write_mcap(tmp_path / "a.mcap", 1, facts=facts)) as recording:
        meta = recording.meta
        assert (meta.task, meta.success, meta.operator, meta.robot) == ("hand over", False, "kim", "arm-3")
        assert meta.robot_software_version == "2.1"
        assert meta.extra == {"seed": "0/7", "attachments": []}


def test_raw_pictures_png_and_float_arrays_are_read(tmp_path: Path) -> None:
    image = {
        "header": stamp(T0_NS),
        "height": 48,
        "width": 64,
        "encoding": "bgr8",
        "is_bigendian": 0,
        "step": 192,
        "data": painted(5).tobytes(),
    }
    messages = [
        RawMessage("/raw", "sensor_msgs/msg/Image", encoded("sensor_msgs/msg/Image", image)),
        RawMessage("/png", "sensor_msgs/CompressedImage", picture(6, form="png")),
        RawMessage("/cmd", "std_msgs/msg/Float32MultiArray", floats([1.5, 2.5])),
    ]
    with opened(write_raw_mcap(tmp_path / "a.mcap", messages)) as recording:
        raw, png, cmd = [message.payload for message in recording.read(["/raw", "/png", "/cmd"])]
        assert isinstance(raw, av.VideoFrame) and number_in(raw) == 5
        assert isinstance(png, bytes) and number_in(decode_still(png)) == 6
        assert isinstance(cmd, np.ndarray) and cmd.tolist() == [1.5, 2.5]
        assert recording.topics["/cmd"].names == ("data.0", "data.1")
        assert recording.topics["/raw"].encoding == "bgr8"


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (RawMessage("/t", "std_msgs/msg/String", b""), "std_msgs/msg/String: 'data' is text"),
        (
            RawMessage("/t", "sensor_msgs/msg/Image", b"", encoding="ros1"),
            "message encoding 'ros1', expected one of cdr, protobuf, json",
        ),
        (RawMessage("/t", "", b""), "without a schema"),
        (RawMessage("/t", "my_msgs/msg/Own", b""), "my_msgs/msg/Own: nothing says what a my_msgs/msg/Own is"),
        (
            RawMessage("/t", "sensor_msgs/msg/CompressedImage", picture(1, form="webp")),
            "compressed format 'webp'",
        ),
        (
            RawMessage(
                "/t", "sensor_msgs/msg/CompressedImage", picture(1, form="16UC1; compressedDepth png")
            ),
            "compressed format '16UC1; compressedDepth png'",
        ),
        (RawMessage("/t", "sensor_msgs/msg/JointState", joints([], [])), "joint states without any value"),
    ],
)
def test_what_cannot_be_read_is_listed_and_refused_by_name(
    tmp_path: Path, message: RawMessage, what: str
) -> None:
    with opened(write_raw_mcap(tmp_path / "a.mcap", [message])) as recording:
        assert recording.topics["/t"].kind == "other"
        with pytest.raises(
            RecordingError, match=rf"a\.mcap: topic '/t' \(.*{what}.*\) is neither pictures nor vectors"
        ):
            recording.times("/t")


def test_a_first_message_that_is_not_its_type_makes_the_topic_missing_and_leaves_the_rest(
    tmp_path: Path,
) -> None:
    messages = [
        RawMessage("/arm", "sensor_msgs/msg/JointState", b"\x00\x01\x00\x00abc"),
        RawMessage("/cmd", "std_msgs/msg/Float32MultiArray", floats([1.0])),
    ]
    with opened(write_raw_mcap(tmp_path / "a.mcap", messages)) as recording:
        assert recording.topics["/arm"].kind == "other"
        assert recording.meta.missing.keys() == {"/arm"}
        assert recording.topics["/cmd"].kind == "vector"
        with pytest.raises(
            RecordingError, match=r"topic '/arm' cannot be read: its first message is no sensor_msgs"
        ):
            recording.times("/arm")


def test_a_later_broken_message_is_refused_by_number_and_leaves_other_topics(tmp_path: Path) -> None:
    good = joints(["a"], [1.0])
    messages = [
        RawMessage("/arm", "sensor_msgs/msg/JointState", good),
        RawMessage("/arm", "sensor_msgs/msg/JointState", good[:6]),
        RawMessage("/cmd", "std_msgs/msg/Float32MultiArray", floats([1.0])),
    ]
    with opened(write_raw_mcap(tmp_path / "a.mcap", messages)) as recording:
        with pytest.raises(RecordingError, match=r"topic '/arm' message 1: ends at byte 6"):
            recording.times("/arm.position")
        with pytest.raises(RecordingError, match=r"topic '/arm' message 1: ends at byte 6"):
            list(recording.read(["/arm.position"]))
        assert recording.times("/cmd").tolist() == [T0_NS]


def test_joints_that_change_their_names_are_refused(tmp_path: Path) -> None:
    messages = [
        RawMessage("/arm", "sensor_msgs/msg/JointState", joints(["a", "b"], [1.0, 2.0])),
        RawMessage("/arm", "sensor_msgs/msg/JointState", joints(["g"], [1.0])),
    ]
    with (
        opened(write_raw_mcap(tmp_path / "a.mcap", messages)) as recording,
        pytest.raises(
            RecordingError,
            match="topic '/arm' message 1: expected the joints a, b, found g; publish each set",
        ),
    ):
        list(recording.read(["/arm.position"]))


def test_vectors_that_change_their_length_are_refused(tmp_path: Path) -> None:
    kind = "std_msgs/msg/Float32MultiArray"
    messages = [RawMessage("/cmd", kind, floats([1.0, 2.0])), RawMessage("/cmd", kind, floats([1.0]))]
    with (
        opened(write_raw_mcap(tmp_path / "a.mcap", messages)) as recording,
        pytest.raises(
            RecordingError,
            match="topic '/cmd' message 1: expected 2 values of 'data' as in the first message, found 1 value",
        ),
    ):
        list(recording.read(["/cmd"]))


def test_several_publishers_on_one_topic_are_one_topic(tmp_path: Path) -> None:
    kind = "std_msgs/msg/Float32MultiArray"
    messages = [RawMessage("/cmd", kind, floats([float(k)])) for k in range(3)]
    path = tmp_path / "a.mcap"
    write_raw_mcap(path, messages)
    with opened(path) as recording:
        assert recording.topics["/cmd"].num_messages == 3


def test_an_empty_bag_opens_and_has_no_messages(shared_data: Path) -> None:
    found = [path for path in shared_data.glob("rosbag2_bags/**/talker.mcap")]
    with opened(found[0]) as recording:
        assert recording.topics["/parameter_events"].num_messages == 0


def test_every_bag_of_the_rosbag2_suites_opens(shared_data: Path) -> None:
    folder = Folder.of(shared_data / "rosbag2_bags")
    refs = READER.recordings(folder)
    assert len(refs) == 20
    for ref in refs:
        with READER.open(folder, ref) as recording:
            numbers = {name for name, info in recording.topics.items() if info.kind != "other"}
            assert numbers <= {"b_basictypes", "/test_topic", "topic1"}
            for name, (times_N, values_ND) in recording.vectors(numbers).items():  # type: ignore[attr-defined]
                assert len(times_N) == len(values_ND) == recording.topics[name].num_messages


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: b"", r"a\.mcap: byte 0: expected the MCAP magic .* found an empty file"),
        (
            lambda content: b"RIFF" + content,
            "byte 0: expected the MCAP magic 89 4d 43 41 50 30 0d 0a, found 52 49 46 46",
        ),
        (
            lambda content: content[: len(content) // 3],
            r"the file ends at byte [\d,]+ without the closing MCAP magic",
        ),
        (
            lambda content: content[:-4],
            r"the file ends at byte [\d,]+ without the closing MCAP magic.*mcap recover",
        ),
        (
            lambda content: content[:-20] + content[-8:],
            r"damaged at byte [\d,]+: expected a Footer record, found a",
        ),
        (
            lambda content: content[:200] + bytes(60) + content[260:],
            r"damaged at byte 33: (crc|a chunk is not readable)",
        ),
    ],
)
def test_a_cut_or_damaged_file_is_refused_with_the_byte(tmp_path: Path, change: Any, message: str) -> None:
    path = write_mcap(tmp_path / "a.mcap")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RecordingError, match=message), opened(path) as recording:
        list(recording.read([CAMERA, *VECTORS]))


def test_a_flipped_byte_inside_an_uncompressed_chunk_is_found_by_its_checksum(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "a.mcap", 30, compression=CompressionType.NONE, chunk_size=4000)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(RecordingError, match="crc validation failed in Chunk"), opened(path) as recording:
        list(recording.read([CAMERA, *VECTORS]))


def test_an_index_that_points_beside_its_chunk_is_refused(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "a.mcap", 1, chunk_size=1 << 20, enable_crcs=False)
    content = path.read_bytes()
    header_end = 8 + 9 + struct.unpack_from("<Q", content, 9)[0]
    at = content.rindex(struct.pack("<Q", header_end))
    path.write_bytes(content[:at] + struct.pack("<Q", 8) + content[at + 8 :])
    with pytest.raises(
        RecordingError, match="damaged at byte 8: expected a Chunk record, found a Header record"
    ):
        opened(path)


def test_a_folder_without_mcap_is_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(RecordingError, match=r"expected files \*\.mcap, found 1 file \(1 \.txt\)"):
        READER.recordings(Folder.of(tmp_path))


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"a\.mcap: no such file; it was there when"):
        opened(tmp_path / "a.mcap")
