"""Faults planted into an episode file after it was made, or between what went into it and what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import av
import numpy as np

from benchmarks._faults import Planted
from benchmarks._measured import Found
from dyna_assets.quality.evidence import measure
from dyna_assets.quality.trace import CameraEye, CameraTrace
from dyna_assets.steps.readback import facts_after, read_back
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import VIDEO_GROUP, EpisodeHeader, grid_times_ns
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import Quality

CAMERA, RATE_HZ = "camera", 30.0
LAYOUT = EpisodeLayout(gop=10, gops_per_chunk=1, steps_per_block=60)
MOST_LOST, MOST_LEVELS = 20, 20.0


def file_cases(
    planted: Sequence[Planted], frames: Sequence[av.VideoFrame], folder: Path
) -> Iterator[tuple[Planted | None, float, Found]]:
    """(fault, strength, what the gate after measures) of a file made of `frames`; first as it was made."""
    path = folder / "whole.mcap"
    trace = _write(path, frames, lost=0)
    yield None, 1.0, _measured(path, trace, len(frames))
    for fault in planted:
        for strength in fault.strengths:
            struck = folder / f"{fault.fault}-{strength:g}.mcap"
            yield fault, strength, _struck(fault.fault, strength, struck, path, frames, trace)


def _struck(
    fault: str,
    strength: float,
    struck: Path,
    whole: Path,
    frames: Sequence[av.VideoFrame],
    trace: CameraTrace,
) -> Found:
    num_planned = len(frames)
    if fault == "other_pictures":  # what was encoded is not what was looked at
        level_T = trace.level_T + np.float32(strength * MOST_LEVELS)
        return _measured(whole, replace(trace, level_T=level_T), num_planned)
    if fault == "lost_frames":
        _write(struck, frames, lost=max(1, round(strength * MOST_LOST)))
        return _measured(struck, trace, num_planned)
    if fault == "damaged_video":
        _damage(whole, struck)
        return _measured(struck, trace, num_planned)
    return _measured(whole, trace, num_planned + max(1, round(strength * MOST_LOST)))


def _write(path: Path, frames: Sequence[av.VideoFrame], *, lost: int) -> CameraTrace:
    """An episode file of the frames less `lost` of them in the middle; the trace of all of them."""
    eye, skipped = CameraEye(len(frames)), CameraEye(len(frames))
    header = _header(frames[0], len(frames))
    grid_T = grid_times_ns(header.start_ns, RATE_HZ, len(frames))
    ramp_T1 = np.linspace(0, 1, len(frames), dtype=np.float32)[:, None]
    first = (len(frames) - lost) // 2
    with EpisodeWriter.create(
        path,
        header,
        LAYOUT,
        quality=Quality(20),
        vectors={"/state/arm": (ramp_T1, grid_T)},
        watch={CAMERA: skipped.see},
    ) as writer:
        for step, frame in enumerate(frames):
            eye.see(step, frame)
            if first <= step < first + lost:
                writer.skip_steps(CAMERA)
            else:
                writer.add_frame(CAMERA, frame, int(grid_T[step]))
        writer.finish()
    return eye.trace


def _header(frame: av.VideoFrame, num_steps: int) -> EpisodeHeader:
    return EpisodeHeader(
        episode_id=1,
        source="bench",
        name="bench",
        robot="",
        task="",
        success=None,
        start_ns=0,
        rate_hz=RATE_HZ,
        num_steps=num_steps,
        cameras=(CameraTrack(name=CAMERA, width=frame.width, height=frame.height),),
        vectors=(VectorTrack(name="arm", role="state", names=("joint",), units=("rad",)),),
        versions={},
        quality={},
    )


def _damage(whole: Path, struck: Path) -> None:
    """Flip a byte in the middle of the first GOP."""
    with Episode.open(whole) as episode:
        start, stop = episode.table.groups[VIDEO_GROUP].range(0)
    data = bytearray(whole.read_bytes())
    data[(start + stop) // 2] ^= 0xFF
    struck.write_bytes(data)


def _measured(path: Path, trace: CameraTrace, num_planned: int) -> Found:
    with Episode.open(path) as episode:
        return measure("after", facts_after(episode, num_planned, read_back(episode, {CAMERA: trace})))
