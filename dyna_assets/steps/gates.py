"""Steps `gate_before` and `gate_after`: evidence in, verdicts out."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from dyna_assets.quality import Verdict, judge, rejection
from dyna_assets.quality.checks import Gate
from dyna_assets.steps.work import Row, StepResult
from dyna_train.episode.reader import Episode
from dyna_train.files import open_store

NUM_STRETCHES = 6
FRAMES_A_STRETCH = 5
"""The gate after looks at so many frames in a row at so many places: enough to know a black or a frozen
camera, and a tenth of the decoding that looking at all of a minute would take."""
STILL = 1e-3
"""A state dimension that covers less (in its own unit) is noise of its encoder, not motion."""
REPEAT_LEVELS = 0.3
"""Mean change of the green channel below which a frame repeats the one before: sensor noise alone changes
it by more, what x264 adds to a repeated picture by less."""


def gate_before(row: Row) -> StepResult:
    """Judge what the probe found."""
    evidence = json.loads(row.upstream["recordings"]["evidence"])
    return _result(row, "before", judge("before", evidence, row.source.gates))


def gate_after(row: Row) -> StepResult:
    """Read the episode file back and judge what it shows. Raises EpisodeError if it cannot be read."""
    uri = row.episode_uri(row.upstream["episodes"]["content_hash"])
    with Episode.open(uri, open_store(uri, **row.settings.storage_options(uri))[0]) as episode:
        evidence = look(episode)
    judged = _result(row, "after", judge("after", evidence, row.source.gates))
    seen = [{"episode_id": row.episode_id, "evidence": json.dumps(evidence)}]
    return replace(judged, rows={**judged.rows, "readbacks": seen})


def look(episode: Episode) -> dict[str, Any]:
    """The evidence that the gate after judges; see `dyna_assets.quality.after`."""
    num_steps = episode.header.num_steps
    starts = np.unique(np.linspace(0, max(num_steps - FRAMES_A_STRETCH, 0), NUM_STRETCHES).astype(int))
    steps = np.unique((starts[:, None] + np.arange(FRAMES_A_STRETCH)).clip(max=num_steps - 1))
    state_TD = episode.state_TD
    return {
        "num_steps": num_steps,
        "moves": bool(state_TD.size and (np.ptp(state_TD, axis=0) > STILL).any()),
        "cameras": {camera.name: _camera(episode, camera.name, steps) for camera in episode.header.cameras},
    }


def _camera(episode: Episode, camera: str, steps_N: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, Any]:
    green_NHW = episode.frames(camera, steps_N.tolist())[..., 1]
    taken_ns = episode.capture_ns(f"/camera/{camera}/video")[steps_N]
    # Only neighbours that the camera took at different times say whether its picture changes, and only
    # within a GOP: a keyframe is coded anew, which changes even a still picture.
    is_keyframe = steps_N[1:] % episode.layout.gop == 0
    fresh = (np.diff(steps_N) == 1) & (np.diff(taken_ns) > 0) & ~is_keyframe
    changes = np.array(
        [
            np.abs(green_NHW[k + 1].astype(np.int16) - green_NHW[k]).mean() if is_fresh else np.nan
            for k, is_fresh in enumerate(fresh)
        ]
    )
    num_pairs = int(fresh.sum())
    low, high = np.percentile(green_NHW, [1, 99])
    return {
        "num_frames": len(steps_N),
        "num_pairs": num_pairs,
        "level": float(green_NHW.mean()),
        "spread": float(high - low),
        "repeat_share": float((changes < REPEAT_LEVELS).sum() / num_pairs) if num_pairs else 0.0,
    }


def _result(row: Row, gate: Gate, verdicts: list[Verdict]) -> StepResult:
    reason = rejection(verdicts)
    lines = [{"episode_id": row.episode_id, "gate": gate, **asdict(verdict)} for verdict in verdicts]
    return StepResult(row.episode_id, "rejected" if reason else "ok", reason, {"qc_verdicts": lines})
