"""Many clocks, one grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import Grid, SourceProfile, TopicRole, VectorRole
from dyna_assets.steps.align import TOLERANCE_NS, Series, align, grid_times, latest

SECOND = 1_000_000_000


def profile(rate_hz: float = 30.0) -> SourceProfile:
    return SourceProfile(
        name="test",
        landing="landing",
        reader="mcap_ros2",
        grid=Grid(rate_hz=rate_hz),
        cameras=(TopicRole(name="top", topic="/cam"),),
        states=(VectorRole(name="arm", topic="/joints"),),
        actions=(VectorRole(name="arm", topic="/leader"),),
    )


def ticks(rate_hz: float, num: int, start_ns: int = 0) -> NDArray[np.int64]:
    return start_ns + np.round(np.arange(num) * SECOND / rate_hz).astype(np.int64)


def series(times_ns: NDArray[np.int64]) -> Series:
    return Series(times_ns, np.stack([times_ns / SECOND, np.arange(len(times_ns))], axis=1))


def test_streams_on_one_clock_come_out_one_to_one() -> None:
    times = ticks(30, 90, start_ns=1_790_000_000 * SECOND)
    made = align(profile(), {"/cam": times}, {"/joints": series(times), "/leader": series(times)})
    assert made.num_steps == 90
    assert made.frames["top"].tolist() == list(range(90))
    assert made.vectors["state/arm"][0][:, 1].tolist() == list(range(90))
    assert made.max_skew_ns["top"] == 0


def test_the_grid_lies_where_every_topic_has_been_seen_and_none_has_ended() -> None:
    camera, joints, leader = ticks(30, 60, SECOND), ticks(100, 400), ticks(50, 200, SECOND // 2)
    made = align(profile(), {"/cam": camera}, {"/joints": series(joints), "/leader": series(leader)})
    assert made.start_ns == camera[0]
    last_ns = made.start_ns + round((made.num_steps - 1) * SECOND / 30)
    assert last_ns <= camera[-1] < last_ns + SECOND / 30


def test_topics_without_a_common_time_are_refused_by_name() -> None:
    early, late = ticks(30, 30), ticks(100, 100, 5 * SECOND)
    with pytest.raises(RecordingError, match=r"/cam ends 4\.033 s before /joints starts"):
        align(profile(), {"/cam": early}, {"/joints": series(late), "/leader": series(late)})


@given(
    gaps=st.lists(st.integers(1, 50_000_000), min_size=2, max_size=200),
    rate_hz=st.sampled_from([10.0, 29.97, 30.0, 50.0, 120.0]),
)
def test_no_step_shows_the_future_and_none_shows_less_than_the_latest(
    gaps: list[int], rate_hz: float
) -> None:
    times = np.cumsum(np.array(gaps, dtype=np.int64))
    grid = grid_times(int(times[0]), int(times[-1]), rate_hz)
    shown = latest(times, grid)
    assert (times[shown] <= grid + TOLERANCE_NS).all()
    following = np.append(times, np.iinfo(np.int64).max)[shown + 1]
    assert (following > grid + TOLERANCE_NS).all()


@given(st.integers(1, 54_000), st.sampled_from([24.0, 25.0, 30.0, 50.0, 60.0]))
def test_float32_seconds_do_not_shift_a_stream_against_exact_ones(step: int, fps: float) -> None:
    exact_ns = ticks(fps, step + 1)
    stored_ns = (np.float32(np.arange(step + 1) / fps).astype(np.float64) * SECOND).astype(np.int64)
    assert latest(stored_ns, exact_ns)[-1] == step or step / fps > 1024  # float32 is coarser than 60 us there


def test_a_held_command_keeps_its_value_until_the_next_one() -> None:
    leader = Series(np.array([0, SECOND], dtype=np.int64), np.array([[1.0], [2.0]]))
    camera = ticks(10, 15)
    made = align(profile(10.0), {"/cam": camera}, {"/joints": series(camera), "/leader": leader})
    assert made.vectors["action/arm"][0][:, 0].tolist() == [1.0] * 10 + [2.0]
