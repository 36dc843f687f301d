"""Still pictures as they are recorded: JPEG and PNG bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple

import av

from dyna_assets.errors import RecordingError

JPEG = b"\xff\xd8\xff"
JPEG_END = b"\xff\xd9"
PNG = b"\x89PNG\r\n\x1a\n"

# JPEG start-of-frame markers, which carry the size: SOF0-SOF15 without DHT (C4), JPG (C8) and DAC (CC)
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})


class StillInfo(NamedTuple):
    """encoding is 'jpeg' or 'png'; width and height in pixels."""

    encoding: str
    width: int
    height: int


def still_info(payload: bytes, *, where: str = "still picture") -> StillInfo:
    """Encoding and size from the picture's header, without decoding. Raises RecordingError."""
    try:
        if payload.startswith(PNG):
            width, height = struct.unpack_from(">II", payload, 16)
            return StillInfo("png", width, height)
        if payload.startswith(JPEG):
            return StillInfo("jpeg", *_jpeg_size(payload))
    except (struct.error, IndexError):
        raise RecordingError(f"{where}: picture cut inside its header after {len(payload):,} bytes") from None
    raise RecordingError(f"{where}: expected a JPEG or PNG, found bytes {payload[:8].hex(' ')}")


def decode_still(payload: bytes, *, where: str = "still picture") -> av.VideoFrame:
    """The picture as a video frame in its own pixel format (JPEG: yuvj4xxp, full range; PNG: rgb24, gray, …).

    Raises RecordingError if it is neither JPEG nor PNG, is cut, or does not decode.
    """
    encoding = still_info(payload, where=where).encoding
    # FFmpeg fills what is missing of a cut JPEG with grey and calls it decoded
    if encoding == "jpeg" and JPEG_END not in payload:
        raise RecordingError(f"{where}: JPEG of {len(payload):,} bytes has no end marker: the picture is cut")
    context = av.CodecContext.create("mjpeg" if encoding == "jpeg" else "png", "r")
    context.thread_count = 1  # frame threads would hold the only frame back
    context.options = {"err_detect": "explode"}
    try:
        frames = context.decode(av.Packet(payload)) or context.decode(None)
    except av.FFmpegError as error:
        raise RecordingError(
            f"{where}: {encoding} of {len(payload):,} bytes does not decode: {error.strerror}"
        ) from None
    if len(frames) != 1 or not isinstance(frames[0], av.VideoFrame):
        raise RecordingError(f"{where}: expected one picture in {len(payload):,} bytes, found {len(frames)}")
    return frames[0]


def _jpeg_size(payload: bytes) -> tuple[int, int]:
    """(width, height) from the start-of-frame segment."""
    at = 2
    while True:
        while payload[at + 1] == 0xFF:  # fill bytes before a marker
            at += 1
        marker = payload[at + 1]
        if marker in _START_OF_FRAME:
            height, width = struct.unpack_from(">HH", payload, at + 5)
            return width, height
        at += 2 if marker in _WITHOUT_LENGTH else 2 + struct.unpack_from(">H", payload, at + 2)[0]
