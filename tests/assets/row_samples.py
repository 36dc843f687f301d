"""What every test of a step needs: the row of one episode, and the description of an episode file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.settings import Settings
from dyna_assets.steps.work import Row
from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.tracks import CameraTrack, VectorTrack

START_NS = 1_700_000_000_000_000_000


def row_of(source: SourceProfile, lake: Path, **others: Any) -> Row:
    """Episode 7 of shard 12 as a shard's run hands it to a step; others: fields of the row."""
    said: dict[str, Any] = {
        "episode_id": 7,
        "name": "take 7",
        "recording_name": "take 7",
        "files": (),
        "size_bytes": 1,
        "upload_name": "set",
        "upload_uri": "",
        "upload_problem": "",
        "marker": None,
        "shard_key": "shard-000012",
        "settings": Settings(lake=str(lake)),
        "pipeline_version": "test",
    }
    return Row(source=source, **said | others)


def header(
    num_steps: int,
    vectors: Sequence[VectorTrack] = (),
    cameras: Sequence[CameraTrack] = (),
    **others: Any,
) -> EpisodeHeader:
    """Episode 7 of source 'lab' at 30 Hz; others: fields of the header."""
    said: dict[str, Any] = {
        "episode_id": 7,
        "source": "lab",
        "name": "take 7",
        "robot": "g1",
        "task": "put the cup down",
        "success": None,
        "start_ns": START_NS,
        "rate_hz": 30.0,
        "versions": {},
        "quality": {},
    }
    return EpisodeHeader(num_steps=num_steps, vectors=tuple(vectors), cameras=tuple(cameras), **said | others)
