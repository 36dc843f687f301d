"""Episodes, traces and facts with known answers, to draw pages of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import row_samples
from numpy.typing import NDArray
from PIL import Image, ImageColor

from dyna_assets.look.facts import Finding, GateFacts, PageFacts
from dyna_assets.quality.trace import CameraTrace
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import EpisodeHeader, grid_times_ns
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import Quality

START_NS = 1_772_442_000_000_000_000
RATE_HZ, NUM_STEPS, GOP = 30.0, 60, 6
CAMERAS = (CameraTrack("top", 64, 48), CameraTrack("wrist", 64, 48))
ARM = VectorTrack("arm", "state", ("shoulder", "elbow"), ("rad", "rad"))
HAND = VectorTrack("hand", "state", ("grip",), ("m",))
DARK = Finding(
    "camera.dark", "reject", "wrist", 3.1, 32.0, "levels", "camera 'wrist' is dark", spans=((0.5, 1.0),)
)
GAP = Finding("time.gap", "warn", "arm", 0.7, 0.5, "s", "/arm: nothing for 0.70 s", spans=((1.2, 1.5),))


def header(
    cameras: Sequence[CameraTrack] = CAMERAS, vectors: Sequence[VectorTrack] = (ARM, HAND), **others: Any
) -> EpisodeHeader:
    said = {"episode_id": 17, "name": "upload_3/take_12", "robot": "bimanual", "task": "fold the towel"}
    said |= {"success": True, "start_ns": START_NS, "rate_hz": RATE_HZ, "num_steps": NUM_STEPS, **others}
    return row_samples.header(vectors=vectors, cameras=cameras, **said)


def brightness(step: int, camera: CameraTrack) -> NDArray[np.uint8]:
    """A picture as bright as its step x 3: dark to 177, then from dark again; uint8 [H, W, 3]."""
    return np.full((camera.height, camera.width, 3), step % 60 * 3, np.uint8)


def noise(step: int, camera: CameraTrack) -> NDArray[np.uint8]:
    """The picture that is hardest to make small; uint8 [H, W, 3]."""
    return np.random.default_rng(step).integers(0, 256, (camera.height, camera.width, 3), np.uint8)


def write_episode(
    path: Path,
    described: EpisodeHeader | None = None,
    *,
    gaps: Mapping[str, Sequence[range]] | None = None,
    paint: Callable[[int, CameraTrack], NDArray[np.uint8]] = brightness,
) -> Path:
    """An episode whose cameras show what `paint` gives; vectors at zero."""
    described = described or header()
    grid_T = grid_times_ns(described.start_ns, described.rate_hz, described.num_steps)
    vectors = {
        track.topic: (np.zeros((described.num_steps, track.dim), np.float32), grid_T)
        for track in described.vectors
    }
    with EpisodeWriter.create(
        path, described, EpisodeLayout(GOP, 1, 2 * GOP), quality=Quality(20), vectors=vectors
    ) as writer:
        for step in range(described.num_steps):
            for camera in described.cameras:
                if any(step in gap for gap in (gaps or {}).get(camera.name, ())):
                    writer.skip_steps(camera.name)
                    continue
                frame = av.VideoFrame.from_ndarray(paint(step, camera), "rgb24")
                writer.add_frame(camera.name, frame, int(grid_T[step]))
        writer.finish()
    return path


def trace(num_steps: int = NUM_STEPS, unseen: range = range(0)) -> CameraTrace:
    """Level 100 between 20 and 200, change 1; nothing at the steps `unseen`."""
    arrays = [np.full(num_steps, value, np.float32) for value in (100, 20, 200, 0, 1, 0.5)]
    for values_T in arrays:
        values_T[unseen.start : unseen.stop] = np.nan
    return CameraTrace(*arrays, np.ones(num_steps, np.uint64))


def facts(**changed: Any) -> PageFacts:
    """A clean episode of which 31 of 34 checks were measured."""
    clean = PageFacts(
        episode_id=17,
        source="lab",
        name="upload_3/take_12",
        outcome="pass",
        shard=3,
        robot="bimanual",
        task="fold the towel",
        success=True,
        start_ns=START_NS,
        duration_s=2.0,
        content_hash="ab" * 32,
        gates=(
            GateFacts("before", "default@1", "pass", 18, 20, ("time.drift", "video.clock")),
            GateFacts("after", "default@1", "pass", 13, 14, ("hands.present",)),
        ),
        traces={camera.name: trace() for camera in CAMERAS},
    )
    return replace(clean, **changed)


def near(picture: Image.Image, xy: tuple[float, float], colour: str | tuple[int, ...], far: int = 6) -> bool:
    """Whether the pixel has about that colour."""
    wanted = ImageColor.getrgb(colour) if isinstance(colour, str) else colour
    found = picture.getpixel((round(xy[0]), round(xy[1])))
    return max(abs(a - b) for a, b in zip(found[:3], wanted[:3], strict=True)) <= far
