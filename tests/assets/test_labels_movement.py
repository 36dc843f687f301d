"""Performance, segments and grippers: known answers on made-up movements."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_samples import arm_view, g1_trajectories, g1_view, reaches
from numpy.typing import NDArray

from dyna_assets.labels import LABELLERS, annotate
from dyna_assets.labels.motion import between
from dyna_assets.labels.performance import spectral_arc_length
from dyna_assets.labels.segments import gripper_events
from dyna_assets.labels.view import EpisodeView


def rows(kind: str, sample: EpisodeView) -> list[dict[str, Any]]:
    found = annotate(sample, {kind: LABELLERS[kind]})
    assert found.failed == {}
    return list(found.rows)


def values(kind: str, sample: EpisodeView) -> dict[tuple[str, str], Any]:
    return {(row["key"], row["subject"]): row["value"] for row in rows(kind, sample)}


def minimum_jerk(num_steps: int) -> NDArray[np.float64]:
    """The smoothest way from 0 to 1, float64 [T]."""
    share_T = np.linspace(0, 1, num_steps)
    return 10 * share_T**3 - 15 * share_T**4 + 6 * share_T**5


def test_the_path_of_a_circle_is_its_circumference() -> None:
    turn_T = np.linspace(0, 2 * np.pi, 301)
    circle_TD = 0.3 * np.stack([np.cos(turn_T), np.sin(turn_T)], axis=1)
    found = values("performance", arm_view(circle_TD))
    assert found["path_length", "state/left_arm"] == pytest.approx(0.6 * np.pi, rel=1e-3)
    assert found["duration", ""] == pytest.approx(301 / 30)


def test_arms_and_grippers_have_their_own_paths_and_units() -> None:
    found = rows("performance", arm_view(reaches(100, 4)))
    paths = {row["subject"]: row["unit"] for row in found if row["key"] == "path_length"}
    assert paths == {"state/left_arm": "rad", "state/left_gripper": "m"}


def test_invalid_steps_add_no_path() -> None:
    state_TD = np.zeros((100, 1))
    state_TD[:, 0] = np.arange(100) / 100
    state_TD[40:60] = 7.0
    found = values("performance", arm_view(state_TD, valid=(range(40), range(60, 100))))
    assert found["path_length", "state/left_arm"] == pytest.approx(0.78, abs=1e-6)


def test_waiting_is_idle_and_only_what_lies_between_movements_is_a_pause() -> None:
    move_T, wait_T = minimum_jerk(60), np.ones(60)
    state_T = np.concatenate([0 * wait_T, move_T, wait_T, 1 + move_T, 2 * wait_T])
    found = values("performance", arm_view(state_T[:, None]))
    assert found["num_pauses", ""] == 1
    assert found["idle_share", ""] == pytest.approx(0.66, abs=0.05)


def test_a_robot_that_never_moves_is_idle_all_the_time_and_has_no_smoothness() -> None:
    found = values("performance", arm_view(np.full((90, 3), 0.1)))
    assert found["idle_share", ""] == 1.0
    assert found["path_length", "state/left_arm"] == 0.0
    assert ("smoothness", "state/left_arm") not in found


def test_one_smooth_movement_has_the_published_smoothness_and_more_parts_have_less() -> None:
    """About -1.4 for one minimum-jerk movement (Balasubramanian et al. 2015)."""
    one = spectral_arc_length(np.gradient(minimum_jerk(100)), 100.0)
    assert one == pytest.approx(-1.41, abs=0.02)
    parts = [np.tile(np.gradient(minimum_jerk(100 // count)), count) for count in (2, 4)]
    in_two, in_four = (spectral_arc_length(speed_M, 100.0) for speed_M in parts)
    assert one > in_two > in_four


@given(scale=st.floats(1e-3, 1e3))
def test_smoothness_does_not_depend_on_size(scale: float) -> None:
    speed_M = np.abs(np.gradient(reaches(200, 1)[:, 0]))
    assert spectral_arc_length(scale * speed_M, 30.0) == pytest.approx(spectral_arc_length(speed_M, 30.0))


def test_segments_begin_where_the_speed_changes_and_cover_the_episode() -> None:
    speeds = np.repeat([0.0, 1.0, 0.2, 1.5], 75)
    state_T = np.cumsum(speeds) / 30
    found = rows("segments", arm_view(state_T[:, None]))
    assert [row["text"] for row in found] == [f"segment {k} of 4" for k in (1, 2, 3, 4)]
    assert [row["start_s"] for row in found] == pytest.approx([0, 2.5, 5, 7.5], abs=0.1)
    assert [row["end_s"] for row in found[:-1]] == [row["start_s"] for row in found[1:]]
    assert found[-1]["end_s"] == 10.0


def test_a_robot_that_stands_still_is_one_segment() -> None:
    (row,) = rows("segments", arm_view(np.zeros((300, 2))))
    assert (row["text"], row["start_s"], row["end_s"]) == ("segment 1 of 1", 0, 10.0)


def test_the_search_of_a_long_episode_looks_at_few_points() -> None:
    speeds = np.repeat([0.0, 1.0], 27_000)
    found = rows("segments", arm_view((np.cumsum(speeds) / 30)[:, None]))
    assert [row["start_s"] for row in found] == pytest.approx([0, 900], abs=4)


def test_real_episodes_have_a_few_segments_of_half_a_second_or_more(shared_data: Path) -> None:
    counts = []
    for pair in g1_trajectories(shared_data)[::8]:
        found = rows("segments", g1_view(shared_data, *pair))
        assert min(row["end_s"] - row["start_s"] for row in found) > 0.45
        counts.append(len(found))
    assert 2 <= np.median(counts) <= 10


def test_a_gripper_that_opens_and_closes_is_seen_at_its_steps_and_a_tremble_is_not() -> None:
    closed_T, open_T = np.zeros(40), np.full(40, 0.08)
    trembles_T = closed_T + np.tile([0.0, 0.02], 20)
    state_TD = np.zeros((160, 4))
    state_TD[:, 3] = np.concatenate([closed_T, open_T, trembles_T, open_T])
    found = rows("grippers", arm_view(state_TD))
    assert [(row["key"], row["start_s"]) for row in found] == [
        ("gripper_rises", pytest.approx(40 / 30)),
        ("gripper_falls", pytest.approx(80 / 30)),
        ("gripper_rises", pytest.approx(120 / 30)),
    ]
    assert {(row["subject"], row["unit"]) for row in found} == {("state/arm/left_gripper", "m")}
    assert found[0]["value"] == pytest.approx(0.08)


@given(st.lists(st.floats(0, 1), max_size=40))
def test_gripper_events_take_turns(levels: list[float]) -> None:
    rises = [event for _, event in gripper_events(np.array(levels))]
    assert all(one != after for one, after in pairwise(rises))


@given(
    seconds=st.lists(st.integers(0, 10**11).map(lambda ns: ns / 1e9), min_size=1, max_size=20),
    wanted=st.lists(st.floats(-10, 110), min_size=1, max_size=20),
)
def test_a_straight_line_stays_one_whatever_the_clock(seconds: list[float], wanted: list[float]) -> None:
    seconds_N, wanted_T = np.array(seconds), np.array(wanted)
    found_T = between(3 * seconds_N[:, None] + 1, seconds_N, wanted_T)[:, 0]
    ascending = np.maximum.accumulate(seconds_N)
    expected_T = 3 * np.clip(wanted_T, ascending[0], ascending[-1]) + 1
    np.testing.assert_allclose(found_T, expected_T, atol=1e-6)
