"""What an episode file holds, in numbers: one value of plain fields, for a person's eyes and for `--json`.

Array axes: T steps, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.foreign import ForeignFile
from dyna_train.episode.index import INDEX_NAME
from dyna_train.episode.open import is_episode_file
from dyna_train.episode.profile import EVENT_GROUP, EXTRA_GROUP, MISSING_NS, PROFILE, grid_times_ns
from dyna_train.episode.reader import Episode
from dyna_train.episode.stretches import Stretches, steps_at
from dyna_train.episode.tracks import CameraTrack, DepthTrack, VectorTrack
from dyna_train.look.contents import (
    CompressionContents,
    McapContents,
    TopicContents,
    describe,
)


@dataclass(frozen=True, slots=True)
class SkewSummary:
    """Distance of capture from grid time over the steps that have a message, ms; None without any."""

    max_ms: float | None
    mean_ms: float | None


@dataclass(frozen=True, slots=True)
class CameraSummary:
    """One camera; gaps: stretches of steps without a frame."""

    name: str
    topic: str
    width: int
    height: int
    gop_steps: int
    codec_params: str
    num_frames: int
    gaps: Stretches
    video_bytes: int
    mb_per_minute: float | None
    kbit_per_frame: float | None
    bits_per_pixel: float | None
    skew: SkewSummary


@dataclass(frozen=True, slots=True)
class DepthSummary:
    """One depth camera; its values are in units of `unit_m` metres."""

    name: str
    topic: str
    width: int
    height: int
    unit_m: float
    num_frames: int
    gaps: Stretches
    skew: SkewSummary


@dataclass(frozen=True, slots=True)
class DimensionSummary:
    """One dimension of a vector; lowest, mean and highest of its finite values, None if there is none."""

    name: str
    unit: str
    min: float | None
    mean: float | None
    max: float | None
    num_not_finite: int


@dataclass(frozen=True, slots=True)
class VectorSummary:
    """One state or action vector."""

    topic: str
    role: str
    dimensions: tuple[DimensionSummary, ...]
    skew: SkewSummary


@dataclass(frozen=True, slots=True)
class LayoutSummary:
    """Where the cuts of the file lie, and what they cost."""

    gop_steps: int
    steps_per_chunk: int
    steps_per_block: int
    compressions: tuple[CompressionContents, ...]
    index_bytes: int


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """An episode file. success: None where nobody said. start_ns: grid time of step 0, ns since the epoch."""

    uri: str
    size_bytes: int
    episode_id: int
    name: str
    source: str
    robot: str
    task: str
    success: bool | None
    start_ns: int
    start_utc: str
    duration_s: float
    num_steps: int
    rate_hz: float
    cameras: tuple[CameraSummary, ...]
    depths: tuple[DepthSummary, ...]
    vectors: tuple[VectorSummary, ...]
    events: tuple[TopicContents, ...]
    extras: tuple[TopicContents, ...]
    layout: LayoutSummary
    versions: Mapping[str, str]
    quality: Mapping[str, str]
    profile: str = PROFILE


def summarize(uri: str | Path) -> EpisodeSummary | McapContents:
    """The summary of the episode file at `uri`, or what there is to say of an MCAP file of another kind.

    Raises EpisodeError for a file that is neither, or one that is damaged.
    """
    with ForeignFile.open(uri) as file:
        if not is_episode_file(file):
            return describe(file)
    with Episode.open(uri) as episode:
        return summarize_episode(episode)


def summarize_episode(episode: Episode) -> EpisodeSummary:
    """The summary of an open episode file; reads its vectors and capture times, but no video."""
    header, layout = episode.header, episode.layout
    with ForeignFile.open(episode.uri) as file:
        contents = describe(file)
    return EpisodeSummary(
        uri=episode.uri,
        size_bytes=contents.size_bytes,
        episode_id=header.episode_id,
        name=header.name,
        source=header.source,
        robot=header.robot,
        task=header.task,
        success=header.success,
        start_ns=header.start_ns,
        start_utc=utc(header.start_ns),
        duration_s=header.num_steps / header.rate_hz,
        num_steps=header.num_steps,
        rate_hz=header.rate_hz,
        cameras=tuple(
            summarize_camera(episode, track, _codec_params(contents, track)) for track in header.cameras
        ),
        depths=tuple(summarize_depth(episode, track) for track in header.depths),
        vectors=tuple(_vector(episode, track) for track in header.vectors),
        events=contents.topics_of(EVENT_GROUP),
        extras=contents.topics_of(EXTRA_GROUP),
        layout=LayoutSummary(
            gop_steps=layout.gop,
            steps_per_chunk=layout.steps_per_chunk,
            steps_per_block=layout.steps_per_block,
            compressions=contents.compressions,
            index_bytes=contents.attachment_bytes[INDEX_NAME],
        ),
        versions=dict(header.versions),
        quality=dict(header.quality),
    )


def as_json(summary: EpisodeSummary | McapContents) -> dict[str, Any]:
    """The summary as one JSON object with stable keys; `kind` is `episode`, or `mcap` for a foreign file."""
    kind = "episode" if isinstance(summary, EpisodeSummary) else "mcap"
    return {"kind": kind, **asdict(summary, dict_factory=_plain)}


def _plain(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Fields as JSON can say them: a gap as [first step, end step]."""
    return {
        name: [[gap.start, gap.stop] for gap in value] if name == "gaps" else value for name, value in fields
    }


