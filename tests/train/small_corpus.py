"""A few small real episode files and the manifest over them, for tests.

Frames carry their step, episode and camera as flat grey levels that survive H.264; state and action are
functions of the step, so that every value a sample holds can be told from its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import av
import episode_samples
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dyna_train.episode.address import episode_path
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter
from dyna_train.manifest import Features, ManifestInfo, Statistics, VectorStatistics, write_manifest
from dyna_train.video.encode import Quality

RATE_HZ = 10.0
SIZE = (48, 64)
LEVELS_PER_STEP = 4
CAMERAS = (CameraTrack("left", 64, 48), CameraTrack("right", 64, 48))
VECTORS = (
    VectorTrack("arm", "state", ("a", "b"), ("rad", "rad")),
    VectorTrack("arm", "action", ("a", "b", "c"), ("rad", "rad", "rad")),
)


@dataclass(frozen=True)
class Stretch:
    """One manifest row: an episode and the steps of it."""

    episode: int
    start_step: int
    num_steps: int


@dataclass(frozen=True)
class Corpus:
    root: Path
    manifest: Path
    stretches: tuple[Stretch, ...]
    uris: tuple[Path, ...]


def state_of(episode: int, num_steps: int) -> NDArray[np.float32]:
    """[T, 2]: the step, and the episode."""
    steps = np.arange(num_steps)
    return np.stack([steps, np.full(num_steps, episode)], axis=1).astype(np.float32)


def action_of(episode: int, num_steps: int) -> NDArray[np.float32]:
    """[T, 3]: smooth functions of the step that state and frames tell."""
    steps = np.arange(num_steps)
    return np.stack([np.sin(steps / 5), np.cos(steps / 5), steps / 20 + episode], axis=1).astype(np.float32)


def grey_of(camera: int, step: int) -> int:
    """Grey level of a frame; cameras run in opposite directions."""
    return 20 + LEVELS_PER_STEP * step if camera == 0 else 235 - LEVELS_PER_STEP * step


def build(
    folder: Path,
    *,
    lengths: Sequence[int] = (24, 17, 30),
    stretches: Sequence[Stretch] | None = None,
    cameras: Sequence[CameraTrack] = CAMERAS,
    with_tables: bool = True,
) -> Corpus:
    """Write episodes of `lengths` steps and a manifest over `stretches`, by default all of each.

    with_tables: GOP tables lie beside the manifest, as curation leaves it.
    """
    written = [write_episode(folder, number, length, cameras) for number, length in enumerate(lengths)]
    if stretches is None:
        stretches = [Stretch(number, 0, length) for number, length in enumerate(lengths)]
    manifest = build_manifest(
        folder,
        lengths=lengths,
        stretches=stretches,
        cameras=cameras,
        files=[file for _, file in written],
        with_tables=with_tables,
    )
    return Corpus(folder, manifest, tuple(stretches), tuple(path for path, _ in written))


def build_manifest(
    folder: Path,
    *,
    lengths: Sequence[int],
    stretches: Sequence[Stretch] | None = None,
    cameras: Sequence[CameraTrack] = CAMERAS,
    files: Sequence[EpisodeFile] = (),
    with_tables: bool = False,
) -> Path:
    """Only the manifest; without `files` its episode files exist nowhere."""
    if stretches is None:
        stretches = [Stretch(number, 0, length) for number, length in enumerate(lengths)]
    hashes = [int(file.sha256[:16], 16) for file in files] or [0] * len(lengths)
    rows = pa.RecordBatch.from_pydict(
        {
            "dataset": ["small"] * len(stretches),
            "shard": [7] * len(stretches),
            "episode_id": [100 + stretch.episode for stretch in stretches],
            "content_hash": pa.array([hashes[stretch.episode] for stretch in stretches], pa.uint64()),
            "start_step": [stretch.start_step for stretch in stretches],
            "num_steps": [stretch.num_steps for stretch in stretches],
            "task": [f"task {stretch.episode}" for stretch in stretches],
        }
    )
    state = np.concatenate([state_of(number, length) for number, length in enumerate(lengths)])
    action = np.concatenate([action_of(number, length) for number, length in enumerate(lengths)])
    info = ManifestInfo(
        name="small",
        root=str(folder),
        features=Features.of(_header(0, 1, cameras).tracks),
        statistics=Statistics(state=statistics_of(state), action=statistics_of(action)),
        query="select 1 where tag in ['a']",
        table_versions={"episodes": 3},
    )
    manifest = folder / "manifest.arrow"
    tables = None
    if with_tables:
        tracks = _header(0, 1, cameras).tracks.to_json()
        tables = [tables_of([(tracks, files[stretch.episode].gop_table) for stretch in stretches])]
    write_manifest(manifest, [rows], info=info, gop_tables=tables)
    return manifest


def tables_of(known: Sequence[tuple[str | None, bytes | None]]) -> pa.RecordBatch:
    """Tracks and GOP table of each manifest row, as curation gives them to the writer."""
    columns = zip(*known, strict=True) if known else ((), ())
    arrays = [
        pa.array(column, kind) for column, kind in zip(columns, (pa.string(), pa.binary()), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["tracks", "gop_table"])


def statistics_of(values: NDArray[np.float32]) -> VectorStatistics:
    reduced = {name: getattr(values, name)(axis=0).tolist() for name in ("mean", "std", "min", "max")}
    return VectorStatistics(**reduced)


def write_episode(
    folder: Path, number: int, num_steps: int, cameras: Sequence[CameraTrack]
) -> tuple[Path, EpisodeFile]:
    """Path of the episode file, named by its content, and what the writer says of it."""
    header = _header(number, num_steps, cameras)
    times = np.arange(num_steps, dtype=np.int64) * 100_000_000
    vectors = {
        "/state/arm": (state_of(number, num_steps), times),
        "/action/arm": (action_of(number, num_steps), times),
    }
    part = folder / f"part-{number}.mcap"
    with EpisodeWriter.create(
        part, header, EpisodeLayout(5, 2, 10), quality=Quality(10), vectors=vectors
    ) as writer:
        for place, camera in enumerate(cameras):
            for step in range(num_steps):
                pixels = np.full((camera.height, camera.width, 3), grey_of(place, step), np.uint8)
                writer.add_frame(camera.name, av.VideoFrame.from_ndarray(pixels, "rgb24"), int(times[step]))
        file = writer.finish()
    target = folder / episode_path("shard-000007", 100 + number, file.sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    part.rename(target)
    return target, file


def _header(number: int, num_steps: int, cameras: Sequence[CameraTrack]) -> EpisodeHeader:
    described = episode_samples.header(num_steps, cameras, VECTORS, RATE_HZ)
    return replace(described, episode_id=100 + number, name=f"{number}", task=f"task {number}", start_ns=0)
