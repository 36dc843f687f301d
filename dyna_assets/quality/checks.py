"""The quality checks: small functions by name, each over evidence that was measured before.

A check never touches a file. It looks at the numbers of one subject (a camera, a topic, the whole
recording) and gives a verdict with the value, the threshold and a reason a person can act on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dyna_assets.landing.profile import Gates

Gate = Literal["before", "after"]
Level = Literal["pass", "warn", "reject"]
Evidence = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check says of one subject; `unit` is that of value and threshold."""

    check: str
    check_version: int
    subject: str
    verdict: Level
    value: float
    threshold: float
    unit: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's raw result: `bad` decides the verdict, `reason` is said when it is."""

    subject: str
    bad: bool
    value: float
    threshold: float
    unit: str
    reason: str


def above(subject: str, value: float, threshold: float, unit: str, reason: str) -> Finding:
    """A finding that is bad if `value` is above `threshold`."""
    return Finding(subject, value > threshold, value, threshold, unit, reason)


CheckFunction = Callable[[Evidence, Gates], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """A registered check and what a bad finding of it means."""

    name: str
    gate: Gate
    version: int
    severity: Literal["warn", "reject"]
    find: CheckFunction


CHECKS: dict[str, Check] = {}


def check(
    name: str, gate: Gate, *, severity: Literal["warn", "reject"], version: int = 1
) -> Callable[[CheckFunction], CheckFunction]:
    """Register a check under `name` for one gate."""

    def register(find: CheckFunction) -> CheckFunction:
        CHECKS[name] = Check(name, gate, version, severity, find)
        return find

    return register


def judge(gate: Gate, evidence: Evidence, gates: Gates) -> list[Verdict]:
    """Every check of `gate` over `evidence`; each gives at least one verdict."""
    return [
        verdict
        for rule in CHECKS.values()
        if rule.gate == gate
        for verdict in _verdicts(rule, evidence, gates)
    ]


def rejection(verdicts: list[Verdict]) -> str:
    """The reasons of all rejecting verdicts, or ''."""
    return "; ".join(f"{v.check}: {v.reason}" for v in verdicts if v.verdict == "reject")


def _verdicts(rule: Check, evidence: Evidence, gates: Gates) -> Iterator[Verdict]:
    found = list(rule.find(evidence, gates)) or [Finding("", False, 0.0, 0.0, "", "")]
    for finding in found:
        level: Level = rule.severity if finding.bad else "pass"
        yield Verdict(
            rule.name,
            rule.version,
            finding.subject,
            level,
            float(finding.value),
            float(finding.threshold),
            finding.unit,
            finding.reason if finding.bad else "",
        )


def check_versions(gate: Gate) -> dict[str, int]:
    """check -> its version, for every check of one gate."""
    return {rule.name: rule.version for rule in CHECKS.values() if rule.gate == gate}
