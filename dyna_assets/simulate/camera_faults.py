"""Faults of the left wrist camera: of what it sees, and of which pictures arrive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dyna_assets.simulate.faults import STRUCK_CAMERA, fault, struck_camera
from dyna_assets.simulate.plan import RecordingPlan, Stream
from dyna_assets.simulate.render import Optics


@fault(RecordingPlan)
def black_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera's cap is on: its pictures are black but for the sensor's noise."""
    return _seen_through(plan, Optics(exposure=0.0))


@fault(RecordingPlan)
def dark_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The light is off: the left wrist camera gets less of it by the strength, at 1 a fiftieth."""
    return _seen_through(plan, Optics(exposure=1 - 0.98 * strength))


@fault(RecordingPlan)
def overexposed_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera is exposed too long: at strength 1 sixteen times."""
    return _seen_through(plan, Optics(exposure=16.0**strength))


@fault(RecordingPlan)
def covered_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """Something grey is in front of the left wrist camera, at strength 1 all that it sees."""
    return _seen_through(plan, Optics(veil=strength))


@fault(RecordingPlan)
def blurred_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera is out of focus: at strength 1 by a fortieth of its picture's width."""
    return _seen_through(plan, Optics(blur=strength / 40))


@fault(RecordingPlan)
def glitching_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """Single pictures of the left wrist camera arrive damaged, one in 40; at strength 1 all of it is garbage."""
    track = struck_camera(plan)
    damage_N = np.zeros(len(track))
    damage_N[20::40] = strength
    return plan.with_track(replace(track, damage_N=damage_N))


@fault(RecordingPlan)
def frozen_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera's driver hangs: it sends a picture again and again, with new stamps, at 1 always."""
    track = struck_camera(plan)
    num = round(strength * len(track))
    first = (len(track) - num) // 2
    shot_s_N = track.shot_s_N.copy()
    shot_s_N[first : first + num] = shot_s_N[first]
    return plan.with_track(replace(track, shot_s_N=shot_s_N))


@fault(RecordingPlan)
def repeating_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera is slower than it says: pictures repeat, at strength 1 nine of ten, with new stamps."""
    track = struck_camera(plan)
    new_N = plan.rng(Stream.FAULT).random(len(track)) >= 0.9 * strength
    new_N[0] = True
    latest_N = np.maximum.accumulate(np.where(new_N, np.arange(len(track)), 0))
    return plan.with_track(replace(track, shot_s_N=track.shot_s_N[latest_N]))


@fault(RecordingPlan)
def dropping_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera loses pictures on its way: at strength 1 eight of ten."""
    track = struck_camera(plan)
    kept_N = plan.rng(Stream.FAULT).random(len(track)) >= 0.8 * strength
    kept_N[[0, -1]] = True
    return plan.with_track(track.only(kept_N))


@fault(RecordingPlan)
def silent_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera is unplugged for a while in the middle of the episode: at strength 1 for most of it."""
    track = struck_camera(plan)
    half_s = 0.45 * strength * plan.world.end_s
    from_middle_s = (track.capture_ns_N - plan.start_ns) / 1e9 - plan.world.end_s / 2
    return plan.with_track(track.only(np.abs(from_middle_s) > half_s))


@fault(RecordingPlan)
def missing_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera is unplugged: its topic is absent."""
    return replace(plan, tracks=tuple(track for track in plan.tracks if track.topic != STRUCK_CAMERA))


@fault(RecordingPlan)
def length_mismatch(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera stops before the end, at strength 1 in the middle; everything else goes on."""
    track = struck_camera(plan)
    return plan.with_track(track.only(np.arange(len(track)) < max(1, len(track) * (1 - strength / 2))))


@fault(RecordingPlan)
def late_camera(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The left wrist camera appears late, at strength 1 half-way."""
    track = struck_camera(plan)
    return plan.with_track(track.only(np.arange(len(track)) >= (len(track) - 1) * strength / 2))


def _seen_through(plan: RecordingPlan, optics: Optics) -> RecordingPlan:
    return plan.with_track(replace(struck_camera(plan), optics=optics))