def utc(time_ns: int) -> str:
    """A time in ns since the epoch as `2026-11-29 10:15:00.123`, UTC."""
    seconds, nanos = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{nanos // 1_000_000:03d}"


def missing_steps(episode: Episode, topic: str) -> NDArray[np.bool_]:
    """True at the steps for which `topic` has no message, bool [T]."""
    missing_T: NDArray[np.bool_] = episode.capture_ns(topic) == MISSING_NS
    return missing_T


def skew_ms(episode: Episode, topic: str) -> NDArray[np.float64]:
    """Capture time less grid time of each step of `topic`, float64 [T] ms; NaN where it has no message."""
    grid_T = grid_times_ns(episode.header.start_ns, episode.header.rate_hz, episode.num_steps)
    skew_T: NDArray[np.float64] = (episode.capture_ns(topic) - grid_T) / 1e6
    skew_T[missing_steps(episode, topic)] = np.nan
    return skew_T


def summarize_camera(episode: Episode, track: CameraTrack, codec_params: str = "") -> CameraSummary:
    """One camera of an open episode; codec_params: what its channel says, '' where nobody looked."""
    frame_bytes_T = episode.index.frame_bytes_NT[episode.header.cameras.index(track)]
    video_bytes, num_frames = int(frame_bytes_T.sum()), int(np.count_nonzero(frame_bytes_T))
    minutes = num_frames / episode.header.rate_hz / 60
    return CameraSummary(
        name=track.name,
        topic=track.topic,
        width=track.width,
        height=track.height,
        gop_steps=episode.layout.gop,
        codec_params=codec_params,
        num_frames=num_frames,
        gaps=_gaps(episode, track),
        video_bytes=video_bytes,
        mb_per_minute=video_bytes / 1e6 / minutes if num_frames else None,
        kbit_per_frame=video_bytes * 8 / 1000 / num_frames if num_frames else None,
        bits_per_pixel=video_bytes * 8 / num_frames / track.width / track.height if num_frames else None,
        skew=_skew(episode, track.topic),
    )


def _codec_params(contents: McapContents, track: CameraTrack) -> str:
    (channel,) = [topic for topic in contents.topics if topic.topic == track.topic]
    return channel.metadata["codec_params"]


def summarize_depth(episode: Episode, track: DepthTrack) -> DepthSummary:
    """One depth camera of an open episode."""
    return DepthSummary(
        name=track.name,
        topic=track.topic,
        width=track.width,
        height=track.height,
        unit_m=track.unit_m,
        num_frames=int(np.count_nonzero(~missing_steps(episode, track.topic))),
        gaps=_gaps(episode, track),
        skew=_skew(episode, track.topic),
    )


def _vector(episode: Episode, track: VectorTrack) -> VectorSummary:
    values_TD = episode.vector(track.topic)
    return VectorSummary(
        topic=track.topic,
        role=track.role,
        dimensions=tuple(
            _dimension(name, unit, values_TD[:, index])
            for index, (name, unit) in enumerate(zip(track.names, track.units, strict=True))
        ),
        skew=_skew(episode, track.topic),
    )


def _dimension(name: str, unit: str, values_T: NDArray[np.float32]) -> DimensionSummary:
    finite = values_T[np.isfinite(values_T)].astype(np.float64)
    known = bool(finite.size)
    return DimensionSummary(
        name=name,
        unit=unit,
        min=float(finite.min()) if known else None,
        mean=float(finite.mean()) if known else None,
        max=float(finite.max()) if known else None,
        num_not_finite=len(values_T) - len(finite),
    )


def _gaps(episode: Episode, track: CameraTrack | DepthTrack) -> Stretches:
    return steps_at(np.flatnonzero(missing_steps(episode, track.topic)))


def _skew(episode: Episode, topic: str) -> SkewSummary:
    skew_T = np.abs(skew_ms(episode, topic))
    known_T = skew_T[np.isfinite(skew_T)]
    if not known_T.size:
        return SkewSummary(None, None)
    return SkewSummary(float(known_T.max()), float(known_T.mean()))
