"""Policies: which values of the evidence are good enough. In Python for one row, in SQL for all of them.

A policy is TOML: a name, a version, and limits for some of the checks; the others keep their own limits.

    name = "strict"
    version = 2
    description = "No dark cameras for the grasping experiments."

    [checks."camera.dark"]
    warn = 60
    reject = 40

A source's own [gates] come before the policy's limits, these before the check's own. An entry replaces both limits
of a check; one that is left out of it never warns, or never rejects. Verdicts are signed with name and version, which
therefore stand for the same entries for good.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field, field_validator

from dyna_assets.catalog.rows import PolicyRow
from dyna_assets.names import Name
from dyna_assets.quality.registry import (
    CHECKS,
    GATES,
    Check,
    Gate,
    Limits,
    Measured,
    checks_of,
    known_limits,
)
from dyna_train.config import Config, load_config, parse_config
from dyna_train.errors import ConfigError

Level = Literal["pass", "warn", "reject"]
LEVELS: tuple[Level, ...] = ("pass", "warn", "reject")
"""From good to bad."""
Gates = Mapping[str, Limits]
"""Limits of one source: check -> limits."""
LimitsOf = Callable[[str], Mapping[str, Limits]]
"""Source -> the limits of every check that it is judged by."""


class HasGates(Protocol):
    """A source, as far as a policy is concerned."""

    @property
    def gates(self) -> Gates:
        """Its own limits."""


class Policy(Config):
    """Limits for checks, by name; what it does not name keeps its own."""

    name: Name
    version: int = Field(ge=1)
    description: str = ""
    checks: Mapping[str, Limits] = Field(default_factory=dict)

    @field_validator("checks")
    @classmethod
    def _of_known_checks(cls, checks: Gates) -> Gates:
        return known_limits(checks)

    @property
    def label(self) -> str:
        """How verdicts are signed: name@version."""
        return f"{self.name}@{self.version}"


DEFAULT_TEXT = 'name = "default"\nversion = 1\ndescription = "Every check keeps its own limits."\n'
DEFAULT = Policy.model_validate(tomllib.loads(DEFAULT_TEXT))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy makes of one episode's evidence of one gate.

    warned, rejected: checks beyond that limit, in the order of the registry; a rejecting check does not warn too.
    num_checked of num_checks: checks that measured something, of all the gate has. reason: for each rejecting check
    the note of its worst subject (without one, the value) and the limit; '' if none rejects.
    """

    verdict: Level
    warned: tuple[str, ...]
    rejected: tuple[str, ...]
    num_checked: int
    num_checks: int
    reason: str
    policy: str


def load_policy(path: str | Path) -> Policy:
    """The policy in a TOML file. Raises ConfigError naming file, key, and for an unknown check the nearest one."""
    return load_config(Policy, path)


def parse_policy(text: str, *, where: str) -> Policy:
    """The policy in a TOML text. Raises ConfigError that starts with `where`."""
    try:
        return parse_config(Policy, tomllib.loads(text), where=where)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not valid TOML: {error}") from None


def policy_in_force(applied: PolicyRow | None) -> Policy:
    """The policy that the catalog holds as the active one; the default before any was applied.

    Raises ConfigError if this version of dyna lacks a check it names.
    """
    if applied is None:
        return DEFAULT
    label = f"{applied.name}@{applied.version}"
    return parse_policy(applied.text, where=f"active policy {label} (apply another: dyna-assets regate)")


def limits_in_force(applied: PolicyRow | None, sources: Mapping[str, HasGates]) -> LimitsOf:
    """The limits of all sources by the policy in force; of a source that is described no more, the policy's.

    Raises ConfigError as `policy_in_force`.
    """
    policy = policy_in_force(applied)
    known = {name: limits_by(policy, source.gates) for name, source in sources.items()}
    others = limits_by(policy, {})
    return lambda source: known.get(source, others)


