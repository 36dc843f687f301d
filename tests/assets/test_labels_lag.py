"""Lag and offset: known answers, real robots, and what must not count as lag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_samples import JOINTS, arm_view, g1_trajectories, g1_view, reaches, trace_of, view
from numpy.typing import NDArray
from row_samples import START_NS, header

from dyna_assets.labels import LABELLERS, annotate
from dyna_assets.labels.correlate import lag_between
from dyna_assets.labels.joints import commanded, places, words
from dyna_assets.labels.motion import between
from dyna_assets.labels.view import EpisodeView
from dyna_train.episode.profile import grid_times_ns
from dyna_train.episode.tracks import VectorTrack

ARM = "action/left_arm→state/left_arm"


def lags(sample: EpisodeView) -> dict[tuple[str, str], float]:
    """(key, subject) -> value."""
    found = annotate(sample, {"lag": LABELLERS["lag"]})
    assert found.failed == {}
    return {(row["key"], row["subject"]): row["value"] for row in found.rows}


def at(seconds_T: NDArray[np.float64]) -> NDArray[np.float64]:
    """A trajectory of three joints at any times, float64 [T, 3]: an hour on a fine grid, in between by lines."""
    fine_T = np.arange(-500, 4500) / 100
    return between(reaches(5000, rate_hz=100.0), fine_T, seconds_T)


@given(delay=st.floats(-0.4, 0.4), rate_hz=st.sampled_from([20.0, 30.0, 50.0, 100.0]))
def test_a_delay_between_samples_is_found_to_a_tenth_of_a_sample(delay: float, rate_hz: float) -> None:
    seconds_T = np.arange(int(20 * rate_hz)) / rate_hz
    used_T = np.ones(len(seconds_T), bool)
    peak = lag_between(at(seconds_T), at(seconds_T - delay), used_T, rate_hz, 1.0)
    assert peak is not None
    assert peak.lag_s == pytest.approx(delay, abs=0.1 / rate_hz)
    assert peak.height > 0.98


def test_signals_that_have_nothing_in_common_have_no_lag() -> None:
    found = lags(arm_view(reaches(300, seed=1), reaches(300, seed=2)))
    assert ("lag", ARM) not in found


def test_a_joint_that_never_moves_has_no_lag() -> None:
    assert lags(arm_view(np.full((300, 3), 0.2), reaches(300))) == {}


def test_the_skew_of_alignment_is_no_lag() -> None:
    """The state is up to a step old at its grid time, the command up to 8 ms; the robot is 80 ms late."""
    rng = np.random.default_rng(4)
    grid_T = grid_times_ns(0, 30.0, 600)
    state_age_T, action_age_T = rng.integers(0, 33_000_000, 600), rng.integers(0, 8_000_000, 600)
    state_ns, action_ns = grid_T - state_age_T, grid_T - action_age_T
    sample = arm_view(
        at(state_ns / 1e9 - 0.08),
        at(action_ns / 1e9),
        capture_ns={"/state/arm": state_ns + START_NS, "/action/arm": action_ns + START_NS},
    )
    assert lags(sample)["lag", ARM] == pytest.approx(80, abs=4)


def test_invalid_steps_do_not_count() -> None:
    command_TD, state_TD = at(np.arange(600) / 30), at(np.arange(600) / 30 - 0.1)
    state_TD[200:400] = np.random.default_rng(0).normal(size=(200, 3))
    sample = arm_view(state_TD, command_TD, valid=(range(200), range(400, 600)))
    found = lags(sample)
    assert found["lag", ARM] == pytest.approx(100, abs=5)
    assert found["confidence", ARM] > 0.95


def test_an_action_that_says_how_fast_to_go_has_its_lag_and_no_offset() -> None:
    state_TD = at(np.arange(600) / 30)
    speed_TD = np.gradient(at(np.arange(600) / 30 + 0.06), axis=0)
    found = lags(arm_view(state_TD, speed_TD))
    assert found["lag", ARM] == pytest.approx(60, abs=5)
    assert not any("offset" in key for key, _ in found)


def test_the_steady_offset_of_each_joint_is_command_minus_state() -> None:
    command_TD = at(np.arange(600) / 30)
    state_TD = at(np.arange(600) / 30 - 0.1) - np.array([0.05, 0.0, -0.02])
    found = lags(arm_view(state_TD, command_TD))
    offsets = [found["offset", f"state/arm/{name}"] for name in JOINTS[:3]]
    assert offsets == pytest.approx([0.05, 0.0, -0.02], abs=2e-3)


def test_what_an_arm_shows_that_only_holds_itself_is_not_an_offset() -> None:
    command_TD = at(np.arange(600) / 30)
    command_TD[:, 2] *= 0.02
    found = lags(arm_view(command_TD - 0.07, command_TD))
    assert ("offset", f"state/arm/{JOINTS[2]}") not in found
    assert found["hold_offset", f"state/arm/{JOINTS[2]}"] == pytest.approx(0.07, abs=2e-3)


def test_a_gripper_is_a_part_of_its_own_whose_offset_is_its_grip() -> None:
    found = lags(arm_view(reaches(600, 4) - 0.1, reaches(600, 4)))
    assert {subject for key, subject in found if key == "lag"} == {
        ARM,
        "action/left_gripper→state/left_gripper",
    }
    assert not any(subject.endswith("gripper") for key, subject in found if "offset" in key)


def camera_sample(delay_s: float, repeats: bool = False, gap: bool = False) -> EpisodeView:
    """An arm, and a camera that shows it delay_s later; every third picture repeats the one before."""
    seconds_T = np.arange(600) / 30
    fast_T = np.linalg.norm(np.gradient(at(seconds_T - delay_s - 1 / 60), axis=0), axis=1)
    change_T = np.abs(fast_T * 90 + np.random.default_rng(1).normal(0, 0.05, 600)) + 0.3
    capture_T = grid_times_ns(START_NS, 30.0, 600)
    if repeats:
        change_T[2::3] = 0
        capture_T[2::3] = capture_T[1::3]
        change_T[3::3] *= 2
    trace = trace_of(change_T)
    trace.change_T[0] = np.nan
    if gap:
        trace.level_T[250:300] = trace.change_T[250:301] = np.nan
        capture_T[250:300] = -1
    return arm_view(
        at(seconds_T), cameras=["top"], traces={"top": trace}, capture_ns={"/camera/top/video": capture_T}
    )


@pytest.mark.parametrize("case", [{}, {"repeats": True}, {"gap": True}])
@pytest.mark.parametrize("delay_s", [0.0, 0.12, -0.2])
def test_a_late_camera_is_known_by_how_its_picture_changes(delay_s: float, case: dict[str, Any]) -> None:
    found = lags(camera_sample(delay_s, **case))
    assert found["lag", "state→camera/top"] == pytest.approx(1e3 * delay_s, abs=15)


def test_a_camera_without_pictures_or_changes_has_no_lag() -> None:
    dark = {"top": trace_of(np.zeros(300))}
    assert not lags(arm_view(reaches(300), cameras=["top"], traces=dark))
    unseen = trace_of(np.zeros(300))
    unseen.level_T[:] = np.nan
    capture_ns = {"/camera/top/video": np.full(300, -1, np.int64)}
    assert not lags(arm_view(reaches(300), cameras=["top"], traces={"top": unseen}, capture_ns=capture_ns))


def test_the_arms_of_the_g1_follow_their_commands_after_100_ms(shared_data: Path) -> None:
    of_part: dict[str, list[float]] = {}
    for state_TD, action_TD in g1_trajectories(shared_data):
        for (key, subject), value in lags(g1_view(shared_data, state_TD, action_TD)).items():
            if key == "lag":
                of_part.setdefault(subject, []).append(value)
    for side in ("left", "right"):
        of_arm = np.array(of_part[f"action/{side}_arm→state/{side}_arm"])
        assert len(of_arm) == 84
        assert abs(np.median(of_arm) - 100) < 35
        assert (np.abs(of_arm - 100) < 35).all()
        assert np.median(of_part[f"action/{side}_hand→state/{side}_hand"]) > 200


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kLeftShoulderPitch", ("k", "left", "shoulder", "pitch")),
        ("left_wrist.2", ("left", "wrist", "2")),
        ("RHJoint10", ("rh", "joint", "10")),
        ("größe", ("größe",)),
    ],
)
def test_names_are_read_as_words(name: str, expected: tuple[str, ...]) -> None:
    assert words(name) == expected


def track(name: str, role: str, names: list[str], unit: str = "rad") -> VectorTrack:
    return VectorTrack(name, role, tuple(names), (unit,) * len(names))  # type: ignore[arg-type]


def test_joints_are_paired_by_name_whoever_reports_them() -> None:
    described = header(
        9,
        [
            track("follower_left_position", "state", ["left_waist", "left_elbow", "left_gripper"]),
            track("follower_left_velocity", "state", ["left_waist", "left_elbow", "left_gripper"], "rad/s"),
            track("leader_left_position", "action", ["gripper", "leader_elbow", "waist"]),
        ],
    )
    assert [part.limb for part in places(described)] == ["follower_left_position", "left_arm", "left_gripper"]
    pairs = {pair.state.limb: (pair.state.dims, pair.action.dims) for pair in commanded(described)}
    assert pairs == {
        "follower_left_position": ((0,), (2,)),
        "left_arm": ((1,), (1,)),
        "left_gripper": ((2,), (0,)),
    }


def test_an_arm_that_is_told_speeds_is_paired_if_nothing_tells_it_places() -> None:
    names = ["elbow", "wrist"]
    tracks = [
        track("arm", "state", names),
        track("arm_effort", "action", names, "Nm"),
        track("arm", "action", names, "rad/s"),
    ]
    (pair,) = commanded(header(9, tracks))
    assert (pair.action.unit, pair.same_unit) == ("rad/s", False)
    (pair,) = commanded(header(9, [*tracks[:2], track("arm_velocity", "action", names, "rad/s")]))
    assert pair.action.track.name == "arm_velocity"
    (pair,) = commanded(
        header(
            9, [tracks[0], track("goal_velocity", "action", names, "rad/s"), track("goal", "action", names)]
        )
    )
    assert pair.action.track.name == "goal"


def test_numbered_joints_are_paired_within_vectors_of_one_limb_only() -> None:
    numbers = ["0", "1"]
    described = header(
        9,
        [
            track("left_arm", "state", numbers),
            track("right_arm", "state", numbers),
            track("right_arm", "action", numbers),
            track("hand", "action", numbers),
        ],
    )
    assert [pair.subject for pair in commanded(described)] == ["action/right_arm→state/right_arm"]


def test_vectors_of_one_name_and_length_are_paired_in_order_where_names_say_nothing() -> None:
    described = header(9, [track("arm", "state", ["a", "b"]), track("arm", "action", ["x", "y"])])
    (pair,) = commanded(described)
    assert (pair.state.dims, pair.action.dims) == ((0, 1), (0, 1))
    assert commanded(header(9, [track("arm", "state", ["a"]), track("base", "action", ["x"])])) == []


def test_a_view_without_actions_has_no_command_lag() -> None:
    assert lags(view(header(60, [track("arm", "state", ["elbow"])]), {"/state/arm": reaches(60, 1)})) == {}
