"""Steps `gate_before` and `gate_after`: facts in, evidence and a verdict out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dyna_assets.quality.evidence import evidence_row, measure
from dyna_assets.quality.policy import judge
from dyna_assets.quality.registry import Facts, Gate
from dyna_assets.quality.trace import traces_of
from dyna_assets.stamps import Status
from dyna_assets.steps.readback import facts_after, read_back
from dyna_assets.steps.work import Row, StepResult


def gate_before(row: Row) -> StepResult:
    """Measure and judge what the probe found."""
    return _judged(row, "before", json.loads(row.upstream["recordings"]["facts"]))


def gate_after(row: Row) -> StepResult:
    """Read the episode file back; measure and judge what its cameras show. Raises EpisodeError if it cannot be read.

    Cameras that were copied were never decoded on the way: their traces are taken here.
    """
    made = row.upstream["episodes"]
    kept = traces_of(row.upstream["traces"], made["content_hash"])
    with row.open_episode() as episode:
        cameras = read_back(episode, kept)
        facts = facts_after(episode, made["num_steps"], cameras)
    judged = _judged(row, "after", facts)
    about = {"episode_id": row.episode_id, "content_hash": made["content_hash"]}
    rows: dict[str, Sequence[Mapping[str, Any]]] = {"readbacks": [{**about, "facts": json.dumps(facts)}]}
    if kept.keys() != cameras.keys():
        rows["traces"] = [
            {**about, "camera": name, "trace": found.trace.to_bytes()} for name, found in cameras.items()
        ]
    return replace(judged, rows={**judged.rows, **rows})


def _judged(row: Row, gate: Gate, facts: Facts) -> StepResult:
    measured = measure(gate, facts, skip=row.skip_checks)
    verdict = judge(row.policy, row.source.gates, gate, measured)
    about = {"episode_id": row.episode_id, "source": row.source.name, "gate": gate}
    said = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(verdict).items()}
    rows = {
        "qc_evidence": [evidence_row(row.episode_id, row.source.name, gate, measured)],
        "verdicts": [{**about, **said}],
    }
    status: Status = "rejected" if verdict.verdict == "reject" else "ok"
    return StepResult(row.episode_id, status, verdict.reason, rows)
