"""What an episode will hold at each of its steps, worked out before a single picture is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import ActionRole, CameraRole, SourceProfile, VectorRole
from dyna_assets.steps.align.grid import TOLERANCE_NS, Steps, lay_steps
from dyna_assets.steps.align.resample import (
    NEVER_NS,
    Flags,
    Laid,
    LaidCamera,
    LaidVector,
    Picks,
    Series,
    Times,
    lay_camera,
    lay_vector,
    pick,
)
from dyna_train.episode.profile import MAX_NS, MISSING_NS, SECOND_NS, grid_times_ns
from dyna_train.episode.stretches import Stretches, steps_at

_LAST_NS = MAX_NS - 2 * TOLERANCE_NS
_LONGEST_S = 1e9


class Missing(NamedTuple):
    """A stretch of steps without one topic of the episode ('camera/top', 'state/arm'); past_step is exclusive."""

    topic: str
    first_step: int
    past_step: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of a topic's messages: num_in is the sum of the next three.

    num_used: they stand for a step, alone or with a neighbour. num_outside: captured before the first or after
    the last step, and not used. num_surplus: captured between them, and not used.
    """

    num_in: int
    num_used: int
    num_outside: int
    num_surplus: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """What the episode will hold at each of its T steps.

    start_ns, rate_hz: step k has the log time start_ns + k / rate_hz in the file, which is log_T, int64 ns.
    grid_T: the instant of each step, int64 ns: the same on a uniform grid; with a reference camera, the capture time
    of its frame. grid_note: how they lie, in words, for the file: with a reference camera, how often they come.
    frames: camera -> int64 [T], number of the source frame (in file order) shown at the step, -1 for none.
    vectors: episode topic ('state/<name>' or 'action/<name>') -> (float32 [T, D], capture ns int64 [T]).
    skew_ns: camera -> int64 [T], instant minus capture, 0 where it shows nothing.
    missing: 'camera/<name>', 'state/<name>' or 'action/<name>' -> bool [T], steps without it. valid_T: bool [T], steps
    that have everything. counts: topic of the recording -> what became of its messages. shift_ns: is added to every
    time of the recording; 0, except where times that count from 0 would fall below it by a latency.
    """

    start_ns: int
    rate_hz: float
    grid_T: Times
    log_T: Times
    frames: Mapping[str, Times]
    vectors: Mapping[str, tuple[NDArray[np.float32], Times]]
    skew_ns: Mapping[str, Times]
    missing: Mapping[str, Flags]
    valid_T: Flags
    counts: Mapping[str, Counts]
    shift_ns: int
    grid_note: str

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.grid_T)

    @property
    def duration_s(self) -> float:
        """From the first instant to one period after the last: more than T / rate_hz where frames were lost."""
        return int(self.grid_T[-1] - self.grid_T[0]) / SECOND_NS + 1 / self.rate_hz

    @property
    def max_skew_ns(self) -> dict[str, int]:
        """camera -> how far from the instant its shown frame is at most."""
        return {camera: int(np.abs(skew_T).max()) for camera, skew_T in self.skew_ns.items()}

    @property
    def valid_spans(self) -> Stretches:
        """Steps that have everything."""
        return steps_at(np.flatnonzero(self.valid_T))

    @property
    def invalid(self) -> tuple[Missing, ...]:
        """Every stretch of steps without a topic."""
        return tuple(
            Missing(topic, span.start, span.stop)
            for topic, missing_T in self.missing.items()
            for span in steps_at(np.flatnonzero(missing_T))
        )

    def capture_ns(self, camera: str) -> Times:
        """Capture times of what a camera shows, its latency taken off, int64 [T] ns; MISSING_NS for nothing."""
        return np.where(self.missing[f"camera/{camera}"], MISSING_NS, self.grid_T - self.skew_ns[camera])

    def log_ns(self, times_M: Times) -> Times:
        """Where instants lie on the file's log times, int64 [M] ns each, in the order and on the clock of grid_T.

        The same on a uniform grid. With a reference camera a step's instant has its log time, those between two
        steps lie evenly between theirs, and those outside are as far from the first or last step as they were; none
        gets below 0.
        """
        # Whole ns from the step before, since float64 does not hold those since the epoch.
        before_M = np.clip(np.searchsorted(self.grid_T, times_M, side="right") - 1, 0, self.num_steps - 1)
        after_M = np.minimum(before_M + 1, self.num_steps - 1)
        since_M = times_M - self.grid_T[before_M]
        apart_M = self.grid_T[after_M] - self.grid_T[before_M]
        later_M = self.log_T[before_M] - self.grid_T[before_M]
        wider_M = self.log_T[after_M] - self.grid_T[after_M] - later_M
        share_M = np.where((since_M > 0) & (apart_M > 0), since_M / np.maximum(apart_M, 1), 0.0)
        log_M = times_M + later_M + np.rint(share_M * wider_M).astype(np.int64)
        return np.asarray(np.where(times_M < 0, times_M, np.maximum(log_M, 0)), np.int64)


