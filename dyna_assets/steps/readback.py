"""Reading an episode file back: what its cameras show, and whether that is what went in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from dyna_assets.quality.picture_facts import moving, picture_facts
from dyna_assets.quality.trace import CameraEye, CameraTrace
from dyna_train.episode.reader import Episode
from dyna_train.episode.span import ReadPlan, Span, fetch
from dyna_train.errors import CorruptEpisode

NUM_GOPS, FRAMES_A_GOP = 3, 20
"""Of what was encoded here the gate after decodes so many frames of so many GOPs, spread over the episode: enough to
know that the file gives back what went in, at a fraction of what decoding all of it would take."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """A camera of an episode file: its trace, and how far the frames that were decoded again differ from it."""

    trace: CameraTrace
    num_lost: int = 0
    damage: str = ""
    readback: float | None = None
    readback_step: int = 0


def facts_after(episode: Episode, num_planned: int, cameras: Mapping[str, ReadBack]) -> dict[str, Any]:
    """The facts that the checks after the transform measure; see `dyna_assets.quality.after`."""
    rate_hz = episode.tracks.rate_hz
    moves_T = moving(episode.state_TD, rate_hz)
    facts = {}
    for name, found in cameras.items():
        capture_ns_T = episode.capture_ns(f"/camera/{name}/video")
        facts[name] = {
            **picture_facts(found.trace, capture_ns_T, rate_hz, moves_T),
            "num_packets": int(episode.has_frame(name).sum()),
            "num_lost": found.num_lost,
            "damage": found.damage,
            "readback": found.readback,
            "readback_step": found.readback_step,
        }
    return {"num_steps": episode.num_steps, "num_planned": num_planned, "cameras": facts}


def read_back(episode: Episode, kept: Mapping[str, CameraTrace]) -> dict[str, ReadBack]:
    """Decode what shows that the file is right: of a camera with a trace a few frames, of one without all."""
    cameras = [
        _CameraAgain.of(episode, camera.name, kept.get(camera.name)) for camera in episode.header.cameras
    ]
    for gop in sorted({gop for camera in cameras for gop in camera.steps}):
        (span,) = fetch([_plan(episode, gop)])  # all cameras lie in it
        for camera in cameras:
            camera.see(span, gop)
    return {camera.name: camera.result() for camera in cameras}


@dataclass(slots=True)
class _CameraAgain:
    """One camera that is decoded again. num_frames: by GOP; steps: what is looked at of a GOP, int64 ascending."""

    name: str
    trace: CameraTrace | None
    num_frames: Mapping[int, int]
    steps: Mapping[int, NDArray[np.int64]]
    eye: CameraEye
    num_lost: int = 0
    damage: str = ""

    @classmethod
    def of(cls, episode: Episode, name: str, trace: CameraTrace | None) -> _CameraAgain:
        """Choose what to look at."""
        steps_T = np.flatnonzero(episode.has_frame(name))
        gops, starts = np.unique(steps_T // episode.layout.gop, return_index=True)
        inside = dict(zip(gops.tolist(), np.split(steps_T, starts[1:]), strict=False))
        num_frames = {gop: len(steps_N) for gop, steps_N in inside.items()}
        if trace is not None and inside:
            chosen = gops[np.unique(np.linspace(0, len(gops) - 1, NUM_GOPS).astype(int))]
            inside = {gop: _few(inside[gop][:FRAMES_A_GOP]) for gop in chosen.tolist()}
        return cls(name, trace, num_frames, inside, CameraEye(episode.num_steps))

    def see(self, span: Span, gop: int) -> None:
        """Look at this GOP, if it is one of those; one that does not decode is lost as a whole."""
        try:
            for step in self.steps.get(gop, np.empty(0, np.int64)).tolist():
                (planes,) = span.frames(self.name, [step], output="yuv420")
                self.eye.see(step, av.VideoFrame.from_ndarray(planes, format="yuv420p"))
        except CorruptEpisode as error:
            self.num_lost, self.damage = self.num_lost + self.num_frames[gop], str(error)

    def result(self) -> ReadBack:
        """What came of it."""
        if self.trace is None:
            return ReadBack(self.eye.trace, self.num_lost, self.damage)
        apart_T = np.nan_to_num(np.abs(self.eye.trace.level_T - self.trace.level_T))
        step = int(apart_T.argmax())
        return ReadBack(self.trace, self.num_lost, self.damage, float(apart_T[step]), step)


def _plan(episode: Episode, gop: int) -> ReadPlan:
    """A read of one GOP that keeps no frame: they are asked for in order, one at a time."""
    return replace(episode.plan(frame_steps=[gop * episode.layout.gop]), frame_steps=frozenset())


def _few(steps_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first, the middle and the last one: decoding to the last passes by the others."""
    return np.unique(steps_N[[0, len(steps_N) // 2, -1]])
