"""Derived signals: velocity, gripper state, action deltas, and how a source asks for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_assets.derive import (
    DERIVED,
    DerivedRole,
    Signal,
    apply_derived,
    check_derived,
    derive_versions,
    signals_of,
)
from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import ActionRole, Grid, SourceProfile, VectorRole
from dyna_assets.simulate.clocks import head_clocks
from dyna_assets.steps.align import Series, align
from dyna_train.episode.tracks import VectorTrack
from dyna_train.errors import ConfigError

SECOND = 1_000_000_000
RATE_HZ = 30.0


def signal(
    values: Any,
    unit: str = "",
    *,
    times: NDArray[np.int64] | None = None,
    invalid: Any = (),
    names: str = "abcdefgh",
) -> Signal:
    """Rows of numbers as a signal, 30 Hz unless times are given."""
    values_TD = np.array(values, np.float64).reshape(len(values), -1)
    num_steps, num_dims = values_TD.shape
    times_T = np.rint(np.arange(num_steps) * SECOND / RATE_HZ).astype(np.int64) if times is None else times
    valid_T = ~np.isin(np.arange(num_steps), list(invalid))
    return Signal(values_TD, times_T, valid_T, tuple(names[:num_dims]), (unit,) * num_dims)


def role(function: str, *of: str, name: str = "made", kind: Any = "state", **options: Any) -> DerivedRole:
    return DerivedRole(name=name, role=kind, function=function, of=of, options=options)


def made(function: str, *inputs: Signal, **options: Any) -> Signal:
    """One derived signal."""
    signals = {f"state/s{number}": one for number, one in enumerate(inputs)}
    return apply_derived([role(function, *signals, **options)], signals)["state/made"]


def test_velocity_of_a_straight_line_is_its_slope_and_has_units_per_second() -> None:
    found = made("velocity", signal([0, 1, 2, 3], "rad"))
    assert found.values_TD[:, 0] == pytest.approx([0, 30, 30, 30]), "nothing is known before the first step"
    assert found.units == ("rad/s",) and found.names == ("a",)
    central = made("velocity", signal([0, 1, 2, 3], "m"), difference="central")
    assert central.values_TD[:, 0] == pytest.approx([30] * 4) and central.units == ("m/s",)
    assert made("velocity", signal([0, 1])).units == ("",)


def test_central_velocity_of_a_parabola_is_exact_on_uneven_times() -> None:
    times = np.array([0, 10, 35, 50, 90, 100]) * 1_000_000
    since_s = times / SECOND
    found = made("velocity", signal(3 * since_s**2, times=times), difference="central")
    assert found.values_TD[1:-1, 0] == pytest.approx(6 * since_s[1:-1])


@pytest.mark.parametrize("difference", ["backward", "central"])
def test_velocity_never_reaches_across_an_invalid_stretch(difference: str) -> None:
    values = np.r_[np.arange(5.0), np.full(4, 4.0), 1000 + 2 * np.arange(5.0)]
    found = made("velocity", signal(values, invalid=range(5, 9)), difference=difference).values_TD[:, 0]
    assert (found[5:9] == 0).all()
    assert found[1:5] == pytest.approx([30] * 4)
    assert found[10:] == pytest.approx([60] * 4)
    assert found[9] == pytest.approx(0 if difference == "backward" else 60)


def test_a_stretch_of_one_step_and_no_step_at_all_have_no_velocity() -> None:
    assert (made("velocity", signal([1, 2, 3], invalid=[0, 2]), difference="central").values_TD == 0).all()
    assert (made("velocity", signal([1, 2, 3], invalid=[0, 1, 2])).values_TD == 0).all()


def test_velocity_of_a_wrapped_angle_does_not_jump() -> None:
    turning = (np.arange(60) * 0.3 + math.pi) % (2 * math.pi) - math.pi
    assert made("velocity", signal(turning, "rad")).values_TD[1:, 0] == pytest.approx([9.0] * 59)


def test_a_held_row_keeps_its_velocity() -> None:
    times = np.repeat(np.arange(10) * SECOND // 10, 3)  # 10 Hz on a grid of 30
    found = made("velocity", signal(np.repeat(np.arange(10.0), 3), times=times)).values_TD[:, 0]
    assert found == pytest.approx([0.0] * 3 + [10.0] * 27)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_backward_velocity_knows_nothing_of_later_steps(seed: int, step: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(41, 2))
    changed = values.copy()
    changed[step:] += 5.0
    invalid = np.flatnonzero(rng.random(41) < 0.2)
    before, after = (made("velocity", signal(one, invalid=invalid)).values_TD for one in (values, changed))
    assert (before[:step] == after[:step]).all()


HERTZ = 0.5
OMEGA = 2 * math.pi * HERTZ


@pytest.mark.parametrize("seed", range(3))
def test_velocity_of_a_sine_on_ragged_clocks_is_within_the_stated_error(seed: int) -> None:
    clocks = head_clocks(np.random.default_rng(seed), 15.0)
    imu = clocks["imu"].capture_ns_N
    source = SourceProfile(
        name="test",
        landing="landing",
        reader="mcap",
        grid=Grid(rate_hz=RATE_HZ),
        cameras=(),
        states=(VectorRole(name="imu", topic="/imu", units="rad"),),
    )
    plan = align(source, {}, {"/imu": Series(imu, np.sin(OMEGA * imu / SECOND)[:, None])})
    track = VectorTrack("imu", "state", ("yaw",), ("rad",))
    signals = signals_of(plan.vectors, plan.missing, [track])
    back, central = (
        apply_derived([role("velocity", "state/imu", difference=how)], signals)["state/made"].values_TD[
            1:-1, 0
        ]
        for how in ("backward", "central")
    )
    captured = signals["state/imu"].times_T
    exact = OMEGA * np.cos(OMEGA * captured / SECOND)
    apart_s = np.diff(captured) / SECOND
    rounding = 2**-22 / apart_s.min()
    assert (np.abs(back - exact[1:-1]) <= OMEGA**2 * apart_s[:-1] / 2 + rounding).all()  # max |f''| * h / 2
    bound = OMEGA**3 * apart_s[:-1] * apart_s[1:] / 6 + 2 * rounding  # max |f'''| * h1 * h2 / 6
    assert (np.abs(central - exact[1:-1]) <= bound).all()


@pytest.mark.parametrize(("closed", "open_"), [(0.0, 0.08), (0.8, 0.0), (-1.0, 1.0)])
def test_a_gripper_is_between_closed_and_open_whatever_its_numbers(closed: float, open_: float) -> None:
    ways = [closed, (closed + open_) / 2, open_, open_ + (open_ - closed)]
    found = made("gripper_state", signal(ways, "m"), closed=closed, open=open_)
    assert found.values_TD[:, 0] == pytest.approx([0, 0.5, 1, 1]) and found.units == ("",)


def test_a_gripper_is_taken_by_the_names_of_its_dimensions() -> None:
    found = made("gripper_state", signal([[1, 0.02, 3]]), closed=0, open=0.04, dims=["b"])
    assert found.names == ("b",) and found.values_TD.tolist() == [[0.5]]
    with pytest.raises(
        RecordingError,
        match=r"^state/made = gripper_state of state/s0 \(a, b, c\): no dimension is called z; there are a, b, c$",
    ):
        made("gripper_state", signal([[1, 2, 3]]), closed=0, open=1, dims=["z"])


def test_an_action_is_compared_with_the_state_at_its_step_over_the_shorter_way() -> None:
    action, state = signal([[3.1], [1.0], [0.5]], "rad"), signal([[-3.1], [0.5], [0.5]], "rad", invalid=[2])
    found = made("action_delta", action, state)
    assert found.values_TD[:, 0] == pytest.approx([6.2 - 2 * math.pi, 0.5, 0.0])
    assert found.valid_T.tolist() == [True, True, False]
    assert found.units == ("rad",)


def test_an_action_is_compared_with_the_next_one_within_a_valid_stretch() -> None:
    found = made("action_delta", signal([1, 2, 4, 100, 101], invalid=[3]), to="next")
    assert found.values_TD[:, 0].tolist() == [1, 2, 0, 0, 0]
    assert found.valid_T.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("inputs", "options", "text"),
    [
        (
            [signal([[1, 2]]), signal([[1]])],
            {},
            "the action is 2-dimensional in no unit, the state 1-dimensional in no unit; they must be alike",
        ),
        (
            [signal([1]), signal([1], "rad")],
            {},
            r"the state 1-dimensional in 'rad'; .*Write units = \"rad\" under the \[\[actions\]\]",
        ),
        ([signal([1], "rad"), signal([1], "deg")], {}, "in 'rad', the state 1-dimensional in 'deg'"),
        (
            [signal([[1, 2]], "rad"), signal([1])],
            {},
            "in 'rad', .* in no unit; they must be alike, in the same order$",
        ),
        ([signal([1])], {}, "to = 'state' needs two signals in 'of'"),
        ([signal([1]), signal([1])], {"to": "next"}, "name one signal in 'of'"),
        ([signal([[1, 0, 0, 0]], "quat")], {"to": "next"}, r"\(a, b, c, d\): unit 'quat' is a quaternion"),
    ],
)
def test_what_cannot_be_compared_is_refused(inputs: list[Signal], options: dict[str, Any], text: str) -> None:
    with pytest.raises(RecordingError, match=text) as refused:
        made("action_delta", *inputs, **options)
    assert refused.value.check == "signals.derived"


def test_a_quaternion_has_no_velocity_of_its_parts() -> None:
    with pytest.raises(RecordingError, match="unit 'quat' is a quaternion, and its rate is no difference"):
        made("velocity", signal([[1, 0, 0, 0]], "quat"))


def test_a_signal_may_be_derived_from_one_before_it() -> None:
    roles = [
        role("gripper_state", "state/hand", name="grip", closed=0, open=0.04),
        role("velocity", "state/grip", name="grip_speed"),
    ]
    found = apply_derived(roles, {"state/hand": signal([0.0, 0.04, 0.04])})
    assert list(found) == ["state/grip", "state/grip_speed"]
    assert found["state/grip_speed"].values_TD[:, 0] == pytest.approx([0, 30, 0])
    with pytest.raises(
        ConfigError,
        match=r"derived 'state/grip_speed' \(velocity\): there is no state/grip to derive from; there are state/hand",
    ):
        check_derived(roles[::-1], {"state/hand": ""})


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            role("velocty", "state/arm"),
            r"derived 'state/made' \(velocty\): no function is called 'velocty'; did you mean 'velocity'\?",
        ),
        (role("zzz", "state/arm"), "functions are action_delta, end_effector_pose, gripper_state, velocity"),
        (
            role("velocity", "state/arm", diference="central"),
            "unknown key 'diference'; did you mean 'difference'",
        ),
        (
            role("gripper_state", "state/arm", closed=1, open=1),
            "closed = 1.0 and open = 1.0 must be two different",
        ),
        (role("gripper_state", "state/arm", closed=1), "key 'open' is missing"),
        (role("velocity", "state/arm", "state/arm"), "'of' names 2 signals, expected 1"),
        (role("velocity", "state/arm", name="arm"), "state/arm is there already; give it another name"),
    ],
)
def test_what_no_recording_could_have_is_an_error_of_the_source(wrong: DerivedRole, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_derived([wrong], {"state/arm": "", "action/arm": ""})


def test_every_function_says_what_it_is_and_has_a_version() -> None:
    assert derive_versions() == {f"derive.{name}": 1 for name in sorted(DERIVED)}
    assert all(entry.says and entry.units for entry in DERIVED.values())


def test_signals_of_an_episode_carry_what_is_missing() -> None:
    times = np.arange(90) * SECOND // 30
    silent = times[(times <= SECOND) | (times >= 2 * SECOND)]
    source = SourceProfile(
        name="test",
        landing="landing",
        reader="mcap",
        grid=Grid(rate_hz=30.0, max_gap_s=0.2),
        cameras=(),
        states=(VectorRole(name="arm", topic="/arm", units="rad"),),
        actions=(ActionRole(name="arm", topic="/leader", units="rad"),),
    )
    rows = {
        topic: Series(one, one[:, None] / SECOND) for topic, one in (("/arm", silent), ("/leader", times))
    }
    tracks = [VectorTrack("arm", kind, ("j",), ("rad",)) for kind in ("state", "action")]
    plan = align(source, {}, rows)
    signals = signals_of(plan.vectors, plan.missing, tracks)
    found = apply_derived([role("action_delta", "action/arm", "state/arm", kind="action")], signals)[
        "action/made"
    ]
    assert np.flatnonzero(~found.valid_T).tolist() == list(range(37, 60))
    assert np.abs(found.values_TD[found.valid_T]).max() == pytest.approx(0.2, abs=1e-6)
