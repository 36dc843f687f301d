"""Where things lie on the sheet: one time axis for frames and plots, and round numbers beside it (pure).

Array axes: T steps, P points of a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

import numpy as np
from numpy.typing import NDArray

PAGE_WIDTH = 1440
MARGIN = 16
AXIS_LEFT = 222
AXIS_RIGHT = 1202
LEGEND_LEFT = 1214
_LONG_S = 600.0


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The steps of an episode from AXIS_LEFT (the first) to AXIS_RIGHT (the last), in pixels of the page."""

    num_steps: int
    rate_hz: float

    def x(self, step: float) -> float:
        """Pixels from the left of the page to `step`; a single step lies in the middle."""
        share = step / (self.num_steps - 1) if self.num_steps > 1 else 0.5
        return AXIS_LEFT + share * (AXIS_RIGHT - AXIS_LEFT)

    def columns(self) -> NDArray[np.int64]:
        """The pixel column of the axis in which each step lies, from 0, int64 [T]."""
        if self.num_steps == 1:
            return np.array([(AXIS_RIGHT - AXIS_LEFT) // 2])
        return np.arange(self.num_steps) * (AXIS_RIGHT - AXIS_LEFT) // (self.num_steps - 1)

    @property
    def last_s(self) -> float:
        """Time of the last step, in seconds from the first."""
        return (self.num_steps - 1) / self.rate_hz

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Position and label of round times from the first step: seconds, or minutes from ten on."""
        unit, name = (60.0, "min") if self.last_s >= _LONG_S else (1.0, "s")
        for number in round_numbers(0.0, self.last_s / unit, most=10):
            yield self.x(number * unit * self.rate_hz), f"{number:g} {name}"

    def label(self, step: float) -> str:
        """The time of `step` in words: '3.27 s', or '71:05 min' in an episode of ten minutes or more."""
        time_s = step / self.rate_hz
        if self.last_s < _LONG_S:
            return f"{time_s:.2f} s"
        minutes, seconds = divmod(round(time_s), 60)
        return f"{minutes}:{seconds:02d} min"


def round_numbers(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high, a step of 1, 2 or 5 times a power of ten apart.

    At most `most` of them, but more where these would be fewer than two.
    """
    span = high - low
    if span <= 0 or not isfinite(span):
        return [low]
    power = 10.0 ** floor(log10(span / most))
    numbers = [low]
    for step in (power / 2, power, 2 * power, 5 * power, 10 * power, 20 * power):
        first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
        if last - first < 1:
            break
        numbers = [number * step for number in range(first, last + 1)]
        if len(numbers) <= most:
            break
    return numbers


def number_label(value: float, step: float) -> str:
    """`value` with as many digits as tell it from its neighbour, `step` away."""
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = max(0, -floor(log10(step))) if step > 0 else 3
    return f"{value:.{min(digits, 6)}f}"


def value_range(values: NDArray[np.float32]) -> tuple[float, float] | None:
    """Lowest and highest value to show, with a margin; None if no value is finite."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    margin = 0.08 * (high - low) or 0.05 * max(abs(low), abs(high)) or 1.0
    return low - margin, high + margin


def outline(values_T: NDArray[np.float32]) -> list[NDArray[np.float64]]:
    """What to draw of a line: stretches of (x, value), float64 [P, 2], cut where values are not finite.

    Where many steps share a pixel column, the lowest and the highest value of the column stand for them.
    """
    steps_T = np.arange(len(values_T), dtype=np.float64)
    share_T = steps_T / max(len(values_T) - 1, 1) if len(values_T) > 1 else np.array([0.5])
    x_T = AXIS_LEFT + share_T * (AXIS_RIGHT - AXIS_LEFT)
    points = np.stack([x_T, values_T.astype(np.float64)], axis=1)
    stretches = np.split(points, np.flatnonzero(np.diff(np.isfinite(values_T))) + 1)
    return [_thin(stretch) for stretch in stretches if np.isfinite(stretch[0, 1])]


def _thin(points: NDArray[np.float64]) -> NDArray[np.float64]:
    column_P = points[:, 0].astype(np.int64)
    starts = np.flatnonzero(np.diff(column_P, prepend=-1))
    if len(points) <= 2 * len(starts):
        return points
    low, high = np.minimum.reduceat(points[:, 1], starts), np.maximum.reduceat(points[:, 1], starts)
    middle = column_P[starts] + 0.5
    return np.stack([np.repeat(middle, 2), np.stack([low, high], axis=1).ravel()], axis=1)


def dashes(points: NDArray[np.float64], on: float, off: float) -> Iterator[NDArray[np.float64]]:
    """The parts of a line that its dashes show: `on` pixels of x, then a gap of `off`; float64 [P, 2] each."""
    x_P, y_P = points[:, 0], points[:, 1]
    first = floor(x_P[0] / (on + off)) * (on + off)
    for start in np.arange(first, x_P[-1], on + off):
        ends = np.array([max(start, x_P[0]), min(start + on, x_P[-1])])
        if ends[0] >= ends[1]:
            continue
        inside = points[(x_P > ends[0]) & (x_P < ends[1])]
        edge_y = np.interp(ends, x_P, y_P)
        yield np.concatenate([[[ends[0], edge_y[0]]], inside, [[ends[1], edge_y[1]]]])
