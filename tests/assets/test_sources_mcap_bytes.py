"""The bytes of an MCAP file: damage, lies about sizes, memory, and what comes out as it was recorded."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections import Counter
from pathlib import Path

import foxglove.messages as foxglove
import numpy as np
import pytest
from mcap.reader import make_reader
from mcap.writer import CompressionType, IndexType, Writer
from mcap_samples import (
    JSON,
    Kind,
    Sample,
    foxglove_sample,
    foxglove_time,
    json_sample,
    json_time,
    opened,
    write_samples,
)
from recordings import NAMES, T0_NS, still, write_mcap

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import ArrivalRecording, CodedRecording, ExtraRecording, VectorRecording
from dyna_train.episode.container import MOST_UNPACKED_BYTES

SOME = [json_sample("/t", {"a": number, "filler": [0] * 50}) for number in range(20)]
CHUNK_SIZE_AT = 9 + 16  # in a chunk record: after its head, start and end


def first_chunk(content: bytes) -> int:
    """Where the first chunk record begins."""
    at = 8
    while content[at] != 6:
        at += 9 + struct.unpack_from("<Q", content, at + 1)[0]
    return at


def patched(path: Path, at: int, replacement: bytes) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[:at] + replacement + content[at + len(replacement) :])
    return path


@pytest.mark.parametrize("compression", [CompressionType.ZSTD, CompressionType.LZ4])
def test_a_chunk_that_says_it_holds_more_than_the_limit_is_refused_before_it_is_unpacked(
    tmp_path: Path, compression: CompressionType
) -> None:
    path = write_samples(tmp_path / "a.mcap", SOME, compression=compression)
    at = first_chunk(path.read_bytes())
    patched(path, at + CHUNK_SIZE_AT, struct.pack("<Q", 2 << 30))
    message = (
        rf"byte {at}: a chunk says it holds 2,147,483,648 bytes unpacked, expected at most 1,073,741,824"
    )
    with pytest.raises(RecordingError, match=message):
        opened(path)


@pytest.mark.parametrize(
    ("compression", "said"),
    [
        (CompressionType.ZSTD, r"the frame says it holds [\d,]+ bytes, expected at most 10"),
        (CompressionType.LZ4, "the lz4 frame holds more than 10 bytes"),
        (CompressionType.NONE, r"a chunk says it holds 10 bytes unpacked, found [\d,]+"),
    ],
)
def test_a_chunk_that_yields_more_than_it_says_is_refused(
    tmp_path: Path, compression: CompressionType, said: str
) -> None:
    path = write_samples(tmp_path / "a.mcap", SOME, compression=compression)
    at = first_chunk(path.read_bytes())
    patched(path, at + CHUNK_SIZE_AT, struct.pack("<Q", 10))
    with pytest.raises(RecordingError, match=rf"damaged at byte {at}: .*{said}"):
        opened(path)


def test_a_message_that_says_it_is_longer_than_the_file_is_refused_with_both_lengths(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.mcap", SOME[:1], use_chunking=False)
    at = path.read_bytes().index(b'{"a": 0') - 31
    patched(path, at + 1, struct.pack("<Q", 1 << 40))
    size = path.stat().st_size
    message = (
        rf"byte {at}: this Message record says it has 1,099,511,627,785 bytes, the file ends at byte {size:,}"
    )
    with pytest.raises(RecordingError, match=message):
        opened(path)


def test_a_message_larger_than_memory_allows_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.mcap", SOME[:1], use_chunking=False)
    content = path.read_bytes()
    at = content.index(b'{"a": 0') - 31
    length = struct.unpack_from("<Q", content, at + 1)[0]
    more = MOST_UNPACKED_BYTES
    with path.open("wb") as file:  # a hole in the file: it takes no place on the disk
        file.write(content[: at + 1] + struct.pack("<Q", length + more) + content[at + 9 : at + 9 + length])
        file.seek(more, 1)
        file.write(content[at + 9 + length : -37])
        file.write(struct.pack("<BQQQI", 2, 20, 0, 0, 0) + content[-8:])
    message = rf"byte {at}: this Message record says it has [\d,]+ bytes, expected at most 1,073,741,824"
    with pytest.raises(RecordingError, match=message):
        opened(path)


def test_a_flipped_byte_in_the_summary_is_found_by_its_checksum(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.mcap", SOME)
    content = path.read_bytes()
    patched(path, len(content) - 60, bytes([content[-60] ^ 1]))
    with pytest.raises(RecordingError, match=r"byte [\d,]+: crc validation failed in the summary"):
        opened(path)


def test_a_file_that_holds_fewer_messages_than_it_counts_is_refused(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.mcap", SOME, enable_crcs=False)
    content = path.read_bytes()
    counts = struct.pack("<IHQ", 10, 1, len(SOME))
    total = content.rindex(counts)
    changed = bytearray(content)
    changed[total : total + len(counts)] = struct.pack("<IHQ", 10, 1, len(SOME) + 1)
    statistics = content.rindex(struct.pack("<Q", len(SOME)), 0, total)
    changed[statistics : statistics + 8] = struct.pack("<Q", len(SOME) + 1)
    path.write_bytes(bytes(changed))
    with (
        opened(path) as recording,
        pytest.raises(
            RecordingError, match="topic '/t' has 21 messages by the file's own count, found 20"
        ) as hit,
    ):
        recording.times("/t")
    assert hit.value.check == "recording.complete"


def test_messages_of_a_channel_that_nothing_describes_are_refused(tmp_path: Path) -> None:
    path = write_samples(
        tmp_path / "a.mcap", SOME[:1], use_chunking=False, index_types=IndexType.NONE, use_statistics=False
    )
    at = path.read_bytes().index(b'{"a": 0') - 31
    patched(path, at + 9, struct.pack("<H", 7))
    with pytest.raises(RecordingError, match="no record describes channel 7, which has 1 messages"):
        opened(path)


def test_a_topic_whose_schema_is_gone_is_listed_with_the_reason_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start("", "test")
        channel = writer.register_channel("/t", "cdr", 9)
        writer.add_message(channel, T0_NS, b"raw", T0_NS)
        writer.finish()
    with opened(path) as recording:
        assert recording.topics["/t"].kind == "other"
        assert recording.topics["/t"].encoding == "it refers to schema 9, which the file does not hold"
        assert [message.data for message in recording.extras(["/t"])] == [b"raw"]


@pytest.mark.parametrize("flags", [{}, {"use_chunking": False}, {"index_types": IndexType.NONE}], ids=str)
def test_attachments_are_named_and_not_read(tmp_path: Path, flags: dict[str, object]) -> None:
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file, **flags)  # type: ignore[arg-type]
        writer.start("", "test")
        for name in ("calibration.yaml", "urdf"):
            writer.add_attachment(T0_NS, T0_NS, name, "text/plain", b"x" * 100)
        writer.finish()
    with opened(path) as recording:
        assert recording.meta.extra["attachments"] == ["calibration.yaml", "urdf"]


def test_a_time_that_int64_cannot_say_is_refused_by_number(tmp_path: Path) -> None:
    samples = [json_sample("/t", {"a": 1}), json_sample("/t", {"a": 2}, publish_ns=2**64 - 1)]
    with (
        opened(write_samples(tmp_path / "a.mcap", samples)) as recording,
        pytest.raises(RecordingError, match="topic '/t' message 1: its time is beyond what int64 ns can say"),
    ):
        recording.times("/t")


def test_reading_keeps_one_chunk_in_memory(tmp_path: Path) -> None:
    filler = np.random.default_rng(0).bytes(150_000).hex()
    samples = [json_sample("/t", {"a": 1, "filler": filler}) for _ in range(60)]
    path = write_samples(tmp_path / "a.mcap", samples, chunk_size=1 << 20, compression=CompressionType.NONE)
    assert path.stat().st_size > 15 << 20
    with opened(path) as recording:
        tracemalloc.start()
        assert sum(len(message.data) > 0 for message in recording.extras(["/t"])) == 60
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 5 << 20


def test_extras_are_the_recorded_bytes_of_every_topic_with_its_schema(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "a.mcap")
    with path.open("rb") as file:
        stock = [
            (channel, schema, m)
            for schema, channel, m in make_reader(file).iter_messages(log_time_order=False)
        ]
    with opened(path) as recording:
        assert isinstance(recording, ExtraRecording)
        names = list(recording.topics)
        found = [(message.topic, message.data) for message in recording.extras(names)]
        assert Counter(found) == Counter((channel.topic, message.data) for channel, _, message in stock)
        described = {extra.topic: extra for extra in recording.extra_topics(names)}
        for channel, schema, _ in stock:
            extra = described[channel.topic]
            assert schema is not None
            assert (extra.schema_name, extra.schema_data) == (schema.name, schema.data)
            assert (extra.schema_encoding, extra.message_encoding) == ("ros2msg", "cdr")


def test_a_part_of_joint_states_whose_other_parts_have_roles_is_kept_as_json(tmp_path: Path) -> None:
    with opened(write_mcap(tmp_path / "a.mcap", 2)) as recording:
        names = ["/arm/joint_states.effort", "/log"]
        assert [(extra.topic, extra.message_encoding) for extra in recording.extra_topics(names)] == [
            ("/log", "cdr"),
            ("/arm/joint_states.effort", "json"),
        ]
        rows = [m for m in recording.extras(names) if m.topic == "/arm/joint_states.effort"]
        assert [row.time_ns for row in rows] == recording.times("/arm/joint_states.effort").tolist()
        assert json.loads(rows[0].data) == {"names": list(NAMES), "value": [0.5] * 3}
        whole = ["/arm/joint_states.position", "/arm/joint_states.effort", "/log"]
        assert recording.kept_as(names) == {name: name for name in names}
        assert recording.kept_as(whole) == {**dict.fromkeys(whole[:2], "/arm/joint_states"), "/log": "/log"}


def test_arrivals_are_the_log_times_of_any_topic(tmp_path: Path) -> None:
    with opened(write_mcap(tmp_path / "a.mcap", 3)) as recording:
        assert isinstance(recording, ArrivalRecording) and isinstance(recording, VectorRecording)
        assert isinstance(recording, CodedRecording)
        camera = "/top/image/compressed"
        assert (recording.arrivals(camera) - recording.times(camera)).tolist() == [20_000_000] * 3
        assert recording.arrivals("/log").tolist() == [T0_NS]
        assert len(recording.arrivals("/arm/joint_states.position")) == 6
        with pytest.raises(RecordingError, match=r"a\.mcap: no topic '/nope'; topics here: /arm"):
            recording.arrivals("/nope")


def test_an_extra_without_a_capture_time_keeps_its_arrival(tmp_path: Path) -> None:
    sample = Sample("/t", JSON, b'{"a": 1}', publish_ns=0, log_ns=5)
    with opened(write_samples(tmp_path / "a.mcap", [sample])) as recording:
        assert [(m.time_ns, m.data) for m in recording.extras(["/t"])] == [(5, sample.data)]


def test_several_kinds_of_messages_on_one_topic_are_a_topic_each(tmp_path: Path) -> None:
    flag = Kind("cdr", "std_msgs/msg/Bool", "ros2msg", b"bool data\n")
    samples = [json_sample("/t", {"a": 5}), Sample("/t", flag, b"\0\1\0\0\1"), json_sample("/t", {"a": 6})]
    with opened(write_samples(tmp_path / "a.mcap", samples)) as recording:
        assert {name: info.num_messages for name, info in recording.topics.items()} == {
            "/t:json": 2,
            "/t:std_msgs/msg/Bool": 1,
        }
        found = recording.vectors(list(recording.topics))
        assert [values.tolist() for _, values in found.values()] == [[[5], [6]], [[1]]]


def test_a_topic_called_like_a_part_of_another_hides_neither(tmp_path: Path) -> None:
    joints = {"joints": [{"name": "a", "position": 1.0}]}
    samples = [json_sample("/arm", joints, "foxglove.JointStates"), json_sample("/arm.position", {"x": 2})]
    with opened(write_samples(tmp_path / "a.mcap", samples)) as recording:
        assert {name: info.names for name, info in recording.topics.items()} == {
            "/arm.position_": ("a",),
            "/arm.position": ("x",),
        }
        found = recording.vectors(["/arm.position_", "/arm.position"])
        assert {name: values.tolist() for name, (_, values) in found.items()} == {
            "/arm.position_": [[1.0]],
            "/arm.position": [[2.0]],
        }


def mixed_samples() -> list[Sample]:
    """Some messages of each encoding and form."""
    pose = foxglove.PoseInFrame(timestamp=foxglove_time(T0_NS), frame_id="b", pose=foxglove.Pose())
    arm = foxglove.JointStates(
        timestamp=foxglove_time(T0_NS), joints=[foxglove.JointState(name="a", position=1)]
    )
    jpeg = foxglove.CompressedImage(timestamp=foxglove_time(T0_NS), data=still(1), format="jpeg")
    raw = {"width": 8, "height": 2, "encoding": "rgb8", "step": 24, "data": bytes(48)}
    twist = Kind("cdr", "geometry_msgs/msg/Twist", "ros2msg", b"")
    return [
        *(foxglove_sample(f"/{number}", message) for number, message in enumerate([pose, arm, jpeg])),
        json_sample("/j", {"stamp": json_time(T0_NS), "a": [1, 2]}),
        json_sample("/raw", {"timestamp": json_time(T0_NS), **raw}, "foxglove.RawImage"),
        Sample("/twist", twist, b"\0\1\0\0" + bytes(48)),
    ] * 3


def read_all(path: Path) -> None:
    with opened(path) as recording:
        good = [name for name, info in recording.topics.items() if info.kind != "other"]
        for name in good:
            recording.times(name)
        assert all(isinstance(message.time_ns, int) for message in recording.read(good))
        assert sum(len(message.data) for message in recording.extras(list(recording.topics))) > 0


@pytest.mark.parametrize(
    "flags", [{"compression": CompressionType.NONE, "chunk_size": 3000}, {"use_chunking": False}], ids=str
)
def test_changed_bytes_of_any_encoding_are_read_or_refused_and_nothing_else(
    tmp_path: Path, flags: dict[str, object]
) -> None:
    path = write_samples(tmp_path / "a.mcap", mixed_samples(), enable_crcs=False, **flags)
    content = path.read_bytes()
    read_all(path)
    num_refused = 0
    for seed in range(120):
        chance, changed = random.Random(seed), bytearray(content)
        for _ in range(chance.choice([1, 2, 5])):
            changed[chance.randrange(len(changed))] = chance.choice([0, 255, 128, chance.randrange(256)])
        path.write_bytes(bytes(changed))
        try:
            read_all(path)
        except RecordingError as error:
            assert str(path) in str(error)
            num_refused += 1
    assert num_refused > 0
