"""Evidence: what checks measured is kept and read again unchanged, and what was not checked stays open."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quality_samples import found_in, good, source

from dyna_assets.quality import CHECKS, check_versions, evidence_row, measure, measured_of
from dyna_assets.quality.registry import Check, Limits, Measured, check
from dyna_assets.steps import probe
from dyna_assets.warehouse.tables import QC_EVIDENCE

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
MEASURED = st.builds(
    Measured,
    st.text(max_size=8),
    NUMBERS,
    st.text(max_size=20),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3).map(tuple),
)


@given(st.dictionaries(st.sampled_from(sorted(CHECKS)), st.lists(MEASURED, max_size=4)))
def test_what_was_measured_is_read_again_as_it_was(measured: dict[str, list[Measured]]) -> None:
    row = evidence_row(7, "lab", "before", measured)
    assert measured_of(row["details"]) == measured
    for name, rule in CHECKS.items():
        values = [one.value for one in measured.get(name, [])]
        worst = (max if rule.worse == "above" else min)(values, default=None)
        assert row[rule.column] == worst


def test_a_row_has_every_column_of_its_table_whichever_gate_it_is_of() -> None:
    row = evidence_row(7, "lab", "after", {})
    assert set(row) == {"episode_id", *(name for name, _ in QC_EVIDENCE.columns)}
    assert {row[rule.column] for rule in CHECKS.values()} == {None}


def test_a_check_that_is_skipped_is_absent_and_one_without_a_subject_is_not() -> None:
    recorded = good()
    assert found_in(recorded)["time.rate"] == []
    facts = probe.measure(recorded, source(), now_ns=0)
    from_all = measure("before", facts)
    skipped = measure("before", facts, skip=("time.rate", "camera.drops"))
    assert from_all.keys() - skipped.keys() == {"time.rate", "camera.drops"}
    row = evidence_row(1, "lab", "before", skipped)
    assert row["camera_drops"] is None
    assert "camera.drops" not in json.loads(row["details"])


def test_details_name_the_version_of_each_check() -> None:
    details = json.loads(evidence_row(1, "lab", "before", found_in(good()))["details"])
    assert {name: kept["version"] for name, kept in details.items()} == check_versions("before")


def test_details_of_a_check_that_is_gone_are_left_out() -> None:
    details = json.dumps({"camera.smell": {"version": 1, "subjects": []}})
    assert measured_of(details) == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_no_column_can_compare_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"subject 'top' has the value (nan|inf); expected a finite number"):
        evidence_row(1, "lab", "after", {"camera.dark": [Measured("top", value)]})


def test_checks_are_registered_under_names_that_are_columns_and_say_what_they_are_about() -> None:
    for name, rule in CHECKS.items():
        assert name == rule.name
        assert rule.column.isidentifier()
        assert rule.says.endswith(".")
        assert rule.limits != Limits(), f"{name} could never warn"


def test_the_worst_subject_is_the_highest_or_the_lowest_as_the_check_says() -> None:
    subjects = [Measured("a", 1.0), Measured("b", 3.0), Measured("c", 2.0)]

    def find(worse: str) -> Measured | None:
        rule = Check("x", "before", 1, "s", worse, Limits(), lambda facts: ())  # type: ignore[arg-type]
        return rule.worst(subjects)

    assert find("above") == subjects[1]
    assert find("below") == subjects[0]
    assert CHECKS["camera.dark"].worst([]) is None


def test_a_new_check_is_a_function_with_a_name_and_limits() -> None:
    @check("test.new", "before", unit="s", warn=1.0, version=3)
    def new(facts: object) -> list[Measured]:
        """It is new."""
        return [Measured("", 2.0)]

    rule = CHECKS.pop("test.new")
    assert (rule.version, rule.limits.warn, rule.limits.reject, rule.says) == (3, 1.0, None, "It is new.")
