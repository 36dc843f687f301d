"""The instants of an episode's steps: evenly spaced, or the frames of one camera."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dyna_assets.clocks import Lattice, fit_lattice
from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import Grid
from dyna_train.episode.profile import SECOND_NS, grid_times_ns

TOLERANCE_NS = 100_000
"""A message this little after an instant counts as at it: float32 seconds, which many formats store, are
only good to 60 us after a quarter of an hour, and must not shift a topic by a whole frame."""
MOST_STEPS = 1 << 24
"""More than four hours at 1000 Hz, or six days at 30 Hz: what asks for more has a clock that jumped."""
_RATE_TOLERANCE = 0.01
_SURELY = 3.0
"""Standard errors of a camera's rate that it may be further off: jitter hides the rate of a few frames."""
_LEAST_FRAMES = 10
"""Fewer frames do not tell a camera's rate from a frame that was lost."""

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """The T steps of an episode. times_T: the instant of each, int64 ns.

    reference_T: with a reference camera, which of its messages each step is, -1 in a hole; otherwise None.
    note: how they lie, and how often they really come, in words.
    """

    times_T: Times
    reference_T: Times | None = None
    note: str = "uniform"


def lay_steps(grid: Grid, clocks: Mapping[str, Times], reference: str) -> Steps:
    """The steps in the time that all topics have in common. clocks: topic -> ascending capture times, not empty.

    reference: the topic of the reference camera, or ''. Raises RecordingError if the topics share no time, if the
    time is too long for an episode, or if the reference camera does not run at the grid's rate.
    """
    start_ns, end_ns = common_time(clocks)
    num_steps = num_uniform(start_ns, end_ns, grid.rate_hz)
    if num_steps > MOST_STEPS:
        raise RecordingError(
            f"the topics share {(end_ns - start_ns) / 1e9:,.0f} s: {num_steps:,} steps at {grid.rate_hz:g} Hz, and an "
            f"episode holds at most {MOST_STEPS:,}. A clock jumped, or the recording must be split",
            check="time.duration",
        )
    if reference:
        return _frames_as_steps(grid, reference, clocks[reference], start_ns, end_ns)
    return Steps(grid_times_ns(start_ns, grid.rate_hz, num_steps))


def common_time(clocks: Mapping[str, Times]) -> tuple[int, int]:
    """(first instant at which every topic has been seen, end of the topic that ends first), both inclusive."""
    last_to_start = max(clocks, key=lambda topic: int(clocks[topic][0]))
    first_to_end = min(clocks, key=lambda topic: int(clocks[topic][-1]))
    start_ns, end_ns = int(clocks[last_to_start][0]), int(clocks[first_to_end][-1])
    if end_ns < start_ns:
        raise RecordingError(
            f"topics share no time: {first_to_end} ends "
            f"{(start_ns - end_ns) / 1e9:.3f} s before {last_to_start} starts",
            check="time.overlap",
        )
    return start_ns, end_ns


def num_uniform(start_ns: int, end_ns: int, rate_hz: float) -> int:
    """How many steps lie between start and end, the end inclusive within the tolerance; at least 1."""
    period = SECOND_NS / Fraction(rate_hz)
    # Step k is in the span if k * period, rounded to ns, is: if k * period < span + 1/2.
    return math.ceil((end_ns - start_ns + TOLERANCE_NS + Fraction(1, 2)) / period)


def _frames_as_steps(grid: Grid, topic: str, times_M: Times, start_ns: int, end_ns: int) -> Steps:
    """Each frame in the common time is a step; a hole longer than the source allows gets steps without a frame."""
    first, last = np.searchsorted(times_M, [start_ns - TOLERANCE_NS, end_ns + TOLERANCE_NS + 1]).tolist()
    shown = times_M[first:last]
    if not len(shown):
        raise RecordingError(
            f"the reference camera {topic} has no frame in the {(end_ns - start_ns) / 1e9:.3f} s that all topics share",
            check="time.overlap",
        )
    lattice = _kept_rate(grid, topic, shown)
    times_T, reference_T = _without_holes(shown, np.arange(first, last), grid)
    return Steps(times_T, reference_T, _note(grid.reference, times_T, lattice))


def _without_holes(shown: Times, numbers: Times, grid: Grid) -> tuple[Times, Times]:
    """Times and message numbers of the steps: every frame, and a period apart, -1, where none came for too long."""
    period_ns = SECOND_NS / grid.rate_hz
    apart = np.diff(shown)
    num_filled = np.where(apart > grid.max_gap_s * 1e9, np.rint(apart / period_ns).astype(np.int64) - 1, 0)
    num_filled = np.maximum(num_filled, 0)
    at = np.arange(len(shown)) + np.concatenate([[0], np.cumsum(num_filled)])
    reference_T = np.full(int(at[-1]) + 1, -1)
    reference_T[at] = numbers
    times_T = np.interp(np.arange(len(reference_T)), at, (shown - shown[0]).astype(np.float64))
    times_T = shown[0] + np.rint(times_T).astype(np.int64)
    times_T[at] = shown
    return times_T, reference_T


def _kept_rate(grid: Grid, topic: str, shown: Times) -> Lattice:
    """The camera's clock. Its rate must be the profile's, which the files of all episodes of the source state.

    Frames that were lost leave it as it is, and so does jitter: a window of so many steps then takes longer where a
    frame is missing, but is not of another speed everywhere.
    """
    lattice = fit_lattice(shown, grid.rate_hz)
    off = abs(lattice.rate_hz / grid.rate_hz - 1)
    if len(shown) >= _LEAST_FRAMES and off > _RATE_TOLERANCE + _SURELY * lattice.rate_error:
        raise RecordingError(
            f"the frames of the reference camera {topic} come at {lattice.rate_hz:.4g} Hz, grid.rate_hz says "
            f"{grid.rate_hz:g}. The steps are its frames: write its own rate, within {_RATE_TOLERANCE:.0%}, or leave "
            "out grid.reference",
            check="time.reference_rate",
        )
    return lattice


def _note(camera: str, times_T: Times, lattice: Lattice) -> str:
    """'frames of top, 24.2 a second: 58 of 300 at 29.99 Hz were lost'."""
    span_s = int(times_T[-1] - times_T[0]) / SECOND_NS
    often = f", {(len(times_T) - 1) / span_s:.4g} a second" if span_s else ""
    num_lost = lattice.num_slots - len(lattice.slots_N)
    lost = (
        f": {num_lost:,} of {lattice.num_slots:,} at {lattice.rate_hz:.4g} Hz were lost" if num_lost else ""
    )
    return f"frames of {camera}{often}{lost}"
