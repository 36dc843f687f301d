"""What a page says of an episode: verdicts, findings, clocks and traces, from the rows of the warehouse (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dyna_assets.quality.evidence import measured_of
from dyna_assets.quality.registry import CHECKS, GATES, Check, Limits, Measured
from dyna_assets.quality.trace import CameraTrace, traces_of
from dyna_assets.stamps import STEPS
from dyna_train.episode.stretches import Stretches, missing_from

Outcome = Literal["pass", "warn", "reject", "error", "unchecked"]
"""unchecked: a gate has not judged the episode, so that nobody can say that it passed."""
Severity = Literal["warn", "reject"]
Spans = tuple[tuple[float, float], ...]
RowDict = Mapping[str, Any]

OUTCOMES: tuple[Outcome, ...] = ("reject", "error", "warn", "unchecked", "pass")
"""From the worst to the best."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A subject of a check beyond a limit. spans: (start_s, end_s) on the page's time axis.

    limit: None where no policy at hand has it. subject: the camera, vector or topic; '' for the whole episode.
    """

    check: str
    severity: Severity
    subject: str
    value: float
    limit: float | None
    unit: str
    note: str
    spans: Spans = ()

    @property
    def excess(self) -> float:
        """How far the value lies beyond its limit, in limits."""
        return excess_of(self.value, self.limit)

    @property
    def measured(self) -> str:
        """Value, unit and limit: '3.1 levels (limit 32)'."""
        limit = "" if self.limit is None else f" (limit {_number(self.limit)})"
        return f"{_number(self.value)} {self.unit}{limit}"


@dataclass(frozen=True, slots=True)
class GateFacts:
    """One gate's verdict. unchecked: names of the checks that measured nothing."""

    gate: str
    policy: str
    verdict: Outcome
    num_checked: int
    num_checks: int
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A critical step that did not end well. status: rejected | error."""

    step: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class PageFacts:
    """Everything a page shows of an episode that is not in its file.

    topics: clock facts by topic, as the probe wrote them. invalid: steps at which something is older than the
    source allows. traces: by camera. content_hash: of the episode file, '' where there is none.
    """

    episode_id: int
    source: str
    name: str
    outcome: Outcome = "unchecked"
    shard: int = 0
    robot: str = ""
    task: str = ""
    success: bool | None = None
    start_ns: int = 0
    duration_s: float = 0.0
    raw_bytes: int = 0
    size_bytes: int = 0
    content_hash: str = ""
    findings: tuple[Finding, ...] = ()
    gates: tuple[GateFacts, ...] = ()
    failures: tuple[Failure, ...] = ()
    topics: Mapping[str, RowDict] = field(default_factory=dict)
    traces: Mapping[str, CameraTrace] = field(default_factory=dict)
    invalid: Stretches = ()

    @property
    def num_checked(self) -> int:
        """Checks of both gates that measured something."""
        return sum(gate.num_checked for gate in self.gates)

    @property
    def num_checks(self) -> int:
        """Checks there are, in the gates that judged."""
        return sum(gate.num_checks for gate in self.gates)

    @property
    def where(self) -> str:
        """Source and name, as errors and `dyna-assets show` write them."""
        return f"{self.source}: {self.name}"

    def with_failure(self, step: str, reason: str) -> PageFacts:
        """The facts of an episode about which something failed only now."""
        outcome: Outcome = "reject" if self.outcome == "reject" else "error"
        return replace(self, outcome=outcome, failures=(Failure(step, "error", reason), *self.failures))

    @property
    def headline(self) -> str:
        """The one sentence to read: why it is not good, or that it is."""
        if self.failures:
            return self.failures[0].reason
        if self.findings:
            worst = self.findings[0]
            return worst.note or f"{worst.check}: {worst.measured}"
        if self.outcome == "unchecked":
            judged = {gate.gate for gate in self.gates}
            return (
                " and ".join(f"gate {gate}" for gate in GATES if gate not in judged)
                + " has not judged it yet"
            )
        return "nothing measured lies beyond its limit"


@dataclass(frozen=True, slots=True)
class EpisodeRows:
    """The current rows of one episode, by table; None or () where there is none."""

    recording: RowDict | None = None
    episode: RowDict | None = None
    evidence: Sequence[RowDict] = ()
    verdicts: Sequence[RowDict] = ()
    traces: Sequence[RowDict] = ()
    stamps: Sequence[RowDict] = ()


def facts_of(
    episode_id: int, source: str, name: str, rows: EpisodeRows, limits: Mapping[str, Limits]
) -> PageFacts:
    """The page's facts. limits: check -> those that this source is judged by."""
    recording, episode = rows.recording or {}, rows.episode or {}
    described = {**recording, **{key: value for key, value in episode.items() if value is not None}}
    facts = json.loads(recording["facts"]) if recording.get("facts") else {}
    return PageFacts(
        episode_id=episode_id,
        source=source,
        name=name,
        outcome=outcome_of(rows),
        shard=described.get("shard", 0),
        robot=described.get("robot") or "",
        task=described.get("task") or "",
        success=recording.get("success"),
        start_ns=described.get("start_ns", 0),
        duration_s=described.get("duration_s") or 0.0,
        raw_bytes=described.get("raw_bytes") or 0,
        size_bytes=episode.get("size_bytes") or 0,
        content_hash=episode.get("content_hash") or "",
        findings=tuple(sorted(_findings(rows, limits), key=_worst_first)),
        gates=tuple(_gates(rows)),
        failures=_failures(rows),
        topics={**facts.get("topics", {}), **facts.get("missing", {})},
        traces=traces_of(rows.traces, episode.get("content_hash") or ""),
        invalid=_invalid(episode),
    )


