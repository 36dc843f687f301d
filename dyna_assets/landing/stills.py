"""Still pictures as they are recorded: JPEG and PNG bytes, upright as their EXIF data asks for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import av

from dyna_assets.errors import RecordingError
from dyna_train.video.pixels import UPRIGHT, Orientation, turned

JPEG = b"\xff\xd8\xff"
JPEG_END = b"\xff\xd9"
PNG = b"\x89PNG\r\n\x1a\n"
MAX_PIXELS = 1 << 26
"""Pixels of the largest picture that is decoded (8192 x 8192); a larger one is a fault, or an attack on memory."""

# JPEG start-of-frame markers, which carry the size: SOF0-SOF15 without DHT (C4), JPG (C8) and DAC (CC)
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_START_OF_SCAN = 0xDA
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})
_APP1 = 0xE1
_EXIF = b"Exif\0\0"
_ORIENTATION_TAG = 0x0112
_SHORT = 3
# EXIF 2.32, 4.6.4.A: where the stored row 0 and column 0 lie in the upright picture.
_ORIENTATIONS = {
    2: Orientation(columns_reversed=True),
    3: Orientation(rows_reversed=True, columns_reversed=True),
    4: Orientation(rows_reversed=True),
    5: Orientation(transposed=True),
    6: Orientation(transposed=True, columns_reversed=True),
    7: Orientation(transposed=True, rows_reversed=True, columns_reversed=True),
    8: Orientation(transposed=True, rows_reversed=True),
}


class StillInfo(NamedTuple):
    """encoding is 'jpeg' or 'png'; width and height in pixels, of the upright picture."""

    encoding: str
    width: int
    height: int


def still_info(payload: bytes, *, where: str = "still picture") -> StillInfo:
    """Encoding and size from the picture's header, without decoding. Raises RecordingError."""
    encoding, width, height, orientation = _header(payload, where)
    return StillInfo(encoding, *orientation.size(width, height))


def decode_still(payload: bytes, *, where: str = "still picture") -> av.VideoFrame:
    """The picture upright, in its own pixel format (JPEG: yuvj4xxp, full range; PNG: rgb24, gray, …).

    Raises RecordingError if it is neither JPEG nor PNG, is cut, is larger than MAX_PIXELS, or does not decode.
    """
    encoding, width, height, orientation = _header(payload, where)
    # FFmpeg fills what is missing of a cut JPEG with grey and calls it decoded
    if encoding == "jpeg" and payload.rfind(JPEG_END) < 0:  # from its end, where it should stand
        raise RecordingError(f"{where}: JPEG of {len(payload):,} bytes has no end marker: the picture is cut")
    context = av.CodecContext.create("mjpeg" if encoding == "jpeg" else "png", "r")
    context.thread_count = 1  # frame threads would hold the only frame back
    context.options = {"err_detect": "explode", "max_pixels": str(MAX_PIXELS)}
    try:
        frames = context.decode(av.Packet(payload)) or context.decode(None)
    except av.FFmpegError as error:
        raise RecordingError(
            f"{where}: {encoding} of {len(payload):,} bytes does not decode: {error.strerror}"
        ) from None
    if len(frames) != 1 or not isinstance(frames[0], av.VideoFrame):
        raise RecordingError(f"{where}: expected one picture in {len(payload):,} bytes, found {len(frames)}")
    if (frames[0].width, frames[0].height) != (width, height):
        raise RecordingError(
            f"{where}: {encoding} decodes to {frames[0].width}x{frames[0].height} pixels, "
            f"its header says {width}x{height}"
        )
    return turned(frames[0], orientation)


def _header(payload: bytes, where: str) -> tuple[str, int, int, Orientation]:
    """(encoding, width and height as stored, how it becomes upright). Raises RecordingError."""
    try:
        if payload.startswith(PNG):
            encoding = "png"
            width, height = struct.unpack_from(">II", payload, 16)
            orientation = _png_orientation(payload)
        elif payload.startswith(JPEG):
            encoding = "jpeg"
            width, height, orientation = _jpeg_header(payload)
        else:
            raise RecordingError(f"{where}: expected a JPEG or PNG, found bytes {payload[:8].hex(' ')}")
    except (struct.error, IndexError):
        raise RecordingError(f"{where}: picture cut inside its header after {len(payload):,} bytes") from None
    if not 0 < width * height <= MAX_PIXELS:
        raise RecordingError(
            f"{where}: {encoding} of {len(payload):,} bytes declares {width:,} x {height:,} pixels, expected "
            f"1 to {MAX_PIXELS:,}: it is damaged, or made to fill memory"
        )
    return encoding, width, height, orientation


def _jpeg_header(payload: bytes) -> tuple[int, int, Orientation]:
    """(width, height, orientation): the size from the start-of-frame segment, EXIF from a segment before the scan."""
    size: tuple[int, int] | None = None
    orientation: Orientation | None = None
    for marker, at in _jpeg_segments(payload):
        if marker in _START_OF_FRAME and size is None:
            height, width = struct.unpack_from(">HH", payload, at + 5)
            size = width, height
        elif marker == _APP1 and orientation is None and payload[at + 4 : at + 10] == _EXIF:
            end = at + 2 + int.from_bytes(payload[at + 2 : at + 4], "big")
            orientation = exif_orientation(payload[at + 10 : end])
    if size is None:
        raise IndexError
    return *size, orientation or UPRIGHT


def _jpeg_segments(payload: bytes) -> Iterator[tuple[int, int]]:
    """(marker, byte of its 0xFF) up to the start of scan. Raises IndexError or struct.error if it is cut before."""
    at, marker = 2, 0
    while marker != _START_OF_SCAN:
        while payload[at + 1] == 0xFF:  # fill bytes before a marker
            at += 1
        marker = payload[at + 1]
        yield marker, at
        at += 2 if marker in _WITHOUT_LENGTH else 2 + struct.unpack_from(">H", payload, at + 2)[0]


def _png_orientation(payload: bytes) -> Orientation:
    """From an eXIf chunk before the pixels; damaged chunks are the decoder's to refuse."""
    at = len(PNG)
    while at + 8 <= len(payload):
        size, kind = int.from_bytes(payload[at : at + 4], "big"), payload[at + 4 : at + 8]
        if kind == b"eXIf":
            return exif_orientation(payload[at + 8 : at + 8 + size])
        if kind == b"IDAT":
            break
        at += 12 + size
    return UPRIGHT


def exif_orientation(tiff: bytes) -> Orientation:
    """What the tag Orientation of EXIF data asks for; UPRIGHT where there is none, or the data are damaged.

    tiff: from the byte-order mark on.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return UPRIGHT
    try:
        (directory,) = struct.unpack_from(order + "I", tiff, 4)
        (num_entries,) = struct.unpack_from(order + "H", tiff, directory)
        for number in range(num_entries):
            tag, kind, count, value = struct.unpack_from(order + "HHIH", tiff, directory + 2 + 12 * number)
            if tag == _ORIENTATION_TAG:
                return _ORIENTATIONS.get(value, UPRIGHT) if (kind, count) == (_SHORT, 1) else UPRIGHT
    except struct.error:
        pass
    return UPRIGHT
