"""Faults to plant in simulated uploads: what goes wrong with robots, disks and networks, one function each.

A fault strikes one thing on the way from the world to the landing folder, named by the type of its argument:
the plan of a recording, the recorded file, or the marker's list of files.  To add one, write the function
and register it with `@fault`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dyna_assets.landing.upload import UploadedFile
from dyna_assets.simulate.plan import CameraTrack, JointTrack, RecordingPlan, Track, camera_topic
from dyna_train.errors import BadInput

Listing = tuple[UploadedFile, ...]
Target = TypeVar("Target", RecordingPlan, Path, Listing)

STRUCK_CAMERA = camera_topic("left_wrist")
STRUCK_ARM, STRUCK_JOINT = "/right_arm/joint_states", 1

_strikers: dict[str, tuple[type[Any], Callable[[Any], Any]]] = {}


def fault(target: type[Target]) -> Callable[[Callable[[Target], Target]], Callable[[Target], Target]]:
    """Register the decorated function, under its own name, as a fault that strikes a `target`."""

    def register(strike: Callable[[Target], Target]) -> Callable[[Target], Target]:
        _strikers[strike.__name__] = (target, strike)
        return strike

    return register


def fault_names() -> list[str]:
    """Every fault that can be planted, sorted."""
    return sorted(_strikers)


def describe_fault(name: str) -> str:
    """One line on what the fault `name` does. Raises BadInput for a name that is none."""
    return (_find(name)[1].__doc__ or "").strip()


def plant(name: str, target: Target) -> Target:
    """`target` with the fault `name` in it, or as it was if that fault strikes something else.

    '' is no fault. Raises BadInput for a name that is no fault.
    """
    if not name:
        return target
    struck, strike = _find(name)
    return strike(target) if isinstance(target, struck) else target


def _find(name: str) -> tuple[type[Any], Callable[[Any], Any]]:
    if name not in _strikers:
        near = difflib.get_close_matches(name, _strikers, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else "."
        raise BadInput(f"unknown fault '{name}'{hint} Faults that can be planted: {', '.join(fault_names())}")
    return _strikers[name]


@fault(RecordingPlan)
def black_camera(plan: RecordingPlan) -> RecordingPlan:
    """The left wrist camera's cap is on: its pictures are black but for the sensor's noise."""
    return plan.with_track(replace(_camera(plan), dark=True))


@fault(RecordingPlan)
def frozen_camera(plan: RecordingPlan) -> RecordingPlan:
    """The left wrist camera's driver hangs: it sends its first picture again and again, with new stamps."""
    track = _camera(plan)
    return plan.with_track(replace(track, shot_s_N=np.full_like(track.shot_s_N, track.shot_s_N[0])))


@fault(RecordingPlan)
def frozen_joint(plan: RecordingPlan) -> RecordingPlan:
    """The encoder of the right elbow is stuck: it reports one position for the whole episode."""
    track = _track(plan, STRUCK_ARM)
    if not isinstance(track, JointTrack):
        raise TypeError(f"{STRUCK_ARM} has no joints: {track}")
    position_ND, velocity_ND = track.position_ND.copy(), track.velocity_ND.copy()
    position_ND[:, STRUCK_JOINT] = position_ND[0, STRUCK_JOINT]
    velocity_ND[:, STRUCK_JOINT] = 0.0
    return plan.with_track(replace(track, position_ND=position_ND, velocity_ND=velocity_ND))


@fault(RecordingPlan)
def missing_camera(plan: RecordingPlan) -> RecordingPlan:
    """The left wrist camera is unplugged: its topic is absent."""
    return replace(plan, tracks=tuple(track for track in plan.tracks if track.topic != STRUCK_CAMERA))


@fault(RecordingPlan)
def length_mismatch(plan: RecordingPlan) -> RecordingPlan:
    """The left wrist camera stops in the middle of the episode; everything else goes on."""
    track = _camera(plan)
    half = max(1, len(track) // 2)
    return plan.with_track(
        replace(
            track,
            capture_ns_N=track.capture_ns_N[:half],
            arrival_ns_N=track.arrival_ns_N[:half],
            shot_s_N=track.shot_s_N[:half],
        )
    )


@fault(RecordingPlan)
def clock_jump(plan: RecordingPlan) -> RecordingPlan:
    """The robot's clock is set back by a quarter of the episode in its middle: later capture times repeat."""
    length_ns = round(plan.world.end_s * 1e9)
    jump_at_ns = plan.start_ns + length_ns // 2
    jumped = [
        replace(
            track, capture_ns_N=track.capture_ns_N - (length_ns // 4) * (track.capture_ns_N >= jump_at_ns)
        )
        for track in plan.tracks
    ]
    return replace(plan, tracks=tuple(jumped))


@fault(Path)
def truncated_file(path: Path) -> Path:
    """The recorder loses power: the file ends after 60 % of its bytes, and the marker hashes what is left."""
    os.truncate(path, path.stat().st_size * 6 // 10)
    return path


@fault(tuple)
def missing_file(listing: Listing) -> Listing:
    """The second part of a split recording is lost on the way: the marker lists it, the folder lacks it."""
    first = listing[0]
    stem, _, suffix = first.path.rpartition(".")
    return (*listing, first.model_copy(update={"path": f"{stem}_1.{suffix}"}))


@fault(tuple)
def bad_checksum(listing: Listing) -> Listing:
    """A file is damaged on the way: its size is as listed, its bytes do not have the listed sha256."""
    damaged = f"{int(listing[0].sha256, 16) ^ 1:064x}"
    return (listing[0].model_copy(update={"sha256": damaged}), *listing[1:])


def _camera(plan: RecordingPlan) -> CameraTrack:
    track = _track(plan, STRUCK_CAMERA)
    if not isinstance(track, CameraTrack):
        raise TypeError(f"{STRUCK_CAMERA} is no camera: {track}")
    return track


def _track(plan: RecordingPlan, topic: str) -> Track:
    return next(track for track in plan.tracks if track.topic == topic)
