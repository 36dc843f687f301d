"""Which rows are missing or stale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyna_assets.stamps import STEPS, Stamp, Step, fingerprint, is_due, is_settled, wanted_fingerprints

SETTINGS: dict[str, Any] = {
    "reader": "mcap_ros2",
    "cameras": [],
    "states": [],
    "actions": [],
    "robot": "",
    "task": "",
    "grid": {"rate_hz": 30.0},
    "gates": {"dark_max_level": 16.0},
    "encoding": {"crf": 18},
}
DOWNSTREAM = {
    "recordings": set(STEPS),
    "gate_before": {"gate_before"},
    "episodes": {"episodes", "gate_after"},
    "gate_after": {"gate_after"},
    "labels": {"labels"},
}


def bumped(step: str) -> dict[str, Step]:
    """The steps, with one part of `step` a version higher."""
    versions = dict(STEPS[step].versions)
    versions[next(iter(versions))] += 1
    return {**STEPS, step: replace(STEPS[step], versions=versions)}


def current_stamps(wanted: dict[str, str]) -> dict[str, Stamp]:
    return {step: Stamp(1, step, wanted[step], "input", "ok") for step in STEPS}


@pytest.mark.parametrize("step", STEPS)
def test_a_bumped_version_makes_stale_exactly_the_step_and_what_depends_on_it(step: str) -> None:
    before, after = wanted_fingerprints(SETTINGS), wanted_fingerprints(SETTINGS, bumped(step))
    assert {name for name in STEPS if before[name] != after[name]} == DOWNSTREAM[step]


@pytest.mark.parametrize(
    ("key", "stale"),
    [
        ("grid", {"episodes", "gate_after"}),
        ("encoding", {"episodes", "gate_after"}),
        ("gates", {"gate_before", "gate_after"}),
        ("cameras", set(STEPS)),
    ],
)
def test_a_changed_setting_makes_stale_only_the_steps_that_read_it(key: str, stale: set[str]) -> None:
    before, after = wanted_fingerprints(SETTINGS), wanted_fingerprints({**SETTINGS, key: "changed"})
    assert {name for name in STEPS if before[name] != after[name]} == stale


@pytest.mark.parametrize("step", STEPS.values(), ids=lambda step: step.name)
@pytest.mark.parametrize("redo", ["missing", "missing_or_stale"])
def test_a_current_row_is_never_due(step: Step, redo: Any) -> None:
    wanted = wanted_fingerprints(SETTINGS)
    assert not is_due(step, current_stamps(wanted), wanted=wanted, input_hash="input", redo=redo)


def test_a_stale_row_is_due_only_for_a_profile_that_redoes_stale_rows() -> None:
    wanted = wanted_fingerprints(SETTINGS, bumped("labels"))
    stamps = current_stamps(wanted_fingerprints(SETTINGS))
    ask = {"wanted": wanted, "input_hash": "input"}
    assert is_due(STEPS["labels"], stamps, redo="missing_or_stale", **ask)
    assert not is_due(STEPS["labels"], stamps, redo="missing", **ask)


def test_a_step_waits_until_what_it_reads_is_current_again() -> None:
    wanted = wanted_fingerprints(SETTINGS, bumped("recordings"))
    stamps = current_stamps(wanted_fingerprints(SETTINGS))
    due = [
        step.name
        for step in STEPS.values()
        if is_due(step, stamps, wanted=wanted, input_hash="input", redo="missing_or_stale")
    ]
    assert due == ["recordings"]


def test_changed_input_bytes_make_every_step_wait_for_the_probe() -> None:
    wanted = wanted_fingerprints(SETTINGS)
    stamps = current_stamps(wanted)
    ask = {"wanted": wanted, "input_hash": "other bytes", "redo": "missing_or_stale"}
    assert [name for name, step in STEPS.items() if is_due(step, stamps, **ask)] == ["recordings"]


def test_changed_input_bytes_count_as_missing_and_not_only_as_stale() -> None:
    wanted = wanted_fingerprints(SETTINGS)
    stamps = current_stamps(wanted)
    ask: dict[str, Any] = {"wanted": wanted, "input_hash": "other bytes"}
    assert is_due(STEPS["recordings"], stamps, redo="missing", **ask)
    assert not is_settled(stamps, **ask)
    stamps["recordings"] = replace(stamps["recordings"], input_hash="other bytes")
    assert (
        is_due(STEPS["episodes"], stamps, redo="missing", **ask) is False
    )  # the gate before judged other bytes
    assert is_due(STEPS["gate_before"], stamps, redo="missing", **ask)


def test_a_row_is_settled_when_it_went_all_the_way_or_was_rejected_on_it() -> None:
    wanted = wanted_fingerprints(SETTINGS)
    ask: dict[str, Any] = {"wanted": wanted, "input_hash": "input"}
    stamps = current_stamps(wanted)
    del stamps["labels"]
    assert is_settled(stamps, **ask)  # labels are not critical
    del stamps["gate_after"]
    assert not is_settled(stamps, **ask)
    rejected = {"recordings": replace(stamps["recordings"], status="rejected")}
    assert is_settled(rejected, **ask)
    assert not is_settled({"recordings": replace(stamps["recordings"], status="error")}, **ask)


def test_a_rejected_row_goes_no_further_and_an_error_is_tried_again() -> None:
    wanted = wanted_fingerprints(SETTINGS)
    rejected = {**current_stamps(wanted)}
    del rejected["episodes"]
    rejected["gate_before"] = replace(rejected["gate_before"], status="rejected")
    ask: dict[str, Any] = {"wanted": wanted, "input_hash": "input", "redo": "missing"}
    assert not is_due(STEPS["episodes"], rejected, **ask)
    failed = {**current_stamps(wanted)}
    failed["labels"] = replace(failed["labels"], status="error")
    assert is_due(STEPS["labels"], failed, **ask)


@given(st.permutations(list(SETTINGS)))
def test_a_fingerprint_does_not_depend_on_the_order_of_settings(keys: list[str]) -> None:
    shuffled = {key: SETTINGS[key] for key in keys}
    assert wanted_fingerprints(shuffled) == wanted_fingerprints(SETTINGS)


def test_a_row_made_from_a_stale_one_carries_a_fingerprint_that_says_so() -> None:
    old = wanted_fingerprints(SETTINGS)
    new = wanted_fingerprints(SETTINGS, bumped("recordings"))
    made_online = fingerprint(STEPS["labels"], SETTINGS, {"recordings": old["recordings"]})
    assert made_online == old["labels"] != new["labels"]


def test_a_steps_version_reads_as_its_parts() -> None:
    assert STEPS["episodes"].version == "align:1 encode:2 pack:2"
