from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyna_train.episode.layout import (
    LOCAL_STORE,
    PATTERNS,
    REMOTE_STORE,
    EpisodeLayout,
    ReadPattern,
    StoreCosts,
    pattern_named,
)
from dyna_train.errors import BadInput


def test_a_gap_is_worth_reading_up_to_the_bytes_that_pass_during_one_latency():
    assert REMOTE_STORE.gap_bytes == 4_000_000
    assert LOCAL_STORE.gap_bytes == 200_000


@given(latency_s=st.floats(1e-6, 1), bandwidth=st.floats(1e6, 1e10))
def test_reading_a_gap_along_costs_as_much_as_asking_twice_exactly_at_the_gap(latency_s, bandwidth):
    store = StoreCosts(latency_s, bandwidth)
    assert store.seconds(1, store.gap_bytes) == pytest.approx(
        store.seconds(2, 0), rel=1e-3, abs=2 / bandwidth
    )


def test_the_offsets_of_a_pattern_are_whole_steps_without_repeats():
    assert PATTERNS["vla"].frame_offsets(30.0) == (0, 6)
    assert PATTERNS["wam"].frame_offsets(30.0) == tuple(range(48))
    assert PATTERNS["wam"].frame_offsets(5.0) == tuple(range(9))
    assert PATTERNS["mixed"].horizon_steps(30.0) == 48


def test_an_unknown_pattern_is_refused_with_the_nearest_one():
    assert pattern_named("vla") is PATTERNS["vla"]
    with pytest.raises(BadInput, match="unknown read pattern 'vlaa'; did you mean 'vla'"):
        pattern_named("vlaa")
    with pytest.raises(BadInput, match="unknown read pattern 'zzz'; patterns are vla, mixed, wam"):
        pattern_named("zzz")


def test_a_pattern_that_no_window_could_follow_is_refused():
    with pytest.raises(BadInput, match="read pattern 'blind' wants no frame; give at least one offset"):
        ReadPattern("blind", (), horizon_s=1.0)
    with pytest.raises(BadInput, match=r"read pattern .back.: horizon_s = -1\.0.*expected 0 or more"):
        ReadPattern("back", PATTERNS["vla"].frame_offsets_s, horizon_s=-1.0)


def test_a_layout_whose_cuts_do_not_nest_is_refused():
    with pytest.raises(BadInput, match="must be a multiple of gop x gops_per_chunk = 12"):
        EpisodeLayout(gop=6, gops_per_chunk=2, steps_per_block=18)
    with pytest.raises(BadInput, match="every length must be at least 1"):
        EpisodeLayout(gop=0, gops_per_chunk=2, steps_per_block=18)
