"""Many clocks -> one grid (pure).

The grid is uniform. At each of its instants a topic gives its latest message captured at or before it
(causal), so that no window shows the future; commands are held the same way. Capture times, not
arrival times, decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import SourceProfile
from dyna_train.episode.profile import step_time_ns

TOLERANCE_NS = 100_000
"""A message this little after an instant counts as at it: float32 seconds, which many formats store, are
only good to 60 us after a quarter of an hour, and must not shift a stream by a whole frame."""


@dataclass(frozen=True, slots=True)
class Series:
    """A vector topic: capture times int64 [M] (ns) and values float64 [M, D]."""

    times_ns: NDArray[np.int64]
    values_MD: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Alignment:
    """What the episode will hold at each of its T steps.

    frames: camera -> int64 [T], index of the source frame (in file order) shown at the step.
    vectors: episode topic name ('state/<name>' or 'action/<name>') -> (float32 [T, D], capture ns int64 [T]).
    max_skew_ns: camera -> how old its shown frame is at most.
    """

    start_ns: int
    rate_hz: float
    num_steps: int
    frames: Mapping[str, NDArray[np.int64]]
    vectors: Mapping[str, tuple[NDArray[np.float32], NDArray[np.int64]]]
    max_skew_ns: Mapping[str, int]


def align(
    profile: SourceProfile, camera_times: Mapping[str, NDArray[np.int64]], vectors: Mapping[str, Series]
) -> Alignment:
    """Lay every topic of the profile on the grid.

    camera_times: topic -> capture times; vectors: topic -> series. Each must be non-empty and ascending.
    The grid starts at the first instant at which every topic has been seen and ends (inclusive) with the
    topic that ends first. Raises RecordingError if the topics have no time in common.
    """
    every = {**camera_times, **{topic: series.times_ns for topic, series in vectors.items()}}
    last_to_start = max(every, key=lambda topic: int(every[topic][0]))
    first_to_end = min(every, key=lambda topic: int(every[topic][-1]))
    start_ns, end_ns = int(every[last_to_start][0]), int(every[first_to_end][-1])
    if end_ns < start_ns:
        raise RecordingError(
            f"topics share no time: {first_to_end} ends "
            f"{(start_ns - end_ns) / 1e9:.3f} s before {last_to_start} starts",
            check="time.overlap",
        )
    grid_T = grid_times(start_ns, end_ns, profile.grid.rate_hz)
    frames = {camera.name: latest(camera_times[camera.topic], grid_T) for camera in profile.cameras}
    skew = {
        camera.name: int((grid_T - camera_times[camera.topic][frames[camera.name]]).max())
        for camera in profile.cameras
    }
    held = {}
    for prefix, roles in (("state", profile.states), ("action", profile.actions)):
        for role in roles:
            series = vectors[role.topic]
            row_T = latest(series.times_ns, grid_T)
            held[f"{prefix}/{role.name}"] = (
                series.values_MD[row_T].astype(np.float32),
                series.times_ns[row_T],
            )
    return Alignment(start_ns, profile.grid.rate_hz, len(grid_T), frames, held, skew)


def grid_times(start_ns: int, end_ns: int, rate_hz: float) -> NDArray[np.int64]:
    """Instants of a uniform grid from `start_ns` to `end_ns` inclusive, int64 [T], T >= 1."""
    num_steps = int((end_ns - start_ns + TOLERANCE_NS) * rate_hz / 1e9) + 1
    return np.array([step_time_ns(start_ns, rate_hz, step) for step in range(num_steps)], dtype=np.int64)


def latest(times_M: NDArray[np.int64], grid_T: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the latest message at or before each instant, int64 [T]; the first one before any."""
    index_T = np.searchsorted(times_M, grid_T + TOLERANCE_NS, side="right") - 1
    return np.maximum(index_T, 0)
