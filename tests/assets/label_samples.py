"""Episodes for labellers: real trajectories of the G1 set, and made-up ones with known answers.

Array axes: T steps, D dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from picture_samples import traced
from row_samples import header

from dyna_assets.labels.view import EpisodeView
from dyna_assets.quality.trace import CameraTrace
from dyna_train.episode.profile import EpisodeHeader, grid_times_ns
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.video.decode import decode_gop
from dyna_train.video.encode import CameraEncoder, Quality

JOINTS = ("left_shoulder", "left_elbow", "left_wrist", "left_gripper")


def view(
    described: EpisodeHeader,
    vectors: Mapping[str, NDArray[np.floating[Any]]],
    capture_ns: Mapping[str, NDArray[np.int64]] | None = None,
    **options: Any,
) -> EpisodeView:
    """vectors: topic -> [T, D]; captured on the grid where capture_ns says nothing else."""
    grid_T = grid_times_ns(described.start_ns, described.rate_hz, described.num_steps)
    return EpisodeView(
        described,
        options.pop("valid", (range(described.num_steps),)),
        {topic: values_TD.astype(np.float32) for topic, values_TD in vectors.items()},
        {topic: grid_T for topic in described.topics} | dict(capture_ns or {}),
        **options,
    )


def arm_view(
    state_TD: NDArray[np.float64], action_TD: NDArray[np.float64] | None = None, **options: Any
) -> EpisodeView:
    """An episode of one arm with a gripper (JOINTS), or its first dimensions."""
    num_dims = state_TD.shape[1]
    units = ("rad", "rad", "rad", "m")[:num_dims]
    tracks = [VectorTrack("arm", "state", JOINTS[:num_dims], units)]
    vectors = {"/state/arm": state_TD}
    if action_TD is not None:
        tracks.append(VectorTrack("arm", "action", JOINTS[:num_dims], units))
        vectors["/action/arm"] = action_TD
    cameras = [CameraTrack(name, 64, 48) for name in options.pop("cameras", ())]
    described = header(len(state_TD), tracks, cameras, rate_hz=options.pop("rate_hz", 30.0))
    return view(described, vectors, **options)


def reaches(num_steps: int, num_dims: int = 3, rate_hz: float = 30.0, seed: int = 0) -> NDArray[np.float64]:
    """A smooth trajectory of many short movements, float64 [T, D], about a radian wide."""
    rng = np.random.default_rng(seed)
    seconds_T = np.arange(num_steps) / rate_hz
    hertz, phase = rng.uniform(0.1, 1.2, (12, num_dims)), rng.uniform(0, 2 * np.pi, (12, num_dims))
    waves_TKD = np.sin(2 * np.pi * hertz * seconds_T[:, None, None] + phase) / np.sqrt(12)
    values_TD: NDArray[np.float64] = waves_TKD.sum(axis=1)
    return values_TD


def trace_of(change_T: NDArray[np.floating[Any]], hashes_T: NDArray[np.uint64] | None = None) -> CameraTrace:
    """A camera whose pictures change by change_T, and are otherwise all alike."""
    alike_T = np.full(len(change_T), 100, np.float32)
    hashes_T = np.ones(len(change_T), np.uint64) if hashes_T is None else hashes_T
    return CameraTrace(alike_T, alike_T, alike_T, alike_T * 0, change_T.astype(np.float32), alike_T, hashes_T)


@cache
def g1_trajectories(shared_data: Path) -> tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]:
    """(state, action) of the 84 real episodes without video, float32 [T, 26] each, by episode index."""
    files = sorted((shared_data / "g1_inspire_state_only" / "data").rglob("*.parquet"))
    tables = (pq.read_table(file, columns=["observation.state", "action"]) for file in files)
    return tuple((_matrix(table["observation.state"]), _matrix(table["action"])) for table in tables)


def _matrix(column: Any) -> NDArray[np.float32]:
    rows: NDArray[np.float32] = np.stack(column.to_numpy()).astype(np.float32)
    return rows


@cache
def g1_names(shared_data: Path) -> tuple[str, ...]:
    info = json.loads((shared_data / "g1_inspire_state_only" / "meta" / "info.json").read_text())
    return tuple(info["features"]["observation.state"]["names"][0])


def g1_view(
    shared_data: Path, state_TD: NDArray[np.float32], action_TD: NDArray[np.float32], **options: Any
) -> EpisodeView:
    """A real episode; its source says nothing of units, so a joint's is ''."""
    names = g1_names(shared_data)
    tracks = [VectorTrack("body", role, names, ("",) * len(names)) for role in ("state", "action")]
    described = header(len(state_TD), tracks, robot="Unitree_G1_Inspire")
    return view(described, {"/state/body": state_TD, "/action/body": action_TD}, **options)


FILM_STEPS = 120


@cache
def _g1_frames(shared_data: Path, episode: int) -> tuple[av.VideoFrame, ...]:
    """The first pictures of a real head camera, half as wide and high."""
    folder = shared_data / "g1_inspire_lerobot_v21" / "videos" / "chunk-000" / "observation.images.cam_high"
    with av.open(folder / f"episode_{episode:06d}.mp4") as container:
        decoded = container.decode(video=0)
        return tuple(next(decoded).reformat(320, 240, "yuv420p") for _ in range(FILM_STEPS))


@cache
def g1_film(shared_data: Path, episode: int) -> CameraTrace:
    """The trace of a real head camera, its first FILM_STEPS steps; to look at, not to change."""
    return traced(_g1_frames(shared_data, episode))


@cache
def encoded_anew(shared_data: Path, episode: int, *, crf: int) -> CameraTrace:
    """The same of its pictures after an encoder has been at them."""
    encoder = CameraEncoder("top", 320, 240, rate_hz=30.0, gop=30, quality=Quality(crf))
    frames = _g1_frames(shared_data, episode)
    packets = [packet for step, frame in enumerate(frames) for packet in encoder.encode(frame, step)]
    packets += encoder.flush()
    gops = (packets[start : start + 30] for start in range(0, len(packets), 30))
    return traced(frame for gop in gops for frame in decode_gop(gop, what="top"))