def limits_by(policy: Policy, source_gates: Gates) -> dict[str, Limits]:
    """check -> the limits that hold for a source with these gates."""
    return {name: limits_for(policy, source_gates, name) for name in CHECKS}


def limits_for(policy: Policy, source_gates: Gates, check: str) -> Limits:
    """The limits that hold: the source's, else the policy's, else the check's own."""
    return source_gates.get(check) or policy.checks.get(check) or CHECKS[check].limits


def judge(
    policy: Policy, source_gates: Gates, gate: Gate, measured: Mapping[str, Sequence[Measured]]
) -> Verdict:
    """The verdict over what the checks of `gate` measured: check -> its subjects, none where it found nothing."""
    warned, rejected, reasons, num_checked = [], [], [], 0
    rules = checks_of(gate)
    for rule in rules:
        worst = rule.worst(measured.get(rule.name, ()))
        if worst is None:
            continue
        num_checked += 1
        limits = limits_for(policy, source_gates, rule.name)
        if rule.is_beyond(worst.value, limits.reject):
            rejected.append(rule.name)
            finding = worst.note or f"{worst.value + 0.0:g} {rule.unit}"  # + 0.0: there is no minus zero
            reasons.append(f"{rule.name}: {finding}{_limit_text(rule, limits)}")
        elif rule.is_beyond(worst.value, limits.warn):
            warned.append(rule.name)
    verdict: Level = "reject" if rejected else "warn" if warned else "pass"
    return Verdict(
        verdict, tuple(warned), tuple(rejected), num_checked, len(rules), "; ".join(reasons), policy.label
    )


def with_notes(reason: str, note_of: Callable[[str], str]) -> str:
    """A reason as SQL writes it, with what `judge` says in place of a value: note_of gives a check's note, or ''."""
    return "; ".join(_with_note(clause, note_of) for clause in reason.split("; "))


def _with_note(clause: str, note_of: Callable[[str], str]) -> str:
    check, _, said = clause.partition(": ")
    note, limit_at = note_of(check), said.rfind(_LIMIT)
    return f"{check}: {note}{said[limit_at:]}" if note and limit_at >= 0 else clause


_LIMIT = " (rejected "


def _limit_text(rule: Check, limits: Limits) -> str:
    """The end of a rejection's reason; '' for limits that never reject."""
    return "" if limits.reject is None else f"{_LIMIT}{rule.worse} {limits.reject:g} {rule.unit})"


# The same judgement in SQL. What is rare is asked for last: a row that is within all limits builds no lists.


def verdict_sql(policy: Policy, sources: Mapping[str, Gates], *, evidence: str = "qc_evidence") -> str:
    """A query that gives the rows of the table `verdicts`, without `seq`, for those of `evidence`.

    It is what `judge` says of the same values without their notes: these are texts, tens of gigabytes of them where
    there are millions of rows, and only looked up for rows that are shown. One column more, `checked`, has a bit for
    each check of the gate, as `checks_of` lists them. sources: source -> its gates; one that is not named has none.
    """
    rejects = _conditions(policy, sources, lambda rule, limits: limits.reject)
    warns = _conditions(policy, sources, lambda rule, limits: limits.warn)
    either = _conditions(policy, sources, _nearer)
    warns_only = {name: f"{warns[name]} AND NOT coalesce({rejects[name]}, false)" for name in warns}
    clauses = {rule.name: _clause_sql(policy, sources, rule) for rule in CHECKS.values()}
    by_gate = {gate: [rule.name for rule in checks_of(gate)] for gate in GATES}
    is_beyond = " ".join(
        f"WHEN '{gate}' THEN {_any(either[name] for name in by_gate[gate])}" for gate in GATES
    )
    num_checks = " ".join(f"WHEN '{gate}' THEN {len(by_gate[gate])}" for gate in GATES)
    checked = " + ".join(
        f"(CASE WHEN {CHECKS[name].column} IS NULL THEN 0 ELSE {1 << bit} END)::BIGINT"
        for gate in GATES
        for bit, name in enumerate(by_gate[gate])
    )
    return f"""
SELECT bucket, shard, episode_id, seq AS evidence_seq, source, gate, '{policy.label}' AS policy,
       CASE WHEN NOT is_beyond THEN 'pass' WHEN len(rejected) > 0 THEN 'reject' ELSE 'warn' END AS verdict,
       warned, rejected, bit_count(checked)::INTEGER AS num_checked, CASE gate {num_checks} END AS num_checks, checked,
       CASE WHEN len(rejected) > 0 THEN array_to_string({_named(rejects, clauses)}, '; ') ELSE '' END AS reason
FROM (
    SELECT *, CASE WHEN is_beyond THEN {_named(warns_only)} ELSE [] END AS warned,
           CASE WHEN is_beyond THEN {_named(rejects)} ELSE [] END AS rejected
    FROM (SELECT *, CASE gate {is_beyond} END AS is_beyond, {checked} AS checked FROM {evidence})
)"""


