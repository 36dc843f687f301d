from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyna_train.episode.layout import (
    BLOCK_S,
    LOCAL_STORE,
    PATTERNS,
    REMOTE_STORE,
    ReadPattern,
    candidate_gops,
)
from dyna_train.episode.planning import (
    MAX_CHUNK_BYTES,
    MAX_CHUNK_S,
    MIN_CHUNK_BYTES,
    decoded_per_camera,
    layout_with_gop,
    plan_layout,
    touched_gops,
)
from dyna_train.episode.sizes import CameraSizes, SizeModel, StateSizes
from dyna_train.errors import BadInput
from dyna_train.video.encode import CameraEncoder, Quality

GOPS = (2, 6, 10, 15, 30, 60, 120, 300)
THREE_CAMERAS = SizeModel.assumed([(640, 480)] * 3, Quality(18), dims=(14, 14))

cameras = st.builds(
    lambda other, ratio: CameraSizes(keyframe_bytes=ratio * other, other_bytes=other),
    other=st.floats(20, 2e5),
    ratio=st.floats(1, 30),
)
size_models = st.builds(
    SizeModel,
    cameras=st.lists(cameras, max_size=6).map(tuple),
    state=st.builds(StateSizes, num_topics=st.integers(1, 8), step_bytes=st.floats(10, 2000)),
)
patterns = st.builds(
    ReadPattern,
    name=st.just("any"),
    frame_offsets_s=st.sets(st.fractions(0, 3, max_denominator=30), min_size=1, max_size=20).map(
        lambda offsets: tuple(sorted(offsets))
    ),
    horizon_s=st.floats(0, 3),
    decode_price=st.floats(0, 1),
)
rates = st.floats(0.2, 1000)
stores = st.sampled_from([REMOTE_STORE, LOCAL_STORE])


@pytest.mark.parametrize(
    ("offsets", "decoded"),
    [
        ([0], (1.5, 3.5, 5.5, 8, 15.5, 30.5, 60.5, 150.5)),
        ([0, 6], (3, 7, 10, 13, 21, 36.25, 66.375, 156.45)),
        (range(0, 48, 6), (12, 28, 37, 43, 54, 70.75, 101.625, 192.15)),
        (range(0, 48, 3), (24, 41, 46, 50, 59, 74.75, 105.125, 195.35)),
        (range(48), (48.5, 50.5, 52.5, 55, 62.5, 77.5, 107.5, 197.5)),
    ],
)
def test_decoded_frames_of_the_measured_patterns_are_those_of_the_measured_table(offsets, decoded):
    assert [decoded_per_camera(list(offsets), gop) for gop in GOPS] == pytest.approx(decoded, rel=1e-12)


