"""What lies between two messages: values, angles and rotations, against closed forms and within stated errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from align_samples import CLOCKS, RATES, SECOND, START, source
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_assets.angles import Turning, slerp
from dyna_assets.simulate.clocks import head_clocks
from dyna_assets.steps.align import TOLERANCE_NS, Series, align
from dyna_train.episode.profile import grid_times_ns

HERTZ, HEIGHT = 0.7, 2.0
RATE = 2 * math.pi * HERTZ


def sine(times_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    return HEIGHT * np.sin(RATE * ((times_ns - START) / SECOND))


@pytest.mark.parametrize("seed", range(5))
def test_a_sine_on_ragged_clocks_comes_out_within_the_stated_error(seed: int) -> None:
    clocks = head_clocks(np.random.default_rng(seed), 20.0)
    imu, scene = (START + clocks[name].capture_ns_N for name in ("imu", "scene"))
    series = Series(imu, sine(imu)[:, None])
    held, mixed = (
        align(source(how), {"/scene": scene}, {"/imu": series}) for how in ("causal", "interpolate")
    )
    rounding = HEIGHT * 2**-23
    values, capture_T = held.vectors["state/imu"]
    age_s = np.maximum(held.grid_T - capture_T, 0) / SECOND
    stated = HEIGHT * RATE * (age_s + TOLERANCE_NS / SECOND) + rounding  # max |f'| * age
    error = np.abs(values[:, 0] - sine(held.grid_T))
    assert (error <= stated).all() and error.max() > 0.02
    before = np.searchsorted(imu, mixed.grid_T, side="right") - 1
    apart_s = np.diff(imu)[np.minimum(before, len(imu) - 2)] / SECOND
    stated = HEIGHT * RATE**2 * apart_s**2 / 8 + rounding  # max |f''| * h^2 / 8
    error = np.abs(mixed.vectors["state/imu"][0][:, 0] - sine(mixed.grid_T))
    assert (error <= stated).all()
    assert error.max() < 0.03 * np.abs(values[:, 0] - sine(held.grid_T)).max()


@given(CLOCKS, RATES, st.floats(0.05, 5.0))
def test_a_sine_on_any_clock_is_interpolated_within_a_bound_of_its_curve_and_steps(
    times: NDArray[np.int64], rate_hz: float, hertz: float
) -> None:
    omega = 2 * math.pi * hertz
    made = align(
        source("interpolate", rate_hz=rate_hz),
        {"/scene": times},
        {"/imu": Series(times, np.sin(omega * (times - START) / SECOND)[:, None])},
    )
    before = np.clip(np.searchsorted(times, made.grid_T, side="right") - 1, 0, len(times) - 2)
    stated = omega**2 * (np.diff(times)[before] / SECOND) ** 2 / 8 + 2**-23
    stated += omega * TOLERANCE_NS / SECOND * (made.grid_T > times[-1])  # the last value is held so long
    away = np.abs(made.vectors["state/imu"][0][:, 0] - np.sin(omega * (made.grid_T - START) / SECOND))
    assert (away <= stated).all()


def rotations(angle_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turns about one slanted axis, w x y z."""
    axis = np.array([[1.0, -2.0, 2.0]]) / 3
    return np.hstack([np.cos(angle_N / 2)[:, None], np.sin(angle_N / 2)[:, None] * axis])


@given(
    st.floats(-10, 10),
    st.floats(-math.pi * 0.99, math.pi * 0.99),
    st.floats(0, 1),
    st.booleans(),
    st.permutations(range(4)),
)
def test_slerp_of_a_steady_rotation_is_exact_in_either_order_and_sign(
    start: float, turn: float, weight: float, flips: bool, order: list[int]
) -> None:
    before, after, exact = (rotations(np.array([start + share * turn])) for share in (0.0, 1.0, weight))
    made = slerp(before[:, order], (-after if flips else after)[:, order], np.array([weight]))
    assert np.abs((made * exact[:, order]).sum()) == pytest.approx(1, abs=1e-12)
    assert made * np.sign((made * exact[:, order]).sum()) == pytest.approx(exact[:, order], abs=1e-9)


def test_slerp_keeps_the_row_before_where_a_quaternion_has_no_length() -> None:
    made = slerp(
        np.array([[1.0, 0, 0, 0], [0, 0, 0, 0]]),
        np.array([[0.0, 0, 0, 0], [0, 1, 0, 0]]),
        np.array([0.5, 0.5]),
    )
    assert made.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]


def test_a_steady_rotation_on_ragged_clocks_is_interpolated_as_such() -> None:
    clocks = head_clocks(np.random.default_rng(7), 10.0)
    imu, scene = (START + clocks[name].capture_ns_N for name in ("imu", "scene"))
    flips = np.where(np.arange(len(imu)) % 7 < 3, -1.0, 1.0)[:, None]  # q and -q are the same rotation
    series = Series(imu, rotations(20 * (imu - START) / SECOND) * flips)
    made = align(source("interpolate", units="quat"), {"/scene": scene}, {"/imu": series})
    found, exact = made.vectors["state/imu"][0], rotations(20 * (made.grid_T - START) / SECOND)
    assert np.abs((found * exact).sum(axis=1)) == pytest.approx(1, abs=1e-6)


