"""Policies: one judgement, in Python for one row and in SQL for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyna_assets.quality import CHECKS, Gate, Limits, Measured, evidence_row
from dyna_assets.quality.policy import (
    DEFAULT,
    DEFAULT_TEXT,
    Policy,
    Verdict,
    judge,
    limits_for,
    load_policy,
    parse_policy,
    verdict_sql,
)
from dyna_assets.quality.registry import GATES, checks_of, known_limits
from dyna_assets.warehouse.tables import QC_EVIDENCE
from dyna_train.errors import ConfigError

ABOVE = next(rule for rule in CHECKS.values() if rule.worse == "above" and rule.gate == "before")
BELOW = next(rule for rule in CHECKS.values() if rule.worse == "below" and rule.gate == "before")


def in_order(name: str, here: Limits) -> Limits:
    """Exchanged, where it would reject before it warns."""
    is_wrong = here.warn is not None and CHECKS[name].is_beyond(here.warn, here.reject)
    return Limits(warn=here.reject, reject=here.warn) if is_wrong else here


# Few values, so that limits are met exactly, subjects are equally bad, and limits of both kinds coincide.
values = st.sampled_from([0.0, 0.5, 1.0, 1 / 3, 32.0, 1e-7, 12345678.9, -2.0])
limits = st.builds(Limits, warn=st.none() | values, reject=st.none() | values)
gates_of = st.dictionaries(st.sampled_from(sorted(CHECKS)), limits, max_size=8).map(
    lambda gates: {name: in_order(name, here) for name, here in gates.items()}
)
policies = st.builds(Policy, name=st.just("law"), version=st.integers(1, 9), checks=gates_of)
notes = st.sampled_from(["", "it's black", 'a "quoted" note; 50 %', "größe\n2"])
subjects = st.lists(st.builds(Measured, st.sampled_from(["", "cam_top"]), values, notes), max_size=3)
EvidenceOf = Mapping[str, Sequence[Measured]]


@st.composite
def evidence(draw: st.DrawFn) -> tuple[str, Gate, EvidenceOf]:
    gate = draw(st.sampled_from(GATES))
    measured = {rule.name: draw(subjects) for rule in checks_of(gate) if draw(st.booleans())}
    return draw(st.sampled_from(["plain", "own", "it's"])), gate, measured


def judged_in_sql(
    policy: Policy, sources: Mapping[str, Mapping[str, Limits]], rows: Sequence[tuple[str, Gate, EvidenceOf]]
) -> list[Verdict]:
    lines = [
        {"bucket": 0, "shard": 0, "seq": 7, **evidence_row(number, source, gate, measured)}
        for number, (source, gate, measured) in enumerate(rows)
    ]
    with duckdb.connect() as connection:
        connection.register("qc_evidence", pa.Table.from_pylist(lines, schema=QC_EVIDENCE.schema))
        columns = "verdict, warned, rejected, num_checked, num_checks, reason, policy"
        query = f"SELECT {columns} FROM ({verdict_sql(policy, sources)}) ORDER BY episode_id"
        found = connection.execute(query).fetchall()
    return [Verdict(level, tuple(w), tuple(r), *rest) for level, w, r, *rest in found]


def unsaid(measured: EvidenceOf) -> EvidenceOf:
    """The same values without notes, which SQL does not read."""
    return {name: [replace(one, note="") for one in found] for name, found in measured.items()}


@settings(max_examples=20)
@given(policies, gates_of, gates_of, st.lists(evidence(), min_size=1, max_size=20))
def test_sql_judges_every_row_as_python_does(
    policy: Policy, own: Any, quoted: Any, rows: list[tuple[str, Gate, EvidenceOf]]
) -> None:
    sources = {"own": own, "it's": quoted}
    expected = [
        judge(policy, sources.get(source, {}), gate, unsaid(measured)) for source, gate, measured in rows
    ]
    assert judged_in_sql(policy, sources, rows) == expected


def test_a_value_at_a_limit_is_good_and_one_beyond_it_is_not() -> None:
    policy = Policy(
        name="p",
        version=1,
        checks={ABOVE.name: Limits(warn=1, reject=2), BELOW.name: Limits(warn=5, reject=4)},
    )

    def levels(above: float, below: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        measured = {ABOVE.name: [Measured("a", above)], BELOW.name: [Measured("", below)]}
        found = judge(policy, {}, "before", measured)
        return found.warned, found.rejected

    assert levels(1, 5) == ((), ())
    assert levels(2, 4) == ((ABOVE.name, BELOW.name), ())
    assert levels(2.5, 3.5) == ((), (ABOVE.name, BELOW.name))


def test_what_was_not_measured_is_not_checked_and_neither_good_nor_bad() -> None:
    found = judge(DEFAULT, {}, "before", {ABOVE.name: []})
    assert (found.verdict, found.num_checked, found.num_checks) == ("pass", 0, len(checks_of("before")))


def test_a_source_comes_before_the_policy_and_the_policy_before_the_check_with_both_limits() -> None:
    name = ABOVE.name
    policy = Policy(name="p", version=1, checks={name: Limits(warn=1)})
    assert limits_for(DEFAULT, {}, name) == ABOVE.limits
    assert limits_for(policy, {}, name) == Limits(warn=1, reject=None)  # not the check's own reject
    assert limits_for(policy, {name: Limits(reject=3)}, name) == Limits(warn=None, reject=3)


def test_a_rejection_says_what_the_worst_subject_showed_and_where_the_limit_lies() -> None:
    policy = Policy(name="p", version=1, checks={ABOVE.name: Limits(reject=0.25)})
    measured = {ABOVE.name: [Measured("good", 0.0, "fine"), Measured("bad", 1.0, "cam_top has nothing")]}
    found = judge(policy, {}, "before", measured)
    assert found.reason == f"{ABOVE.name}: cam_top has nothing (rejected above 0.25 {ABOVE.unit})"
    bare = judge(policy, {}, "before", {ABOVE.name: [Measured("bad", 1.0)]})
    assert bare.reason == f"{ABOVE.name}: 1 {ABOVE.unit} (rejected above 0.25 {ABOVE.unit})"


def test_a_value_that_is_no_number_is_beyond_every_limit_in_both_languages() -> None:
    policy = Policy(name="p", version=1, checks={ABOVE.name: Limits(reject=1), BELOW.name: Limits(reject=1)})
    nan = float("nan")
    measured = {ABOVE.name: [Measured("", nan)], BELOW.name: [Measured("", nan)]}
    found = judge(policy, {}, "before", measured)
    row = {"source": "s", "gate": "before", ABOVE.column: nan, BELOW.column: nan, "details": "{}"}
    with duckdb.connect() as connection:
        table = pa.Table.from_pylist([row], schema=QC_EVIDENCE.schema)
        connection.register("qc_evidence", table)
        query = f"SELECT rejected FROM ({verdict_sql(policy, {})})"
        assert connection.execute(query).fetchall() == [([*found.rejected],)]
    assert set(found.rejected) == {ABOVE.name, BELOW.name}


def test_a_policy_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "strict.toml"
    path.write_text(f'name = "strict"\nversion = 2\n[checks."{ABOVE.name}"]\nwarn = 0.5\n')
    policy = load_policy(path)
    assert policy.label == "strict@2"
    assert policy.checks == {ABOVE.name: Limits(warn=0.5)}
    assert parse_policy(path.read_text(), where="the catalog") == policy
    assert parse_policy(DEFAULT_TEXT, where="built in") == DEFAULT


def test_every_checks_own_limits_are_in_order_and_its_unit_splits_no_reason() -> None:
    known_limits({name: rule.limits for name, rule in CHECKS.items()})
    assert [name for name, rule in CHECKS.items() if ";" in rule.unit or "(rejected" in rule.unit] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f'[checks."{ABOVE.name}s"]\nwarn = 1',
            rf"no check is called '{ABOVE.name}s'; did you mean '{ABOVE.name}'\?",
        ),
        ('[checks."zzzz"]\nwarn = 1', r"no check is called 'zzzz'; checks are .*camera\.dark"),
        ('[checks."time.gap"]\nwarm = 1', r"unknown key 'checks.time.gap.warm'"),
        ("checks = {", r"not valid TOML"),
        (
            '[checks."camera.dark"]\nwarn = 40\nreject = 60',
            r"'camera.dark' gets worse below a limit, so that with warn = 40 and reject = 60 .*warn >= reject",
        ),
        (
            '[checks."time.gap"]\nwarn = 2\nreject = 1',
            r"'time.gap' gets worse above a limit, so that with warn = 2 and reject = 1 .*warn <= reject",
        ),
    ],
)
def test_a_wrong_policy_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"p\.toml: .*{message}"):
        parse_policy(f'name = "p"\nversion = 1\n{text}', where="p.toml")