def badness(rows: EpisodeRows, limits: Mapping[str, Limits]) -> tuple[int, int, float]:
    """Ascending from the worst episode: by outcome, number of failing checks, distance beyond a limit.

    Reads no column that only a page needs: neither `details` nor `recordings.facts`.
    """
    values = {row["gate"]: row for row in rows.evidence}
    distances = []
    for verdict in rows.verdicts:
        found = values.get(verdict["gate"], {})
        for name, severity in _failing(verdict).items():
            limit = limits[name].reject if severity == "reject" else limits[name].warn
            distances.append(excess_of(found.get(CHECKS[name].column) or 0.0, limit))
    return OUTCOMES.index(outcome_of(rows)), -len(distances), -max(distances, default=0.0)


def excess_of(value: float, limit: float | None) -> float:
    """Distance of a value from its limit, in limits; from a limit of 0, in its own unit."""
    if limit is None:
        return 0.0
    return abs(value - limit) / (abs(limit) or 1.0)


def _number(value: float) -> str:
    """Whole numbers whole, others in three digits."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"


def _worst_first(finding: Finding) -> tuple[bool, float, str, str]:
    return finding.severity != "reject", -finding.excess, finding.check, finding.subject


def outcome_of(rows: EpisodeRows) -> Outcome:
    """How the episode stands, by the verdicts of its gates and how its steps ended."""
    said: set[Outcome] = {row["verdict"] for row in rows.verdicts}
    said |= {"reject" if one.status == "rejected" else "error" for one in _failures(rows)}
    if len(rows.verdicts) < len(GATES):
        # A warning of one gate says nothing while the other has not judged.
        said = said - {"warn"} | {"unchecked"}
    return min(said, key=OUTCOMES.index, default="pass")


def _failures(rows: EpisodeRows) -> tuple[Failure, ...]:
    """Critical steps that failed. What a gate rejected stands in its verdict."""
    failed = [stamp for stamp in rows.stamps if stamp["status"] != "ok" and _is_critical(stamp["step"])]
    return tuple(
        Failure(stamp["step"], stamp["status"], stamp["reason"])
        for stamp in failed
        if not (stamp["step"].startswith("gate_") and stamp["status"] == "rejected")
    )


def _is_critical(step: str) -> bool:
    return step in STEPS and STEPS[step].critical


def _gates(rows: EpisodeRows) -> Iterator[GateFacts]:
    details = {row["gate"]: json.loads(row["details"]) for row in rows.evidence}
    for row in sorted(rows.verdicts, key=lambda row: GATES.index(row["gate"])):
        kept = details.get(row["gate"], {})
        unchecked = tuple(name for name, one in kept.items() if not one["subjects"])
        yield GateFacts(
            row["gate"], row["policy"], row["verdict"], row["num_checked"], row["num_checks"], unchecked
        )


def _findings(rows: EpisodeRows, limits: Mapping[str, Limits]) -> Iterator[Finding]:
    """What the verdicts name, subject by subject; which check fails is theirs to say, not ours."""
    verdicts = {row["gate"]: row for row in rows.verdicts}
    for row in rows.evidence:
        verdict = verdicts.get(row["gate"])
        if verdict is None:
            continue
        failing = _failing(verdict)
        shift_s = _shift_s(rows) if row["gate"] == "before" else 0.0
        for name, measured in measured_of(row["details"]).items():
            if name in failing and measured:
                yield from _of_check(CHECKS[name], failing[name], measured, limits[name], shift_s)


def _failing(verdict: RowDict) -> dict[str, Severity]:
    """The checks that a verdict names, without those that there are no more."""
    named: dict[str, Severity] = dict.fromkeys(verdict["warned"] or (), "warn")
    named.update(dict.fromkeys(verdict["rejected"] or (), "reject"))
    return {name: severity for name, severity in named.items() if name in CHECKS}


def _of_check(
    check: Check, severity: Severity, measured: Sequence[Measured], limits: Limits, shift_s: float
) -> Iterator[Finding]:
    """The subjects beyond the limits; the worst one has the check's severity even if limits changed since."""
    worst = check.worst(measured)
    for one in measured:
        rejected = severity == "reject" and (one is worst or check.is_beyond(one.value, limits.reject))
        if not rejected and one is not worst and not check.is_beyond(one.value, limits.warn):
            continue
        level: Severity = "reject" if rejected else "warn"
        limit = limits.reject if rejected else limits.warn
        spans = tuple((start_s + shift_s, end_s + shift_s) for start_s, end_s in one.spans)
        yield Finding(check.name, level, one.subject, one.value, limit, check.unit, one.note, spans)


def _shift_s(rows: EpisodeRows) -> float:
    """From times of the recording to times of the episode, which starts later."""
    if rows.recording is None or rows.episode is None:
        return 0.0
    return float(rows.recording["start_ns"] - rows.episode["start_ns"]) / 1e9


def _invalid(episode: RowDict) -> Stretches:
    starts, ends = episode.get("valid_starts"), episode.get("valid_ends")
    if starts is None or ends is None:
        return ()
    return missing_from(
        range(episode["num_steps"]), [range(*ends_of) for ends_of in zip(starts, ends, strict=True)]
    )
