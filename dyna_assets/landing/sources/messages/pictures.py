"""Messages of pictures and video, whatever they are encoded in: from what they say to a picture or a codec."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import av
import numpy as np

from dyna_assets.landing.sources.messages.frames import CODECS
from dyna_assets.landing.sources.messages.topics import BadMessage, Data, Pictures, Unfit, Video
from dyna_assets.landing.stills import still_info

PIXELS = {
    "rgb8": ("rgb24", 3),
    "bgr8": ("bgr24", 3),
    "mono8": ("gray", 1),
    "rgba8": ("rgba", 4),
    "bgra8": ("bgra", 4),
}
"""Encodings of raw pictures that are read: (FFmpeg's name, bytes a pixel)."""
_CODEC_WORDS = {"264": "h264", "265": "hevc", **{codec: codec for codec in CODECS}}
"""By a word in the name of a format or an encoder ('h264_nvenc', 'libx265'), the codec."""
_STILLS = ("jpeg", "jpg", "png")


class CodedPicture(NamedTuple):
    """A compressed picture or a piece of video. form: what the message says it is."""

    form: str
    data: bytes


class RawPicture(NamedTuple):
    """An uncompressed picture; step: bytes a row, width padding included."""

    width: int
    height: int
    encoding: str
    step: int
    data: bytes

    def frame(self) -> av.VideoFrame:
        """The picture as a video frame. Raises BadMessage for an encoding not in PIXELS or too few bytes."""
        if self.encoding not in PIXELS:
            raise BadMessage(f"picture encoding '{self.encoding}', expected one of {', '.join(PIXELS)}")
        pixels, depth = PIXELS[self.encoding]
        row = self.width * depth
        if not 0 < row <= self.step or len(self.data) != self.step * self.height or not self.data:
            raise BadMessage(
                f"{self.width}x{self.height} {self.encoding} with rows of {self.step} bytes needs "
                f"{self.step * self.height:,} bytes, found {len(self.data):,}"
            )
        rows = np.frombuffer(self.data, np.uint8).reshape(self.height, self.step)[:, :row]
        shape = (self.height, self.width) if depth == 1 else (self.height, self.width, depth)
        return av.VideoFrame.from_ndarray(np.ascontiguousarray(rows).reshape(shape), format=pixels)


def coded_pictures(read: Callable[[Data], CodedPicture], first: bytes | None, where: str) -> Pictures | Video:
    """What messages of compressed pictures are, by the first one. Raises Unfit, BadMessage, RecordingError."""
    if first is None:
        return Pictures(lambda data: read(data).data)
    form, payload = read(first)
    if codec := codec_of(form):
        return Video(codec, lambda data: _unit(read(data), form))
    # compressedDepth puts a header of its own before a PNG of 16-bit depths
    if "compressedDepth" in form or not any(word in form.lower() for word in _STILLS):
        raise Unfit(f"compressed format '{form}'")
    still = still_info(payload, where=where)
    return Pictures(lambda data: read(data).data, still.width, still.height, still.encoding)


def raw_pictures(read: Callable[[Data], RawPicture], first: bytes | None) -> Pictures:
    """What messages of uncompressed pictures are, by the first one. Raises Unfit or BadMessage."""
    if first is None:
        return Pictures(lambda data: read(data).frame())
    image = read(first)
    if image.encoding not in PIXELS:
        raise Unfit(f"picture encoding '{image.encoding}'")
    return Pictures(lambda data: read(data).frame(), image.width, image.height, image.encoding)


def codec_of(form: str) -> str:
    """The codec that a format or an encoder's name speaks of, '' if it is none we know.

    'h264;yuv420p;bgr8;bgr8' begins with the codec, the pixel formats before and after it follow.
    """
    codec = form.partition(";")[0].lower()
    return next((name for word, name in _CODEC_WORDS.items() if word in codec), "")


def _unit(coded: CodedPicture, form: str) -> bytes:
    if coded.form != form:
        raise BadMessage(f"expected the format '{form}' as in the first message, found '{coded.form}'")
    return coded.data
