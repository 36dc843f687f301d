"""Many clocks, one grid: what each step shows, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import ActionRole, CameraRole, Grid, SourceProfile, VectorRole
from dyna_assets.steps.align import Alignment, Missing, Series, align
from dyna_train.episode.profile import MISSING_NS

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
NAN = float("nan")


def profile(
    camera: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
    action: dict[str, Any] | None = None,
    **grid: Any,
) -> SourceProfile:
    return SourceProfile(
        name="test",
        landing="landing",
        reader="mcap",
        grid=Grid(**{"rate_hz": 30.0, **grid}),
        cameras=(CameraRole(name="top", topic="/cam", **(camera or {})),),
        states=(VectorRole(name="arm", topic="/joints", **(state or {})),),
        actions=(ActionRole(name="arm", topic="/leader", **(action or {})),),
    )


def ticks(rate_hz: float, num: int, start_ns: int = 0) -> NDArray[np.int64]:
    return start_ns + np.round(np.arange(num) * SECOND / rate_hz).astype(np.int64)


def series(times_ns: NDArray[np.int64]) -> Series:
    """Rows of (time in s, number)."""
    return Series(times_ns, np.stack([times_ns / SECOND, np.arange(len(times_ns))], axis=1))


def laid(
    source: SourceProfile,
    camera: NDArray[np.int64],
    joints: NDArray[np.int64] | Series | None = None,
    leader: NDArray[np.int64] | Series | None = None,
) -> Alignment:
    """Aligned; topics that are not given have the camera's times."""
    given = {"/joints": camera if joints is None else joints, "/leader": camera if leader is None else leader}
    made = {topic: one if isinstance(one, Series) else series(one) for topic, one in given.items()}
    return align(source, {"/cam": camera}, made)


def ages_of(made: Alignment, vector: str) -> NDArray[np.int64]:
    return made.grid_T - made.vectors[vector][1]


def without(times: NDArray[np.int64], start_s: float, end_s: float) -> NDArray[np.int64]:
    since_s = (times - times[0]) / SECOND
    return np.asarray(times[(since_s <= start_s) | (since_s >= end_s)])


def test_streams_on_one_clock_come_out_one_to_one() -> None:
    made = laid(profile(), ticks(30, 90, START))
    assert made.num_steps == 90
    assert made.frames["top"].tolist() == list(range(90))
    assert made.vectors["state/arm"][0][:, 1].tolist() == list(range(90))
    assert made.max_skew_ns["top"] == 0
    assert made.invalid == () and made.valid_spans == (range(90),)


