"""Between any source frame and the limited-range yuv420p of our video, upright, and back to RGB or planes.

Colour rule: the matrix of the source is kept and tagged, the range becomes limited, 8 bit, 4:2:0. So RGB
of our frame is RGB of the source frame, within the error of the codec and of chroma subsampling. Transfer
and primaries are tags: HDR (PQ, HLG) keeps its code values, nothing is tone mapped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import av
import numpy as np
from av.sidedata.sidedata import SideData
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter
from numpy.typing import NDArray

from dyna_train.errors import BadInput

PIXEL_FORMAT = "yuv420p"
_PLANAR_YUV = re.compile(r"yuvj?(4\d\dp)(\d+le)?")

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
# per 640x480 frame.
_EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INP


@dataclass(frozen=True, slots=True)
class Orientation:
    """How a stored picture becomes upright: transposed first, then its rows and its columns are reversed."""

    transposed: bool = False
    rows_reversed: bool = False
    columns_reversed: bool = False

    def size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of the upright picture of a stored width x height."""
        return (height, width) if self.transposed else (width, height)

    def apply(self, plane: NDArray[Any]) -> NDArray[Any]:
        """A view of a stored plane [rows, columns] as it is upright."""
        upright = plane.T if self.transposed else plane
        return upright[:: -1 if self.rows_reversed else 1, :: -1 if self.columns_reversed else 1]


UPRIGHT = Orientation()