def _conditions(
    policy: Policy, sources: Mapping[str, Gates], limit_of: Callable[[Check, Limits], float | None]
) -> dict[str, str]:
    """check -> whether its value is beyond that limit; NULL where it was not checked."""

    def beyond(rule: Check, limits: Limits) -> str:
        return _beyond_sql(rule, limit_of(rule, limits))

    return {rule.name: _by_source(policy, sources, rule, partial(beyond, rule)) for rule in CHECKS.values()}


def _nearer(rule: Check, limits: Limits) -> float | None:
    """The limit that a value that gets worse meets first."""
    there = [limit for limit in (limits.warn, limits.reject) if limit is not None]
    return (min if rule.worse == "above" else max)(there, default=None)


def _beyond_sql(rule: Check, limit: float | None) -> str:
    if limit is None:
        return "false"
    if rule.worse == "above":
        return f"{rule.column} > '{limit!r}'::DOUBLE"  # for DuckDB, NaN is above every number
    return f"({rule.column} < '{limit!r}'::DOUBLE OR isnan({rule.column}))"


def _clause_sql(policy: Policy, sources: Mapping[str, Gates], rule: Check) -> str:
    """What a rejection by this check says."""
    found = f"format('{rule.name}: {{:g}} {rule.unit}', {rule.column} + 0.0)"
    return (
        f"{found} || {_by_source(policy, sources, rule, lambda limits: _quoted(_limit_text(rule, limits)))}"
    )


def _by_source(
    policy: Policy, sources: Mapping[str, Gates], rule: Check, expression: Callable[[Limits], str]
) -> str:
    """`expression` of the limits that hold for the row's source."""
    others = expression(limits_for(policy, {}, rule.name))
    groups: dict[str, list[str]] = {}
    for source, gates in sources.items():
        if rule.name in gates:
            groups.setdefault(expression(gates[rule.name]), []).append(_quoted(source))
    cases = [f"WHEN source IN ({', '.join(names)}) THEN {there}" for there, names in groups.items()]
    return f"(CASE {' '.join(cases)} ELSE {others} END)" if cases else others


def _any(conditions: Iterable[str]) -> str:
    """True if one holds; what never holds is not asked."""
    return f"coalesce({' OR '.join(sorted({*conditions} - {'false'})) or 'false'}, false)"


def _named(conditions: Mapping[str, str], says: Mapping[str, str] | None = None) -> str:
    """The names of the checks whose condition holds, or what they say: a list of VARCHAR."""
    cases = ", ".join(
        f"CASE WHEN {condition} THEN {says[name] if says else _quoted(name)} END"
        for name, condition in conditions.items()
        if condition != "false"
    )
    return f"list_filter([NULL::VARCHAR, {cases or 'NULL'}], lambda one: one IS NOT NULL)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
