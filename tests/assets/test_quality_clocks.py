"""The checks of topics and clocks: each at its weakest fault, and on what looks like one and is none."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray
from quality_samples import (
    ARM,
    LEADER,
    NOW_NS,
    TOP,
    WRIST,
    Arriving,
    Recorded,
    beyond,
    found_in,
    good,
    paired,
    source,
    worst,
)

from dyna_assets.landing.recording import TopicInfo
from dyna_assets.quality import CHECKS


def since_start_s(recorded: Recorded, topic: str) -> NDArray[np.float64]:
    return np.asarray((recorded.clocks[topic] - recorded.clocks[topic][0]) / 1e9)


def without(recorded: Recorded, topic: str, start_s: float, end_s: float) -> Recorded:
    since_s = since_start_s(recorded, topic)
    return recorded.only(topic, (since_s < start_s) | (since_s >= end_s))


@pytest.mark.parametrize(
    "recorded", [good(), good(Arriving), paired()], ids=["clocked", "arriving", "paired"]
)
def test_a_good_recording_is_within_every_limit(recorded: Recorded) -> None:
    assert beyond(found_in(recorded), "warn") == set()
    assert beyond(found_in(recorded), "reject") == set()


def test_every_check_before_is_measured_by_one_of_the_good_recordings() -> None:
    hands = source(
        states=[{"name": "arm", "topic": ARM, "range": (-2, 2), "confidence": LEADER}],
        actions=[{"name": "leader", "topic": TOP + "2"}],
    )
    every = [found_in(good(Arriving)), found_in(paired()), found_in(good(), hands)]
    measured = {name for found in every for name, subjects in found.items() if subjects}
    assert measured == {name for name, check in CHECKS.items() if check.gate == "before"}


def test_an_absent_topic_is_named_with_the_topics_there_are_nearest_first() -> None:
    lacking = source(cameras=[{"name": "top", "topic": "/tpo"}])
    one = worst(found_in(good(), lacking), "topics.present")
    assert (one.subject, one.value) == ("top", 1)
    assert re.search(
        r"camera 'top' \(/tpo\): not in the recording; topics there: /top, /\w+, /\w+, /\w+\. Correct",
        one.note,
    )


def test_a_topic_of_another_kind_or_without_a_message_is_no_topic() -> None:
    wrong_kind = source(cameras=[{"name": "top", "topic": ARM}], states=[])
    assert "is of kind vector" in worst(found_in(good(), wrong_kind), "topics.present").note
    empty = good().only(WRIST, np.zeros(300, np.bool_))
    assert "holds no message" in worst(found_in(empty), "topics.present").note


def test_a_topic_that_the_profile_does_not_know_warns_until_it_is_named() -> None:
    recorded = Recorded(good().clocks, good().values, other={"/force": TopicInfo("/force", "other", 12)})
    one = worst(found_in(recorded), "topics.unmapped")
    assert one.value == 1
    assert "/force (12 messages)" in one.note
    for keys in ({"ignore": ["/fo*"]}, {"extra": ["/force"]}):
        assert worst(found_in(recorded, source(**keys)), "topics.unmapped").value == 0


def test_a_clock_that_was_set_back_by_a_millisecond_rejects_and_says_where() -> None:
    back = good().at(TOP, lambda times_N: np.where(np.arange(300) >= 150, times_N - 34_333_333, times_N))
    one = worst(found_in(back), "time.monotonic")
    assert (one.subject, one.value) == ("top", 1)
    ((after_s, before_s),) = one.spans
    assert before_s == pytest.approx(149 / 30, abs=1e-3)
    assert after_s == pytest.approx(before_s - 1e-3, abs=1e-4)
    assert "time.monotonic" in beyond(found_in(back), "reject")


def test_a_recording_of_half_a_second_is_long_enough_and_a_shorter_one_is_not() -> None:
    for length_s, refused in ((0.55, False), (0.4, True)):
        short = good()
        for topic in short.clocks:
            short = without(short, topic, length_s, 99)
        assert ("time.duration" in beyond(found_in(short), "reject")) == refused


def test_a_camera_that_stops_more_than_half_a_second_early_rejects() -> None:
    one = worst(found_in(without(good(), WRIST, 9.4, 99)), "time.length_mismatch")
    assert one.subject == "wrist"
    assert one.value == pytest.approx(0.6, abs=0.05)
    assert re.search(
        r"/wrist ends at 9\.\d+ s \(283 messages\), /arm at 9\.99 s \(1000 .* are missing", one.note
    )
    assert beyond(found_in(without(good(), WRIST, 9.7, 99)), "warn") == set()


def test_a_camera_that_appears_half_way_rejects_and_a_state_that_starts_first_is_fine() -> None:
    late = found_in(without(good(), WRIST, 0, 5))
    assert worst(late, "time.late_start").subject == "wrist"
    assert beyond(late, "reject") == {"time.late_start"}
    early = good()
    for topic in (TOP, WRIST, LEADER):
        early = without(early, topic, 0, 3)
    assert beyond(found_in(early), "warn") == set()


def test_pictures_that_are_paired_by_number_must_be_as_many_as_the_rows() -> None:
    one = worst(found_in(paired().only(TOP, np.arange(300) != 150)), "rows.paired")
    assert (one.subject, one.value) == ("top", 1)
    assert re.search(r"/top has 299 messages, expected 300 .* a missing one shifts all after it", one.note)
    assert found_in(good())["rows.paired"] == []


def test_a_gap_warns_and_becomes_a_span_and_costs_the_episode_only_if_little_is_left() -> None:
    gap = found_in(without(good(), WRIST, 4, 5))
    one = worst(gap, "time.gap")
    assert one.value == pytest.approx(1.0, abs=0.05)
    assert one.spans[0] == pytest.approx((3.966, 5.0), abs=0.04)
    assert beyond(gap, "reject") == set()
    assert worst(gap, "time.valid_share").value == pytest.approx(1 - 0.53 / 9.97, abs=0.01)
    assert beyond(found_in(without(good(), WRIST, 2, 8)), "reject") == {"time.valid_share"}
    assert beyond(found_in(without(good(), WRIST, 4, 4.4)), "warn") == set()


def test_gaps_of_two_topics_at_the_same_time_count_once() -> None:
    one = without(good(), WRIST, 3, 6)
    both = without(one, ARM, 3, 6)
    share = worst(found_in(one), "time.valid_share").value
    assert worst(found_in(both), "time.valid_share").value == pytest.approx(share, abs=0.01)


def test_a_silent_leader_warns_and_makes_nothing_invalid() -> None:
    found = found_in(without(good(), LEADER, 4, 5))
    assert beyond(found, "warn") == {"time.action_gap"}
    assert worst(found, "time.valid_share").value == 1


def test_stamps_in_batches_warn_and_jitter_and_lost_messages_do_not() -> None:
    batches = good().at(ARM, lambda times_N: times_N[np.arange(1000) // 2 * 2 + 1])
    one = worst(found_in(batches), "time.jitter")
    assert one.subject == "arm"
    assert one.value == pytest.approx(1, abs=0.01)
    rng = np.random.default_rng(0)
    shaken = good().at(TOP, lambda times_N: np.sort(times_N + rng.normal(0, 5e6, 300).astype(np.int64)))
    assert "time.jitter" not in beyond(found_in(shaken), "warn")
    lossy = good().only(TOP, rng.random(300) > 0.3)
    assert "time.jitter" not in beyond(found_in(lossy), "warn")


def test_a_rate_other_than_the_declared_one_warns() -> None:
    slow = paired()
    for topic in slow.clocks:
        slow = slow.at(topic, lambda times_N: times_N * 30 // 28)
    one = worst(found_in(slow), "time.rate")
    assert one.value == pytest.approx(2 / 30, abs=1e-3)
    assert "28.00 Hz, its metadata says 30 Hz" in one.note
    assert found_in(good())["time.rate"] == []


def test_a_clock_in_the_future_rejects_and_one_that_counts_from_zero_is_not_checked() -> None:
    ahead_ns = NOW_NS - good().clocks[TOP][-1] + 2 * 86_400 * 10**9
    late = good()
    for topic in late.clocks:
        late = late.at(topic, lambda times_N: times_N + ahead_ns)
    assert "2.0 days in the future" in worst(found_in(late), "time.future").note
    assert beyond(found_in(late), "reject") == {"time.future"}
    assert found_in(paired())["time.future"] == []


def test_a_camera_whose_messages_arrive_late_warns_and_a_host_that_is_off_as_a_whole_does_not() -> None:
    one = worst(found_in(good(Arriving, latency_s={WRIST: 0.3})), "time.latency")
    assert one.subject == "wrist"
    assert one.value == pytest.approx(0.298, abs=1e-3)
    far = dict.fromkeys((TOP, WRIST, ARM, LEADER), 5.0)
    assert beyond(found_in(good(Arriving, latency_s=far)), "warn") == set()
    assert beyond(found_in(good(Arriving, latency_s={TOP: 0.03, WRIST: 0.03})), "warn") == set()


def test_a_clock_that_runs_away_from_the_recorders_warns() -> None:
    one = worst(found_in(good(Arriving, drift={TOP: 0.015})), "time.drift")
    assert one.subject == "top"
    assert one.value == pytest.approx(0.15, abs=0.01)
    assert beyond(found_in(good(Arriving, drift={TOP: 200e-6})), "warn") == set()


def test_arrivals_that_are_not_one_for_each_frame_are_not_compared() -> None:
    class Coded(Arriving):
        def arrivals(self, topic: str) -> NDArray[np.int64]:
            return super().arrivals(topic)[:-1]

    found = found_in(good(Coded))
    assert found["time.latency"] == found["time.drift"] == []


def test_a_video_whose_clock_is_not_that_of_the_rows_rejects() -> None:
    slow = found_in(paired().at(TOP, lambda times_N: times_N * 98 // 100))
    one = worst(slow, "video.clock")
    assert one.subject == "top"
    assert one.value == pytest.approx(0.02 * 299 / 30, abs=1e-3)
    assert "video.clock" in beyond(slow, "reject")
    half_a_frame = paired().at(TOP, lambda times_N: times_N + 16_000_000)
    assert beyond(found_in(half_a_frame), "warn") == set()
    assert found_in(good())["video.clock"] == []


def test_a_camera_that_loses_a_fifth_of_its_frames_warns_and_one_that_loses_a_twentieth_does_not() -> None:
    numbers = np.arange(300)
    one = worst(found_in(good().only(TOP, numbers % 5 != 2)), "camera.drops")
    assert one.subject == "top"
    assert one.value == pytest.approx(0.2, abs=0.01)
    assert beyond(found_in(good().only(TOP, numbers % 20 != 7)), "warn") == set()
    rare = np.random.default_rng(1).random(300) < 0.2
    assert worst(found_in(good().only(TOP, rare)), "camera.drops").value == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_a_camera_that_shakes_loses_no_frames_and_one_that_also_loses_them_warns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    late_ns = rng.normal(0, 6e6, 300).astype(np.int64)
    shaken = good().at(TOP, lambda times_N: np.sort(times_N + late_ns))
    assert worst(found_in(shaken), "camera.drops").value == 0
    lossy = worst(found_in(shaken.only(TOP, rng.random(300) >= 0.3)), "camera.drops")
    assert lossy.value == pytest.approx(0.3, abs=0.06)
    assert re.search(r"/top: \d+% of the frames of a (30|29\.99|30\.01) Hz camera are missing", lossy.note)


def test_a_slow_camera_is_no_camera_that_loses_frames() -> None:
    slow = good().only(TOP, np.arange(300) % 3 == 0)
    assert worst(found_in(slow), "camera.drops").value == pytest.approx(0, abs=1e-6)


def test_a_single_message_of_a_topic_is_measured_without_a_rate() -> None:
    one = good().only(TOP, np.arange(300) == 150)
    found = found_in(one)
    assert "time.length_mismatch" in beyond(found, "reject")
    assert [measured.subject for measured in found["camera.drops"]] == ["wrist"]