def test_the_grid_lies_where_every_topic_has_been_seen_and_none_has_ended() -> None:
    camera = ticks(30, 60, SECOND)
    made = laid(profile(), camera, ticks(100, 400), ticks(50, 200, SECOND // 2))
    assert made.start_ns == camera[0]
    last_ns = made.start_ns + round((made.num_steps - 1) * SECOND / 30)
    assert last_ns <= camera[-1] < last_ns + SECOND / 30


def test_topics_without_a_common_time_are_refused_by_name() -> None:
    with pytest.raises(RecordingError, match=r"/cam ends 4\.033 s before /joints starts") as refused:
        laid(profile(), ticks(30, 30), ticks(100, 100, 5 * SECOND))
    assert refused.value.check == "time.overlap"


def test_a_held_command_keeps_its_value_until_the_next_one() -> None:
    leader = Series(np.array([0, SECOND], dtype=np.int64), np.array([[1.0], [2.0]]))
    made = laid(profile(rate_hz=10.0), ticks(10, 15), leader=leader)
    assert made.vectors["action/arm"][0][:, 0].tolist() == [1.0] * 10 + [2.0]


def test_a_command_stays_valid_however_old_it_is() -> None:
    times = ticks(30, 300, START)
    made = laid(profile(max_gap_s=0.1), times, leader=times[[0, 299]])
    assert made.valid_T.all()
    assert ages_of(made, "action/arm").max() > 9 * SECOND


def test_a_nearest_camera_may_show_the_frame_after_the_instant_and_a_causal_one_never() -> None:
    camera = ticks(30, 30, START) + np.array([0, 5_000_000] * 15)  # every other frame 5 ms late
    steady = ticks(30, 30, START)
    causal, nearest = (laid(profile({"align": how}), camera, steady, steady) for how in ("causal", "nearest"))
    assert causal.frames["top"][:4].tolist() == [0, 0, 2, 2]
    assert nearest.frames["top"][:4].tolist() == [0, 1, 2, 3]
    assert nearest.skew_ns["top"][:4].tolist() == pytest.approx([0, -5e6, 0, -5e6], abs=1)
    assert nearest.max_skew_ns["top"] == pytest.approx(5e6, abs=1)


def test_of_two_frames_that_are_equally_near_the_earlier_one_is_shown() -> None:
    camera = START + np.arange(0, 40, 2) * 50_000_000
    made = laid(
        profile({"align": "nearest"}, rate_hz=20.0), camera, ticks(20, 30, START), ticks(20, 30, START)
    )
    assert made.frames["top"][:5].tolist() == [0, 0, 1, 1, 2]


def test_a_camera_shows_nothing_where_its_last_frame_is_too_old() -> None:
    steady = ticks(30, 90, START)
    made = laid(profile(max_gap_s=0.2), without(steady, 1.0, 2.0), steady, steady)
    # the frame of step 30 is held for 0.2 s, to step 36; the next one comes at step 60
    assert made.invalid == (Missing("camera/top", 37, 60),)
    assert (np.flatnonzero(made.frames["top"] < 0) == np.arange(37, 60)).all()
    assert (made.capture_ns("top")[37:60] == MISSING_NS).all()
    assert (made.skew_ns["top"][37:60] == 0).all()
    assert made.valid_spans == (range(37), range(60, 90))
    assert made.max_skew_ns["top"] == pytest.approx(0.2 * SECOND, abs=2)


def test_a_vector_keeps_its_last_value_in_a_gap_and_the_steps_are_invalid() -> None:
    steady = ticks(30, 90, START)
    made = laid(profile(max_gap_s=0.2), steady, without(steady, 1.0, 2.0))
    assert made.invalid == (Missing("state/arm", 37, 60),)
    assert (made.vectors["state/arm"][0][30:60, 1] == 30).all()
    assert made.frames["top"].tolist() == list(range(90))


def test_nothing_is_interpolated_between_neighbours_that_are_too_far_apart() -> None:
    steady = ticks(30, 90, START)
    joints = series(without(steady, 1.0, 2.0) - START)
    joints = Series(joints.times_ns + START, joints.values_MD)
    made = laid(profile(state={"align": "interpolate"}, max_gap_s=0.2), steady, joints)
    assert made.invalid == (Missing("state/arm", 31, 60),), (
        "unlike a held value, not even the first 0.2 s are known"
    )
    assert (made.vectors["state/arm"][0][31:60, 0] == 1.0).all()
    assert made.valid_T[60], "an exact hit needs no neighbour"


def test_an_interpolated_row_is_captured_at_its_instant_and_a_held_one_when_it_was() -> None:
    camera, joints = ticks(30, 60, START), ticks(17, 40, START)
    held, mixed = (laid(profile(state={"align": how}), camera, joints) for how in ("causal", "interpolate"))
    assert (mixed.vectors["state/arm"][1] == mixed.grid_T).all()
    assert (ages_of(mixed, "state/arm") == 0).all()
    assert np.isin(held.vectors["state/arm"][1], joints).all()
    assert ages_of(held, "state/arm").max() < SECOND / 17


def test_a_planted_latency_is_undone() -> None:
    steady, late_ns = ticks(30, 90, START), 45_000_000
    late = profile({"latency_ms": 45.0}, {"latency_ms": -20.0})
    made = laid(late, steady + late_ns, steady - 20_000_000, steady)
    assert made.frames["top"].tolist() == list(range(90))
    assert (made.capture_ns("top") == steady).all(), "the stored times are the corrected ones"
    assert (made.vectors["state/arm"][1] == steady).all()


def test_times_that_count_from_zero_are_moved_so_that_no_latency_makes_them_negative() -> None:
    camera, others = ticks(30, 90), ticks(100, 300)
    made = laid(profile({"latency_ms": 30.0}), camera, others, others)
    assert made.shift_ns == 30_000_000
    assert made.capture_ns("top")[0] == 0
    assert made.start_ns == 30_000_000
    assert laid(profile(), camera, others, others).shift_ns == 0


def test_a_clock_that_goes_back_is_refused_with_message_and_times() -> None:
    times = ticks(30, 60, START)
    times[40:] -= SECOND
    text = (
        r"/cam: message 40 is captured at 1790000000333333333 ns, 0\.967 s before message 39 at .*Split the"
    )
    with pytest.raises(RecordingError, match=text) as refused:
        laid(profile(), times, ticks(30, 60, START), ticks(30, 60, START))
    assert refused.value.check == "time.monotonic"


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ([], "/cam holds no message"),
        ([-5, 5], "message 0 is captured at -5 ns, before 1970"),
        ([0, 2**63 - 10], "captured at 9223372036854775798 ns, after the year 2262"),
    ],
)
def test_times_that_no_episode_could_hold_are_refused(times: list[int], text: str) -> None:
    with pytest.raises(RecordingError, match=text):
        laid(profile(), np.array(times, np.int64), ticks(30, 30), ticks(30, 30))


