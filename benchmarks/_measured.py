"""What the checks make of one recording: probed as the pipeline does, and seen through its cameras' eyes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import av
import numpy as np

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Recording
from dyna_assets.quality.evidence import measure
from dyna_assets.quality.picture_facts import moving, picture_facts
from dyna_assets.quality.registry import CHECKS, Measured
from dyna_assets.quality.trace import CameraEye
from dyna_assets.steps import probe
from dyna_assets.steps.align import align
from dyna_assets.steps.frames import camera_steps
from dyna_assets.steps.series import read_vectors
from dyna_train.video.pixels import FrameConverter, matrix_of

NOW_NS = 1_800_000_000_000_000_000
"""January 2027: what the recordings here were made before."""

Found = Mapping[str, Sequence[Measured]]


def before(recording: Recording, profile: SourceProfile) -> Found:
    """What the checks before the transform measure."""
    return measure("before", probe.measure(recording, profile, now_ns=NOW_NS))


def after(recording: Recording, profile: SourceProfile) -> Found:
    """What the checks after the transform measure of the pictures; the file itself is not made.

    Raises RecordingError for a recording that cannot be laid on a grid.
    """
    vectors = [role.topic for role in (*profile.states, *profile.actions)]
    times = {camera.topic: recording.times(camera.topic) for camera in profile.cameras}
    plan = align(profile, times, read_vectors(recording, vectors))
    eyes = {camera.name: CameraEye(plan.num_steps) for camera in profile.cameras}
    steps = dict.fromkeys(eyes, 0)
    ready: dict[str, tuple[object, av.VideoFrame]] = {}
    topics = {camera.name: camera.topic for camera in profile.cameras}
    converter = FrameConverter()
    for step in camera_steps(recording, plan, topics, {}, where="benchmark"):
        if isinstance(step.content, av.VideoFrame):
            if step.camera not in ready or ready[step.camera][0] is not step.content:
                ready[step.camera] = step.content, converter.to_video(step.content, matrix_of(step.content))
            eyes[step.camera].see(steps[step.camera], ready[step.camera][1])
        steps[step.camera] += 1
    states = [plan.vectors[f"state/{role.name}"][0] for role in profile.states]
    state_TD = np.hstack(states) if states else np.empty((plan.num_steps, 0), np.float32)
    moves_T = moving(state_TD, plan.rate_hz)
    cameras = {
        name: _facts_of_picture(eye, plan.capture_ns(name), plan.rate_hz, moves_T)
        for name, eye in eyes.items()
    }
    return measure("after", {"num_steps": plan.num_steps, "num_planned": plan.num_steps, "cameras": cameras})


def reported(found: Found) -> set[str]:
    """Checks beyond a limit of their own, whether it warns or rejects."""
    return {name for name in found if _beyond(found, name, CHECKS[name].limits.warn)} | rejected(found)


def rejected(found: Found) -> set[str]:
    """Checks beyond the limit to reject."""
    return {name for name in found if _beyond(found, name, CHECKS[name].limits.reject)}


def _beyond(found: Found, name: str, limit: float | None) -> bool:
    worst = CHECKS[name].worst(found[name])
    return worst is not None and CHECKS[name].is_beyond(worst.value, limit)


def _facts_of_picture(eye: CameraEye, capture_T: Any, rate_hz: float, moves_T: Any) -> dict[str, Any]:
    facts = picture_facts(eye.trace, capture_T, rate_hz, moves_T)
    file = {
        "num_packets": facts["num_seen"],
        "num_lost": 0,
        "damage": "",
        "readback": None,
        "readback_step": 0,
    }
    return {**facts, **file}
