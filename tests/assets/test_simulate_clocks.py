"""Sensor clocks: rates, drops, jitter and latency."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyna_assets.simulate.clocks import CAMERA, LEADER, LEFT_ARM, RIGHT_ARM, Clock, head_clocks, run_clock

CLOCKS = {"camera": CAMERA, "left arm": LEFT_ARM, "right arm": RIGHT_ARM, "leader": LEADER}


@given(
    rate_hz=st.floats(1, 1000),
    jitter_s=st.floats(0, 0.05),
    drop_share=st.floats(0, 1),
    latency_s=st.tuples(st.floats(0, 0.1), st.floats(1e-6, 0.1)),
    end_s=st.floats(0.01, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_times_rise_strictly_and_nothing_arrives_before_it_is_captured(
    rate_hz: float,
    jitter_s: float,
    drop_share: float,
    latency_s: tuple[float, float],
    end_s: float,
    seed: int,
) -> None:
    ticks = run_clock(Clock(rate_hz, jitter_s, drop_share, latency_s), np.random.default_rng(seed), end_s)
    assert len(ticks.capture_ns_N) >= 1
    assert (np.diff(ticks.capture_ns_N) > 0).all()
    assert (np.diff(ticks.arrival_ns_N) > 0).all()
    assert (ticks.arrival_ns_N >= ticks.capture_ns_N).all()
    assert ticks.capture_ns_N[0] >= 0


@pytest.mark.parametrize("name", CLOCKS)
def test_over_a_minute_rate_drops_and_latency_are_those_of_the_clock(name: str) -> None:
    clock = CLOCKS[name]
    ticks = run_clock(clock, np.random.default_rng(1), 60.0)
    slots = np.rint((ticks.capture_s_N - ticks.capture_s_N[0]) * clock.rate_hz)
    period_s = np.polyfit(slots, ticks.capture_s_N, 1)[0]
    assert abs(period_s * clock.rate_hz - 1) < 1e-3
    assert period_s * clock.rate_hz != pytest.approx(1, abs=1e-7), "no two quartzes agree"
    dropped = 1 - len(slots) / (60 * clock.rate_hz)
    assert dropped == pytest.approx(clock.drop_share, abs=0.005)
    latency_s = (ticks.arrival_ns_N - ticks.capture_ns_N).mean() / 1e9
    assert latency_s == pytest.approx(sum(clock.latency_s), rel=0.1)


def test_sensors_start_at_their_own_phase() -> None:
    starts = {int(run_clock(CAMERA, np.random.default_rng(seed), 1.0).capture_ns_N[0]) for seed in range(20)}
    assert len(starts) == 20
    assert max(starts) < 1e9 / CAMERA.rate_hz + 10e6


@given(seed=st.integers(0, 2**32 - 1), end_s=st.floats(1, 30))
def test_times_of_the_glasses_rise_strictly_and_the_scene_camera_starts_first(
    seed: int, end_s: float
) -> None:
    clocks = head_clocks(np.random.default_rng(seed), end_s)
    assert list(clocks) == ["scene", "eye", "gaze", "imu"]
    for ticks in clocks.values():
        assert len(ticks) and (np.diff(ticks.capture_ns_N) > 0).all()
        assert (ticks.arrival_ns_N >= ticks.capture_ns_N).all()
        assert ticks.capture_ns_N[0] >= clocks["scene"].capture_ns_N[0]
