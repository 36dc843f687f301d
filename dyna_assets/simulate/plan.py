"""What one simulated recording will hold, worked out before a single picture is drawn.

Axis letters: N messages of one topic, D joints of one arm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dyna_assets.simulate.arm import ARMS, JOINTS
from dyna_assets.simulate.clocks import CAMERA, LEADER, LEFT_ARM, RIGHT_ARM, Ticks, run_clock
from dyna_assets.simulate.render import CAMERAS, GOOD, Optics
from dyna_assets.simulate.scene import draw_scene
from dyna_assets.simulate.world import World, columns, sample, simulate

TASK = "hand over the cube"
SOFTWARE_VERSION = "sim-1.0.0"

_FIRST_START_NS = 1_772_442_000_000_000_000  # 2026-03-02T09:00:00Z
_EVERY_NS = 90_000_000_000
_ANGLE_STEP, _TRAVEL_STEP = 2 * np.pi / 4096, 1e-5  # what the encoders tell apart: 12 bits a turn, 10 um


class Stream(IntEnum):
    """What random numbers are drawn for; each has its own generator, so that none disturbs another."""

    SCENE = 0
    CAMERA_CLOCK = 1
    ARM = 2
    STUDIO = 3
    PICTURES = 4
    FAULT = 5


@dataclass(frozen=True, slots=True)
class Track:
    """The messages of one topic; times in ns since the epoch."""

    topic: str
    capture_ns_N: NDArray[np.int64]
    arrival_ns_N: NDArray[np.int64]

    @property
    def frame_id(self) -> str:
        """The name that ROS gives to where the sensor sits."""
        return self.topic.split("/")[1]

    def __len__(self) -> int:
        return len(self.capture_ns_N)

    def only(self, kept_N: NDArray[np.bool_]) -> Self:
        """The track with these messages only."""
        arrays: dict[str, Any] = {
            field.name: values[kept_N]
            for field in fields(self)
            if isinstance(values := getattr(self, field.name), np.ndarray)
        }
        return replace(self, **arrays)


@dataclass(frozen=True, slots=True)
class CameraTrack(Track):
    """Pictures: shot_s_N, the instant of the world each one shows; equal neighbours are the same picture.

    damage_N: share of each picture that reaches the recorder as garbage; none without it.
    """

    camera: str
    shot_s_N: NDArray[np.float64]
    optics: Optics = GOOD
    damage_N: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class JointTrack(Track):
    """Joint states, columns as in `names`: radians and metres, per second, newton metres and newtons."""

    names: tuple[str, ...]
    position_ND: NDArray[np.float64]
    velocity_ND: NDArray[np.float64]
    effort_ND: NDArray[np.float64]


AnyTrack = TypeVar("AnyTrack", bound=Track)


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """One recording; metadata as its 'episode' record will hold it, start_ns since the epoch."""

    name: str
    start_ns: int
    world: World
    metadata: Mapping[str, str]
    tracks: tuple[Track, ...]
    seed: tuple[int, int]

    @property
    def num_frames(self) -> int:
        """Pictures of all cameras."""
        return sum(len(track) for track in self.tracks if isinstance(track, CameraTrack))

    def rng(self, purpose: Stream, number: int = 0) -> np.random.Generator:
        """The episode's random generator for `purpose`; `number` tells topics of one kind apart."""
        return _rng(*self.seed, purpose, number)

    def with_track(self, changed: Track) -> RecordingPlan:
        """The plan with `changed` in place of the track of that topic."""
        tracks = tuple(changed if track.topic == changed.topic else track for track in self.tracks)
        return replace(self, tracks=tracks)


def plan_recording(name: str, seed: int, index: int, seconds: float) -> RecordingPlan:
    """The recording of episode `index` of `seed`, about `seconds` long; a pure function."""
    scene = draw_scene(_rng(seed, index, Stream.SCENE))
    world = simulate(scene, seconds)
    start_ns = _FIRST_START_NS + index * _EVERY_NS
    tracks = [*_cameras(world, seed, index), *_joints(world, seed, index)]
    return RecordingPlan(
        name=name,
        start_ns=start_ns,
        world=world,
        metadata={
            "task": TASK,
            "success": str(world.success),
            "operator": scene.operator,
            "robot": f"planar-{index % 2 + 1}",
            "robot_software_version": SOFTWARE_VERSION,
            "seed": f"{seed}/{index}",
        },
        tracks=tuple(_since_epoch(track, start_ns) for track in tracks),
        seed=(seed, index),
    )


def camera_topic(camera: str) -> str:
    """The topic on which `camera` publishes."""
    return f"/cam_{camera}/image/compressed"


def _rng(seed: int, index: int, purpose: Stream, number: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, index, purpose, number])


def _cameras(world: World, seed: int, index: int) -> list[Track]:
    tracks: list[Track] = []
    for number, camera in enumerate(CAMERAS):
        ticks = run_clock(CAMERA, _rng(seed, index, Stream.CAMERA_CLOCK, number), world.end_s)
        topic = camera_topic(camera)
        tracks.append(CameraTrack(topic, ticks.capture_ns_N, ticks.arrival_ns_N, camera, ticks.capture_s_N))
    return tracks


def _joints(world: World, seed: int, index: int) -> list[Track]:
    tracks: list[Track] = []
    for number, (arm, clock) in enumerate(zip(ARMS, (LEFT_ARM, RIGHT_ARM), strict=True)):
        rng = _rng(seed, index, Stream.ARM, number)
        mine, names = columns(arm), tuple(f"{arm.side}/{joint}" for joint in JOINTS)
        ticks = run_clock(clock, rng, world.end_s)
        values = [
            sample(world.time_s_S, values_SJ[:, mine], ticks.capture_s_N)
            for values_SJ in (world.follower_SJ, world.velocity_SJ, world.effort_SJ)
        ]
        values[1] += rng.normal(0, 2e-3, values[1].shape)
        values[2] += rng.normal(0, 2e-2, values[2].shape)
        tracks.append(_joint_track(f"/{arm.side}_arm/joint_states", ticks, names, *values))
        ticks = run_clock(LEADER, rng, world.end_s)
        lead_ND = sample(world.time_s_S, world.leader_SJ[:, mine], ticks.capture_s_N)
        nothing_ND = np.zeros_like(lead_ND)  # leaders have no motors that could measure
        tracks.append(
            _joint_track(f"/{arm.side}_leader/joint_states", ticks, names, lead_ND, nothing_ND, nothing_ND)
        )
    return tracks


def _joint_track(
    topic: str,
    ticks: Ticks,
    names: tuple[str, ...],
    position_ND: NDArray[np.float64],
    velocity_ND: NDArray[np.float64],
    effort_ND: NDArray[np.float64],
) -> JointTrack:
    step_D = np.array([_ANGLE_STEP] * 3 + [_TRAVEL_STEP] * 2)
    position_ND = np.rint(position_ND / step_D) * step_D
    return JointTrack(
        topic, ticks.capture_ns_N, ticks.arrival_ns_N, names, position_ND, velocity_ND, effort_ND
    )


def _since_epoch(track: AnyTrack, start_ns: int) -> AnyTrack:
    return replace(
        track, capture_ns_N=track.capture_ns_N + start_ns, arrival_ns_N=track.arrival_ns_N + start_ns
    )
