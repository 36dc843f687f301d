"""A grid of a camera's frames: none repeated or skipped, whatever its clock does; another rate is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from align_samples import SECOND, START, source
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.steps.align import TOLERANCE_NS, Alignment, Series, align
from dyna_train.episode.profile import grid_times_ns

JITTERS_S, LOSSES, SEEDS = st.floats(0, 0.012), st.floats(0, 0.2), st.integers(0, 2**32 - 1)


def shaken(rate_hz: float, num: int, jitter_s: float, lost: float, seed: int) -> NDArray[np.int64]:
    """Times of a camera with uniform jitter that loses frames at random."""
    rng = np.random.default_rng(seed)
    times_s = np.arange(num) / rate_hz + rng.uniform(-jitter_s, jitter_s, num)
    return START + np.rint(times_s[rng.random(num) >= lost] * SECOND).astype(np.int64)


def laid(camera: NDArray[np.int64], **grid: object) -> Alignment:
    """With a state that begins a second before the camera and ends a second after it."""
    num = int(camera[-1] - camera[0]) // (SECOND // 100) + 200
    imu = grid_times_ns(int(camera[0]) - SECOND, 100.0, num)
    profile = source(reference="scene", **grid)
    return align(profile, {"/scene": camera}, {"/imu": Series(imu, np.ones((num, 1)))})


@given(SEEDS, st.floats(0, 0.3), st.floats(0.1, 0.6))
def test_a_reference_camera_is_neither_repeated_nor_skipped(seed: int, lost: float, gap_s: float) -> None:
    camera = shaken(30.0, 300, 0.012, lost, seed)
    imu = grid_times_ns(START + SECOND, 100.0, 700)
    profile = source(reference="scene", max_gap_s=gap_s)
    made = align(profile, {"/scene": camera}, {"/imu": Series(imu, np.ones((700, 1)))})
    frames = made.frames["scene"]
    inside = (camera >= imu[0] - TOLERANCE_NS) & (camera <= imu[-1] + TOLERANCE_NS)
    assert frames[frames >= 0].tolist() == np.flatnonzero(inside).tolist()
    assert (np.diff(made.grid_T) > 0).all()
    filled = np.diff(made.grid_T)[(frames[1:] < 0) | (frames[:-1] < 0)]
    assert (np.abs(filled / SECOND * 30 - 1) < 0.5).all(), "steps in a hole are about a period apart"


@given(JITTERS_S, LOSSES, st.floats(-5000, 5000), st.integers(60, 2000), SEEDS)
@example(jitter_s=0.012, lost=0.2, drift_ppm=5000.0, num=60, seed=0)
@example(jitter_s=0.012, lost=0.02, drift_ppm=-5000.0, num=2000, seed=1)
def test_a_camera_that_shakes_loses_frames_and_drifts_keeps_the_rate_it_was_meant_to_have(
    jitter_s: float, lost: float, drift_ppm: float, num: int, seed: int
) -> None:
    camera = shaken(30.0 * (1 + drift_ppm / 1e6), num, jitter_s, lost, seed)
    made = laid(camera, max_gap_s=2.0)
    assert made.frames["scene"].tolist() == list(range(len(camera)))
    assert (made.grid_T == camera).all()
    assert made.rate_hz == 30.0, "the profile's, so that all episodes of a source have the same"


@given(
    st.one_of(st.floats(4, 29.4), st.floats(30.6, 120)),
    st.floats(0, 0.1),
    LOSSES,
    st.integers(60, 2000),
    SEEDS,
)
@example(rate_hz=15.0, jitter=0.0, lost=0.0, num=60, seed=0)
@example(rate_hz=20.0, jitter=0.1, lost=0.2, num=60, seed=0)
@example(rate_hz=60.0, jitter=0.1, lost=0.2, num=60, seed=0)
def test_a_camera_of_another_rate_is_refused_with_its_own_though_it_shakes_and_loses_frames(
    rate_hz: float, jitter: float, lost: float, num: int, seed: int
) -> None:
    camera = shaken(rate_hz, num, jitter / rate_hz, lost, seed)
    with pytest.raises(RecordingError, match=r"/scene come at .* Hz, grid.rate_hz says 30\.") as refused:
        laid(camera, max_gap_s=60.0)
    assert refused.value.check == "time.reference_rate"
    said = re.search(r"come at ([\d.e+]+) Hz", str(refused.value))
    assert said and float(said[1]) == pytest.approx(rate_hz, rel=0.02)


def test_the_grid_says_how_often_its_steps_come_and_what_was_lost() -> None:
    whole = grid_times_ns(START, 29.97, 300)
    kept = whole[np.arange(300) % 5 != 2]
    assert laid(whole).grid_note == "frames of scene, 29.97 a second"
    assert laid(kept).grid_note == "frames of scene, 23.96 a second: 60 of 300 at 29.97 Hz were lost"
    assert laid(whole[:1]).grid_note == "frames of scene"
    assert laid(whole).duration_s == pytest.approx(10, abs=0.011)
    assert laid(kept).duration_s == pytest.approx(10, abs=0.011), "and not the 8 s of 240 steps at 30 Hz"
