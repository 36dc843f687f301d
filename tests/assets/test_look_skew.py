"""The histogram of capture times around the grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_samples import near

from dyna_assets.look.skew import HEIGHT, NUM_BINS, WIDTH, draw_histogram, skew_bins
from dyna_train.look.palette import BAD, INK, LINES, PANEL

PERIOD_MS = 1000 / 30


@given(skews=st.lists(st.floats(-500, 500, width=32) | st.just(float("nan")), max_size=200))
def test_every_frame_is_counted_once_and_gaps_are_not(skews):
    bins = skew_bins(np.array(skews, np.float64), PERIOD_MS)
    assert bins.counts_B.sum() == np.isfinite(skews).sum()
    assert 1.25 * PERIOD_MS <= bins.reach_ms <= 5.01 * PERIOD_MS
    assert bins.num_beyond == sum(abs(skew) > bins.reach_ms for skew in skews if np.isfinite(skew))


def test_frames_on_the_grid_stand_in_the_middle():
    picture = draw_histogram(skew_bins(np.full(60, 0.4), PERIOD_MS))
    assert picture.size == (WIDTH, HEIGHT)
    assert near(picture, (WIDTH / 2 + 1, 50), LINES[0])
    assert near(picture, (WIDTH / 2 - 20, 50), PANEL)


def test_one_frame_period_is_marked_on_either_side_and_named():
    bins = skew_bins(np.zeros(60), PERIOD_MS)
    assert bins.x(PERIOD_MS) == pytest.approx(WIDTH * 0.9)
    assert bins.x(-PERIOD_MS) == pytest.approx(WIDTH * 0.1)
    picture = draw_histogram(bins)
    for x in (WIDTH * 0.1, WIDTH * 0.9):
        column = np.asarray(picture.crop((int(x) - 1, 16, int(x) + 2, 60)).convert("L"))
        assert (column < 140).any()
        label = np.asarray(picture.crop((int(x) - 16, 62, int(x) + 16, HEIGHT)).convert("L"))
        assert (label < 150).sum() > 10


def test_where_periods_are_too_near_to_each_other_the_ends_are_named() -> None:
    picture = draw_histogram(skew_bins(np.array([0.0, 6 * PERIOD_MS]), PERIOD_MS))
    words = np.asarray(picture.crop((0, 62, WIDTH // 2 + 90, HEIGHT)).convert("L")) < 150
    assert words[:, :40].any() and not words[:, 60:90].any() and words[:, 95:105].any()


def test_the_grid_time_is_a_dark_line_from_top_to_bottom():
    picture = draw_histogram(skew_bins(np.full(60, -20.0), PERIOD_MS))
    assert all(near(picture, (WIDTH / 2, y), INK) for y in range(18, 58))


def test_frames_beyond_the_reach_stand_at_the_edge_in_another_colour_and_are_counted():
    bins = skew_bins(np.array([0.0] * 50 + [400.0] * 10), PERIOD_MS)
    assert (bins.num_beyond, bins.counts_B[NUM_BINS - 1]) == (10, 10)
    assert near(draw_histogram(bins), (WIDTH - 3, 58), BAD)


def test_a_camera_without_a_frame_has_an_empty_histogram():
    bins = skew_bins(np.full(5, np.nan), PERIOD_MS)
    assert bins.counts_B.sum() == 0 and draw_histogram(bins).size == (WIDTH, HEIGHT)
