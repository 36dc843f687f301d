"""Compressed video in messages of every kind, as the reader 'mcap' gives it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import av
import foxglove.messages as foxglove
import pytest
from mcap_samples import (
    Kind,
    Sample,
    foxglove_sample,
    foxglove_time,
    h264_units,
    json_sample,
    json_time,
    opened,
    write_samples,
)
from recordings import HEIGHT, T0_NS, WIDTH, encoded, number_in, stamp

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.messages.pictures import codec_of
from dyna_train.video.coded import CodedVideo

NUMBERS = list(range(3, 13))
STEP_NS = 33_333_333


def cdr_text(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<I", len(data)) + data


def padded(data: bytes, size: int) -> bytes:
    return data + bytes(-len(data) % size)


def protobuf_video(unit: bytes, time_ns: int) -> Sample:
    return foxglove_sample(
        "/cam",
        foxglove.CompressedVideo(timestamp=foxglove_time(time_ns), frame_id="c", data=unit, format="h264"),
    )


def json_video(unit: bytes, time_ns: int) -> Sample:
    message = {"timestamp": json_time(time_ns), "frame_id": "c", "data": unit, "format": "h264"}
    return json_sample("/cam", message, "foxglove.CompressedVideo")


def cdr_video(unit: bytes, time_ns: int) -> Sample:
    body = struct.pack("<iI", time_ns // 10**9, time_ns % 10**9) + cdr_text("cam")
    body = padded(body, 4) + struct.pack("<I", len(unit)) + unit
    body = padded(body, 4) + cdr_text("h264")
    return Sample("/cam", Kind("cdr", "foxglove_msgs/msg/CompressedVideo", "ros2msg"), b"\0\1\0\0" + body)


def ffmpeg_video(unit: bytes, time_ns: int) -> Sample:
    body = struct.pack("<iI", time_ns // 10**9, time_ns % 10**9) + cdr_text("cam")
    body = padded(body, 4) + struct.pack("<II", WIDTH, HEIGHT) + cdr_text("libx264;yuv420p;bgr8")
    body = padded(body, 8) + struct.pack("<QBB", 7, 1, 0)
    body = padded(body, 4) + struct.pack("<I", len(unit)) + unit
    kind = Kind("cdr", "ffmpeg_image_transport_msgs/msg/FFMPEGPacket", "ros2msg")
    return Sample("/cam", kind, b"\0\1\0\0" + body)


def ros_video(unit: bytes, time_ns: int) -> Sample:
    message = {"header": stamp(time_ns), "format": "h264", "data": unit}
    data = encoded("sensor_msgs/msg/CompressedImage", message)
    return Sample("/cam", Kind("cdr", "sensor_msgs/msg/CompressedImage", "ros2msg"), data)


FORMS = [protobuf_video, json_video, cdr_video, ffmpeg_video, ros_video]


def written(path: Path, form: Callable[[bytes, int], Sample], units: Sequence[bytes]) -> Path:
    return write_samples(path, [form(unit, T0_NS + k * STEP_NS) for k, unit in enumerate(units)])


@pytest.mark.parametrize("form", FORMS)
def test_video_in_messages_gives_frames_at_their_stamps_and_packets_to_copy(
    tmp_path: Path, form: Callable[[bytes, int], Sample]
) -> None:
    units = h264_units(NUMBERS)
    with opened(written(tmp_path / "a.mcap", form, units)) as recording:
        info = recording.topics["/cam"]
        assert (info.kind, info.encoding, info.num_messages) == ("image", "h264", len(NUMBERS))
        times = [T0_NS + k * STEP_NS for k in range(len(NUMBERS))]
        assert recording.times("/cam").tolist() == times
        assert (recording.topics["/cam"].width, recording.topics["/cam"].height) == (WIDTH, HEIGHT)
        messages = list(recording.read(["/cam"]))
        assert [message.time_ns for message in messages] == times
        frames = [message.payload for message in messages]
        assert [number_in(frame) for frame in frames if isinstance(frame, av.VideoFrame)] == NUMBERS
        coded = recording.coded("/cam")
        assert isinstance(coded, CodedVideo)
        assert [packet.data for packet in coded.packets()] == units
        assert [message.data for message in recording.extras(["/cam"])] == [
            form(unit, time_ns).data for unit, time_ns in zip(units, times, strict=True)
        ]
        assert len(recording.arrivals("/cam")) == len(NUMBERS)


def test_video_vectors_and_pictures_come_merged_by_time(tmp_path: Path) -> None:
    units = h264_units(NUMBERS[:4])
    samples = []
    for number, unit in enumerate(units):
        time_ns = T0_NS + number * STEP_NS
        samples += [
            protobuf_video(unit, time_ns),
            json_sample("/x", {"stamp": json_time(time_ns + 1), "v": 1}),
        ]
    with opened(write_samples(tmp_path / "a.mcap", samples)) as recording:
        assert [message.topic for message in recording.read(["/x", "/cam"])] == ["/cam", "/x"] * 4
        assert recording.coded("/cam") is not None
        with pytest.raises(RecordingError, match="no topic '/y'; topics here: /x, /cam"):
            recording.coded("/y")


def test_what_video_leaves_out_is_noted_once_it_was_looked_at(tmp_path: Path) -> None:
    units = h264_units(NUMBERS)[1:]  # without the first keyframe
    with opened(written(tmp_path / "a.mcap", protobuf_video, units)) as recording:
        assert list(recording.meta.notes) == []
        times = recording.times("/cam")
        assert times[0] == T0_NS + 3 * STEP_NS
        assert [m.time_ns for m in recording.read(["/cam"])] == times.tolist()
        (note,) = recording.meta.notes
        assert note.startswith("topic '/cam': ")


def test_video_whose_format_changes_is_refused_by_number(tmp_path: Path) -> None:
    first, second = (protobuf_video(unit, T0_NS + k) for k, unit in enumerate(h264_units([1, 2])))
    changed = Sample("/cam", second.kind, second.data.replace(b"h264", b"h265"))
    with (
        opened(write_samples(tmp_path / "a.mcap", [first, changed])) as recording,
        pytest.raises(
            RecordingError,
            match=r"a\.mcap: topic '/cam' message 1: expected the format 'h264' as in the first message, found 'h265'",
        ),
    ):
        recording.times("/cam")


@pytest.mark.parametrize(
    ("form", "codec"),
    [
        ("h264", "h264"),
        ("libx264;yuv420p;bgr8", "h264"),
        ("H264_NVENC", "h264"),
        ("hevc", "hevc"),
        ("libx265", "hevc"),
        ("libsvtav1", "av1"),
        ("libvpx-vp9", "vp9"),
        ("vp8", ""),
        ("rgb8; jpeg compressed bgr8", ""),
        ("jpeg", ""),
    ],
)
def test_the_codec_is_told_by_the_format_or_by_the_encoder(form: str, codec: str) -> None:
    assert codec_of(form) == codec
