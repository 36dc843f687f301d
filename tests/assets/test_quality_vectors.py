"""The checks of what vectors say: each at its weakest fault, and on what looks like one and is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quality_samples import (
    ARM,
    LEADER,
    START_NS,
    Recorded,
    Values,
    beyond,
    found_in,
    good,
    paired,
    source,
    worst,
)

from dyna_assets.quality.vector_facts import next_state_facts, vector_facts

HANDS = source(
    states=[{"name": "hands", "topic": ARM, "confidence": "/seen"}],
    actions=[{"name": "leader", "topic": LEADER}],
)


def setting(rows: slice, dim: int | slice, value: float) -> Recorded:
    """The good recording with this value in these rows and dimensions of the arm."""

    def change(values_ND: Values) -> Values:
        values_ND[rows, dim] = value
        return values_ND

    return good().saying(ARM, change)


def adding(rows: slice, dim: int, value: float) -> Recorded:
    def change(values_ND: Values) -> Values:
        values_ND[rows, dim] += value
        return values_ND

    return good().saying(ARM, change)


def holding(topic: str, first: int, stop: int, recorded: Recorded | None = None) -> Recorded:
    """The good recording with one row of a vector repeated."""

    def change(values_ND: Values) -> Values:
        values_ND[first:stop] = values_ND[first]
        return values_ND

    return (recorded or good()).saying(topic, change)


def hands(confidence: Values, missing: np.ndarray | None = None) -> Recorded:
    """The arm taken for detected keypoints, with a confidence per row."""
    recorded = good()
    if missing is not None:
        recorded = recorded.saying(ARM, lambda values_ND: np.where(missing[:, None], np.nan, values_ND))
    clocks = {**recorded.clocks, "/seen": recorded.clocks[ARM]}
    return Recorded(clocks, {**recorded.values, "/seen": confidence[:, None]})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_a_single_row_that_float32_cannot_hold_rejects_and_says_when(value: float) -> None:
    one = worst(found_in(setting(slice(500, 501), 2, value)), "vector.finite")
    assert (one.subject, one.value, one.spans) == ("arm", 1, ((5.0, 5.0),))
    assert "1 of 1000 rows hold NaN" in one.note
    assert "vector.finite" in beyond(found_in(setting(slice(500, 501), 2, value)), "reject")


def test_a_row_outside_the_range_of_its_role_warns_and_many_reject() -> None:
    profile = source(states=[{"name": "arm", "topic": ARM, "range": (-1.5, 1.5)}])
    single = found_in(setting(slice(10, 11), 0, 1.6), profile)
    assert worst(single, "vector.range").value == pytest.approx(1e-3)
    assert "joint0 -" in worst(single, "vector.range").note
    assert "vector.range" in beyond(single, "warn") - beyond(single, "reject")
    assert "vector.range" in beyond(found_in(setting(slice(10, 40), 0, 1.6), profile), "reject")
    assert worst(found_in(good(), profile), "vector.range").value == 0
    assert found_in(good())["vector.range"] == []


def test_a_row_of_nan_is_not_outside_the_range() -> None:
    profile = source(states=[{"name": "arm", "topic": ARM, "range": (-1.5, 1.5)}])
    assert worst(found_in(setting(slice(5, 6), 0, np.nan), profile), "vector.range").value == 0


def test_a_jump_away_and_back_within_one_row_warns_and_names_the_joint_and_the_moment() -> None:
    one = worst(found_in(adding(slice(500, 501), 3, 0.5)), "vector.spikes")
    assert one.value == pytest.approx(0.25, abs=0.02)  # of the 2 rad that it covers
    assert "joint3 by 24% of its travel" in one.note
    assert one.spans == ((5.0, 5.0),)
    assert "vector.spikes" in beyond(found_in(adding(slice(500, 501), 3, 0.5)), "warn")


def test_a_step_that_stays_is_no_spike_and_neither_is_the_noise_of_a_joint_that_rests() -> None:
    assert worst(found_in(adding(slice(500, 1000), 3, 1.0)), "vector.spikes").value < 0.01
    rng = np.random.default_rng(0)

    def rest(values_ND: Values) -> Values:
        values_ND[:, 3] = 0.3 + rng.normal(0, 2e-3, len(values_ND))
        return values_ND

    assert beyond(found_in(good().saying(ARM, rest)), "warn") == set()


def test_a_joint_that_moves_by_ticks_of_its_encoder_has_no_spikes() -> None:
    def coarse(values_ND: Values) -> Values:
        return np.rint(values_ND / 0.01) * 0.01

    assert worst(found_in(good().saying(ARM, coarse)), "vector.spikes").value == 0


def test_rows_on_both_sides_of_a_gap_or_of_a_missing_hand_are_no_neighbours() -> None:
    rows = np.arange(1000)
    gap = good().only(ARM, (rows < 300) | (rows == 500) | (rows >= 800))
    assert worst(found_in(gap), "vector.spikes").value == 0
    lost = hands(np.ones(1000), (rows >= 300) & (rows < 800) & (rows != 500))
    assert worst(found_in(lost, HANDS), "vector.spikes").value == 0


def test_a_robot_that_holds_still_warns_whatever_the_noise_of_its_encoders() -> None:
    def rest(values_ND: Values) -> Values:
        return np.full_like(values_ND, 0.2) + np.random.default_rng(0).normal(0, 1e-4, values_ND.shape)

    found = found_in(good().saying(ARM, rest))
    assert worst(found, "state.moves").value == 0
    assert beyond(found, "reject") == set()
    assert beyond(found, "warn") == {"state.moves"}


def test_one_joint_that_never_changes_warns_by_name_and_a_still_robot_has_no_frozen_joint() -> None:
    one = worst(found_in(setting(slice(None), 2, 0.5)), "state.frozen_joint")
    assert (one.value, one.subject) == (1, "arm")
    assert "joint2 never changes while 5 other dimensions do" in one.note
    assert worst(found_in(setting(slice(None), slice(None), 0.5)), "state.frozen_joint").value == 0


def test_a_joint_that_is_nan_once_does_not_count_as_moving() -> None:
    still = setting(slice(None), slice(None), 0.5)

    def once(values_ND: Values) -> Values:
        values_ND[7, 2] = np.nan
        return values_ND

    assert worst(found_in(still.saying(ARM, once)), "state.frozen_joint").value == 0


def test_a_short_recording_says_nothing_of_frozen_joints_and_spikes() -> None:
    short = setting(slice(None), 2, 0.5).only(ARM, np.arange(1000) < 40)
    assert found_in(short)["state.frozen_joint"] == []
    assert [one.subject for one in found_in(short)["vector.spikes"]] == ["leader"]


def test_a_state_that_stalls_for_a_third_of_a_second_while_the_robot_moves_warns() -> None:
    one = worst(found_in(holding(ARM, 400, 430)), "state.stutter")
    assert one.value == pytest.approx(0.29, abs=0.02)
    assert one.spans[0] == pytest.approx((4.0, 4.3), abs=0.02)
    assert beyond(found_in(holding(ARM, 400, 430)), "warn") == {"state.stutter"}
    assert "state.stutter" in beyond(found_in(holding(ARM, 400, 520)), "reject")


def test_a_state_that_stalls_until_the_end_is_found_by_the_commands() -> None:
    stalled = holding(ARM, 700, 1000)
    assert worst(found_in(stalled), "state.stutter").value == pytest.approx(2.99, abs=0.02)
    resting = holding(LEADER, 345, 500, stalled)
    assert worst(found_in(resting), "state.stutter").value == 0


def test_a_robot_that_rests_without_noise_and_starts_gently_does_not_stutter() -> None:
    rows = np.arange(1000)
    way = np.where(rows < 400, rows, np.where(rows < 600, 400, rows - 200)) / 100
    ease = np.where(rows < 600, 1.0, np.clip((rows - 600) / 50, 0, 1))

    def rest(values_ND: Values) -> Values:
        moved = 0.05 * np.cumsum(np.gradient(way) * ease)[:, None] * np.arange(1, 7)
        return np.asarray(moved)

    still_leader = holding(LEADER, 195, 300)
    assert worst(found_in(still_leader.saying(ARM, rest)), "state.stutter").value == 0


def test_commands_that_are_the_next_or_the_own_state_warn() -> None:
    state_ND = paired().values[ARM]
    for copied, says in ((np.roll(state_ND, -1, axis=0), "next row"), (state_ND, "their own row")):
        faked = paired()
        faked.values = {**faked.values, LEADER: copied}
        one = worst(found_in(faked), "action.is_next_state")
        assert one.value == pytest.approx(1, abs=0.01)
        assert says in one.note
    assert beyond(found_in(paired()), "warn") == set()
    assert found_in(good())["action.is_next_state"] == []  # on clocks of their own no row is a command's next


def test_a_robot_at_rest_does_not_copy_its_state_into_its_commands() -> None:
    rest = np.full((300, 6), 0.4)
    assert next_state_facts(rest, rest) is None
    moved = rest.copy()
    moved[100:105, 0] += np.arange(5)
    assert next_state_facts(rest, moved) is None  # too few rows to tell


def test_hands_that_are_missing_or_guessed_are_counted_apart() -> None:
    rows = np.arange(1000)
    missing = found_in(hands(np.where(rows < 150, 0.0, 0.9), rows < 150), HANDS)
    assert worst(missing, "hands.missing").value == pytest.approx(0.15)
    assert worst(missing, "hands.missing").spans == ((0.0, 1.49),)
    assert beyond(missing, "warn") == {"hands.missing"}
    hidden = found_in(hands(np.where(rows < 400, 0.4, 0.9)), HANDS)
    assert worst(hidden, "hands.occluded").value == pytest.approx(0.4)
    assert beyond(hidden, "warn") == {"hands.occluded"}
    assert beyond(found_in(hands(np.where(rows < 50, 0.4, 0.9)), HANDS), "warn") == set()


def test_a_row_without_a_hand_is_allowed_to_be_nan_and_half_a_hand_is_not() -> None:
    missing = np.arange(1000) < 50
    assert worst(found_in(hands(np.where(missing, 0.0, 0.9), missing), HANDS), "vector.finite").value == 0

    def half(values_ND: Values) -> Values:
        values_ND[3, 0] = np.nan
        return values_ND

    assert worst(found_in(hands(np.ones(1000)).saying(ARM, half), HANDS), "vector.finite").value == 1


def test_a_confidence_with_rows_of_its_own_counts_from_its_latest_row() -> None:
    clocks = {**good().clocks, "/seen": START_NS + np.array([0, 5_000_000_000])}
    recorded = Recorded(clocks, {**good().values, "/seen": np.array([[0.9], [0.2]])})
    assert worst(found_in(recorded, HANDS), "hands.occluded").value == pytest.approx(0.5)


def test_a_topic_in_which_nothing_was_ever_detected_is_all_missing() -> None:
    found = found_in(hands(np.zeros(1000), np.ones(1000, np.bool_)), HANDS)
    assert worst(found, "hands.missing").value == 1
    assert beyond(found, "reject") == {"hands.missing"}


@given(
    num=st.integers(1, 120),
    dims=st.integers(1, 5),
    scale=st.sampled_from([0.0, 1e-12, 1.0, 1e12]),
    holes=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_facts_of_any_vector_are_finite_numbers(
    num: int, dims: int, scale: float, holes: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values_MD = rng.normal(0, scale, (num, dims))
    values_MD[rng.random((num, dims)) < holes] = rng.choice([np.nan, np.inf])
    times_s_M = np.sort(rng.choice([rng.random(num), np.zeros(num), np.arange(num) / 30]))
    facts = vector_facts(times_s_M, values_MD, (), limits=(-1, 1), confidence_MK=rng.random((num, 1)))
    assert all(np.isfinite(value) for value in facts.values() if isinstance(value, float))
    assert facts["names"] == [str(dim) for dim in range(dims)]


def test_a_velocity_that_no_driver_measures_does_not_stutter_and_a_state_that_never_follows_does() -> None:
    def unmeasured(values_ND: Values) -> Values:
        return np.zeros_like(values_ND)

    assert found_in(good().saying(ARM, unmeasured))["state.stutter"] == []
    frozen = found_in(holding(ARM, 0, 1000))
    assert beyond(frozen, "warn") == {"state.moves", "state.stutter"}
    assert beyond(frozen, "reject") == {"state.stutter"}
