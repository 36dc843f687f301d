"""Faults to plant in simulated uploads: what goes wrong with robots, disks and networks, one function each.

A fault strikes one thing on the way from the world to the landing folder, named by the type of its argument:
the plan of a recording, the recorded file, or the marker's list of files.  To add one, write the function
in the module of its kind (`camera_faults`, `clock_faults`, `joint_faults`, `upload_faults`) and register it with
`@fault`.  A fault is asked for by its name, 'dark_camera', or weaker with a strength up to 1, 'dark_camera:0.5'.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dyna_assets.landing.upload import UploadedFile
from dyna_assets.simulate.plan import CameraTrack, JointTrack, RecordingPlan, Track, camera_topic
from dyna_train.errors import BadInput, did_you_mean

Listing = tuple[UploadedFile, ...]
Target = TypeVar("Target", RecordingPlan, Path, Listing)
Strike = Callable[[Target, float], Target]

STRUCK_CAMERA = camera_topic("left_wrist")
STRUCK_ARM, STRUCK_JOINT = "/right_arm/joint_states", 1

_strikers: dict[str, tuple[type[Any], Callable[[Any, float], Any]]] = {}


def fault(target: type[Target]) -> Callable[[Strike[Target]], Strike[Target]]:
    """Register the decorated function, under its own name, as a fault that strikes a `target` with a strength."""

    def register(strike: Strike[Target]) -> Strike[Target]:
        _strikers[strike.__name__] = (target, strike)
        return strike

    return register


def fault_names() -> list[str]:
    """Every fault that can be planted, sorted."""
    return sorted(_strikers)


def describe_fault(name: str) -> str:
    """What the fault `name` does. Raises BadInput for a name that is none, or a strength that is none."""
    _, strike, _ = _find(name)
    return (strike.__doc__ or "").strip()


def plant(name: str, target: Target) -> Target:
    """`target` with the fault `name` in it, or as it was if that fault strikes something else.

    '' is no fault. Raises BadInput for a name that is no fault, or a strength outside 0 to 1.
    """
    if not name:
        return target
    struck, strike, strength = _find(name)
    return strike(target, strength) if isinstance(target, struck) else target


def struck_camera(plan: RecordingPlan) -> CameraTrack:
    """The camera that faults of cameras strike."""
    track = track_of(plan, STRUCK_CAMERA)
    if not isinstance(track, CameraTrack):
        raise TypeError(f"{STRUCK_CAMERA} is no camera: {track}")
    return track


def struck_arm(plan: RecordingPlan) -> JointTrack:
    """The arm whose state faults of joints strike."""
    track = track_of(plan, STRUCK_ARM)
    if not isinstance(track, JointTrack):
        raise TypeError(f"{STRUCK_ARM} has no joints: {track}")
    return track


def track_of(plan: RecordingPlan, topic: str) -> Track:
    """The messages of a topic that is there."""
    return next(track for track in plan.tracks if track.topic == topic)


def _find(asked: str) -> tuple[type[Any], Callable[[Any, float], Any], float]:
    name, _, text = asked.partition(":")
    if name not in _strikers:
        raise BadInput(f"unknown fault '{name}'; {did_you_mean(name, fault_names(), 'faults')}")
    try:
        strength = float(text or 1)
    except ValueError:
        strength = 0.0
    if not 0 < strength <= 1:
        raise BadInput(f"fault '{asked}': expected a strength above 0 and up to 1, as in '{name}:0.5'")
    return *_strikers[name], strength