@given(offsets=st.sets(st.integers(-20, 80), min_size=1, max_size=12), gop=st.integers(1, 40))
def test_decoded_frames_is_the_mean_over_phases_of_what_a_decoder_would_run(offsets, gop):
    runs = touched = 0
    for phase in range(gop):
        last_in_gop: dict[int, int] = {}
        for step in sorted(phase + offset for offset in offsets):
            last_in_gop[step // gop] = step % gop + 1
        runs += sum(last_in_gop.values())
        touched += len(last_in_gop)
    assert decoded_per_camera(sorted(offsets), gop) == pytest.approx(runs / gop)
    assert touched_gops(sorted(offsets), gop) == pytest.approx(touched / gop)


@pytest.mark.parametrize(("pattern", "gop"), [("vla", 15), ("mixed", 30), ("wam", 60)])
@pytest.mark.parametrize("crf", [16, 18, 20, 23])
def test_at_thirty_hertz_each_pattern_gets_its_known_gop(pattern, gop, crf):
    sizes = SizeModel.assumed([(640, 480)] * 3, Quality(crf), dims=(14, 14))
    layout = plan_layout(PATTERNS[pattern], 30.0, sizes=sizes)
    assert layout.gop == gop
    assert 0.5e6 < layout.steps_per_chunk * sizes.video_step_bytes(gop) < 3e6


def test_a_dearer_decoder_gets_a_shorter_gop():
    dear = ReadPattern("dear", PATTERNS["mixed"].frame_offsets_s, horizon_s=1.6, decode_price=0.5)
    assert plan_layout(dear, 30.0, sizes=THREE_CAMERAS).gop < 30


def test_footage_whose_keyframes_weigh_little_more_than_other_frames_gets_a_shorter_gop():
    sizes = SizeModel((CameraSizes(keyframe_bytes=2000, other_bytes=1000),), StateSizes(2, 100))
    assert plan_layout(PATTERNS["mixed"], 30.0, sizes=sizes).gop < 30


@settings(max_examples=60)
@given(pattern=patterns, rate_hz=rates, sizes=size_models, store=stores)
def test_a_planned_gop_nests_in_two_seconds_and_a_block_is_no_shorter(pattern, rate_hz, sizes, store):
    layout = plan_layout(pattern, rate_hz, sizes=sizes, store=store)
    assert layout.gop == 1 or layout.gop <= 2 * Fraction(rate_hz)
    assert layout.gop in candidate_gops(rate_hz)
    assert layout.steps_per_block % layout.steps_per_chunk == 0
    assert BLOCK_S * Fraction(rate_hz) <= layout.steps_per_block
    assert layout.steps_per_block < BLOCK_S * Fraction(rate_hz) + layout.steps_per_chunk


@settings(max_examples=60)
@given(pattern=patterns, rate_hz=rates, sizes=size_models, store=stores, gop=st.integers(1, 400))
def test_a_chunk_keeps_its_bounds_or_is_as_near_to_them_as_whole_gops_can(
    pattern, rate_hz, sizes, store, gop
):
    layout = layout_with_gop(gop, pattern, rate_hz, sizes=sizes, store=store)
    gop_bytes = gop * sizes.video_step_bytes(gop)
    chunk_bytes = layout.gops_per_chunk * gop_bytes
    longer_s = (layout.steps_per_chunk + gop) / Fraction(rate_hz)
    assert layout.gop == gop
    assert chunk_bytes <= MAX_CHUNK_BYTES * 1.000001 or layout.gops_per_chunk == 1
    assert layout.steps_per_chunk <= MAX_CHUNK_S * Fraction(rate_hz) or layout.gops_per_chunk == 1
    assert (
        chunk_bytes >= MIN_CHUNK_BYTES * 0.999999
        or longer_s > MAX_CHUNK_S
        or chunk_bytes + gop_bytes > MAX_CHUNK_BYTES
    )


def test_a_slow_store_gets_chunks_no_smaller_than_a_fast_one():
    for pattern in PATTERNS.values():
        remote = plan_layout(pattern, 30.0, sizes=THREE_CAMERAS, store=REMOTE_STORE)
        local = plan_layout(pattern, 30.0, sizes=THREE_CAMERAS, store=LOCAL_STORE)
        assert local.steps_per_chunk <= remote.steps_per_chunk


def test_an_episode_without_cameras_gets_a_layout_too():
    layout = plan_layout(PATTERNS["mixed"], 30.0, sizes=SizeModel.assumed([], Quality(18), dims=(7,)))
    assert layout.gop == 30


@pytest.mark.parametrize("rate_hz", [0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_is_not_positive_is_refused(rate_hz):
    with pytest.raises(BadInput, match=f"rate_hz = {rate_hz}: expected a positive number"):
        plan_layout(PATTERNS["vla"], rate_hz, sizes=THREE_CAMERAS)


def test_a_gop_that_is_not_positive_is_refused():
    with pytest.raises(BadInput, match="gop = 0: expected at least one step"):
        layout_with_gop(0, PATTERNS["vla"], 30.0, sizes=THREE_CAMERAS)


@given(camera=cameras, gop=st.integers(1, 600))
def test_a_longer_gop_never_costs_more_bytes(camera, gop):
    assert camera.bytes_per_frame(gop + 1) <= camera.bytes_per_frame(gop)
    assert camera.other_bytes <= camera.bytes_per_frame(gop) <= camera.keyframe_bytes


@given(crf=st.integers(0, 50), width=st.integers(16, 4000), height=st.integers(16, 4000))
def test_assumed_bytes_fall_with_crf_and_follow_the_pixels(crf, width, height):
    size = CameraSizes.assumed(width, height, Quality(crf))
    worse = CameraSizes.assumed(width, height, Quality(crf + 1))
    double = CameraSizes.assumed(2 * width, height, Quality(crf))
    assert worse.other_bytes < size.other_bytes
    assert double.other_bytes == pytest.approx(2 * size.other_bytes)
    assert CameraSizes.assumed(width, height, Quality(crf, fast_decode=True)).other_bytes > size.other_bytes


@pytest.mark.parametrize(("crf", "mb"), [(16, 24.1), (18, 14.8), (20, 9.2), (23, 5.4)])
def test_assumed_bytes_are_the_measured_ones_where_they_were_measured(crf, mb):
    size = CameraSizes.assumed(640, 480, Quality(crf))
    assert size.bytes_per_frame(60) * 1800 / 1e6 == pytest.approx(mb)
    assert size.keyframe_bytes / size.other_bytes == pytest.approx(7)


def test_a_fit_gives_back_the_bytes_of_both_trials_even_where_the_last_gop_is_short():
    frames = list(noisy_frames(num_frames=100))
    size = CameraSizes.fitted(frames, rate_hz=30.0, quality=Quality(20))
    for gop, num_keyframes in ((10, 10), (60, 2)):
        encoder = CameraEncoder("again", 96, 64, rate_hz=30.0, gop=gop, quality=Quality(20))
        packets = [packet for step, frame in enumerate(frames) for packet in encoder.encode(frame, step)]
        packets += encoder.flush()
        predicted = num_keyframes * size.keyframe_bytes + (100 - num_keyframes) * size.other_bytes
        assert sum(map(len, packets)) == pytest.approx(predicted)


def test_a_scene_that_stands_still_is_fitted_with_positive_bytes():
    grey = av.VideoFrame.from_ndarray(np.full((96, 96), 128, np.uint8), "yuv420p")
    size = CameraSizes.fitted([grey] * 60, rate_hz=30.0, quality=Quality(20))
    assert size.keyframe_bytes > size.other_bytes >= 1


def test_too_few_frames_for_a_fit_are_refused_with_the_camera_and_the_need():
    with pytest.raises(BadInput, match="camera wrist: 59 frames to try, expected at least 60"):
        CameraSizes.fitted(noisy_frames(59), rate_hz=30.0, quality=Quality(20), name="wrist")


def test_an_episode_without_vectors_has_no_state_bytes():
    assert StateSizes.fitted({}, rate_hz=30.0) == StateSizes(0, 0.0)


def noisy_frames(num_frames: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    for _ in range(num_frames):
        yuv = np.full((96, 96), 128, np.uint8)
        yuv[:64] = np.clip(rng.normal(128, 3, (64, 96)), 0, 255)
        yield av.VideoFrame.from_ndarray(yuv, "yuv420p")
