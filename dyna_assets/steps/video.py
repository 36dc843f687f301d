"""How the video of an episode comes to be: which cameras are copied, which are encoded, and the cuts of the file.

A camera whose packets already are what an episode file holds is copied, packet for packet, whatever the
profile's quality says: a copy loses nothing and costs a hundredth. Its GOP becomes that of all cameras.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import CodedRecording, Recording
from dyna_assets.steps.align import Alignment
from dyna_train.episode.layout import MAX_GOP_S, EpisodeLayout, pattern_named
from dyna_train.episode.planning import layout_with_gop, plan_layout
from dyna_train.episode.sizes import CameraSizes, SizeModel, StateSizes
from dyna_train.video.coded import CodedVideo, StreamFacts, read_facts
from dyna_train.video.copy import copy_fault, gop_of

COPIED = "copied"


@dataclass(frozen=True, slots=True)
class CameraCopy:
    """A camera that is copied. frames: numbers of the packets that become steps. description: what they are."""

    video: CodedVideo
    frames: range
    gop: int
    sizes: CameraSizes
    description: str


@dataclass(frozen=True, slots=True)
class VideoPlan:
    """copies: camera -> what is copied. notes: every camera -> 'copied', or 'encoded: ' and why."""

    layout: EpisodeLayout
    copies: Mapping[str, CameraCopy]
    notes: Mapping[str, str]


def plan_video(recording: Recording, source: SourceProfile, plan: Alignment) -> VideoPlan:
    """Look at the packets of every camera and choose. Decodes one frame of each. Raises RecordingError."""
    surveyed: dict[str, CameraCopy | str] = {}
    for camera in source.cameras:
        info = recording.topics[camera.topic]
        coded = recording.coded(camera.topic) if isinstance(recording, CodedRecording) else None
        if coded is None:
            surveyed[camera.name] = "the recording holds pictures, not video"
            continue
        size, num_times = (info.width, info.height), len(recording.times(camera.topic))
        surveyed[camera.name] = _copy_of(coded, plan, plan.frames[camera.name], size, num_times)
    chosen = _of_one_gop(surveyed)
    copies = {name: found for name, found in chosen.items() if isinstance(found, CameraCopy)}
    notes = {
        name: COPIED if isinstance(found, CameraCopy) else f"encoded: {found}"
        for name, found in chosen.items()
    }
    return VideoPlan(_layout(recording, source, plan, copies), copies, notes)


def _copy_of(
    video: CodedVideo, plan: Alignment, frames_T: NDArray[np.int64], size: tuple[int, int], num_times: int
) -> CameraCopy | str:
    """The copy of one camera, or why there is none."""
    facts = read_facts(video)
    most_gop = max(1, int(MAX_GOP_S * plan.rate_hz))
    fault = copy_fault(facts, frames_T, size=size, most_gop=most_gop)
    if fault is None and len(facts.packets) != num_times:
        fault = f"{len(facts.packets)} packets for {num_times} capture times"
    if fault is not None:
        return fault
    frames, gop = range(int(frames_T[0]), int(frames_T[-1]) + 1), gop_of(facts, frames_T)
    return CameraCopy(video, frames, gop, _sizes(facts, frames), f"{facts.describe()} GOP {gop}")


def _of_one_gop(surveyed: Mapping[str, CameraCopy | str]) -> dict[str, CameraCopy | str]:
    """All cameras share one GOP: the one that most of those that can be copied have, at a tie the first."""
    gops = Counter(found.gop for found in surveyed.values() if isinstance(found, CameraCopy))
    gop = gops.most_common(1)[0][0] if gops else 0
    return {
        name: f"its GOP is {found.gop}, that of the copied cameras {gop}"
        if isinstance(found, CameraCopy) and found.gop != gop
        else found
        for name, found in surveyed.items()
    }


def _layout(
    recording: Recording, source: SourceProfile, plan: Alignment, copies: Mapping[str, CameraCopy]
) -> EpisodeLayout:
    """The GOP of the copies, or the best one for the profile's pattern; chunks and blocks to fit."""
    infos = {camera.name: recording.topics[camera.topic] for camera in source.cameras}
    cameras = tuple(
        copies[name].sizes
        if name in copies
        else CameraSizes.assumed(info.width, info.height, source.encoding.chosen)
        for name, info in infos.items()
    )
    state = StateSizes.assumed([values_TD.shape[1] for values_TD, _ in plan.vectors.values()])
    sizes, pattern = SizeModel(cameras, state), pattern_named(source.encoding.pattern)
    gop = next((copy.gop for copy in copies.values()), None)
    if gop is None:
        return plan_layout(pattern, plan.rate_hz, sizes=sizes)
    return layout_with_gop(gop, pattern, plan.rate_hz, sizes=sizes)


def _sizes(facts: StreamFacts, frames: range) -> CameraSizes:
    used = [facts.packets[number] for number in frames]
    keys = [packet.num_bytes for packet in used if packet.is_idr]
    others = [packet.num_bytes for packet in used if not packet.is_idr] or keys
    return CameraSizes(sum(keys) / len(keys), sum(others) / len(others))
