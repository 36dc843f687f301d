"""From rows of the warehouse to what a page says."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_samples import START_NS, trace

from dyna_assets.look.facts import EpisodeRows, badness, facts_of, outcome_of
from dyna_assets.quality.evidence import evidence_row
from dyna_assets.quality.policy import DEFAULT, judge, limits_by, limits_in_force
from dyna_assets.quality.registry import CHECKS, Gate, Limits, Measured

LIMITS = limits_by(DEFAULT, {})
HASH = "ab" * 32


def judged(gate: Gate, measured: dict[str, list[Measured]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows of `qc_evidence` and `verdicts` of one gate."""
    verdict = judge(DEFAULT, {}, gate, measured)
    said = {
        "gate": gate,
        "policy": verdict.policy,
        "verdict": verdict.verdict,
        "warned": list(verdict.warned),
        "rejected": list(verdict.rejected),
        "num_checked": verdict.num_checked,
        "num_checks": verdict.num_checks,
        "reason": verdict.reason,
    }
    return evidence_row(17, "lab", gate, measured), said


def rows_of(
    before: dict[str, list[Measured]] | None = None,
    after: dict[str, list[Measured]] | None = None,
    **others: Any,
) -> EpisodeRows:
    """The rows of an episode that starts 0.25 s after its recording; a gate that is None has not judged."""
    gates = [
        judged(gate, found) for gate, found in (("before", before), ("after", after)) if found is not None
    ]
    about = {"shard": 3, "robot": "bimanual", "task": "fold", "raw_bytes": 9}
    recording = {**about, "start_ns": START_NS, "duration_s": 2.5, "success": True, "facts": "{}"}
    episode = {
        **about,
        "start_ns": START_NS + 250_000_000,
        "duration_s": 2.0,
        "num_steps": 60,
        "size_bytes": 5,
        "content_hash": HASH,
        "valid_starts": [0, 40],
        "valid_ends": [30, 60],
    }
    known = {"recording": recording, "episode": episode, **others}
    return EpisodeRows(evidence=[row for row, _ in gates], verdicts=[said for _, said in gates], **known)


def stamp(step: str, status: str, reason: str = "") -> dict[str, Any]:
    return {"step": step, "status": status, "reason": reason}


DARK = {"camera.dark": [Measured("wrist", 3.0, "wrist is dark", ((0.5, 1.0),)), Measured("top", 200.0)]}
GAP = {"time.gap": [Measured("arm", 0.7, "a gap", ((1.0, 1.7),)), Measured("top", 0.9, "a longer one")]}


def test_a_rejected_subject_is_a_finding_with_the_limit_it_breaks_and_a_good_one_is_none():
    facts = facts_of(17, "lab", "a/b", rows_of({}, DARK), LIMITS)
    (finding,) = facts.findings
    assert (finding.check, finding.severity, finding.subject) == ("camera.dark", "reject", "wrist")
    assert (finding.value, finding.limit, finding.unit) == (
        3.0,
        CHECKS["camera.dark"].limits.reject,
        "levels",
    )
    assert facts.outcome == "reject" and facts.headline == "wrist is dark"


def test_stretches_of_the_recording_are_moved_to_the_time_of_the_episode():
    facts = facts_of(17, "lab", "a/b", rows_of(GAP, DARK), LIMITS)
    spans = {finding.subject: finding.spans for finding in facts.findings}
    assert spans["arm"] == ((pytest.approx(0.75), pytest.approx(1.45)),)
    assert spans["wrist"] == ((0.5, 1.0),)


def test_without_an_episode_stretches_stay_in_the_time_of_the_recording():
    facts = facts_of(17, "lab", "a/b", rows_of(GAP, None, episode=None), LIMITS)
    assert {finding.subject: finding.spans for finding in facts.findings}["arm"] == ((1.0, 1.7),)
    assert facts.content_hash == ""


def test_rejects_come_first_then_what_lies_farthest_beyond_its_limit():
    facts = facts_of(17, "lab", "a/b", rows_of(GAP, DARK), LIMITS)
    assert [finding.subject for finding in facts.findings] == ["wrist", "top", "arm"]