def room_for(out: NDArray[np.uint8] | None, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Where pictures of `shape` are written, uint8: `out`, or a new array without one.

    Raises BadInput if `out` is no writable array, or of another shape or dtype.
    """
    if out is None:
        return np.empty(shape, np.uint8)
    if not isinstance(out, np.ndarray) or not out.flags.writeable:
        raise BadInput(f"out is a {type(out).__name__}, expected a numpy array that can be written to")
    if out.shape != shape or out.dtype != np.uint8:
        raise BadInput(f"out is {out.dtype} {list(out.shape)}, expected uint8 {list(shape)}")
    return out


def orientation_of(frame: av.VideoFrame) -> Orientation:
    """What the frame's display matrix asks for, mirrors included; UPRIGHT without one.

    Raises BadInput for what cannot be done pixel by pixel: an angle that is no quarter turn, or a stretch.
    """
    try:
        entry = cast(Mapping[str, SideData], frame.side_data).get("DISPLAYMATRIX")
    except ValueError:  # PyAV has no name for one of the entries (EXIF of a JPEG), and so gives none of them
        if frame.rotation == 0:
            return UPRIGHT
        raise BadInput(
            f"the frame is to be turned by {frame.rotation} degrees, and whether it is mirrored too cannot be "
            "read beside its other metadata (EXIF); store the pictures upright"
        ) from None
    if entry is None:
        return UPRIGHT
    # Rows of the 3x3 matrix are (a, b, u), (c, d, v), (x, y, w): column p, row q goes to a p + c q, b p + d q.
    a, b, _, c, d = np.frombuffer(memoryview(entry), np.int32)[:5].tolist()
    unit = max(abs(a), abs(b), abs(c), abs(d), 1)
    parts = tuple(round(abs(part) / unit, 2) for part in (a, b, c, d))
    if parts == (1, 0, 0, 1):
        return Orientation(rows_reversed=d < 0, columns_reversed=a < 0)
    if parts == (0, 1, 1, 0):
        return Orientation(transposed=True, rows_reversed=b < 0, columns_reversed=c < 0)
    raise BadInput(
        f"the display matrix ({a}, {b}; {c}, {d}) turns the picture by {math.degrees(math.atan2(b, a)):.1f} "
        "degrees clockwise or stretches it; expected quarter turns and mirrors. Re-encode the video upright"
    )


def turned(frame: av.VideoFrame, orientation: Orientation) -> av.VideoFrame:
    """`frame` upright, with its pts and colour tags; itself if there is nothing to turn.

    Its planes are moved, not converted, except: chroma that a turn cannot keep (4:2:2 that is transposed, odd
    sizes) becomes 4:4:4, and formats that interleave components become gbrp or limited yuv444p of 8 bit.
    """
    if orientation == UPRIGHT:
        return frame
    stored = frame if _is_planar(frame) else _planar(frame)
    rows, columns = _pixels_per_chroma(stored)
    if (orientation.transposed and rows != columns) or (rows * columns > 1 and _is_odd(stored)):
        stored = _spread(stored)
    upright = _blank(stored, *orientation.size(stored.width, stored.height), stored.format.name)
    for source, target in zip(_planes(stored), _planes(upright), strict=True):
        target[:] = orientation.apply(source)
    return upright


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
        self._packer = VideoReformatter()

    def to_video(self, frame: av.VideoFrame, matrix: int) -> av.VideoFrame:
        """Limited-range yuv420p of even size with `matrix`; the frame itself where it is that already.

        An odd width or height is padded by repeating its last column or row.
        """
        if not is_limited(frame) and _has_matrix(frame, matrix) and _PLANAR_YUV.fullmatch(frame.format.name):
            frame = _limited(frame)
        if _is_odd(frame) and _chroma_is_whole(frame):
            # Padded before chroma is halved: swscale would stretch 61 chroma columns over 121 pixels.
            frame = _padded(self._converted(frame, "yuv444p", matrix))
        if frame.format.name != PIXEL_FORMAT or not is_limited(frame) or not _has_matrix(frame, matrix):
            frame = self._converted(frame, PIXEL_FORMAT, matrix)
        return _padded(frame) if _is_odd(frame) else frame

    def to_rgb(
        self,
        frame: av.VideoFrame,
        width: int,
        height: int,
        size: tuple[int, int] | None,
        out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """RGB of the true width x height of a decoded frame, resized to size (height, width) if given.

        Returns uint8 [H, W, 3]: `out` if given, whatever its strides, else a new array. Raises BadInput if
        `out` has another shape or dtype.
        """
        resized = None if size == (height, width) else size
        if resized and (frame.width, frame.height) == (width, height):
            rgb = self._resized(frame, resized)
        else:
            # swscale's fast path, as every other reader has it: it cuts fractions off, so red, green and blue
            # come out 1.0, 1.5, 1.0 levels low (measured). To round exactly costs 1.0 ms a 640x480 frame in
            # place of 0.1, as much as to decode it.
            rgb = _rgb(self._swscale.reformat(frame, format="rgb24", threads=1))[:height, :width]
            if resized:
                rgb = self._resized(av.VideoFrame.from_numpy_buffer(rgb, "rgb24"), resized)
        if out is None:
            return rgb
        # PyAV converts into frames of its own only, so this is a copy: 0.08 ms.
        np.copyto(room_for(out, rgb.shape), rgb)
        return out

    def to_yuv420(
        self,
        frame: av.VideoFrame,
        width: int,
        height: int,
        size: tuple[int, int] | None,
        out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """The planes Y, U, V one after the other (I420) of a decoded frame of true width x height.

        size: (height, width) to resize to. Returns uint8 [H * 3 // 2, W], where H and W are rounded up to even
        and an odd picture is padded: `out` if given, else a new array. Range limited, matrix as the frame says.
        Raises BadInput if `out` has another shape or dtype, or is not contiguous.
        """
        canvas = self.to_video(frame, matrix_of(frame))
        resized = None if size == (height, width) else size
        if resized:
            if (canvas.width, canvas.height) != (width, height):
                canvas = _cropped(canvas, width, height)
            canvas = self._swscale.reformat(canvas, resized[1], resized[0], PIXEL_FORMAT, threads=1)
            canvas = _padded(canvas) if _is_odd(canvas) else canvas
        shape = (canvas.height * 3 // 2, canvas.width)
        planes = room_for(out, shape)
        if not planes.flags.c_contiguous:
            raise BadInput(f"out {list(shape)} for output yuv420 is not contiguous in memory")
        flat, start = planes.reshape(-1), 0
        for plane in _planes(canvas):
            flat[start : start + plane.size].reshape(plane.shape)[:] = plane
            start += plane.size
        return planes

    def _resized(self, frame: av.VideoFrame, size: tuple[int, int]) -> NDArray[np.uint8]:
        """RGB resized by way of planar RGB.

        Straight to rgb24 swscale halves the chroma of the result and takes 0.38 ms; planar 0.22 ms (to
        224 x 224), with no bias and 10 dB nearer to exact arithmetic.
        """
        planar = self._swscale.reformat(frame, size[1], size[0], "gbrp", threads=1)
        return _rgb(self._packer.reformat(planar, format="rgb24", threads=1))

    def _converted(self, frame: av.VideoFrame, pixel_format: str, matrix: int) -> av.VideoFrame:
        return self._swscale.reformat(
            frame,
            format=pixel_format,
            interpolation=_EXACT,
            src_colorspace=MATRICES[matrix_of(frame)],
            dst_colorspace=MATRICES[matrix],
            src_color_range=ColorRange.MPEG if is_limited(frame) else ColorRange.JPEG,
            dst_color_range=ColorRange.MPEG,
            threads=1,
        )


def _has_matrix(frame: av.VideoFrame, matrix: int) -> bool:
    return MATRICES[matrix_of(frame)] == MATRICES[matrix]


def _limited(frame: av.VideoFrame) -> av.VideoFrame:
    """Full-range planar YUV in limited range and 8 bit, each level rounded to the nearest.

    swscale rounds chroma down where it changes the range: 0.43 levels low.
    """
    match = _PLANAR_YUV.fullmatch(frame.format.name)
    assert match is not None
    limited = _blank(frame, frame.width, frame.height, f"yuv{match[1]}")
    limited.color_range = ColorRange.MPEG
    bits = frame.format.components[0].bits
    most, half = 2**bits - 1, 2 ** (bits - 1)
    dtype = np.dtype(np.uint16 if bits == 8 else np.uint32)
    for number, (source, target) in enumerate(zip(_planes(frame), _planes(limited), strict=True)):
        # 16 + 219 v / most, or 128 + 224 (v - half) / most, in whole numbers. Measured per 640x480 frame: 0.17 ms,
        # np.take of a 256-entry table 0.54 ms, swscale 0.34 ms.
        span, low = (224, 128 * most - 224 * half) if number else (219, 16 * most)
        levels = np.multiply(source, span, dtype=dtype)
        levels += dtype.type(low + most // 2)
        levels //= dtype.type(most)
        np.copyto(target, levels, casting="unsafe")
    return limited


def _is_odd(frame: av.VideoFrame) -> bool:
    return bool(frame.width % 2 or frame.height % 2)


def _chroma_is_whole(frame: av.VideoFrame) -> bool:
    """True if every pixel has its own chroma, or none has any."""
    return all((part.width, part.height) == (frame.width, frame.height) for part in frame.format.components)


def _is_planar(frame: av.VideoFrame) -> bool:
    """True if every component has a plane of its own, of whole bytes."""
    parts = frame.format.components
    return len(frame.planes) == len(parts) and all(8 <= part.bits <= 16 for part in parts)


def _planar(frame: av.VideoFrame) -> av.VideoFrame:
    if frame.format.is_rgb:
        return frame.reformat(format="gbrp", threads=1)
    return FrameConverter()._converted(frame, "yuv444p", matrix_of(frame))


def _pixels_per_chroma(frame: av.VideoFrame) -> tuple[int, int]:
    """(rows, columns) of pixels that share a sample of chroma, of a planar frame."""
    chroma = frame.planes[min(1, len(frame.planes) - 1)]
    return -(-frame.height // chroma.height), -(-frame.width // chroma.width)


def _spread(frame: av.VideoFrame) -> av.VideoFrame:
    """Planar YUV as 4:4:4: each chroma sample stands for the pixels it covers."""
    spread = _blank(frame, frame.width, frame.height, re.sub(r"4\d\dp", "444p", frame.format.name))
    rows, columns = _pixels_per_chroma(frame)
    for source, target in zip(_planes(frame), _planes(spread), strict=True):
        if source.shape != target.shape:
            source = source.repeat(rows, 0).repeat(columns, 1)[: frame.height, : frame.width]
        target[:] = source
    return spread


def _padded(frame: av.VideoFrame) -> av.VideoFrame:
    """The same planes on a canvas of even size, edges repeated."""
    width, height = frame.width + frame.width % 2, frame.height + frame.height % 2
    canvas = _blank(frame, width, height, frame.format.name)
    for source, target in zip(_planes(frame), _planes(canvas), strict=True):
        rows = np.minimum(np.arange(target.shape[0]), source.shape[0] - 1)
        columns = np.minimum(np.arange(target.shape[1]), source.shape[1] - 1)
        target[:] = source[rows[:, None], columns]
    return canvas


def _cropped(frame: av.VideoFrame, width: int, height: int) -> av.VideoFrame:
    """The upper left width x height of a frame; chroma of a pixel outside is kept if one inside shares it."""
    cropped = _blank(frame, width, height, frame.format.name)
    for source, target in zip(_planes(frame), _planes(cropped), strict=True):
        target[:] = source[: target.shape[0], : target.shape[1]]
    return cropped


def _blank(frame: av.VideoFrame, width: int, height: int, pixel_format: str) -> av.VideoFrame:
    """A new frame with the time and the colour tags of `frame`."""
    blank = av.VideoFrame(width, height, pixel_format)
    blank.pts = frame.pts
    if frame.time_base is not None:
        blank.time_base = frame.time_base
    blank.colorspace, blank.color_range = frame.colorspace, frame.color_range
    blank.color_primaries, blank.color_trc = frame.color_primaries, frame.color_trc
    return blank


def _rgb(frame: av.VideoFrame) -> NDArray[np.uint8]:
    """A view of an rgb24 frame, uint8 [H, W, 3]."""
    (plane,) = frame.planes
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
    return rows[: frame.height, : 3 * frame.width].reshape(frame.height, frame.width, 3)


def _planes(frame: av.VideoFrame) -> Iterator[NDArray[Any]]:
    """Writable views of the planes of a planar frame, uint8 or uint16 [rows, columns], line padding left out."""
    dtype = np.dtype(np.uint8 if frame.format.components[0].bits == 8 else np.uint16)
    for plane in frame.planes:
        lines = np.frombuffer(memoryview(plane), dtype).reshape(-1, plane.line_size // dtype.itemsize)
        yield lines[: plane.height, : plane.width]
