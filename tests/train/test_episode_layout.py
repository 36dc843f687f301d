from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyna_train.episode.layout import PATTERNS, EpisodeLayout, decoded_frames, plan_layout
from dyna_train.errors import BadInput

GOPS = (2, 6, 10, 15, 30, 60, 120, 300)


@pytest.mark.parametrize(
    ("offsets", "decoded"),
    [
        ([0], (1.5, 3.5, 5.5, 8, 15.5, 30.5, 60.5, 150.5)),
        ([0, 6], (3, 7, 10, 13, 21, 36.2, 66.4, 156.4)),
        (range(0, 48, 6), (12, 28, 37, 43, 54, 70.8, 101.6, 192)),
        (range(0, 48, 3), (24, 41, 46, 50, 59, 74.8, 105, 195)),
        (range(48), (48.5, 50.5, 52.5, 55, 62.5, 77.5, 107.5, 197.5)),
    ],
)
def test_decoded_frames_of_the_measured_patterns_match_the_published_table(offsets, decoded):
    assert [decoded_frames(list(offsets), gop) for gop in GOPS] == pytest.approx(decoded, rel=0.002)


@given(offsets=st.sets(st.integers(0, 80), min_size=1, max_size=12), gop=st.integers(1, 40))
def test_decoded_frames_is_the_mean_over_phases_of_what_a_decoder_would_run(offsets, gop):
    runs = 0
    for phase in range(gop):
        last_in_gop: dict[int, int] = {}
        for step in sorted(phase + offset for offset in offsets):
            last_in_gop[step // gop] = step % gop + 1
        runs += sum(last_in_gop.values())
    assert decoded_frames(sorted(offsets), gop) == pytest.approx(runs / gop)


@pytest.mark.parametrize(("pattern", "gop"), [("vla", 15), ("mixed", 30), ("wam", 60)])
def test_at_thirty_hertz_each_pattern_gets_its_known_gop(pattern, gop):
    assert plan_layout(pattern, 30.0).gop == gop


@given(pattern=st.sampled_from(sorted(PATTERNS)), rate_hz=st.floats(0.2, 1000))
def test_a_planned_layout_nests_and_its_gop_never_exceeds_two_seconds(pattern, rate_hz):
    layout = plan_layout(pattern, rate_hz)
    assert layout.gop == 1 or layout.gop <= 2 * rate_hz
    assert layout.steps_per_block % layout.steps_per_chunk == 0
    assert layout.steps_per_block >= 2 * rate_hz - 1


def test_an_unknown_pattern_is_refused_with_the_nearest_one():
    with pytest.raises(BadInput, match="unknown read pattern 'vlaa'; did you mean 'vla'"):
        plan_layout("vlaa", 30.0)
    with pytest.raises(BadInput, match="unknown read pattern 'zzz'; known: vla, mixed, wam"):
        plan_layout("zzz", 30.0)


def test_a_rate_that_is_not_positive_is_refused():
    with pytest.raises(BadInput, match="rate_hz = 0: expected a positive number"):
        plan_layout("vla", 0)


def test_a_layout_whose_cuts_do_not_nest_is_refused():
    with pytest.raises(BadInput, match="must be a multiple of gop x gops_per_chunk = 12"):
        EpisodeLayout(gop=6, gops_per_chunk=2, steps_per_block=18)
    with pytest.raises(BadInput, match="every length must be at least 1"):
        EpisodeLayout(gop=0, gops_per_chunk=2, steps_per_block=18)
