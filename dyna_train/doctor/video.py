"""The frames of an episode file as their bytes show them: one pass, a few facts kept of each frame."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dyna_train.doctor.survey import Chunk
from dyna_train.doctor.walk import Messages
from dyna_train.episode.schemas import parse_video
from dyna_train.errors import CorruptEpisode
from dyna_train.video.nal import SPS, BadBitstream, read_access_unit, split_annexb

Batch = tuple[Chunk | None, memoryview, Messages]


@dataclass(frozen=True, slots=True)
class Picture:
    """What the NAL units of one message are. kinds: slice types, as 'P' or 'IP'; sps: its first SPS, if any."""

    num_frames: int
    kinds: str
    is_idr: bool
    has_parameter_sets: bool
    sps: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of a camera.

    byte: where its H.264 bytes begin in the file, or its chunk where that is compressed. picture: None where
    the bytes are not readable, `problem` says why.
    """

    step: int
    byte: int
    size_bytes: int
    publish_ns: int
    timestamp_ns: int
    frame_id: str
    format: str
    picture: Picture | None
    problem: str


@dataclass(slots=True)
class CameraVideo:
    """One camera: its frames in file order, crc32 by GOP of their H.264 bytes, the packets of its first GOP."""

    frames: list[Frame] = field(default_factory=list)
    gop_crcs: dict[int, int] = field(default_factory=dict)
    first_gop: list[bytes] = field(default_factory=list)
    unreadable: list[tuple[int, int, str]] = field(default_factory=list)
    """(step, byte, why) of messages that are no CompressedVideo."""


def read_video(batches: Iterable[Batch], cameras: Mapping[int, tuple[str, int]]) -> dict[str, CameraVideo]:
    """By topic what every camera's messages hold. cameras: (topic, GOP length) by channel id."""
    videos = {topic: CameraVideo() for topic, _ in cameras.values()}
    for chunk, data, messages in batches:
        is_packed = chunk is not None and bool(chunk.raw.compression)
        wanted = messages[[int(channel) in cameras for channel in messages["channel"]]]
        for at, size, channel, step, _, publish_ns in wanted.tolist():
            topic, gop = cameras[channel]
            frame = _Sent(step, step // gop, file_byte(chunk, at), is_packed, publish_ns)
            _read_message(videos[topic], frame, data[at : at + size])
    return videos


def file_byte(chunk: Chunk | None, at: int) -> int:
    """Where byte `at` of a chunk's records lies in the file; the chunk's first byte where it is compressed."""
    if chunk is None:
        return at
    return chunk.record.at if chunk.raw.compression else chunk.raw.data_at + at


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message of a camera before its payload is read; byte: of the payload, or of its chunk if `is_packed`."""

    step: int
    gop: int
    byte: int
    is_packed: bool
    publish_ns: int


def _read_message(video: CameraVideo, sent: _Sent, payload: memoryview) -> None:
    try:
        message = parse_video(payload)
    except CorruptEpisode as error:
        video.unreadable.append((sent.step, sent.byte, str(error)))
        return
    picture, problem = _picture(message.data)
    if not video.gop_crcs or sent.gop == next(iter(video.gop_crcs)):
        video.first_gop.append(bytes(message.data))
    video.gop_crcs[sent.gop] = zlib.crc32(message.data, video.gop_crcs.get(sent.gop, 0))
    head_bytes = 0 if sent.is_packed else len(payload) - len(message.data)
    video.frames.append(
        Frame(
            step=sent.step,
            byte=sent.byte + head_bytes,
            size_bytes=len(message.data),
            publish_ns=sent.publish_ns,
            timestamp_ns=message.timestamp_ns,
            frame_id=message.frame_id,
            format=message.format,
            picture=picture,
            problem=problem,
        )
    )


def _picture(data: memoryview) -> tuple[Picture | None, str]:
    try:
        unit = read_access_unit(split_annexb(data))
    except BadBitstream as error:
        return None, str(error)
    sets = unit.of_type(SPS)
    kinds = "".join(sorted({part.kind for part in unit.slices}))
    sps = bytes(sets[0].data) if sets else b""
    return Picture(unit.num_frames, kinds, unit.is_idr, unit.has_parameter_sets, sps), ""


__all__ = ["Batch", "CameraVideo", "Frame", "Picture", "file_byte", "read_video"]
