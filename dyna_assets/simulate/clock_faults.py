"""Faults of clocks: of the robot's, or of the left wrist camera's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dyna_assets.simulate.faults import fault, struck_arm, struck_camera, track_of
from dyna_assets.simulate.plan import RecordingPlan, Stream

_YEAR_NS = 365 * 86_400 * 10**9


@fault(RecordingPlan)
def clock_jump(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The robot's clock is set back in the middle of the episode, at strength 1 by a quarter of it."""
    length_ns = round(plan.world.end_s * 1e9)
    jump_at_ns, back_ns = plan.start_ns + length_ns // 2, round(strength * length_ns / 4)
    jumped = [
        replace(track, capture_ns_N=track.capture_ns_N - back_ns * (track.capture_ns_N >= jump_at_ns))
        for track in plan.tracks
    ]
    return replace(plan, tracks=tuple(jumped))


@fault(RecordingPlan)
def future_clock(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The recorder's clock is wrong: everything is stamped in the future, at strength 1 by ten years."""
    ahead_ns = round(10 * strength * _YEAR_NS)
    later = [
        replace(track, capture_ns_N=track.capture_ns_N + ahead_ns, arrival_ns_N=track.arrival_ns_N + ahead_ns)
        for track in plan.tracks
    ]
    return replace(plan, tracks=tuple(later))


@fault(RecordingPlan)
def late_messages(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera's stamps are of a clock that is slow, at strength 1 by a second."""
    track = struck_camera(plan)
    return plan.with_track(replace(track, capture_ns_N=track.capture_ns_N - round(strength * 1e9)))


@fault(RecordingPlan)
def drifting_clock(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera's clock runs too slowly, at strength 1 by a tenth."""
    track = struck_camera(plan)
    since_start_ns = track.capture_ns_N - plan.start_ns
    capture_ns_N = plan.start_ns + np.rint((1 - 0.1 * strength) * since_start_ns).astype(np.int64)
    return plan.with_track(replace(track, capture_ns_N=capture_ns_N))


@fault(RecordingPlan)
def jittery_stamps(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The right arm's messages are stamped in batches as they are read, at strength 1 sixteen at a time."""
    track = struck_arm(plan)
    size = max(2, round(16 * strength))
    last_N = np.minimum(np.arange(len(track)) // size * size + size - 1, len(track) - 1)
    jitter_ns = plan.rng(Stream.FAULT).integers(0, 100_000, len(track))
    capture_ns_N = np.maximum.accumulate(track.capture_ns_N[last_N] + np.sort(jitter_ns))
    return plan.with_track(replace(track, capture_ns_N=capture_ns_N))


@fault(RecordingPlan)
def early_stop(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The recorder is stopped early, at strength 1 after a twentieth of the episode."""
    last_ns = plan.start_ns + round((1 - 0.95 * strength) * plan.world.end_s * 1e9)
    return replace(plan, tracks=tuple(track.only(track.capture_ns_N <= last_ns) for track in plan.tracks))


@fault(RecordingPlan)
def silent_leader(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """No command of the right leader is recorded for a while in the middle, at strength 1 for most of the episode."""
    track = track_of(plan, "/right_leader/joint_states")
    from_middle_s = (track.capture_ns_N - plan.start_ns) / 1e9 - plan.world.end_s / 2
    return plan.with_track(track.only(np.abs(from_middle_s) > 0.45 * strength * plan.world.end_s))
