"""One topic at the instants of the grid: which of its messages stand for each, and the values that makes.

Axis letters: M messages of the topic, T instants, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.angles import Turning, quaternions_in
from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import Align, VectorRole
from dyna_assets.steps.align.grid import TOLERANCE_NS
from dyna_train.episode.profile import MISSING_NS

Times = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER_NS = np.iinfo(np.int64).max
"""An age that nothing reaches: commands hold until the next one."""
_BLOCK_VALUES = 1 << 19
"""So many values are worked on at a time: what is held beside input and output stays at a few MB."""


@dataclass(frozen=True, slots=True)
class Series:
    """A vector topic: capture times int64 [M] (ns) and values float64 [M, D]."""

    times_ns: NDArray[np.int64]
    values_MD: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Picks:
    """The messages that stand for each of T instants.

    before_T, after_T: message numbers, equal unless the instant is interpolated; -1 where none was seen yet.
    weight_T: share of `after`, 0 to 1. missing_T: nothing was captured near enough to the instant; a vector then
    holds `before`, the last message before the instant, and a camera shows nothing.
    """

    before_T: Times
    after_T: Times
    weight_T: NDArray[np.float64]
    missing_T: Flags

    @classmethod
    def of_frames(cls, frames_T: Times) -> Picks:
        """One message for each instant, -1 for none."""
        return cls(frames_T, frames_T, np.zeros(len(frames_T)), frames_T < 0)

    def used(self, num_messages: int) -> Flags:
        """Which of the M messages stand for an instant; bool [M]."""
        used_M = np.zeros(num_messages, np.bool_)
        for number_T in (self.before_T, self.after_T):
            used_M[number_T[number_T >= 0]] = True
        return used_M


@dataclass(frozen=True, slots=True)
class Laid:
    """A topic on the grid.

    capture_T: capture time of what each step holds, int64 ns, MISSING_NS for nothing. missing_T: bool, steps without
    the topic. used_M: bool, messages that stand for a step.
    """

    capture_T: Times
    missing_T: Flags
    used_M: Flags


@dataclass(frozen=True, slots=True)
class LaidCamera(Laid):
    """frames_T: int64, number of the message shown at the step, -1 for none."""

    frames_T: Times


@dataclass(frozen=True, slots=True)
class LaidVector(Laid):
    """values_TD: float32; every step holds numbers, those of a missing one are the last before it."""

    values_TD: NDArray[np.float32]


def pick(times_M: Times, times_T: Times, how: Align, max_gap_ns: int) -> Picks:
    """Choose messages for the instants `times_T`; times_M ascending, M >= 1, both int64 ns.

    causal: the latest at or before. nearest: the nearest, of two the earlier. interpolate: both neighbours, where
    they are at most max_gap_ns apart; else missing. Nothing older (nearest: or younger) than max_gap_ns is taken.
    """
    last_T = latest(times_M, times_T)
    if how == "causal":
        return _held(last_T, times_M, times_T, max_gap_ns)
    before_T = latest(times_M, times_T, tolerance_ns=0)
    before_T[(before_T < 0) & (last_T >= 0)] = 0
    after_T = np.minimum(before_T + 1, len(times_M) - 1)
    if how == "nearest":
        return _nearest(last_T, before_T, after_T, times_M, times_T, max_gap_ns)
    apart_T = times_M[after_T] - times_M[before_T]
    since_T = times_T - times_M[before_T]
    weight_T = np.clip(since_T / np.maximum(apart_T, 1), 0.0, 1.0)
    mixed_T = (weight_T > 0) & (apart_T > 0) & (apart_T <= max_gap_ns) & (before_T >= 0)
    alone_T = (since_T <= 0) | (after_T == before_T)
    held = _held(before_T, times_M, times_T, max_gap_ns)
    return Picks(
        before_T,
        np.where(mixed_T, after_T, before_T),
        np.where(mixed_T, weight_T, 0.0),
        ~mixed_T & (held.missing_T | ~alone_T),
    )


def latest(times_M: Times, times_T: Times, *, tolerance_ns: int = TOLERANCE_NS) -> Times:
    """Number of the latest message at or before each instant, int64 [T]; -1 before the first."""
    return np.asarray(np.searchsorted(times_M - tolerance_ns, times_T, side="right") - 1)


def lay_camera(times_M: Times, picks: Picks) -> LaidCamera:
    """A camera's frames at the steps: those picked, and none where the nearest is too far."""
    frames_T = np.where(picks.missing_T, -1, picks.before_T)
    used_M = np.zeros(len(times_M), np.bool_)
    used_M[frames_T[frames_T >= 0]] = True
    capture_T = np.where(picks.missing_T, MISSING_NS, times_M[frames_T])
    return LaidCamera(capture_T, picks.missing_T, used_M, frames_T)


