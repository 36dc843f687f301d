"""The film of an episode: which steps it shows, and that browsers can play it."""

from __future__ import annotations

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_samples import CAMERAS, GOP, header, write_episode

from dyna_assets.look.preview import (
    MAX_FPS,
    MAX_SECONDS,
    WIDTH,
    plan_preview,
    preview_pictures,
    write_preview,
)
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack


@given(num_steps=st.integers(1, 1_000_000), gop=st.integers(1, 240))
def test_a_film_is_short_starts_with_the_first_step_and_keeps_an_even_distance(num_steps, gop):
    plan = plan_preview(num_steps, gop)
    assert 1 <= len(plan.steps) <= MAX_FPS * MAX_SECONDS
    assert plan.fps <= MAX_FPS and plan.seconds <= MAX_SECONDS
    assert plan.steps[0] == 0 and plan.steps[-1] < num_steps
    assert len(set(np.diff(plan.steps))) <= 1


@given(num_gops=st.integers(12, 20_000), gop=st.integers(1, 240))
def test_only_keyframes_are_shown_where_there_are_enough(num_gops, gop):
    plan = plan_preview(num_gops * gop, gop)
    assert all(step % gop == 0 for step in plan.steps)
    assert len(plan.steps) >= min(num_gops, 12)


@pytest.fixture
def film(tmp_path):
    """A film of an episode with a gap, and its pictures."""
    path = write_episode(tmp_path / "episode.mcap", gaps={"wrist": [range(24, 36)]})
    with Episode.open(path) as episode:
        plan = plan_preview(episode.num_steps, GOP)
        pictures = write_preview(tmp_path / "film.mp4", preview_pictures(episode, plan), plan.fps)
    return tmp_path / "film.mp4", plan, pictures


def test_the_film_is_h264_that_browsers_play_while_it_loads(film):
    path, plan, pictures = film
    with av.open(str(path)) as container:
        (stream,) = container.streams.video
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert stream.width == WIDTH and stream.height % 2 == 0
        assert stream.average_rate == plan.fps
        assert len(list(container.decode(stream))) == len(plan.steps) == len(pictures)
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def test_cameras_stand_side_by_side_and_a_gap_is_hatched(film):
    _, plan, pictures = film
    shown = dict(zip(plan.steps, pictures, strict=True))
    bright = shown[30].crop((20, 20, 140, 90))
    assert np.asarray(bright).mean() == pytest.approx(90, abs=4) and np.asarray(bright).std() < 3
    assert np.asarray(shown[30].crop((180, 20, 300, 90))).std() > 5
    assert np.asarray(shown[12].crop((180, 20, 300, 90))).std() < 3


def test_a_film_decodes_one_frame_a_gop(tmp_path):
    path = write_episode(tmp_path / "episode.mcap", header(CAMERAS[:1], num_steps=40 * GOP))
    with Episode.open(path) as episode:
        plan = plan_preview(episode.num_steps, GOP)
        list(preview_pictures(episode, plan))
        assert episode.counters.decoded == len(plan.steps) == 40


@pytest.mark.parametrize("num_cameras", [1, 3, 5, 17])
def test_any_number_of_cameras_keeps_the_width(tmp_path, num_cameras):
    cameras = [CameraTrack(f"camera_{number}", 33, 17) for number in range(num_cameras)]
    path = write_episode(tmp_path / "episode.mcap", header(cameras, (), num_steps=2))
    with Episode.open(path) as episode:
        first = next(preview_pictures(episode, plan_preview(2, GOP)))
    assert first.width == WIDTH and first.height % 2 == 0
