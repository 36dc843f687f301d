"""Step `labels`: what the recording says of task and success, and what the labellers find in the episode.

Reads the episode file's end and its state group, and the camera traces of the warehouse; never a byte of video.
"""

from __future__ import annotations

from typing import Any

from dyna_assets.labels import Labelled, annotate
from dyna_assets.labels.view import EpisodeView
from dyna_assets.steps.work import Row, StepResult


def label(row: Row) -> StepResult:
    """Task and success with where they come from, and the annotations of every labeller.

    A labeller that fails makes the status 'error', so that the step is done again; the others' annotations stand.
    Raises EpisodeError if the episode file cannot be read.
    """
    labelled = annotate(_view(row))
    reason = "; ".join(f"labeller {name}: {why}" for name, why in labelled.failed.items())
    rows = {"labels": [_label(row)], "annotations": _annotations(row, labelled)}
    return StepResult(row.episode_id, "error" if reason else "ok", reason, rows)


def _view(row: Row) -> EpisodeView:
    found = row.upstream
    with row.open_episode() as episode:
        return EpisodeView.of(
            episode, found["recordings"], found["episodes"], found["traces"], row.source.labels
        )


def _label(row: Row) -> dict[str, Any]:
    found = row.upstream["recordings"]
    return {
        "episode_id": row.episode_id,
        "task": found["task"],
        "success": found["success"],
        "origin": "upload" if row.marker else "recording",
    }


def _annotations(row: Row, labelled: Labelled) -> list[dict[str, Any]]:
    return [{"episode_id": row.episode_id, **found} for found in labelled.rows]
