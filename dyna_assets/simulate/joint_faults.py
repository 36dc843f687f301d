"""Faults of the right arm's state, and of what the recorder makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dyna_assets.simulate.faults import STRUCK_JOINT, fault, struck_arm
from dyna_assets.simulate.plan import JointTrack, RecordingPlan, Stream

_RAD_TO_DEG = 57.29578


@fault(RecordingPlan)
def frozen_joint(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The encoder of the right elbow is stuck: it reports one position for the whole episode."""
    track = struck_arm(plan)
    position_ND, velocity_ND = track.position_ND.copy(), track.velocity_ND.copy()
    position_ND[:, STRUCK_JOINT] = position_ND[0, STRUCK_JOINT]
    velocity_ND[:, STRUCK_JOINT] = 0.0
    return plan.with_track(replace(track, position_ND=position_ND, velocity_ND=velocity_ND))


@fault(RecordingPlan)
def frozen_arms(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """Nothing reads the arms: both report where they stood at the start, for the whole episode."""
    for track in plan.tracks:
        if isinstance(track, JointTrack) and track.topic.endswith("_arm/joint_states"):
            position_ND = np.repeat(track.position_ND[:1], len(track), axis=0)
            velocity_ND = np.zeros_like(track.velocity_ND)
            plan = plan.with_track(replace(track, position_ND=position_ND, velocity_ND=velocity_ND))
    return plan


@fault(RecordingPlan)
def stuttering_arm(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The right arm's driver stalls three times: its state repeats with new stamps, at strength 1 for 1.5 s."""
    track = struck_arm(plan)
    position_ND = track.position_ND.copy()
    since_start_s = (track.capture_ns_N - plan.start_ns) / 1e9
    for number in range(1, 4):
        start_s = plan.world.end_s * number / 4
        stalled = np.flatnonzero((since_start_s >= start_s) & (since_start_s < start_s + 1.5 * strength))
        if len(stalled):
            position_ND[stalled] = position_ND[stalled[0]]
    return plan.with_track(replace(track, position_ND=position_ND))


@fault(RecordingPlan)
def spiking_joint(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """Single messages of the right elbow are wrong, one in 100: at strength 1 by what it covers in all."""
    track = struck_arm(plan)
    position_ND = track.position_ND.copy()
    rows = np.arange(50, len(track), 100)
    position_ND[rows, STRUCK_JOINT] += strength * np.ptp(position_ND[:, STRUCK_JOINT])
    return plan.with_track(replace(track, position_ND=position_ND))


@fault(RecordingPlan)
def nan_state(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The right elbow reports NaN, at strength 1 in one message of ten."""
    track = struck_arm(plan)
    position_ND = track.position_ND.copy()
    rows = plan.rng(Stream.FAULT).random(len(track)) < 0.1 * strength
    rows[len(track) // 2] = True
    position_ND[rows, STRUCK_JOINT] = np.nan
    return plan.with_track(replace(track, position_ND=position_ND))


@fault(RecordingPlan)
def wrong_unit(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """The right arm's joints are in degrees from a moment on, at strength 1 from the start."""
    track = struck_arm(plan)
    position_ND = track.position_ND.copy()
    position_ND[round((1 - strength) * len(track)) :, :3] *= _RAD_TO_DEG
    return plan.with_track(replace(track, position_ND=position_ND))


@fault(RecordingPlan)
def unknown_topic(plan: RecordingPlan, strength: float) -> RecordingPlan:
    """Somebody has added a sensor: a topic that the source's profile does not know."""
    return replace(plan, tracks=(*plan.tracks, replace(struck_arm(plan), topic="/right_gripper/force")))
