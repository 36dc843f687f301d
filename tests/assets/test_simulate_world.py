"""The simulated world: arms, the hand-over as physics, and a success label that is true."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyna_assets.simulate.arm import (
    ARMS,
    FORE_M,
    HAND_M,
    LEFT,
    OPEN_M,
    UPPER_M,
    Arm,
    Target,
    forward,
    inverse,
)
from dyna_assets.simulate.scene import MISTAKES, Scene, draw_scene
from dyna_assets.simulate.world import CUBE_M, World, columns, follow, simulate

NUM_WORLDS = 80


def scene_of(index: int) -> Scene:
    return draw_scene(np.random.default_rng([3, index]))


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [simulate(scene_of(index)) for index in range(NUM_WORLDS)]


@given(
    arm=st.sampled_from(ARMS),
    distance=st.floats(0.05, UPPER_M + FORE_M - 0.01),
    bearing=st.floats(-math.pi, math.pi),
    yaw=st.floats(-math.pi, math.pi),
    lift=st.floats(0, 0.2),
)
def test_joints_from_inverse_kinematics_put_the_pinch_point_where_it_was_wanted(
    arm: Arm, distance: float, bearing: float, yaw: float, lift: float
) -> None:
    x = arm.base_xy[0] + distance * math.cos(bearing) + HAND_M * math.cos(yaw)
    y = arm.base_xy[1] + distance * math.sin(bearing) + HAND_M * math.sin(yaw)
    pose = forward(arm, inverse(arm, Target(x, y, lift, yaw), OPEN_M)[None])
    np.testing.assert_allclose(pose.pinch_N2[0], [x, y], atol=1e-9)
    assert math.cos(pose.yaw_N[0] - yaw) == pytest.approx(1)
    assert (pose.lift_N[0], pose.opening_N[0]) == (lift, OPEN_M)


def test_a_target_out_of_reach_is_refused_with_the_distance_and_the_reach() -> None:
    with pytest.raises(
        ValueError, match=r"left arm: its wrist would be 1\.\d+ m from its base .* 0\.020 to 0\.500 m"
    ):
        inverse(LEFT, Target(1.0, 0.0, 0.1, 0.0), OPEN_M)


def test_the_same_scene_gives_the_same_world_and_another_seed_another_scene() -> None:
    first, again = simulate(scene_of(0)), simulate(scene_of(0))
    np.testing.assert_array_equal(first.follower_SJ, again.follower_SJ)
    np.testing.assert_array_equal(first.cube_S4, again.cube_S4)
    assert scene_of(0).cube_xy != scene_of(1).cube_xy


def test_episodes_differ_in_cube_colours_light_operator_pace_and_tremor(worlds: list[World]) -> None:
    scenes = [world.scene for world in worlds]
    for name in ("cube_xy", "light", "light_xy", "cube_yaw", "meet_xy"):
        assert len({getattr(scene, name) for scene in scenes}) == NUM_WORLDS
    for name in ("cube_colour", "table_colour", "operator"):
        assert len({getattr(scene, name) for scene in scenes}) >= 4
    assert len({scene.tremor_JF.tobytes() for scene in scenes}) == NUM_WORLDS
    lengths_s = [world.end_s for world in worlds]
    assert 4.8 < min(lengths_s) < max(lengths_s) < 7.6


def test_success_is_where_the_cube_really_is_at_the_end(worlds: list[World]) -> None:
    for world in worlds:
        hand = forward(LEFT, world.follower_SJ[-1:, columns(LEFT)])
        cube = world.cube_S4[-1]
        in_left_hand = (
            np.hypot(*(hand.pinch_N2[0] - cube[:2])) < 0.03 and abs(hand.lift_N[0] - cube[2]) < 0.03
        )
        assert world.success == bool(in_left_hand and cube[2] > CUBE_M)
        if not world.success:
            assert cube[2] == 0, "what is not handed over lies on the table in the end"


def test_both_outcomes_occur_and_failures_are_the_minority(worlds: list[World]) -> None:
    outcomes = [world.success for world in worlds]
    assert 0.05 < outcomes.count(False) / len(outcomes) < 0.5


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_drops_the_cube_and_nobody_sets_the_label(mistake: str) -> None:
    careful = next(scene for index in range(50) if not (scene := scene_of(index)).mistake)
    careless = dataclasses.replace(
        careful, mistake=mistake, slack_m=0.026 if mistake == "loose grasp" else careful.slack_m
    )
    good, bad = simulate(careful), simulate(careless)
    assert good.success and not bad.success
    assert bad.cube_S4[:, 2].max() > 0.03, "it was lifted before it was dropped"


def test_the_cube_starts_and_stays_above_the_table_and_fingers_stop_at_it(worlds: list[World]) -> None:
    for world in worlds:
        assert world.cube_S4[0, 2] == 0
        assert world.cube_S4[:, 2].min() >= 0
        for index, arm in enumerate(ARMS):
            gripper_S = world.follower_SJ[:, columns(arm)][:, -1]
            assert (gripper_S[world.held_S2[:, index]] >= CUBE_M).all()


def test_followers_lag_behind_their_leaders_by_tens_of_milliseconds(worlds: list[World]) -> None:
    world = worlds[0]
    lead, followed = world.leader_SJ[:, 5], world.follower_SJ[:, 5]
    errors = [np.abs(followed[lag:] - lead[: len(lead) - lag]).mean() for lag in range(40)]
    assert 5 <= int(np.argmin(errors)) <= 30  # steps of 4 ms


@given(level=st.floats(-3, 3), lag_s=st.floats(0.001, 0.1))
def test_a_leader_at_rest_is_followed_exactly(level: float, lag_s: float) -> None:
    np.testing.assert_allclose(follow(np.full((50, 2), level), lag_s), level, atol=1e-9)


@settings(max_examples=10)
@given(seconds=st.floats(0.5, 12.0))
def test_an_episode_is_about_as_long_as_asked_for(seconds: float) -> None:
    assert simulate(scene_of(1), seconds).end_s == pytest.approx(seconds, rel=0.25)
