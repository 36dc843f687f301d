"""Episode files with known answers, shared by the tests of writer, reader and their faults.

Every frame carries its camera and step as black and white blocks that survive H.264.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
from mcap.reader import make_reader
from numpy.typing import NDArray

from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import EpisodeHeader, grid_times_ns
from dyna_train.episode.schemas import parse_video
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter, Vector
from dyna_train.video.encode import Quality

BLOCK = 8  # pixels: one luma transform block, so the codec keeps its value
START_NS = 1_700_000_000_123_456_789
CAMERAS = (CameraTrack("top", 64, 48), CameraTrack("left.wrist", 66, 50), CameraTrack("right_wrist", 63, 47))
VECTORS = (
    VectorTrack("arm", "state", ("shoulder", "elbow", "größe"), ("rad", "rad", "m")),
    VectorTrack("gripper", "state", ("width",), ("m",)),
    VectorTrack("arm", "action", ("shoulder", "elbow"), ("rad", "rad")),
)
LAYOUT = EpisodeLayout(gop=6, gops_per_chunk=2, steps_per_block=24)


def header(
    num_steps: int,
    cameras: Sequence[CameraTrack] = CAMERAS,
    vectors: Sequence[VectorTrack] = VECTORS,
    rate_hz: float = 30.0,
) -> EpisodeHeader:
    return EpisodeHeader(
        episode_id=4_300_000_017,
        source="lab-a",
        name="session 3/take 12",
        robot="bimanual",
        task="stelle den Becher auf den Teller",
        success=True,
        start_ns=START_NS,
        rate_hz=rate_hz,
        num_steps=num_steps,
        cameras=tuple(cameras),
        vectors=tuple(vectors),
        versions={"schema_version": "1", "pipeline_version": "0.1.0"},
        quality={"before": "pass"},
    )


def vectors_of(header: EpisodeHeader, seed: int = 0) -> dict[str, Vector]:
    """Random values, captured up to 4 ms around the grid."""
    rng = np.random.default_rng(seed)
    grid_T = grid_times_ns(header.start_ns, header.rate_hz, header.num_steps)
    return {
        track.topic: (
            rng.standard_normal((header.num_steps, track.dim)).astype(np.float32),
            grid_T + rng.integers(-4_000_000, 4_000_000, header.num_steps),
        )
        for track in header.vectors
    }


def camera_capture_ns(header: EpisodeHeader, camera: int) -> NDArray[np.int64]:
    """When the frames of camera number `camera` were taken: 1 ms x its number after the grid."""
    return grid_times_ns(header.start_ns, header.rate_hz, header.num_steps) + 1_000_000 * camera


def paint(step: int, camera: int, width: int, height: int) -> av.VideoFrame:
    """An RGB frame on which the step (16 bits) and the camera (8 bits) can be read."""
    bits = [*((step >> k) & 1 for k in range(16)), *((camera >> k) & 1 for k in range(8))]
    blocks = np.array(bits, np.uint8).reshape(3, 8) * 180 + 30
    picture = np.full((height, width), 128, np.uint8)
    painted = blocks.repeat(BLOCK, 0).repeat(BLOCK, 1)[:height, :width]
    picture[: painted.shape[0], : painted.shape[1]] = painted
    return av.VideoFrame.from_ndarray(np.stack([picture] * 3, axis=-1), "rgb24")


def read_painting(rgb_HWC: NDArray[np.uint8]) -> tuple[int, int]:
    """Step and camera that were painted; works on a resized frame too if its aspect is kept."""
    scale = rgb_HWC.shape[1] / 64 if rgb_HWC.shape[1] < 60 else 1
    centres = [int((k + 0.5) * BLOCK * scale) for k in range(8)]
    bits = [int(rgb_HWC[y, x, 1] > 128) for y in centres[:3] for x in centres]
    number = sum(bit << k for k, bit in enumerate(bits))
    return number & 0xFFFF, number >> 16


def packets_of(path: Path, topic: str) -> list[bytes]:
    """The packets of a camera's topic in the order of the file."""
    with path.open("rb") as stream:
        messages = make_reader(stream).iter_messages(topics=[topic])
        return [bytes(parse_video(message.data).data) for _, _, message in messages]


def write_painted(
    path: Path,
    num_steps: int,
    *,
    cameras: Sequence[CameraTrack] = CAMERAS,
    vectors: Sequence[VectorTrack] = VECTORS,
    layout: EpisodeLayout = LAYOUT,
    rate_hz: float = 30.0,
) -> tuple[EpisodeHeader, EpisodeFile]:
    """A painted episode whose quality was completed at the end; returns the header as it should read back."""
    described = header(num_steps, cameras, vectors, rate_hz)
    with EpisodeWriter.create(
        path, described, layout, quality=Quality(18), vectors=vectors_of(described)
    ) as writer:
        for number, camera in enumerate(described.cameras):
            capture_T = camera_capture_ns(described, number).tolist()
            for step in range(num_steps):
                frame = paint(step, number, camera.width, camera.height)
                writer.add_frame(camera.name, frame, capture_T[step])
        made = writer.finish({"after": "pass"})
    return replace(described, quality={"before": "pass", "after": "pass"}), made