@given(CLOCKS, RATES, st.integers(0, 2**32 - 1))
def test_any_rotations_are_of_length_one_between_and_a_share_of_the_shorter_way_along(
    times: NDArray[np.int64], rate_hz: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    recorded = rng.normal(size=(len(times), 4))  # of either sign, and any arc up to half a turn
    recorded /= np.linalg.norm(recorded, axis=1, keepdims=True)
    made = align(
        source("interpolate", units="quat", rate_hz=rate_hz),
        {"/scene": times},
        {"/imu": Series(times, recorded)},
    )
    found = made.vectors["state/imu"][0].astype(np.float64)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-6)
    before = np.clip(np.searchsorted(times, made.grid_T, side="right") - 1, 0, len(times) - 2)
    weight = np.clip((made.grid_T - times[before]) / np.diff(times)[before], 0, 1)
    arc = angle_between(recorded[before], recorded[before + 1])
    assert (arc <= math.pi).all()
    assert angle_between(recorded[before], found) == pytest.approx(weight * arc, abs=2e-3)


def angle_between(a_N4: NDArray[np.float64], b_N4: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of two rotations, in rad, whichever signs their quaternions have."""
    return np.asarray(2 * np.arccos(np.minimum(np.abs((a_N4 * b_N4).sum(axis=1)), 1)))


@given(
    CLOCKS,
    st.sampled_from([("rad", 2 * math.pi), ("deg", 360.0)]),
    st.sampled_from([-0.5, 0.0]),
    st.integers(0, 2**32 - 1),
)
def test_any_angle_comes_out_as_if_it_had_never_begun_again(
    times: NDArray[np.int64], unit: tuple[str, float], low: float, seed: int
) -> None:
    (name, turn), rng = unit, np.random.default_rng(seed)
    straight = np.cumsum(rng.uniform(-0.49, 0.49, len(times))) * turn
    wrapped = np.mod(straight - low * turn, turn) + low * turn
    made = align(
        source("interpolate", units=name), {"/scene": times}, {"/imu": Series(times, wrapped[:, None])}
    )
    exact = np.interp((made.grid_T - START) / SECOND, (times - START) / SECOND, straight)
    away = (made.vectors["state/imu"][0][:, 0] - exact + turn / 2) % turn - turn / 2
    assert np.abs(away).max() < 1e-5 * turn


@pytest.mark.parametrize(("unit", "turn"), [("rad", 2 * math.pi), ("deg", 360.0)])
@pytest.mark.parametrize("low", [-0.5, 0.0])
def test_an_angle_goes_the_shorter_way_and_stays_in_the_range_of_its_source(
    unit: str, turn: float, low: float
) -> None:
    times = grid_times_ns(START, 20.0, 100)
    speed = turn / 1.37  # several turns within the recording
    wrapped = (speed * (times - START + SECOND // 9) / SECOND - low * turn) % turn + low * turn
    made = align(
        source("interpolate", units=unit), {"/scene": times}, {"/imu": Series(times, wrapped[:, None])}
    )
    values = made.vectors["state/imu"][0][:, 0].astype(np.float64)
    exact = (speed * (made.grid_T - START + SECOND // 9) / SECOND - low * turn) % turn + low * turn
    away = (values - exact + turn / 2) % turn - turn / 2
    assert np.abs(away).max() < 1e-6 * turn
    assert values.min() >= low * turn - 1e-5 * turn and values.max() <= (low + 1) * turn + 1e-5 * turn


@pytest.mark.parametrize(
    ("before", "after", "middle"), [(6.0, 0.5, 3.25 - math.pi), (3.0, -3.0, -math.pi), (1.0, 2.0, 1.5)]
)
def test_an_angle_begins_again_where_its_source_does(before: float, after: float, middle: float) -> None:
    turning = Turning.of(np.array([[before], [after]]), ["rad"], where="test")
    made = turning.between(np.array([[before]]), np.array([[after]]), np.array([0.5]))
    assert made[0, 0] == pytest.approx(middle)


def test_an_angle_that_counts_its_turns_is_a_plain_number() -> None:
    values = np.array([[0.0], [4.0], [8.0]])
    turning = Turning.of(values, ["rad"], where="test")
    assert turning.angles == ()
    assert turning.between(values[:1], values[1:2], np.array([0.5])).tolist() == [[2.0]]


@given(st.lists(st.floats(-math.pi, math.pi), min_size=2, max_size=30), st.floats(0, 1))
def test_between_two_angles_is_on_the_shorter_arc(angles: list[float], weight: float) -> None:
    values = np.array(angles)[:, None]
    turning = Turning.of(values, ["rad"], where="test")
    before, after = values[:-1], values[1:]
    made = turning.between(before, after, np.full(len(before), weight))
    arc = np.abs(turning.shorter(after - before))
    assert (arc <= math.pi + 1e-9).all()
    assert np.abs(turning.shorter(made - before)) == pytest.approx(arc * weight, abs=1e-9)
