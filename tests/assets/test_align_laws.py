"""What alignment promises for any clocks: no future, stated errors against closed forms, gaps where they are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_assets.angles import Turning, slerp
from dyna_assets.landing.profile import Align, CameraRole, Grid, SourceProfile, VectorRole
from dyna_assets.simulate.clocks import head_clocks
from dyna_assets.steps.align import TOLERANCE_NS, Series, align
from dyna_assets.steps.align.grid import num_uniform
from dyna_assets.steps.align.resample import NEVER_NS, latest, pick
from dyna_train.episode.profile import grid_times_ns, step_time_ns
from dyna_train.episode.stretches import missing_from

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
RATES = st.one_of(st.sampled_from([1.0, 10.0, 29.97, 30.0, 64.0, 120.0, 1000.0]), st.floats(0.5, 1000.0))
CLOCKS = st.lists(st.integers(1, 50_000_000), min_size=2, max_size=200).map(
    lambda gaps: START + np.cumsum(np.array(gaps, np.int64))
)


def source(how: Align = "causal", *, units: str | tuple[str, ...] = "", **grid: object) -> SourceProfile:
    return SourceProfile(
        name="test",
        landing="landing",
        reader="mcap",
        grid=Grid.model_validate({"rate_hz": 30.0, **grid}),
        cameras=(CameraRole(name="scene", topic="/scene"),),
        states=(VectorRole(name="imu", topic="/imu", align=how, units=units),),
    )


@given(st.integers(0, 2**62), RATES, st.integers(1, 3000))
def test_uniform_times_are_those_of_the_steps_to_the_nanosecond(
    start_ns: int, rate_hz: float, num: int
) -> None:
    times = grid_times_ns(start_ns, rate_hz, num)
    assert times.dtype == np.int64
    assert times.tolist() == [step_time_ns(start_ns, rate_hz, step) for step in range(num)]


@settings(max_examples=30)
@given(RATES, st.integers(0, 2**22))
def test_late_steps_are_as_exact_as_early_ones(rate_hz: float, step: int) -> None:
    times = grid_times_ns(START, rate_hz, step + 1)
    assert int(times[-1]) == step_time_ns(START, rate_hz, step)


@given(st.integers(0, 2**40), RATES)
def test_the_last_step_is_in_the_span_and_the_next_one_is_not(span_ns: int, rate_hz: float) -> None:
    num = num_uniform(START, START + span_ns, rate_hz)
    end_ns = START + span_ns + TOLERANCE_NS
    assert step_time_ns(START, rate_hz, num - 1) <= end_ns < step_time_ns(START, rate_hz, num)


@given(CLOCKS, RATES)
def test_no_step_shows_the_future_and_none_shows_less_than_the_latest(
    times: NDArray[np.int64], rate_hz: float
) -> None:
    grid = grid_times_ns(int(times[0]), rate_hz, num_uniform(int(times[0]), int(times[-1]), rate_hz))
    shown = pick(times, grid, "causal", NEVER_NS).before_T
    assert (times[shown] <= grid + TOLERANCE_NS).all()
    following = np.append(times, np.iinfo(np.int64).max)[shown + 1]
    assert (following > grid + TOLERANCE_NS).all()


@given(CLOCKS, RATES)
def test_no_message_is_nearer_than_the_nearest(times: NDArray[np.int64], rate_hz: float) -> None:
    grid = grid_times_ns(
        int(times[0]), rate_hz, min(300, num_uniform(int(times[0]), int(times[-1]), rate_hz))
    )
    shown = pick(times, grid, "nearest", NEVER_NS).before_T
    assert (np.abs(times[shown] - grid) == np.abs(times[:, None] - grid).min(axis=0)).all()


@given(CLOCKS, CLOCKS, st.sampled_from(["causal", "nearest", "interpolate"]), st.integers(1, 120))
def test_whole_alignments_keep_the_causal_law_and_their_counts(
    camera: NDArray[np.int64], imu: NDArray[np.int64], how: Align, gap_ms: int
) -> None:
    if max(camera[0], imu[0]) > min(camera[-1], imu[-1]):
        return
    series = Series(imu, np.arange(len(imu), dtype=np.float64)[:, None])
    made = align(source(how, max_gap_s=gap_ms / 1000), {"/scene": camera}, {"/imu": series})
    shown = made.frames["scene"] >= 0
    assert (made.capture_ns("scene")[shown] <= made.grid_T[shown] + TOLERANCE_NS).all()
    assert (made.skew_ns["scene"] <= gap_ms * 1_000_000).all()
    values, capture_T = made.vectors["state/imu"]
    assert np.isfinite(values).all()
    if how == "causal":
        assert (capture_T <= made.grid_T + TOLERANCE_NS).all()
        assert (imu[values[:, 0].astype(np.int64)] == capture_T).all(), "the time is that of the value"
    for counts in made.counts.values():
        assert counts.num_in == counts.num_used + counts.num_outside + counts.num_surplus
    invalid = [range(first, past) for _, first, past in made.invalid]
    assert made.valid_spans == missing_from(range(made.num_steps), invalid)


@given(
    holes=st.lists(st.tuples(st.floats(0, 9), st.floats(0, 1.5)), max_size=4),
    gap_s=st.sampled_from([0.05, 0.2, 0.5]),
)
def test_steps_are_invalid_exactly_where_the_last_message_is_too_old(
    holes: list[tuple[float, float]], gap_s: float
) -> None:
    every = grid_times_ns(START, 100.0, 1000)
    since_s = (every - START) / SECOND
    silent = np.zeros(1000, np.bool_)
    for at_s, long_s in holes:
        silent |= (since_s > at_s) & (since_s < at_s + long_s)
    imu = every[~silent]
    made = align(
        source(max_gap_s=gap_s), {"/scene": every[::3]}, {"/imu": Series(imu, np.ones((len(imu), 1)))}
    )
    ages = [int(now - imu[imu <= now + TOLERANCE_NS].max()) for now in made.grid_T]
    assert made.missing["state/imu"].tolist() == [age > round(gap_s * SECOND) for age in ages]
    mixed = align(
        source("interpolate", max_gap_s=gap_s),
        {"/scene": every[::3]},
        {"/imu": Series(imu, np.ones((len(imu), 1)))},
    )
    apart = [int(imu[imu >= now].min(initial=imu[-1]) - imu[imu <= now].max()) for now in mixed.grid_T]
    assert mixed.missing["state/imu"].tolist() == [long > round(gap_s * SECOND) for long in apart]


@given(st.integers(0, 2**32 - 1), st.floats(0, 0.3), st.floats(0.1, 0.6))
def test_a_reference_camera_is_neither_repeated_nor_skipped(seed: int, lost: float, gap_s: float) -> None:
    rng = np.random.default_rng(seed)
    camera = grid_times_ns(START, 30.0, 300) + rng.integers(0, 5_000_000, 300)
    camera = camera[rng.random(300) >= lost]
    imu = grid_times_ns(START + SECOND, 100.0, 700)
    profile = source(reference="scene", max_gap_s=gap_s)
    made = align(profile, {"/scene": camera}, {"/imu": Series(imu, np.ones((700, 1)))})
    frames = made.frames["scene"]
    inside = (camera >= imu[0] - TOLERANCE_NS) & (camera <= imu[-1] + TOLERANCE_NS)
    assert frames[frames >= 0].tolist() == np.flatnonzero(inside).tolist()
    assert (np.diff(made.grid_T) > 0).all()
    filled = np.diff(made.grid_T)[(frames[1:] < 0) | (frames[:-1] < 0)]
    assert (np.abs(filled / SECOND * 30 - 1) < 0.5).all(), "steps in a hole are about a period apart"


@given(st.integers(1, 54_000), st.sampled_from([24.0, 25.0, 30.0, 50.0, 60.0]))
def test_float32_seconds_do_not_shift_a_stream_against_exact_ones(step: int, fps: float) -> None:
    exact_ns = grid_times_ns(0, fps, step + 1)
    stored_s = (np.arange(step + 1) / fps).astype(np.float32)
    stored_ns = (stored_s.astype(np.float64) * SECOND).astype(np.int64)
    assert latest(stored_ns, exact_ns)[-1] == step or step / fps > 1024  # float32 is coarser than 60 us there


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


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_blocks_of_steps_do_not_show_in_the_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    imu = START + np.cumsum(rng.integers(1_000_000, 5_000_000, 3000))
    values = rng.normal(size=(3000, 400))  # 1,310 steps of 400 dimensions are a block
    scene = grid_times_ns(int(imu[0]), 300.0, 2000)
    made = align(source("interpolate", rate_hz=300.0), {"/scene": scene}, {"/imu": Series(imu, values)})
    exact = np.interp(made.grid_T - START, imu - START, values[:, 7])
    assert made.vectors["state/imu"][0][:, 7] == pytest.approx(exact, abs=1e-5)


def test_real_head_worn_clocks_lie_on_the_scene_camera(shared_data: Path) -> None:
    folder = shared_data / "neon_multirate_clocks" / "demo_recording"
    scene = np.fromfile(folder / "Neon Scene Camera v1 ps1.time", "<i8")
    imu = np.fromfile(folder / "imu ps1.time", "<i8")
    fields = [("stamp", "<i8"), *((f"v{n}", "<f4") for n in range(10))]
    rows = np.fromfile(folder / "imu ps1.raw", np.dtype(fields))
    values = np.stack([rows[f"v{n}"] for n in range(10)], axis=1).astype(np.float64)
    units = ("deg/s",) * 3 + ("g",) * 3 + ("quat",) * 4
    profile = source("interpolate", units=units, reference="scene")
    made = align(profile, {"/scene": scene}, {"/imu": Series(imu, values)})
    assert (np.diff(made.frames["scene"]) == 1).all() and made.valid_T.all()
    found = made.vectors["state/imu"][0]
    assert np.linalg.norm(found[:, 6:], axis=1) == pytest.approx(1, abs=1e-5)
    nearest = values[np.abs(imu[:, None] - made.grid_T).argmin(axis=0)]
    assert np.abs((found[:, 6:] * nearest[:, 6:]).sum(axis=1)).min() > math.cos(math.radians(2))


def test_a_real_recording_that_stopped_and_started_again_has_invalid_stretches_between(
    shared_data: Path,
) -> None:
    folder = shared_data / "neon_multirate_clocks" / "multi_part"
    scene, gaze = (
        np.concatenate([np.fromfile(folder / f"{name} ps{part}.time", "<i8") for part in (1, 2, 3)])
        for name in ("Neon Scene Camera v1", "gaze")
    )
    made = align(source(), {"/scene": scene}, {"/imu": Series(gaze, np.ones((len(gaze), 2)))})
    assert len(made.valid_spans) == 3
    lengths_s = [len(span) / 30 for span in made.valid_spans]
    assert lengths_s == pytest.approx([4.5, 8.6, 8.1], abs=0.1)
