"""What alignment promises for any clocks: no future, nothing nearer than the nearest, gaps where they are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from align_samples import CLOCKS, RATES, SECOND, START, source
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_assets.landing.profile import Align
from dyna_assets.steps.align import TOLERANCE_NS, Series, align
from dyna_assets.steps.align.grid import num_uniform
from dyna_assets.steps.align.resample import NEVER_NS, latest, pick
from dyna_train.episode.profile import grid_times_ns, step_time_ns
from dyna_train.episode.stretches import missing_from


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


@given(
    CLOCKS,
    CLOCKS,
    st.lists(st.floats(-10_000, 10_000), min_size=2, max_size=2),
    st.sampled_from([0, START]),
    st.sampled_from([1.0, 29.97, 200.0]),
)
def test_no_latency_lets_a_causal_step_show_the_future(
    camera: NDArray[np.int64], imu: NDArray[np.int64], late_ms: list[float], first_ns: int, rate_hz: float
) -> None:
    if max(camera[0], imu[0]) > min(camera[-1], imu[-1]):
        return
    late_ns = [round(late * 1e6) for late in late_ms]
    earliest = min(camera[0] + late_ns[0], imu[0] + late_ns[1])
    true = camera - earliest + first_ns, imu - earliest + first_ns
    camera, imu = (times + late for times, late in zip(true, late_ns, strict=True))
    profile = source(rate_hz=rate_hz, max_gap_s=60)
    late = {
        "cameras": (profile.cameras[0].model_copy(update={"latency_ms": late_ms[0]}),),
        "states": (profile.states[0].model_copy(update={"latency_ms": late_ms[1]}),),
    }
    series = Series(imu, np.arange(len(imu), dtype=np.float64)[:, None])
    made = align(profile.model_copy(update=late), {"/scene": camera}, {"/imu": series})
    now_T = made.grid_T - made.shift_ns + TOLERANCE_NS
    numbers = made.frames["scene"], made.vectors["state/imu"][0][:, 0].astype(np.int64)
    for times, number_T in zip(true, numbers, strict=True):
        assert (times[number_T] <= now_T).all()
        assert (np.append(times, np.iinfo(np.int64).max)[number_T + 1] > now_T).all(), "and the latest"
    assert (made.capture_ns("scene") == true[0][numbers[0]] + made.shift_ns).all()
    assert made.capture_ns("scene").min() >= 0


@given(
    period_ns=st.integers(1_000_000, 200_000_000),
    phase=st.floats(0, 1),
    rate_hz=RATES,
    late_ms=st.floats(-50, 50),
)
def test_nearest_is_never_further_than_half_a_period_from_a_steady_camera(
    period_ns: int, phase: float, rate_hz: float, late_ms: float
) -> None:
    camera = START + int(phase * period_ns) + period_ns * np.arange(40)
    every = grid_times_ns(START - SECOND, 100.0, 2000)
    profile = source(rate_hz=rate_hz)
    nearest = profile.cameras[0].model_copy(update={"align": "nearest", "latency_ms": late_ms})
    made = align(
        profile.model_copy(update={"cameras": (nearest,)}),
        {"/scene": camera},
        {"/imu": Series(every, np.ones((2000, 1)))},
    )
    assert (made.frames["scene"] >= 0).all()
    assert made.max_skew_ns["scene"] <= max(period_ns / 2, TOLERANCE_NS)


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


@given(st.integers(1, 54_000), st.sampled_from([24.0, 25.0, 30.0, 50.0, 60.0]))
def test_float32_seconds_do_not_shift_a_stream_against_exact_ones(step: int, fps: float) -> None:
    exact_ns = grid_times_ns(0, fps, step + 1)
    stored_s = (np.arange(step + 1) / fps).astype(np.float32)
    stored_ns = (stored_s.astype(np.float64) * SECOND).astype(np.int64)
    assert latest(stored_ns, exact_ns)[-1] == step or step / fps > 1024  # float32 is coarser than 60 us there


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
