"""What a camera's pictures are like, step by step, taken while they pass: never a reason to decode twice.

Of every picture a coarse grid of its luma is looked at (about 160 x 120 points), which costs a
twentieth of encoding it. Axis letters: T steps, Y X points of the grid.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import av
import numpy as np
import zstandard
from numpy.typing import NDArray

from dyna_train.errors import BadInput

COARSE_WIDTH = 160
"""The grid has this many columns, up to twice as many for widths between."""
CLIPPED = 250
"""Luma (of 255) from which a pixel counts as overexposed."""
BLACK, WHITE = 16, 235
"""Luma of black and white in a picture of limited range, as every episode file holds it."""
FLAT = 1.0
"""RMS difference over four points below which a picture has nothing that could be sharp."""
HASH_ROWS, HASH_COLUMNS = 8, 9


@dataclass(frozen=True, slots=True)
class CameraTrace:
    """One camera over the T steps of an episode; float32 [T], NaN at steps without a picture.

    level_T: mean luma, 0 to 255. low_T, high_T: its 1st and 99th percentile. clipped_T: share of points from 250
    on. change_T: mean absolute difference of luma to the picture before; 0 where the same picture is
    shown again, NaN at the first one. sharpness_T: see `sharpness`; NaN where the picture is flat.
    hashes_T: uint64, a difference hash (dHash, 8 x 8); 0 without a picture.
    """

    level_T: NDArray[np.float32]
    low_T: NDArray[np.float32]
    high_T: NDArray[np.float32]
    clipped_T: NDArray[np.float32]
    change_T: NDArray[np.float32]
    sharpness_T: NDArray[np.float32]
    hashes_T: NDArray[np.uint64]

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.level_T)

    @property
    def seen_T(self) -> NDArray[np.bool_]:
        """Steps that have a picture."""
        return ~np.isnan(self.level_T)

    @classmethod
    def empty(cls, num_steps: int) -> CameraTrace:
        """No picture at any of the steps."""
        level_T, low_T, high_T, clipped_T, change_T, sharpness_T = np.full((6, num_steps), np.nan, np.float32)
        return cls(level_T, low_T, high_T, clipped_T, change_T, sharpness_T, np.zeros(num_steps, np.uint64))

    def to_bytes(self) -> bytes:
        """For the table `traces`: about 10 bytes a step."""
        buffer = io.BytesIO()
        half = {field.name: getattr(self, field.name) for field in fields(self)}
        np.savez(
            buffer, **{name: a if a.dtype == np.uint64 else a.astype(np.float16) for name, a in half.items()}
        )
        return zstandard.compress(buffer.getvalue(), 3)

    @classmethod
    def from_bytes(cls, data: bytes) -> CameraTrace:
        """From `to_bytes`; numbers keep eleven bits. Raises BadInput for anything else."""
        try:
            with np.load(io.BytesIO(zstandard.decompress(data)), allow_pickle=False) as arrays:
                found = {field.name: arrays[field.name] for field in fields(cls)}
        except (zstandard.ZstdError, ValueError, KeyError, OSError) as error:
            raise BadInput(f"not the trace of a camera ({error}); {len(data):,} bytes") from None
        return cls(**{name: a if a.dtype == np.uint64 else a.astype(np.float32) for name, a in found.items()})


def traces_of(rows: Iterable[Mapping[str, Any]], content_hash: str) -> dict[str, CameraTrace]:
    """camera -> its trace, of those rows of the table `traces` that are of this episode file; {} where none is.

    Raises BadInput for a trace that is none.
    """
    return {
        row["camera"]: CameraTrace.from_bytes(row["trace"])
        for row in rows
        if row["content_hash"] == content_hash
    }


class CameraEye:
    """Takes the trace of one camera; pictures are shown to it in the order of their steps."""

    def __init__(self, num_steps: int) -> None:
        self.trace = CameraTrace.empty(num_steps)
        self._before: NDArray[np.uint8] | None = None
        self._shown: tuple[int, av.VideoFrame] | None = None

    def see(self, step: int, frame: av.VideoFrame) -> None:
        """The picture of `step`: 8 bit, luma in its first plane, limited range. The same object means a repeat."""
        if self._shown is not None and self._shown[1] is frame:
            self._repeat(self._shown[0], step)
            self._shown = (step, frame)
            return
        luma_YX = luma_of(frame)
        stride = max(1, frame.width // COARSE_WIDTH)
        coarse_YX = np.ascontiguousarray(luma_YX[::stride, ::stride])
        trace = self.trace
        trace.level_T[step], trace.low_T[step], trace.high_T[step], trace.clipped_T[step] = _levels(coarse_YX)
        if self._before is not None and self._before.shape == coarse_YX.shape:
            change_YX = np.abs(coarse_YX.astype(np.int16) - self._before)
            trace.change_T[step] = change_YX.mean() * _GAIN
        trace.sharpness_T[step] = sharpness(luma_YX)
        trace.hashes_T[step] = difference_hash(coarse_YX)
        self._before, self._shown = coarse_YX, (step, frame)

    def _repeat(self, before: int, step: int) -> None:
        for field in fields(self.trace):
            values = getattr(self.trace, field.name)
            values[step] = values[before]
        self.trace.change_T[step] = 0.0


_GAIN = 255 / (WHITE - BLACK)
_FULL = np.clip((np.arange(256) - BLACK) * _GAIN, 0, 255)
"""Luma of limited range -> of full range."""


def luma_of(frame: av.VideoFrame) -> NDArray[np.uint8]:
    """The first plane of an 8-bit planar picture, uint8 [H, W], without a copy."""
    plane = frame.planes[0]
    rows: NDArray[np.uint8] = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
    return rows[: frame.height, : frame.width]


def _levels(coarse_YX: NDArray[np.uint8]) -> tuple[float, float, float, float]:
    """(mean, 1st percentile, 99th percentile, share clipped) in full range."""
    # one histogram: percentiles by sorting cost tenfold
    counts = np.bincount(coarse_YX.ravel(), minlength=256)
    total = coarse_YX.size
    below = np.cumsum(counts)
    low, high = np.searchsorted(below, [0.01 * total, 0.99 * total])
    clipped = counts[np.searchsorted(_FULL, CLIPPED) :].sum()
    return float(counts @ _FULL / total), float(_FULL[low]), float(_FULL[high]), float(clipped / total)


def sharpness(luma_YX: NDArray[np.uint8]) -> float:
    """RMS difference of neighbouring points over that of points four apart, along some rows; NaN if flat.

    A blurred edge gives 1/4, a sharp one 1/2, fine texture up to 1. Points are means of 2 x 2 pixels, so that sensor
    noise counts for less than edges.
    """
    step = max(2, luma_YX.shape[0] // 60)
    width = luma_YX.shape[1] // 2 * 2
    rows = luma_YX[: luma_YX.shape[0] - 1 : step, :width].astype(np.int16)
    rows += luma_YX[1::step, :width][: len(rows)]
    points = rows[:, 0::2] + rows[:, 1::2]
    if points.shape[1] < 8:
        return float("nan")
    near, far = (_rms(points[:, apart:] - points[:, :-apart]) for apart in (1, 4))
    return near / far if far > FLAT else float("nan")


def _rms(differences: NDArray[np.int16]) -> float:
    """Root mean square, of points that are sums of four pixels. Squares, since a blurred edge only spreads."""
    every = differences.astype(np.float32).ravel()
    return math.sqrt(float(every @ every) / every.size) / 4


def difference_hash(coarse_YX: NDArray[np.uint8]) -> int:
    """Whether each of 8 x 8 fields is brighter than the one to its right (dHash), as a uint64; 0 if too small."""
    height, width = coarse_YX.shape[0] // HASH_ROWS, coarse_YX.shape[1] // HASH_COLUMNS
    if not (height and width):
        return 0
    covered_YX = coarse_YX[: height * HASH_ROWS, : width * HASH_COLUMNS]
    means = covered_YX.reshape(HASH_ROWS, height, HASH_COLUMNS, width).mean(axis=(1, 3), dtype=np.float32)
    bits = (means[:, :-1] > means[:, 1:]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")