def lay_vector(series: Series, role: VectorRole, times_T: Times, max_gap_ns: int) -> LaidVector:
    """A vector's values at the instants `times_T`.

    With `role.confidence` a value that is not finite is no detection: each dimension (a quaternion as one) goes by its
    own detections. Before the first one it is 0 and the step is missing, as it is where the last one is too old. Its
    capture time is that of the newest value, or of the step itself where nothing was seen yet.
    """
    where = f"{role.topic} ('{role.name}')"
    num_rows, num_dims = series.values_MD.shape
    units = units_of(role, num_dims)
    values_TD = np.zeros((len(times_T), num_dims), np.float32)
    capture_T = np.full(len(times_T), MISSING_NS)
    missing_T, used_M = np.zeros(len(times_T), np.bool_), np.zeros(num_rows, np.bool_)
    for dims, rows, seen in _detections(series, role, units, where):
        if not len(rows):
            missing_T[:] = True
            continue
        picks = pick(seen.times_ns, times_T, role.align, max_gap_ns)
        turning = Turning.of(seen.values_MD, [units[dim] for dim in dims], where=where)
        _fill(values_TD, dims, seen.values_MD, picks, turning)
        captured_T = np.where(picks.weight_T > 0, times_T, seen.times_ns[picks.before_T])
        capture_T = np.maximum(capture_T, np.where(picks.before_T >= 0, captured_T, MISSING_NS))
        missing_T |= picks.missing_T
        used_M[rows[picks.used(len(rows))]] = True
    return LaidVector(np.where(capture_T < 0, times_T, capture_T), missing_T, used_M, values_TD)


def units_of(role: VectorRole, num_dims: int) -> tuple[str, ...]:
    """The unit of each dimension. Raises RecordingError if the profile names another number of them."""
    units = (role.units,) * num_dims if isinstance(role.units, str) else role.units
    if len(units) != num_dims:
        raise RecordingError(
            f"{role.topic} ('{role.name}') has {num_dims} dimensions, its profile names {len(units)} units",
            check="topics.present",
        )
    return units


def _held(before_T: Times, times_M: Times, times_T: Times, max_gap_ns: int) -> Picks:
    missing_T = (before_T < 0) | (times_T - times_M[before_T] > max_gap_ns)
    return Picks(before_T, before_T, np.zeros(len(times_T)), missing_T)


def _nearest(
    last_T: Times, before_T: Times, after_T: Times, times_M: Times, times_T: Times, max_gap_ns: int
) -> Picks:
    since_T, until_T = times_T - times_M[before_T], times_M[after_T] - times_T
    nearest_T = np.where((before_T < 0) | (until_T < since_T) & (until_T >= 0), after_T, before_T)
    missing_T = np.abs(times_T - times_M[nearest_T]) > max_gap_ns
    shown_T = np.where(missing_T, last_T, nearest_T)
    return Picks(shown_T, shown_T, np.zeros(len(times_T)), missing_T)


def _detections(
    series: Series, role: VectorRole, units: tuple[str, ...], where: str
) -> Iterator[tuple[list[int], Times, Series]]:
    """Dimensions that are seen in the same rows, those rows, and the series of only both."""
    values_MD = series.values_MD
    if not role.confidence:
        yield list(range(values_MD.shape[1])), np.arange(len(values_MD)), series
        return
    seen_MD = np.isfinite(values_MD)
    for dim in quaternions_in(units, where=where):
        seen_MD[:, dim : dim + 4] = seen_MD[:, dim : dim + 4].all(axis=1, keepdims=True)
    alike: dict[bytes, list[int]] = {}
    for dim in range(values_MD.shape[1]):
        alike.setdefault(np.packbits(seen_MD[:, dim]).tobytes(), []).append(dim)
    for dims in alike.values():
        rows = np.flatnonzero(seen_MD[:, dims[0]])
        yield dims, rows, Series(series.times_ns[rows], values_MD[rows][:, dims])


def _fill(
    values_TD: NDArray[np.float32],
    dims: list[int],
    values_RD: NDArray[np.float64],
    picks: Picks,
    turning: Turning,
) -> None:
    """Write the picked values into the dimensions `dims`, block by block; what was not seen yet stays 0."""
    length = max(1, _BLOCK_VALUES // max(1, len(dims)))
    with np.errstate(over="ignore", invalid="ignore"):  # what is no number is for the gates to judge
        for start in range(0, len(values_TD), length):
            block = slice(start, start + length)
            before_T, weight_T = picks.before_T[block], picks.weight_T[block]
            made_TD = values_RD[before_T]
            mixed = np.flatnonzero(weight_T > 0)
            if len(mixed):
                after_TD = values_RD[picks.after_T[block][mixed]]
                made_TD[mixed] = turning.between(made_TD[mixed], after_TD, weight_T[mixed])
            made_TD[before_T < 0] = 0.0
            values_TD[block, dims] = made_TD