def align(
    profile: SourceProfile, camera_times: Mapping[str, Times], vectors: Mapping[str, Series]
) -> Alignment:
    """Lay every topic of the profile on the grid.

    camera_times: topic -> capture times; vectors: topic -> series; as recorded, the latencies of the profile are
    taken off here. The grid starts at the first instant at which every topic has been seen and ends (inclusive) with
    the topic that ends first. A message that is older than grid.max_gap_s at an instant is not shown there: the step
    is not valid. Commands are the exception, since one holds until the next however long that takes; a vector with
    `confidence` is no command but something seen, also as an action.
    Raises RecordingError for a topic without messages, times that go back, and topics with no time in common.
    """
    recorded = {**camera_times, **{topic: series.times_ns for topic, series in vectors.items()}}
    clocks, shift_ns = _corrected(profile, recorded)
    reference = {role.name: role.topic for role in profile.cameras}.get(profile.grid.reference, "")
    steps = lay_steps(profile.grid, clocks, reference)
    gap_ns = round(min(profile.grid.max_gap_s, _LONGEST_S) * 1e9)
    cameras = {
        role.name: _laid_camera(role, clocks[role.topic], steps, role.topic == reference, gap_ns)
        for role in profile.cameras
    }
    held = {
        role.key: _laid_vector(role, Series(clocks[role.topic], vectors[role.topic].values_MD), steps, gap_ns)
        for role in profile.vectors
    }
    every = {**{f"camera/{name}": laid for name, laid in cameras.items()}, **held}
    topics = {role.key: role.topic for role in profile.topic_roles}
    grid_T, missing = steps.times_T, {name: laid.missing_T for name, laid in every.items()}
    return Alignment(
        start_ns=int(grid_T[0]),
        rate_hz=profile.grid.rate_hz,
        grid_T=grid_T,
        log_T=grid_times_ns(int(grid_T[0]), profile.grid.rate_hz, len(grid_T)),
        frames={name: laid.frames_T for name, laid in cameras.items()},
        vectors={name: (laid.values_TD, laid.capture_T) for name, laid in held.items()},
        skew_ns={
            name: np.where(laid.missing_T, 0, grid_T - laid.capture_T) for name, laid in cameras.items()
        },
        missing=missing,
        valid_T=~np.logical_or.reduce([np.zeros(len(grid_T), np.bool_), *missing.values()]),
        counts={topics[name]: _counts(clocks[topics[name]], laid, grid_T) for name, laid in every.items()},
        shift_ns=shift_ns,
        grid_note=steps.note,
    )


def _laid_camera(
    role: CameraRole, times_M: Times, steps: Steps, is_reference: bool, gap_ns: int
) -> LaidCamera:
    if is_reference and steps.reference_T is not None:
        return lay_camera(times_M, Picks.of_frames(steps.reference_T))
    return lay_camera(times_M, pick(times_M, steps.times_T, role.align, gap_ns))


def _laid_vector(role: VectorRole, series: Series, steps: Steps, gap_ns: int) -> LaidVector:
    """A command holds until the next one; what was measured or seen does not."""
    is_command = isinstance(role, ActionRole) and not role.confidence
    return lay_vector(series, role, steps.times_T, NEVER_NS if is_command else gap_ns)


def _counts(times_M: Times, laid: Laid, grid_T: Times) -> Counts:
    inside_M = (times_M >= grid_T[0]) & (times_M <= grid_T[-1])
    return Counts(
        num_in=len(times_M),
        num_used=int(laid.used_M.sum()),
        num_outside=int((~laid.used_M & ~inside_M).sum()),
        num_surplus=int((~laid.used_M & inside_M).sum()),
    )


def _corrected(profile: SourceProfile, recorded: Mapping[str, Times]) -> tuple[dict[str, Times], int]:
    """(topic -> capture times without its latency, what was added to all so that none is below 0)."""
    late_ns = {role.topic: round(role.latency_ms * 1e6) for role in profile.topic_roles}
    for topic in late_ns:
        _check_times(topic, recorded[topic])
    earliest_ns = min(int(recorded[topic][0]) - late_ns[topic] for topic in late_ns)
    shift_ns = max(0, -earliest_ns)
    for topic, late in late_ns.items():
        if int(recorded[topic][-1]) - late + shift_ns > _LAST_NS:
            raise RecordingError(
                f"{topic}: its last message is captured at {int(recorded[topic][-1])} ns, after the year 2262 and what "
                "an episode can hold; the clock is wrong",
                check="time.monotonic",
            )
    return {topic: recorded[topic] - (late - shift_ns) for topic, late in late_ns.items()}, shift_ns


def _check_times(topic: str, times_M: Times) -> None:
    """Refuse a topic without messages, from before the epoch, or whose times go back."""
    if not len(times_M):
        raise RecordingError(
            f"{topic} holds no message; record it, or take its role away", check="topics.present"
        )
    back = np.flatnonzero(times_M[1:] < times_M[:-1]) + 1
    if len(back):
        number = int(back[0])
        before_ns, after_ns = int(times_M[number - 1]), int(times_M[number])
        more = f" (and at {len(back) - 1} more places)" if len(back) > 1 else ""
        raise RecordingError(
            f"{topic}: message {number} is captured at {after_ns} ns, {(before_ns - after_ns) / 1e9:.3f} s before "
            f"message {number - 1} at {before_ns} ns{more}: the clock was set or two recordings were joined. "
            "Split the recording there, or record it with a clock that only goes forward",
            check="time.monotonic",
        )
    if times_M[0] < 0:
        raise RecordingError(
            f"{topic}: message 0 is captured at {int(times_M[0])} ns, before 1970; the clock is wrong",
            check="time.monotonic",
        )
