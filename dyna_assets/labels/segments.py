"""Labellers `segments` and `grippers`: where an episode changes from one movement to the next.

Array axes: M intervals between steps, N points of a coarser time axis, P parts of the body.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dyna_assets.labels.joints import GRIPPER_WORDS, places, words
from dyna_assets.labels.registry import Annotation, labeller
from dyna_assets.labels.view import EpisodeView

MAX_POINTS = 600
"""The search's cost grows with their square: 600 points of an episode of 30 s are 20 Hz, of an hour every 6 s."""
SHORTEST_S = 0.5
PENALTY = 3.0
"""Times log(points) and parts, what a further change point must explain, in variances of the whole episode."""
OPENED, CLOSED = 0.65, 0.35
"""Shares of a gripper's travel between which its last state holds, so that a tremble is no event."""
GRIPPER_TRAVEL = 0.01
"""A gripper that covers less, in its own unit, did nothing."""


@labeller("segments", version=1)
def segments(view: EpisodeView) -> Iterator[Annotation]:
    """Stretches of like speeds, from change points of the state's speed; one stretch if it never moves."""
    speed_NP, seconds_a_point = _speeds(view)
    if not len(speed_NP):
        return
    ends = change_points(speed_NP, max(2, round(SHORTEST_S / seconds_a_point)))
    starts = [0, *ends[:-1]]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        end_s = view.duration_s if number == len(ends) else end * seconds_a_point
        text = f"segment {number} of {len(ends)}"
        yield Annotation("", "segment", number, "", text, start * seconds_a_point, end_s)


@labeller("grippers", version=1)
def grippers(view: EpisodeView) -> Iterator[Annotation]:
    """When a gripper's value rises or falls through most of its travel; which of the two opens it, nobody says."""
    for part in places(view.header):
        motion, track = view.motions[part.track.topic], part.track
        seconds_N = np.flatnonzero(motion.valid_T) / view.rate_hz
        for dim in part.dims:
            told_by = {*words(track.names[dim]), *(words(track.name) if track.dim == 1 else ())}
            values_N = motion.values_TD[motion.valid_T, dim]
            for step, rises in gripper_events(values_N) if told_by & GRIPPER_WORDS else ():
                key, level = "gripper_rises" if rises else "gripper_falls", float(values_N[step])
                subject = f"state/{track.name}/{track.names[dim]}"
                yield Annotation(subject, key, level, part.unit, start_s=float(seconds_N[step]))


def change_points(values_NP: NDArray[np.float64], shortest: int) -> list[int]:
    """Ends (exclusive) of stretches of like values, at least `shortest` points each; the last is N.

    Kernel change point detection (PELT on squared distances) under a penalty that grows with log N: C. Truong,
    L. Oudre, N. Vayatis: Selective review of offline change point detection methods (2020).
    """
    num_points, num_parts = values_NP.shape
    if num_points < 2 * shortest:
        return [num_points]
    from ruptures import KernelCPD  # takes 0.8 s of CPU to load, and only this labeller needs it

    ends = KernelCPD(kernel="linear", min_size=shortest).fit(values_NP)
    return [int(end) for end in ends.predict(pen=PENALTY * num_parts * np.log(num_points))]


def gripper_events(values_T: NDArray[np.float64]) -> list[tuple[int, bool]]:
    """(step, whether it rises) of every change of a gripper between the ends of its travel."""
    if not len(values_T) or (travel := float(np.ptp(values_T))) < GRIPPER_TRAVEL:
        return []
    share_T = (values_T - values_T.min()) / travel
    told = np.flatnonzero((share_T > OPENED) | (share_T < CLOSED))
    is_high = share_T[told] > OPENED
    changes = np.flatnonzero(np.diff(is_high.astype(np.int8))) + 1
    return [(int(told[change]), bool(is_high[change])) for change in changes]


def _speeds(view: EpisodeView) -> tuple[NDArray[np.float64], float]:
    """Speeds of the parts that move, each with mean 0 and variance 1, at most MAX_POINTS; seconds a point."""
    stride = -(-(view.num_steps - 1) // MAX_POINTS) or 1
    columns = []
    for part in places(view.header):
        motion = view.motions[part.track.topic]
        if motion.moves(part.dims):
            speed_N = _means(motion.speed_M(part.dims), stride)
            columns.append((speed_N - speed_N.mean()) / (speed_N.std() or 1.0))
    num_points = len(_means(np.zeros(view.num_steps - 1), stride))
    is_state = any(track.role == "state" for track in view.header.vectors)
    speeds_NP = np.stack(columns, axis=1) if columns else np.zeros((num_points if is_state else 0, 1))
    return speeds_NP, stride / view.rate_hz


def _means(values_M: NDArray[np.float64], stride: int) -> NDArray[np.float64]:
    """Means of `stride` values each; the last one may be of fewer."""
    starts = np.arange(0, len(values_M), stride)
    sums_N = np.add.reduceat(values_M, starts) if len(values_M) else values_M
    counts_N = np.diff([*starts, len(values_M)])
    means_N: NDArray[np.float64] = sums_N / counts_N
    return means_N