def test_the_worst_subject_stays_a_finding_when_limits_changed_after_the_verdict():
    loose = {**LIMITS, "time.gap": Limits(warn=100.0)}
    facts = facts_of(17, "lab", "a/b", rows_of(GAP, {}), loose)
    assert [(finding.subject, finding.limit) for finding in facts.findings] == [("top", 100.0)]


def test_checks_that_measured_nothing_are_named_per_gate():
    facts = facts_of(17, "lab", "a/b", rows_of({**GAP, "time.drift": []}, DARK), LIMITS)
    assert facts.gates[0].unchecked == ("time.drift",)
    assert (facts.gates[0].num_checked, facts.num_checked) == (1, 2)
    assert facts.num_checks == len(CHECKS)


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        (rows_of({}, {}), "pass"),
        (rows_of(GAP, {}), "warn"),
        (rows_of(GAP, DARK), "reject"),
        (rows_of(GAP), "unchecked"),
        (rows_of(), "unchecked"),
        (rows_of({}, {}, stamps=[stamp("episodes", "error", "x")]), "error"),
        (rows_of({}, stamps=[stamp("recordings", "rejected", "x")]), "reject"),
        (rows_of({}, {}, stamps=[stamp("labels", "error", "x"), stamp("media", "error", "x")]), "pass"),
        (rows_of({}, DARK, stamps=[stamp("gate_after", "rejected", "x")]), "reject"),
    ],
)
def test_the_outcome_is_the_worst_that_a_gate_or_a_critical_step_says(rows, outcome):
    assert outcome_of(rows) == outcome
    assert facts_of(17, "lab", "a/b", rows, LIMITS).outcome == outcome


def test_what_a_gate_rejected_is_not_told_twice():
    rows = rows_of({}, DARK, stamps=[stamp("gate_after", "rejected", "camera.dark: wrist is dark")])
    assert facts_of(17, "lab", "a/b", rows, LIMITS).failures == ()


def test_steps_between_the_valid_stretches_are_not_usable():
    assert facts_of(17, "lab", "a/b", rows_of({}, {}), LIMITS).invalid == (range(30, 40),)


def test_traces_of_an_older_file_are_left_out():
    traces = [
        {"camera": "top", "content_hash": HASH, "trace": trace().to_bytes()},
        {"camera": "wrist", "content_hash": "cd" * 32, "trace": trace().to_bytes()},
    ]
    assert set(facts_of(17, "lab", "a/b", rows_of({}, {}, traces=traces), LIMITS).traces) == {"top"}


def test_topics_are_those_the_probe_met_and_those_it_missed():
    facts = {"topics": {"/top": {"num_messages": 3}}, "missing": {"/arm": {"reason": "not there"}}}
    recording = {"start_ns": 0, "success": None, "facts": json.dumps(facts)}
    facts = facts_of(17, "lab", "a/b", rows_of({}, None, recording=recording, episode=None), LIMITS)
    assert facts.topics == {"/top": {"num_messages": 3}, "/arm": {"reason": "not there"}}


LEVELS = st.floats(0.0, 250.0, width=16)


@given(
    levels=st.lists(LEVELS, min_size=2, max_size=12), gaps=st.lists(st.floats(0, 9, width=16), min_size=12)
)
def test_episodes_rank_by_outcome_then_number_of_failing_checks_then_distance(levels, gaps):
    every = [
        rows_of({"time.gap": [Measured("arm", gap)]}, {"camera.dark": [Measured("top", level)]})
        for level, gap in zip(levels, gaps, strict=False)
    ]
    ranked = sorted(every, key=lambda rows: badness(rows, LIMITS))
    outcomes = [("reject", "error", "warn", "unchecked", "pass").index(outcome_of(rows)) for rows in ranked]
    assert outcomes == sorted(outcomes)
    for one, next_one in itertools.pairwise(ranked):
        if outcome_of(one) == outcome_of(next_one):
            failing = [len(facts_of(1, "a", "b", rows, LIMITS).findings) for rows in (one, next_one)]
            assert failing[0] >= failing[1]


def test_a_source_that_is_described_no_more_is_held_against_the_policy():
    limits_of = limits_in_force(None, {})
    assert limits_of("gone")["camera.dark"] == CHECKS["camera.dark"].limits
