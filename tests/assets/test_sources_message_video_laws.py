"""Laws of video in messages: any cut gives the same frames, any damage is refused or harmless."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.video.codeccontext import VideoCodecContext
from hypothesis import given, settings
from hypothesis import strategies as st
from message_video_samples import (
    NUM_FRAMES,
    STEP_NS,
    WHERE,
    Message,
    avcc,
    encoded,
    kind,
    stamp,
    stamped,
    survey,
    units,
)
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.messages.video import MessageVideo
from dyna_train.video.coded import read_facts
from dyna_train.video.nal import IDR, SLICE


@st.composite
def cuts(draw: st.DrawFn) -> tuple[str, int, list[Message], list[int]]:
    """(codec, B-frames, messages, stamp of each frame as it is shown): one-slice frames cut into messages at units."""
    codec, b = draw(st.sampled_from(["h264", "hevc"])), draw(st.sampled_from([0, 2]))
    packets = encoded(codec, b)
    noise = st.integers(-STEP_NS // 3, STEP_NS // 3)
    times = [stamp(number) + draw(noise) for number in range(NUM_FRAMES)]
    parts: list[tuple[bytes, int | None]] = []  # a unit, and the frame whose slice it is
    for number, data in packets:
        parts += [(unit, number if is_slice(codec, unit) else None) for unit in units(data)]
    messages: list[Message] = []
    payload = b""
    starts: int | None = None
    for unit, frame in parts:
        must = frame is not None and starts is not None
        if payload and (must or draw(st.booleans())):
            messages.append((times[starts] if starts is not None else draw(noise), payload))
            payload, starts = b"", None
        if draw(st.integers(0, 9)) == 0:
            messages.append((draw(noise), b""))
        payload += unit[1:] if draw(st.booleans()) else unit
        starts = frame if frame is not None else starts
    messages.append((times[starts] if starts is not None else 0, payload))
    return codec, b, messages, times


def is_slice(codec: str, unit: bytes) -> bool:
    return kind(unit) in (SLICE, IDR) if codec == "h264" else unit[4] >> 1 < 32


@settings(max_examples=40)
@given(cut=cuts())
def test_any_cut_at_units_gives_every_frame_at_its_own_stamp(
    cut: tuple[str, int, list[Message], list[int]],
) -> None:
    codec, b, messages, times = cut
    video = survey(messages, codec)
    assert video.times_ns.tolist() == times
    assert all(map(np.array_equal, pixels(video), reference(codec, b)))


def pixels(video: MessageVideo) -> list[NDArray[Any]]:
    return [frame.to_ndarray() for frame in video.frames()]


@cache
def reference(codec: str, b: int) -> list[NDArray[Any]]:
    """What a plain decoder shows, in order."""
    context = av.CodecContext.create(codec, "r")
    assert isinstance(context, VideoCodecContext)
    frames = [frame for _, data in encoded(codec, b) for frame in context.decode(av.Packet(data))]
    return [frame.to_ndarray() for frame in frames + context.decode(None)]


@pytest.mark.parametrize(
    ("codec", "b", "as_lengths"),
    [("h264", 2, False), ("h264", 0, True), ("hevc", 2, False), ("av1", 0, False), ("vp9", 0, False)],
)
def test_damaged_messages_are_refused_or_give_frames_at_stamps_that_were_there(
    codec: str, b: int, as_lengths: bool
) -> None:
    whole = [(time, avcc(data) if as_lengths else data) for time, data in stamped(encoded(codec, b))]
    num_refused = 0
    for seed in range(60):
        messages = damaged(whole, random.Random(seed))
        try:
            video = survey(messages, codec)
            assert sum(1 for _ in video.frames()) == video.num_frames
            assert set(video.times_ns.tolist()) <= {time for time, _ in messages}
            read_facts(video.coded())
        except RecordingError as error:
            assert str(error).startswith(WHERE)
            num_refused += 1
    assert num_refused > 20


def damaged(messages: Sequence[Message], chance: random.Random) -> list[Message]:
    """The messages with bytes changed, cut, lost, doubled or out of order."""
    found = list(messages)
    for _ in range(chance.choice([1, 1, 4])):
        at = chance.randrange(len(found))
        time, data = found[at]
        match chance.randrange(8):
            case 0:
                found[at] = (time, data[: chance.randrange(len(data) + 1)])
            case 1 if len(found) > 2:
                del found[at]
            case 2:
                found.insert(at, (time + 1, data))
            case 3:
                found.insert(chance.randrange(len(found)), found.pop(at))
            case _:
                changed = bytearray(data)
                for _ in range(chance.choice([1, 3, 20])):
                    if changed:
                        where = chance.randrange(min(len(changed), chance.choice([8, 40, 10**6])))
                        changed[where] = chance.randrange(256)
                found[at] = (time, bytes(changed))
    return found


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("nasa_13013.mp4", "h264"),
        ("h264_10bits.mp4", "h264"),
        ("bt601_full_range.mp4", "h264"),
        ("h265_video.mp4", "hevc"),
        ("h265_10bits.mp4", "hevc"),
        ("av1_video.mkv", "av1"),
        ("testsrc2_odd_height_and_width_vp9_10bit.mp4", "vp9"),
    ],
)
def test_packets_of_real_files_as_messages_give_the_frames_of_the_file(
    shared_data: Path, name: str, codec: str
) -> None:
    with av.open(str(shared_data / "tricky_video" / name)) as file:
        stream = file.streams.video[0]
        record = bytes(stream.codec_context.extradata or b"")
        packets = [(int(packet.pts or 0), bytes(packet)) for packet in file.demux(stream) if packet.size]
    with av.open(str(shared_data / "tricky_video" / name)) as file:
        expected = [(frame.pts, luma(frame)) for frame in file.decode(video=0)]
    before = [(packets[0][0] - 1, record)] if codec in ("h264", "hevc") else []
    video = survey([*before, *packets], codec)
    assert video.times_ns.tolist() == [pts for pts, _ in expected]
    found = [luma(frame) for frame in video.frames()]
    assert all(np.array_equal(one, other) for one, (_, other) in zip(found, expected, strict=True))


def luma(frame: av.VideoFrame) -> NDArray[np.uint8]:
    """The bytes of its first plane that are pixels."""
    plane = frame.planes[0]
    lines = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
    sample_bytes = 1 if frame.format.components[0].bits == 8 else 2
    return lines[: frame.height, : frame.width * sample_bytes]
