"""Evidence: what the checks of one gate measured, as it is kept and read again."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dyna_assets.quality.registry import CHECKS, Facts, Gate, Measured, checks_of
from dyna_assets.quality.spans import as_pairs


def measure(gate: Gate, facts: Facts, *, skip: Collection[str] = ()) -> dict[str, list[Measured]]:
    """What every check of `gate` finds in `facts`: check -> its subjects, [] where there was none to measure.

    skip: names of checks that are not run; they are absent, as if they had never been. Of what is 0 and could only get
    worse there is nothing to say: it is kept without a note.
    """
    return {
        rule.name: [
            one if one.value or rule.worse == "below" else Measured(one.subject, one.value)
            for one in rule.measure(facts)
        ]
        for rule in checks_of(gate)
        if rule.name not in skip
    }


def evidence_row(
    episode_id: int, source: str, gate: Gate, measured: Mapping[str, Sequence[Measured]]
) -> dict[str, Any]:
    """The row of the table `qc_evidence`: a column per check with its worst subject's value, or None."""
    row: dict[str, Any] = {"episode_id": episode_id, "source": source, "gate": gate}
    for rule in CHECKS.values():
        worst = rule.worst(measured.get(rule.name, ()))
        row[rule.column] = None if worst is None else worst.value
    details = {
        name: {"version": CHECKS[name].version, "subjects": [_as_json(one) for one in subjects]}
        for name, subjects in measured.items()
    }
    return {**row, "details": json.dumps(details, separators=(",", ":"))}


def measured_of(details: str) -> dict[str, list[Measured]]:
    """What `evidence_row` wrote into `details`, without the checks that there are no more."""
    return {
        name: [_of_json(one) for one in kept["subjects"]]
        for name, kept in json.loads(details).items()
        if name in CHECKS
    }


def _as_json(one: Measured) -> dict[str, Any]:
    if not math.isfinite(one.value):  # a column of numbers that SQL compares has no place for it
        raise ValueError(f"subject '{one.subject}' has the value {one.value}; expected a finite number")
    spans = [list(span) for span in one.spans]
    return {"subject": one.subject, "value": float(one.value), "note": one.note, "spans": spans}


def _of_json(kept: Mapping[str, Any]) -> Measured:
    return Measured(kept["subject"], kept["value"], kept["note"], as_pairs(kept["spans"]))
