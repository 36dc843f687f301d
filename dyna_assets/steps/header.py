"""What an episode file says of itself, and what the warehouse's row says of the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.quality.evidence import measure
from dyna_assets.quality.policy import judge
from dyna_assets.stamps import SCHEMA_VERSION, STEPS
from dyna_assets.steps.align import Alignment
from dyna_assets.steps.work import Row
from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.tracks import CameraTrack, Tracks, VectorTrack
from dyna_train.episode.writer import EpisodeFile
from dyna_train.manifest import Features


def episode_header(
    row: Row,
    plan: Alignment,
    cameras: tuple[CameraTrack, ...],
    vectors: tuple[VectorTrack, ...],
    notes: Mapping[str, str],
    facts: Mapping[str, Any],
) -> EpisodeHeader:
    """The header of the row's episode file. notes: how each camera's video came to be. facts: of the gate before."""
    source, found = row.source, row.upstream["recordings"]
    verdict = judge(row.policy, source.gates, "before", measure("before", facts, skip=row.skip_checks))
    aligned = {
        f"align.{role.key}": f"{role.align}, latency {role.latency_ms:g} ms" for role in source.topic_roles
    }
    return EpisodeHeader(
        episode_id=row.episode_id,
        source=source.name,
        name=row.name,
        robot=found["robot"],
        task=found["task"],
        success=found["success"],
        start_ns=plan.start_ns,
        rate_hz=plan.rate_hz,
        num_steps=plan.num_steps,
        cameras=cameras,
        vectors=vectors,
        versions={
            "schema_version": str(SCHEMA_VERSION),
            "pipeline_version": row.pipeline_version,
            "robot_software_version": found["robot_software_version"],
            **{f"step.{part}": str(number) for part, number in STEPS["episodes"].versions.items()},
            **{f"video.{name}": note for name, note in notes.items()},
            "grid": plan.grid_note,
            **aligned,
        },
        quality={"gate_before": ", ".join(f"warn: {check}" for check in verdict.warned) or "pass"},
    )


def episode_row(row: Row, header: EpisodeHeader, plan: Alignment, made: EpisodeFile) -> dict[str, Any]:
    """The row of the table `episodes`."""
    found = row.upstream["recordings"]
    return {
        "episode_id": row.episode_id,
        **{
            key: found[key]
            for key in ("source", "name", "upload", "robot", "task", "kind", "robot_software_version")
        },
        "content_hash": made.sha256,
        "size_bytes": made.size_bytes,
        "video_bytes": sum(made.video_bytes.values()),
        "raw_bytes": row.size_bytes,
        "start_ns": plan.start_ns,
        "rate_hz": plan.rate_hz,
        "num_steps": plan.num_steps,
        "duration_s": plan.duration_s,
        "valid_starts": [span.start for span in plan.valid_spans],
        "valid_ends": [span.stop for span in plan.valid_spans],
        "cameras": [camera.name for camera in header.cameras],
        "camera_heights": [camera.height for camera in header.cameras],
        "camera_widths": [camera.width for camera in header.cameras],
        "max_skew_s": [plan.max_skew_ns[camera.name] / 1e9 for camera in header.cameras],
        **_vector_sums(header.tracks, plan, "state"),
        **_vector_sums(header.tracks, plan, "action"),
    }


def gop_table_row(row: Row, header: EpisodeHeader, made: EpisodeFile) -> dict[str, Any]:
    """The row of the table `gop_tables`."""
    return {
        "episode_id": row.episode_id,
        "content_hash": made.sha256,
        "tracks": header.tracks.to_json(),
        "gop_table": made.gop_table,
    }


def _vector_sums(tracks: Tracks, plan: Alignment, role: str) -> dict[str, Any]:
    """Names and moments of all vectors of one role, in header order, float64 over the episode's valid steps.

    Invalid steps hold fillers and are never trained on. Without a valid step there are no moments: empty lists.
    """
    names = [track.name for track in tracks.vectors if track.role == role]
    parts = [plan.vectors[f"{role}/{name}"][0].astype(np.float64) for name in names]
    values_TD = np.concatenate(parts, axis=1) if parts else np.empty((plan.num_steps, 0))
    return {
        f"{role}_names": list(getattr(Features.of(tracks), role)),
        **{f"{role}_{moment}": values for moment, values in _moments(values_TD[plan.valid_T]).items()},
    }


def _moments(values_TD: NDArray[np.float64]) -> dict[str, list[float]]:
    """Mean, sum of squared distances from it, least and greatest of each dimension; NaN where one is no number."""
    if not len(values_TD):
        return {"mean": [], "m2": [], "min": [], "max": []}
    with np.errstate(invalid="ignore"):  # infinity - infinity
        mean_D = values_TD.mean(axis=0)
        m2_D = ((values_TD - mean_D) ** 2).sum(axis=0)
    return {
        "mean": mean_D.tolist(),
        "m2": m2_D.tolist(),
        "min": values_TD.min(axis=0).tolist(),
        "max": values_TD.max(axis=0).tolist(),
    }
