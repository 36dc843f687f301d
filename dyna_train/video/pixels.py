"""Between any source frame and the limited-range yuv420p of our video, and back to RGB.

Colour rule: the matrix of the source is kept and tagged, the range becomes limited, 8 bit, 4:2:0. So RGB
of our frame is RGB of the source frame, within the error of the codec and of chroma subsampling.
"""

from __future__ import annotations

from collections.abc import Iterator

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter
from numpy.typing import NDArray

PIXEL_FORMAT = "yuv420p"

# The matrix code of a frame (ITU-T H.273) and swscale's name for it.
MATRICES = {
    1: Colorspace.ITU709,
    4: Colorspace.FCC,
    5: Colorspace.ITU601,
    6: Colorspace.ITU601,
    7: Colorspace.SMPTE240M,
    9: Colorspace.BT2020,
    10: Colorspace.BT2020,
}
MATRIX_601 = 6  # where a frame names no matrix (RGB, grey, JPEG, untagged video) every converter assumes it

# Measured on a smooth picture: swscale's defaults shift BGR by 1.5 levels, these flags by 0.01, at 0.4 ms more
# per 640x480 frame. A change of range alone has nothing to gain from them. Reading stays with the defaults,
# as every other reader does: exact rounding to RGB costs 3.7 ms where decoding costs 0.65.
_EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INP
_FAST = Interpolation.BILINEAR


def matrix_of(frame: av.VideoFrame) -> int:
    """The matrix code to tag our copy of `frame` with."""
    return frame.colorspace if not frame.format.is_rgb and frame.colorspace in MATRICES else MATRIX_601


def is_limited(frame: av.VideoFrame) -> bool:
    """True unless the frame's values fill their whole range (JPEG, RGB, grey, or tagged so)."""
    if frame.color_range == ColorRange.UNSPECIFIED:
        name = frame.format.name
        return not (frame.format.is_rgb or name.startswith(("yuvj", "gray", "ya", "mono", "pal8")))
    return frame.color_range == ColorRange.MPEG and not frame.format.name.startswith("yuvj")


class FrameConverter:
    """Converts frames of one camera; keeps swscale's tables between frames."""

    def __init__(self) -> None:
        self._swscale = VideoReformatter()

    def to_video(self, frame: av.VideoFrame, matrix: int) -> av.VideoFrame:
        """Limited-range yuv420p of even size with `matrix`; the frame itself where it is that already.

        An odd width or height is padded by repeating its last column or row.
        """
        if _is_odd(frame) and _chroma_is_whole(frame):
            # Padded before chroma is halved: swscale would stretch 61 chroma columns over 121 pixels.
            frame = _padded(self._converted(frame, "yuv444p", matrix))
        if frame.format.name != PIXEL_FORMAT or not is_limited(frame) or matrix_of(frame) != matrix:
            frame = self._converted(frame, PIXEL_FORMAT, matrix)
        return _padded(frame) if _is_odd(frame) else frame

    def to_rgb(
        self, frame: av.VideoFrame, width: int, height: int, size: tuple[int, int] | None
    ) -> NDArray[np.uint8]:
        """RGB of the true width x height of a decoded frame, resized to size (height, width) if given.

        Returns uint8 [H, W, 3].
        """
        if (frame.width, frame.height) == (width, height):
            out_height, out_width = size or (height, width)
            return _rgb(self._swscale.reformat(frame, out_width, out_height, "rgb24", threads=1))
        cropped = _rgb(self._swscale.reformat(frame, format="rgb24", threads=1))[:height, :width]
        if size is None:
            return cropped
        whole = av.VideoFrame.from_ndarray(np.ascontiguousarray(cropped), "rgb24")
        return _rgb(self._swscale.reformat(whole, size[1], size[0], "rgb24", threads=1))

    def _converted(self, frame: av.VideoFrame, pixel_format: str, matrix: int) -> av.VideoFrame:
        range_only = matrix_of(frame) == matrix and frame.format.name in (PIXEL_FORMAT, "yuvj420p")
        return self._swscale.reformat(
            frame,
            format=pixel_format,
            interpolation=_FAST if range_only else _EXACT,
            src_colorspace=MATRICES[matrix_of(frame)],
            dst_colorspace=MATRICES[matrix],
            src_color_range=ColorRange.MPEG if is_limited(frame) else ColorRange.JPEG,
            dst_color_range=ColorRange.MPEG,
            threads=1,
        )


def _is_odd(frame: av.VideoFrame) -> bool:
    return bool(frame.width % 2 or frame.height % 2)


def _chroma_is_whole(frame: av.VideoFrame) -> bool:
    """True if every pixel has its own chroma, or none has any."""
    return all((part.width, part.height) == (frame.width, frame.height) for part in frame.format.components)


def _padded(frame: av.VideoFrame) -> av.VideoFrame:
    """The same planes on a canvas of even size, edges repeated."""
    canvas = av.VideoFrame(frame.width + frame.width % 2, frame.height + frame.height % 2, frame.format.name)
    for source, target in zip(_planes(frame), _planes(canvas), strict=True):
        rows = np.minimum(np.arange(target.shape[0]), source.shape[0] - 1)
        columns = np.minimum(np.arange(target.shape[1]), source.shape[1] - 1)
        target[:] = source[rows[:, None], columns]
    canvas.colorspace, canvas.color_range = frame.colorspace, frame.color_range
    return canvas


def _rgb(frame: av.VideoFrame) -> NDArray[np.uint8]:
    """A view of an rgb24 frame, uint8 [H, W, 3]."""
    (rows,) = _lines(frame)
    return rows[: frame.height, : 3 * frame.width].reshape(frame.height, frame.width, 3)


def _planes(frame: av.VideoFrame) -> Iterator[NDArray[np.uint8]]:
    """Writable views of the planes, uint8 [rows, columns], without the padding of their lines."""
    for plane, lines in zip(frame.planes, _lines(frame), strict=True):
        yield lines[: plane.height, : plane.width]


def _lines(frame: av.VideoFrame) -> Iterator[NDArray[np.uint8]]:
    """Writable views of the planes with the padding that aligns their lines, uint8 [rows, bytes]."""
    for plane in frame.planes:
        yield np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
