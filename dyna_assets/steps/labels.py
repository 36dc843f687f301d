"""Step `labels`: what the recording or its upload says of task and success."""

from __future__ import annotations

from dyna_assets.steps.work import Row, StepResult


def label(row: Row) -> StepResult:
    """Task text and success label, with where they come from."""
    found = row.upstream["recordings"]
    origin = "upload" if row.marker else "recording"
    return StepResult(
        row.episode_id,
        "ok",
        rows={
            "labels": [
                {
                    "episode_id": row.episode_id,
                    "task": found["task"],
                    "success": found["success"],
                    "origin": origin,
                }
            ]
        },
    )
