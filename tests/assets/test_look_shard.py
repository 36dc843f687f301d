"""The page of a shard: counts, the order of its rows, and what each row shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from page_samples import DARK, GAP, facts, near, write_episode
from PIL import Image

from dyna_assets.look.badge import LOOKS
from dyna_assets.look.facts import Failure, PageFacts
from dyna_assets.look.gather import ShardFacts
from dyna_assets.look.shard_page import (
    NARROW,
    WIDE,
    column_maxima,
    draw_shard_page,
    shard_line,
    worst_text,
)
from dyna_train.episode.reader import Episode
from dyna_train.look.bands import tint
from dyna_train.look.palette import BAD, PAPER

REJECTED = facts(outcome="reject", findings=(DARK, GAP))
UNREAD = facts(
    outcome="reject", content_hash="", failures=(Failure("recordings", "rejected", "cut at byte 12"),)
)


def shard(*worst: PageFacts, num_rows: int = 10) -> ShardFacts:
    return ShardFacts("shard-000003", num_rows, {"reject": 1, "warn": 2, "pass": 7}, 310, 340, worst)


@pytest.fixture
def opener(tmp_path):
    """Opens the same small episode for whatever facts."""
    path = write_episode(tmp_path / "episode.mcap")
    return lambda facts: Episode.open(path)


def test_the_head_counts_rows_and_what_was_checked():
    assert shard_line(shard(REJECTED)) == "10 episodes   ·   checked 310 of 340   ·   the worst 1 shown"
    assert shard_line(shard(REJECTED, num_rows=1)).startswith("1 episode   ·")
    assert shard_line(shard(REJECTED, num_rows=1)).endswith("all shown, worst first")


def test_a_row_names_the_worst_check_with_its_value_and_how_many_more():
    assert worst_text(REJECTED) == "camera.dark wrist: 3.1 levels (limit 32), and 1 more check"
    assert worst_text(UNREAD) == "step recordings"
    assert worst_text(replace(UNREAD, content_hash="ab" * 32)) == "step recordings: cut at byte 12"
    assert worst_text(facts()) == "nothing measured lies beyond its limit"


@pytest.mark.parametrize("columns", [WIDE, NARROW])
def test_rows_stand_in_the_order_given_with_their_marks(opener, columns):
    page = draw_shard_page(shard(REJECTED, UNREAD, facts()), opener, columns)
    assert page.width == columns.width
    for number, outcome in enumerate(("reject", "reject", "pass")):
        middle = 16 + 112 + number * 92 + 20
        assert near(page, (38, middle - 8), LOOKS[outcome].ground), number


def test_the_bar_shows_the_shares_of_the_outcomes(opener):
    page = draw_shard_page(shard(REJECTED), opener)
    for share, outcome in ((0.05, "reject"), (0.2, "warn"), (0.7, "pass")):
        assert near(page, (16 + share * 1408, 16 + 75), LOOKS[outcome].ground)


def test_a_row_shows_the_camera_that_the_worst_finding_names_with_the_stretch_it_names(opener):
    page = draw_shard_page(shard(REJECTED), opener)
    left, width = WIDE.plot_left, WIDE.right - WIDE.plot_left
    row = 16 + 112
    assert near(page, (left + width * 0.37, row + 25), tint(BAD, 0.35))
    assert not near(page, (left + width * 0.8, row + 25), tint(BAD, 0.35), far=20)
    tiles = [page.getpixel((WIDE.tiles_left + number * 115 + 40, row + 30))[0] for number in range(5)]
    assert tiles == sorted(tiles) and tiles[-1] > 100


def test_a_row_without_a_file_says_why(opener):
    page = draw_shard_page(shard(UNREAD), opener)
    words = np.asarray(page.crop((WIDE.tiles_left, 130, WIDE.tiles_left + 300, 150)).convert("L"))
    assert (words < 160).sum() > 100


def test_a_file_that_cannot_be_read_costs_its_own_row_only(tmp_path, opener):
    def open_one(one):
        return Episode.open(tmp_path / "gone.mcap") if one.episode_id == 1 else opener(one)

    page = draw_shard_page(shard(replace(REJECTED, episode_id=1), facts()), open_one)
    assert near(page, (WIDE.tiles_left + 40, 16 + 112 + 5), PAPER)
    assert not near(page, (WIDE.tiles_left + 2 * 115 + 40, 16 + 112 + 92 + 30), PAPER, far=40)


def test_a_shard_that_no_step_has_met_has_a_page(opener):
    page = draw_shard_page(ShardFacts("shard-000009", 0, {}, 0, 0, ()), opener)
    assert isinstance(page, Image.Image) and page.height > 150


@given(
    values=arrays(np.float32, st.integers(1, 400), elements=st.floats(0, 100, width=32) | st.just(np.nan)),
    width=st.integers(1, 120),
)
def test_columns_keep_the_largest_value_and_know_no_other(values, width):
    columns_X = column_maxima(values, width)
    known = np.nan_to_num(values, nan=0.0)
    assert len(columns_X) == width and set(columns_X.tolist()) <= set(known.tolist())
    if len(values) >= width:
        assert columns_X.max() == known.max()
