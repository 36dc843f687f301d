"""Labellers: what they find, what they may not do, and what one that fails costs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_samples import arm_view, reaches, view
from row_samples import header

from dyna_assets.labels import LABELLERS, Annotation, annotate, labeller_versions
from dyna_assets.labels.registry import Labeller
from dyna_assets.labels.view import EpisodeView
from dyna_assets.warehouse.tables import ANNOTATIONS
from dyna_train.episode.tracks import CameraTrack
from dyna_train.errors import BadInput


def fails(view: EpisodeView) -> Iterator[Annotation]:
    yield Annotation("", "half", 1.0)
    raise KeyError("no such joint")


def complains(view: EpisodeView) -> Iterator[Annotation]:
    yield Annotation("", "half", 1.0)
    raise BadInput(f"{view.header.name}: nothing to label")


def works(view: EpisodeView) -> Iterator[Annotation]:
    yield Annotation("arm", "length", 2.0, "m", "two", 0.5, 1.5)


def no_disk(view: EpisodeView) -> Iterator[Annotation]:
    yield Annotation("", "half", 1.0)
    raise OSError(5, "disk")


def named(**finds: object) -> dict[str, Labeller]:
    return {name: Labeller(name, 3, find) for name, find in finds.items()}  # type: ignore[arg-type]


def test_a_labeller_that_fails_gives_one_row_with_the_reason_and_the_others_stand() -> None:
    found = annotate(arm_view(reaches(30)), named(bad=fails, good=works))
    assert [(row["labeller"], row["status"], row["key"]) for row in found.rows] == [
        ("bad", "error", ""),
        ("good", "ok", "length"),
    ]
    assert "KeyError: 'no such joint' (fails, line" in found.rows[0]["text"]
    assert found.failed == {"bad": found.rows[0]["text"]}


def test_an_error_made_for_people_is_the_reason_as_it_is() -> None:
    found = annotate(arm_view(reaches(30)), named(bad=complains))
    assert found.failed == {"bad": "take 7: nothing to label"}


def test_a_failing_disk_is_no_fault_of_a_labeller() -> None:
    with pytest.raises(OSError, match="disk"):
        annotate(arm_view(reaches(30)), named(bad=no_disk))


def test_rows_have_the_columns_of_the_table() -> None:
    columns = {name for name, _ in ANNOTATIONS.columns}
    rows = annotate(arm_view(reaches(90), reaches(90))).rows
    assert rows
    assert {frozenset(row) for row in rows} == {frozenset(columns)}


def test_a_number_that_no_query_can_compare_is_refused() -> None:
    with pytest.raises(ValueError, match=r"annotation 'length' of 'arm': value is nan, expected a number"):
        Annotation("arm", "length", float("nan"))


def test_every_labeller_has_a_version() -> None:
    expected = {"performance", "segments", "grippers", "caption", "embedding", "language", "lag", "digest"}
    assert set(labeller_versions()) == expected
    assert all(version >= 1 for version in labeller_versions().values())


@given(
    num_steps=st.integers(1, 50),
    num_dims=st.integers(1, 4),
    rate_hz=st.sampled_from([1.0, 7.5, 30.0, 200.0]),
    kind=st.sampled_from(["moves", "still", "one step", "nan", "huge"]),
    holes=st.lists(st.integers(0, 49), max_size=3),
    has_action=st.booleans(),
)
def test_no_episode_makes_a_labeller_fail(
    num_steps: int, num_dims: int, rate_hz: float, kind: str, holes: list[int], has_action: bool
) -> None:
    state_TD = reaches(num_steps, num_dims, rate_hz)
    if kind == "still":
        state_TD[:] = 0.25
    elif kind == "one step":
        state_TD[:] = np.arange(num_steps)[:, None] > num_steps // 2
    elif kind == "nan":
        state_TD[num_steps // 2] = np.nan
    elif kind == "huge":
        state_TD *= 1e18
    valid = tuple(range(step, step + 1) for step in range(num_steps) if step not in holes)
    sample = arm_view(state_TD, state_TD if has_action else None, rate_hz=rate_hz, valid=valid)
    assert annotate(sample).failed == {}


def test_an_episode_of_cameras_only_is_labelled_with_what_there_is() -> None:
    found = annotate(view(header(40, cameras=[CameraTrack("top", 64, 48)]), {}, task="look"))
    assert found.failed == {}
    assert {row["key"] for row in found.rows} == {"duration", "caption.task"}


def test_labellers_are_named_once() -> None:
    assert all(name == one.name for name, one in LABELLERS.items())
