"""A two-hour episode is looked at by a few of its frames, in bounded memory and time."""

from __future__ import annotations

import time
import tracemalloc

import av
import numpy as np
import pytest
from page_samples import facts, header

from dyna_assets.look.page import draw_page
from dyna_assets.look.preview import plan_preview, preview_pictures, write_preview
from dyna_assets.look.sheet import contact_sheet
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import grid_times_ns
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import CameraEncoder, Quality

# A step a second, so that the file is made in two seconds; at 30 the same bounds hold, but for the memory of
# what has a value a step: 120 MB.
RATE_HZ, NUM_STEPS, GOP = 1.0, 2 * 3600, 2
CAMERA = CameraTrack("top", 64, 48)


def one_gop() -> list[bytes]:
    """The packets of a GOP that grows brighter."""
    encoder = CameraEncoder("top", 64, 48, rate_hz=RATE_HZ, gop=GOP, quality=Quality(30))
    packets: list[bytes] = []
    for step in range(GOP):
        picture = np.full((48, 64, 3), step * 80, np.uint8)
        packets += encoder.encode(av.VideoFrame.from_ndarray(picture, "rgb24"), step)
    return packets + encoder.flush()


@pytest.fixture(scope="module")
def two_hours(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "episode.mcap"
    described = header([CAMERA], num_steps=NUM_STEPS, rate_hz=RATE_HZ)
    grid_T = grid_times_ns(described.start_ns, RATE_HZ, NUM_STEPS)
    vectors = {
        track.topic: (np.zeros((NUM_STEPS, track.dim), np.float32), grid_T) for track in described.vectors
    }
    packets = one_gop()
    with EpisodeWriter.create(
        path,
        described,
        EpisodeLayout(GOP, 1, GOP),
        quality=Quality(30),
        vectors=vectors,
        copied={"top": "copied: from a test"},
    ) as writer:
        for step, time_ns in enumerate(grid_T.tolist()):
            writer.add_packet("top", packets[step % GOP], time_ns)
        writer.finish()
    return path


def test_pages_and_films_of_two_hours_decode_a_few_gops_and_hold_little(two_hours, tmp_path):
    began_s = time.process_time()
    tracemalloc.start()
    with Episode.open(two_hours) as episode:
        draw_page(episode, facts(traces={}, duration_s=7200.0))
        contact_sheet(episode)
        for_pages = episode.counters.decoded
        plan = plan_preview(episode.num_steps, GOP)
        shown = write_preview(tmp_path / "film.mp4", preview_pictures(episode, plan), plan.fps)
        for_film = episode.counters.decoded - for_pages
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert for_pages <= 13 + 2 * GOP and for_film == len(shown) == 150
    assert peak_bytes < 40e6
    assert time.process_time() - began_s < 10
