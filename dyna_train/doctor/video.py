"""The frames of an episode file as their bytes show them: one pass, a few facts kept of each frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dyna_train.doctor.payload import Payload
from dyna_train.episode.gop import frame_crc
from dyna_train.episode.schemas import parse_video
from dyna_train.errors import CorruptEpisode
from dyna_train.video.frame_numbers import FrameNumbers
from dyna_train.video.nal import SPS, BadBitstream, parse_access_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message of a camera.

    byte: where its H.264 bytes begin in the file, or its chunk where that is compressed. problem: why those
    are not readable, or nothing; what follows it is only known of readable ones. kinds: types of its slices,
    as 'P' or 'IP'. sps: its first SPS, if any. break_: why it does not follow the frame before it, or nothing.
    """

    step: int
    byte: int
    size_bytes: int
    publish_ns: int
    timestamp_ns: int
    frame_id: str
    format: str
    problem: str = ""
    num_frames: int = 0
    kinds: str = ""
    is_idr: bool = False
    has_parameter_sets: bool = False
    sps: bytes = b""
    break_: str = ""


@dataclass(slots=True)
class CameraVideo:
    """One camera: its frames in file order, their GOPs' crc32, the packets of its first GOP."""

    frames: list[Frame] = field(default_factory=list)
    gop_crcs: dict[int, int] = field(default_factory=dict)
    first_gop: list[bytes] = field(default_factory=list)
    unreadable: list[tuple[int, int, str]] = field(default_factory=list)
    """(step, byte, why) of messages that are no CompressedVideo."""
    numbers: FrameNumbers = field(default_factory=FrameNumbers)


def read_video(messages: Iterable[Payload], gops: Mapping[str, int]) -> dict[str, CameraVideo]:
    """By topic what every camera's messages hold. gops: GOP length of every camera by topic."""
    videos = {topic: CameraVideo() for topic in gops}
    for message in messages:
        _read_message(videos[message.topic], message, message.step // gops[message.topic])
    return videos


def _read_message(video: CameraVideo, message: Payload, gop: int) -> None:
    try:
        sent = parse_video(message.data)
    except CorruptEpisode as error:
        video.unreadable.append((message.step, message.byte, str(error)))
        return
    if not video.gop_crcs or gop == next(iter(video.gop_crcs)):
        video.first_gop.append(bytes(sent.data))
    video.gop_crcs[gop] = frame_crc(message.step, sent.data, video.gop_crcs.get(gop, 0))
    video.frames.append(
        Frame(
            step=message.step,
            byte=message.byte_of(len(message.data) - len(sent.data)),  # they are the last field
            size_bytes=len(sent.data),
            publish_ns=message.publish_ns,
            timestamp_ns=sent.timestamp_ns,
            frame_id=sent.frame_id,
            format=sent.format,
            **_picture(sent.data, video.numbers),
        )
    )


def _picture(data: memoryview, numbers: FrameNumbers) -> dict[str, Any]:
    """What the NAL units say, or why they cannot be read; without the units, which hold the bytes."""
    try:
        unit = parse_access_unit(data)
    except BadBitstream as error:
        return {"problem": str(error)}
    sets = unit.of_type(SPS)
    return {
        "num_frames": unit.num_frames,
        "kinds": unit.kinds,
        "is_idr": unit.is_idr,
        "has_parameter_sets": unit.has_parameter_sets,
        "sps": bytes(sets[0].data) if sets else b"",
        "break_": numbers.fault(unit),
    }