def test_a_clock_that_jumps_by_years_is_refused_before_memory_is_asked_for() -> None:
    times = np.array([0, 100 * 365 * 86_400 * SECOND])
    with pytest.raises(
        RecordingError, match=r"share 3,153,600,000 s: 94,608,000,001 steps at 30 Hz.*clock jumped"
    ):
        laid(profile(), times)


def test_with_a_reference_camera_each_of_its_frames_is_a_step() -> None:
    rng = np.random.default_rng(1)
    camera = ticks(29.99, 300, START) + rng.integers(0, 8_000_000, 300)
    made = laid(profile(reference="top"), camera, ticks(100, 970, START + SECOND // 4))
    frames = made.frames["top"]
    assert (np.diff(frames) == 1).all(), "neither repeated nor skipped"
    assert (made.grid_T == camera[frames]).all() and made.max_skew_ns["top"] == 0
    assert frames[0] == np.searchsorted(camera, START + SECOND // 4)
    assert made.rate_hz == 30.0, "the profile's rate, so that all episodes of a source have the same"
    ages = ages_of(made, "state/arm")
    assert ages.min() >= 0 and ages.max() < SECOND / 100


def test_a_hole_of_the_reference_camera_is_filled_with_steps_without_a_frame() -> None:
    camera = without(ticks(30, 90, START), 1.0, 2.0)
    made = laid(
        profile(reference="top", max_gap_s=0.5), camera, ticks(100, 300, START), ticks(100, 300, START)
    )
    assert made.num_steps == 90
    assert made.invalid == (Missing("camera/top", 31, 60),)
    assert np.diff(made.grid_T) == pytest.approx(SECOND / 30, abs=1)
    assert made.frames["top"][made.valid_T].tolist() == list(range(61))


def test_a_short_hole_of_the_reference_camera_is_no_step() -> None:
    camera = without(ticks(30, 90, START), 1.0, 1.3)
    made = laid(
        profile(reference="top", max_gap_s=0.5), camera, ticks(100, 300, START), ticks(100, 300, START)
    )
    assert made.frames["top"].tolist() == list(range(len(camera)))
    assert made.valid_T.all()


def test_a_reference_camera_of_another_rate_is_refused_with_its_own() -> None:
    with pytest.raises(
        RecordingError, match=r"/cam come at 18\.5 Hz, grid\.rate_hz says 20\. .*write its own rate"
    ):
        laid(profile(reference="top", rate_hz=20.0), ticks(18.5, 100, START))


def test_a_reference_camera_without_a_frame_in_the_common_time_is_refused() -> None:
    camera = np.array([START, START + 10 * SECOND])
    with pytest.raises(RecordingError, match=r"/cam has no frame in the 4\.000 s that all topics share"):
        laid(profile(reference="top"), camera, ticks(10, 41, START + SECOND), ticks(10, 61, START + SECOND))


def test_counts_say_what_became_of_every_message() -> None:
    camera = ticks(30, 90, START)
    made = laid(profile(rate_hz=10.0), camera, ticks(10, 21, START + SECOND), ticks(5, 11, START + SECOND))
    top, arm, leader = (made.counts[topic] for topic in ("/cam", "/joints", "/leader"))
    assert made.num_steps == 20, "from 1 s to the camera's last frame, 2.97 s"
    assert (top.num_in, top.num_used, top.num_outside, top.num_surplus) == (90, 20, 32, 38)
    assert (arm.num_in, arm.num_used, arm.num_outside, arm.num_surplus) == (21, 20, 1, 0)
    assert (leader.num_in, leader.num_used, leader.num_outside, leader.num_surplus) == (11, 10, 1, 0)


def hands(rows: list[list[float]], **state: Any) -> Alignment:
    times = ticks(10, len(rows), START)
    source = profile(state={"confidence": "/sure", **state}, rate_hz=10.0, max_gap_s=0.25)
    return laid(source, times, Series(times, np.array(rows)))


def test_the_last_detection_is_held_by_each_dimension_for_itself() -> None:
    made = hands([[1, 10], [2, NAN], [NAN, 30], [4, 40]])
    assert made.vectors["state/arm"][0].tolist() == [[1, 10], [2, 10], [2, 30], [4, 40]]
    assert made.valid_T.all()
    assert (ages_of(made, "state/arm") == 0).all(), "each row holds something new"


def test_before_the_first_detection_there_are_zeros_and_no_valid_step() -> None:
    made = hands([[1, NAN], [2, NAN], [3, 30], [4, 40]])
    assert made.vectors["state/arm"][0].tolist() == [[1, 0], [2, 0], [3, 30], [4, 40]]
    assert made.invalid == (Missing("state/arm", 0, 2),)


def test_a_detection_that_is_too_old_makes_steps_invalid() -> None:
    made = hands([[1], [NAN], [NAN], [NAN], [NAN], [6]])
    assert made.vectors["state/arm"][0][:, 0].tolist() == [1, 1, 1, 1, 1, 6]
    assert made.invalid == (Missing("state/arm", 3, 5),)
    assert made.counts["/joints"].num_surplus == 4


def test_a_hand_that_is_never_seen_is_zero_and_never_valid() -> None:
    made = hands([[NAN, 1], [NAN, 2], [NAN, 3]])
    assert made.vectors["state/arm"][0].tolist() == [[0, 1], [0, 2], [0, 3]]
    assert not made.valid_T.any()


def test_detections_are_interpolated_across_the_rows_without_one() -> None:
    made = hands([[1, 1], [NAN, 2], [3, 3]], align="interpolate")
    assert made.vectors["state/arm"][0].tolist() == [[1, 1], [2, 2], [3, 3]]


def test_a_quaternion_is_detected_as_a_whole() -> None:
    made = hands([[1, 0, 0, 0], [0, 1, NAN, 0], [0, 0, 1, 0]], units="quat")
    assert made.vectors["state/arm"][0].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]


def test_without_confidence_what_is_no_number_is_left_for_the_gate_to_judge() -> None:
    times = ticks(10, 3, START)
    made = laid(profile(rate_hz=10.0), times, Series(times, np.array([[1.0], [NAN], [1e300]])))
    assert np.isnan(made.vectors["state/arm"][0][1, 0]) and np.isinf(made.vectors["state/arm"][0][2, 0])


def test_units_that_do_not_fit_the_vector_are_refused() -> None:
    with pytest.raises(
        RecordingError, match=r"/joints \('arm'\) has 2 dimensions, its profile names 3 units"
    ):
        laid(profile(state={"units": ("rad", "rad", "m")}), ticks(30, 30))
    with pytest.raises(
        RecordingError, match="2 dimensions of unit 'quat' from dimension 0 on, expected 4 in a row"
    ):
        laid(profile(state={"units": "quat"}), ticks(30, 30))
