"""Which rows are missing or stale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyna_assets.derive import DERIVED, DerivedRole
from dyna_assets.landing.profile import CameraRole, Grid, SourceProfile, VectorRole
from dyna_assets.profiles import RunProfile, checks_like, load_profiles, profile_named
from dyna_assets.quality import CHECKS
from dyna_assets.stamps import (
    STEPS,
    Stamp,
    Step,
    fingerprint,
    is_due,
    is_settled,
    settings_of,
    steps_without,
    wanted_fingerprints,
)
from dyna_train.config import parse_config
from dyna_train.errors import ConfigError

SOURCE = SourceProfile(
    name="lab",
    landing="/landing",
    reader="mcap",
    grid=Grid(rate_hz=30.0),
    cameras=(CameraRole(name="top", topic="/top"),),
    states=(VectorRole(name="arm", topic="/arm"),),
)
SETTINGS: dict[str, Any] = settings_of(SOURCE)
DOWNSTREAM = {
    "recordings": set(STEPS),
    "gate_before": {"gate_before"},
    "episodes": {"episodes", "gate_after", "labels", "media"},
    "gate_after": {"gate_after"},
    "labels": {"labels"},
    "media": {"media"},
}
FROM_EPISODES = DOWNSTREAM["episodes"]


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


def stale_after(**changes: Any) -> set[str]:
    """Steps whose rows another source profile makes stale."""
    before, after = wanted_fingerprints(SETTINGS), wanted_fingerprints({**SETTINGS, **changes})
    return {name for name in STEPS if before[name] != after[name]}


@pytest.mark.parametrize(
    ("key", "stale"),
    [
        ("grid", set(STEPS)),  # the probe measures what is silent for longer than grid.max_gap_s
        ("encoding", FROM_EPISODES),
        ("derived", FROM_EPISODES),
        ("reader_options", set(STEPS)),
        ("ignore", set(STEPS)),
        ("cameras", set(STEPS)),
        ("labels", {"labels"}),
        ("gates", set()),  # limits judge what was measured, and measure nothing
        ("landing", set()),
    ],
)
def test_a_changed_setting_makes_stale_only_the_steps_that_read_it(key: str, stale: set[str]) -> None:
    assert stale_after(**{key: "changed"}) == stale


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        ({"align": "nearest"}, FROM_EPISODES),
        ({"latency_ms": 12.0}, FROM_EPISODES),
        ({"range": [-1.0, 1.0]}, set(STEPS)),
        ({"confidence": "/confidence"}, set(STEPS)),
    ],
)
def test_how_a_topic_comes_onto_the_grid_is_no_business_of_the_probe(
    change: dict[str, Any], stale: set[str]
) -> None:
    (state,) = SETTINGS["states"]
    assert stale_after(states=[{**state, **change}]) == stale


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
    made_online = fingerprint(STEPS["labels"], SETTINGS, old)
    assert made_online == old["labels"] != new["labels"]


def test_a_new_version_of_a_derived_signal_concerns_the_sources_that_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    role = DerivedRole(name="speed", function=next(iter(DERIVED)), of=("state/arm",))
    using = SOURCE.model_copy(update={"derived": (role,)})
    before = [wanted_fingerprints(settings_of(source)) for source in (SOURCE, using)]
    newer = replace(DERIVED[role.function], version=99)
    monkeypatch.setitem(DERIVED, role.function, newer)
    after = [wanted_fingerprints(settings_of(source)) for source in (SOURCE, using)]
    assert after[0] == before[0]
    assert {name for name in STEPS if after[1][name] != before[1][name]} == FROM_EPISODES


def test_rows_of_a_run_that_skipped_checks_are_stale_for_one_that_runs_them_all() -> None:
    skipped = checks_like(["camera.dark"])
    there, here = wanted_fingerprints(SETTINGS), wanted_fingerprints(SETTINGS, steps_without(skipped))
    assert {name for name in STEPS if there[name] != here[name]} == {"gate_after"}
    assert "camera.dark" not in steps_without(skipped)["gate_after"].version
    assert there == wanted_fingerprints(SETTINGS, steps_without([]))


def test_checks_are_named_one_by_one_or_by_pattern() -> None:
    assert checks_like(["time.gap", "camera.*"]) == {
        "time.gap",
        *(name for name in CHECKS if name.startswith("camera.")),
    }
    more = profile_named("ingest_batch", skip_checks=["camera.*"])
    assert checks_like(more.skip_checks) == checks_like(["camera.*"])
    assert all(profile.skip_checks == () for profile in load_profiles().values())


def test_a_check_to_skip_that_there_is_not_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        ConfigError, match=r"no check is called 'camera\.darc'; did you mean 'camera\.dark'\?"
    ):
        profile_named("ingest_batch", skip_checks=["camera.darc"])
    written = {"name": "p", "description": "", "steps": [], "skip_checks": ["time.gab"]}
    with pytest.raises(ConfigError, match=r"p\.toml: key 'skip_checks'.*did you mean 'time\.gap'\?"):
        parse_config(RunProfile, written, where="p.toml")


def test_a_steps_version_reads_as_its_parts() -> None:
    assert STEPS["episodes"].version == "align:3 derive:1 encode:2 pack:3"
