"""What is said of a clock: rate, phase, jitter, drift, gaps and restarts, for any times."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_assets.clocks import MOST_LISTED, clock_facts, difference_s, drift_against, fit_lattice
from dyna_assets.simulate.clocks import CAMERA, LEFT_ARM, head_clocks, run_clock

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
INT64 = np.iinfo(np.int64)
ANY_TIME = st.one_of(st.integers(INT64.min, INT64.max), st.sampled_from([INT64.min, -1, 0, 1, INT64.max]))


def clock(
    rate_hz: float, num: int, *, phase_s: float = 0.0, jitter_s: float = 0.0, lost: float = 0.0, seed: int = 0
) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    times_s = phase_s + np.arange(num) / rate_hz + rng.normal(0, jitter_s, num)
    kept = rng.random(num) >= lost
    return START + np.rint(np.sort(times_s)[kept] * SECOND).astype(np.int64)


@given(st.lists(ANY_TIME, max_size=12), ANY_TIME, st.lists(ANY_TIME, min_size=12, max_size=12))
def test_facts_of_any_times_are_finite_and_ready_for_json(
    times: list[int], start: int, arrivals: list[int]
) -> None:
    facts = clock_facts(np.array(times, np.int64), start)
    json.dumps(facts, allow_nan=False)
    assert facts["num_messages"] == len(times)
    assert facts["num_backwards"] == sum(a > b for a, b in pairwise(times))
    assert facts["num_equal"] == sum(a == b for a, b in pairwise(times))
    late = drift_against(np.array(times, np.int64), np.array(arrivals[: len(times)], np.int64))
    json.dumps(late, allow_nan=False)


@given(ANY_TIME, ANY_TIME)
def test_a_difference_is_right_even_where_int64_cannot_hold_it(later: int, earlier: int) -> None:
    found = difference_s(np.array([later]), np.array([earlier]))
    assert found[0] == pytest.approx((later - earlier) / 1e9, rel=1e-15)


def test_few_messages_have_no_rate_but_ends() -> None:
    none, one, two = (clock_facts(START + np.arange(num) * SECOND, START) for num in (0, 1, 2))
    assert none["num_messages"] == 0 and none["rate_hz"] == none["first_s"] == none["max_gap_s"] == 0.0
    assert one["rate_hz"] == 0.0 and one["last_s"] == 0.0
    assert two["rate_hz"] == two["mean_rate_hz"] == two["lattice_hz"] == pytest.approx(1.0)
    assert two["jitter_s"] == 0.0 and two["last_s"] == 1.0


@given(
    rate_hz=st.floats(5, 500),
    phase=st.floats(0, 0.999),
    jitter=st.floats(0, 0.08),
    lost=st.floats(0, 0.3),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_lattice_is_found_under_jitter_and_losses(
    rate_hz: float, phase: float, jitter: float, lost: float, seed: int
) -> None:
    times = clock(rate_hz, 1000, phase_s=phase / rate_hz, jitter_s=jitter / rate_hz, lost=lost, seed=seed)
    facts = clock_facts(times, START)
    assert facts["lattice_hz"] == pytest.approx(rate_hz, rel=2e-4)
    away = (facts["phase_s"] * rate_hz - phase + 0.5) % 1 - 0.5
    assert abs(away) < 0.03
    assert facts["jitter_s"] * rate_hz == pytest.approx(jitter, rel=0.2, abs=1e-4)
    assert facts["jitter_p99_s"] >= facts["jitter_s"] or jitter < 1e-3
    expected = 1 - len(times) / round((times[-1] - times[0]) / SECOND * rate_hz + 1)
    assert facts["lost_share"] == pytest.approx(max(0.0, expected), abs=0.005)


@given(
    jitter_s=st.floats(0, 0.015),
    num=st.integers(90, 3000),
    seed=st.integers(0, 2**32 - 1),
)
@example(jitter_s=0.015, num=90, seed=0)
@example(jitter_s=0.012, num=300, seed=1)
def test_a_camera_that_shakes_by_nearly_half_a_period_keeps_its_rate_and_loses_nothing(
    jitter_s: float, num: int, seed: int
) -> None:
    facts = clock_facts(shaken(num, jitter_s, 0.0, seed), START)
    assert facts["lattice_hz"] == pytest.approx(30, rel=5e-3)
    assert facts["lost_share"] <= 2 / num


@given(
    jitter_s=st.floats(0, 0.01),
    lost=st.floats(0, 0.5),
    num=st.integers(120, 3000),
    seed=st.integers(0, 2**32 - 1),
)
@example(jitter_s=0.01, lost=0.1, num=120, seed=0)
@example(jitter_s=0.01, lost=0.5, num=120, seed=0)
def test_a_camera_that_shakes_and_loses_up_to_half_of_its_frames_keeps_its_rate_and_lost_so_many(
    jitter_s: float, lost: float, num: int, seed: int
) -> None:
    times = shaken(num, jitter_s, lost, seed)
    facts = clock_facts(times, START)
    assert facts["lattice_hz"] == pytest.approx(30, rel=5e-3)
    num_sent = round((times[-1] - times[0]) / SECOND * 30) + 1
    assert facts["lost_share"] == pytest.approx(1 - len(times) / num_sent, abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_a_camera_that_loses_most_of_its_frames_keeps_its_rate(seed: int) -> None:
    assert fit_lattice(shaken(3000, 0.003, 0.8, seed)).rate_hz == pytest.approx(30, rel=5e-3)


UNEVEN: dict[str, Callable[[np.random.Generator], NDArray[np.float64]]] = {
    "a rate that wanders by up to 15 %": lambda rng: np.cumsum(
        (1 + 0.15 * np.sin(np.arange(300) / rng.uniform(5, 60))) / 30
    ),
    "a rate that sinks by a third": lambda rng: np.cumsum(1 / np.linspace(30, 20, 300)),
    "errors that add up": lambda rng: np.cumsum(np.abs(1 / 30 + rng.normal(0, 0.005, 300))),
    "video of two or three ticks a frame": lambda rng: np.cumsum(rng.choice([2, 3], 100) / 30),
    "film on video": lambda rng: np.cumsum(np.tile([2, 3], 60) / 60),
    "a queue read in batches": lambda rng: np.sort(np.arange(200) // 4 * 4 / 30 + rng.uniform(0, 1e-4, 200)),
    "glasses": lambda rng: head_clocks(rng, 15.0)["imu"].capture_s_N,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("uneven", UNEVEN)
def test_a_clock_that_keeps_to_no_lattice_has_lost_nothing(uneven: str, seed: int) -> None:
    times = START + np.rint(UNEVEN[uneven](np.random.default_rng(seed)) * SECOND).astype(np.int64)
    assert clock_facts(times, START)["lost_share"] < 0.06


def test_a_camera_that_halves_its_rate_half_way_has_lost_every_second_frame_from_there() -> None:
    times = START + np.cumsum([SECOND // 30] * 100 + [SECOND // 15] * 50)
    assert clock_facts(times, START)["lost_share"] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("num", range(10))
def test_fewer_than_nine_messages_tell_neither_what_was_lost_nor_how_even_they_are(num: int) -> None:
    facts = clock_facts(clock(30.0, num), START)
    assert (facts["lost_share"] is None) == (facts["unevenness"] is None) == (num < 9)


def test_the_rate_that_is_believed_is_taken_where_the_messages_tell_little_and_not_where_they_tell_another() -> (
    None
):
    few = shaken(20, 0.01, 0.2, 1)
    alone, believed = fit_lattice(few), fit_lattice(few, 30.0)
    assert believed.rate_hz == pytest.approx(30, rel=0.02)
    assert abs(believed.rate_hz / 30 - 1) <= 3 * believed.rate_error
    assert alone.rate_hz < 28, "as if none were lost"
    assert fit_lattice(shaken(60, 0.003, 0.0, 0), 24.0).rate_hz == pytest.approx(30, rel=0.01)


def shaken(num: int, jitter_s: float, lost: float, seed: int) -> NDArray[np.int64]:
    """A camera of 30 Hz with uniform jitter that loses frames at random."""
    rng = np.random.default_rng(seed)
    times_s = np.arange(num) / 30 + rng.uniform(-jitter_s, jitter_s, num)
    return START + np.rint(times_s[rng.random(num) >= lost] * SECOND).astype(np.int64)


def test_stamps_rounded_to_the_millisecond_hide_neither_rate_nor_invent_drops() -> None:
    times = START + np.rint(np.arange(300) * 1000 / 30).astype(np.int64) * 1_000_000
    facts = clock_facts(times, START)
    assert facts["rate_hz"] == pytest.approx(30.303, abs=1e-3), "the median period is 33 ms"
    assert facts["lattice_hz"] == pytest.approx(30, rel=1e-5)
    assert facts["lost_share"] == 0.0


@pytest.mark.parametrize(
    ("rate_hz", "nominal_hz", "drift_ppm"),
    [
        (30.006, 30.0, 200.0),
        (29.994, 30.0, -200.0),
        (29.97, 29.97003, -1.0),
        (18.53, 18.53, 0.0),
        (199.8143, 200.0, -928.5),
    ],
)
def test_drift_is_told_against_the_rate_that_was_meant(
    rate_hz: float, nominal_hz: float, drift_ppm: float
) -> None:
    facts = clock_facts(clock(rate_hz, 3000), START)
    assert facts["nominal_hz"] == pytest.approx(nominal_hz, abs=1e-5)
    assert facts["drift_ppm"] == pytest.approx(drift_ppm, abs=0.5)


def test_a_long_recording_keeps_its_slots_although_the_first_guess_of_the_rate_is_poor() -> None:
    times = clock(1000.0, 300_000, jitter_s=1e-4, lost=0.01)
    assert fit_lattice(times).rate_hz == pytest.approx(1000.0, rel=1e-8)


def test_one_frame_at_a_time_of_its_own_says_nothing_of_the_rate() -> None:
    times = clock(30.0, 300)
    times[0] += 20_000_000
    facts = clock_facts(times, START)
    assert facts["lattice_hz"] == pytest.approx(30, rel=1e-9)
    assert facts["jitter_s"] < 1e-8


def test_gaps_are_listed_with_their_ends_and_counted() -> None:
    times = clock(100.0, 1000)
    since_s = (times - START) / SECOND
    silent = (
        ((since_s > 2) & (since_s < 2.5))
        | ((since_s > 5) & (since_s < 5.1))
        | ((since_s > 7) & (since_s < 7.03))
    )
    facts = clock_facts(times[~silent], START - SECOND)
    assert facts["num_gaps"] == 2, "30 ms are no more than three periods"
    assert facts["gaps"] == [
        [pytest.approx(3.0), pytest.approx(3.5)],
        [pytest.approx(6.0), pytest.approx(6.1)],
    ]
    assert facts["max_gap_s"] == pytest.approx(0.5)
    assert facts["first_s"] == pytest.approx(1.0)


def test_of_many_gaps_the_longest_are_listed_in_order_of_time() -> None:
    steps = np.full(5000, SECOND // 100)
    steps[50::100] = SECOND + np.arange(50) * 1_000_000
    facts = clock_facts(START + np.cumsum(steps), START)
    assert facts["num_gaps"] == 50 and len(facts["gaps"]) == MOST_LISTED
    assert facts["gaps"] == sorted(facts["gaps"])
    assert min(end - start for start, end in facts["gaps"]) == pytest.approx(1.03)


def test_restarts_tell_number_and_times_and_the_rest_is_told_of_the_longest_part() -> None:
    times = clock(100.0, 1000)
    times[700:] -= 20 * SECOND
    facts = clock_facts(times, START)
    assert facts["num_backwards"] == 1
    assert facts["restarts"] == [[700, pytest.approx(6.99), pytest.approx(-13.0)]]
    assert facts["lattice_hz"] == pytest.approx(100.0)
    assert facts["lost_share"] == 0.0


def test_equal_neighbours_are_counted_and_leave_the_rate_alone() -> None:
    facts = clock_facts(np.repeat(clock(30.0, 100), 2), START)
    assert facts["num_equal"] == 100
    assert facts["rate_hz"] == pytest.approx(30.0)
    assert facts["mean_rate_hz"] == pytest.approx(60.0, rel=0.02)


def test_thousands_of_messages_of_one_time_take_no_more_memory_than_others() -> None:
    facts = clock_facts(np.repeat(clock(1.0, 20), 20_000), START)
    assert facts["num_equal"] == 20 * 19_999
    assert facts["lost_share"] == 0.0


@given(
    size=st.integers(2, 40), num=st.integers(5, 40), seed=st.integers(0, 2**32 - 1), long_s=st.floats(0, 30)
)
def test_messages_stamped_in_batches_of_any_size_are_uneven(
    size: int, num: int, seed: int, long_s: float
) -> None:
    batch = np.arange(size * num) // size
    times_s = batch * size / 100 + np.random.default_rng(seed).uniform(0, 1e-4, size * num)
    times = START + np.rint(np.sort(times_s) * SECOND).astype(np.int64)
    times[batch > num // 2] += round(long_s * SECOND)
    assert clock_facts(times, START)["unevenness"] > 0.9


@given(jitter_s=st.floats(0, 0.01), lost=st.floats(0, 0.3), gap_s=st.floats(0, 30), seed=st.integers(0, 99))
def test_neither_jitter_nor_losses_nor_a_gap_make_a_clock_uneven(
    jitter_s: float, lost: float, gap_s: float, seed: int
) -> None:
    times = shaken(300, jitter_s, lost, seed)
    times[len(times) // 2 :] += round(gap_s * SECOND)
    assert clock_facts(times, START)["unevenness"] < 0.5


@pytest.mark.parametrize("drift_ppm", [-300.0, 0.0, 150.0])
def test_drift_between_two_clocks_shows_through_the_latency(drift_ppm: float) -> None:
    ticks = run_clock(CAMERA, np.random.default_rng(2), 60.0)
    arrivals = START + ticks.arrival_ns_N
    times = START + np.rint(ticks.capture_ns_N * (1 + drift_ppm * 1e-6)).astype(np.int64)
    found = drift_against(times, arrivals)
    assert found["drift_ppm"] == pytest.approx(drift_ppm, abs=20)
    assert found["latency_s"] == pytest.approx(sum(CAMERA.latency_s), abs=0.012)


def test_latency_is_the_median_of_arrival_minus_capture() -> None:
    times = clock(30.0, 300)
    found = drift_against(times, times + 21_000_000)
    assert found == {"latency_s": pytest.approx(0.021), "drift_ppm": pytest.approx(0.0, abs=1e-3)}


def test_a_simulated_arm_is_described_as_it_was_made() -> None:
    ticks = run_clock(LEFT_ARM, np.random.default_rng(4), 60.0)
    facts = clock_facts(START + ticks.capture_ns_N, START)
    assert facts["nominal_hz"] == 100.0 and abs(facts["drift_ppm"]) < 800
    assert facts["jitter_s"] == pytest.approx(LEFT_ARM.jitter_s, rel=0.1)
    assert facts["lost_share"] == pytest.approx(LEFT_ARM.drop_share, abs=1e-3)


def test_real_sensors_are_described_alike_in_every_part_of_a_recording(shared_data: Path) -> None:
    folder = shared_data / "neon_multirate_clocks"
    found: dict[str, list[float]] = {
        "Neon Scene Camera v1": [],
        "Neon Sensor Module v1": [],
        "gaze": [],
        "imu": [],
    }
    for name, rates in found.items():
        for path in sorted(folder.glob(f"*/{name} ps*.time")):
            times = np.fromfile(path, "<i8")
            facts = clock_facts(times, int(times[0]))
            rates.append(facts["lattice_hz"])
            assert facts["lost_share"] < 0.015
    assert found["Neon Scene Camera v1"] == pytest.approx([29.9918] * 4, rel=1e-6)
    assert found["Neon Sensor Module v1"] + found["gaze"] == pytest.approx([199.8143] * 8, rel=1e-6)
    assert found["imu"] == pytest.approx([103.8] * 4, rel=6e-3), "it keeps to no lattice: batches"


def test_simulated_glasses_keep_the_figures_of_real_ones() -> None:
    clocks = head_clocks(np.random.default_rng(0), 30.0)
    start_ns = int(clocks["scene"].capture_ns_N[0])
    facts = {name: clock_facts(ticks.capture_ns_N, start_ns) for name, ticks in clocks.items()}
    imu_ms = np.diff(clocks["imu"].capture_ns_N) / 1e6
    assert np.quantile(imu_ms, [0.01, 0.5]) == pytest.approx([8.0, 10.667], abs=0.01)
    assert 16 <= imu_ms.max() <= 22
    assert facts["imu"]["mean_rate_hz"] == pytest.approx(104, rel=5e-3)
    assert 0.3 < facts["imu"]["first_s"] < 0.45 and 0.6 < facts["eye"]["first_s"] < 0.8
    assert 0.01 < facts["gaze"]["max_gap_s"] <= 0.066 < 2 * 0.066
    assert set(clocks["gaze"].capture_ns_N) < set(clocks["eye"].capture_ns_N)
    assert np.diff(clocks["scene"].capture_ns_N)[0] / 1e6 == pytest.approx(13.3, abs=0.1)
    assert facts["scene"]["jitter_s"] < 1e-6 and not math.isclose(facts["scene"]["drift_ppm"], 0, abs_tol=1)
