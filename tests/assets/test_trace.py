"""What a camera's trace says of its pictures, without decoding them twice."""

from __future__ import annotations

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from dyna_assets.quality.trace import CameraEye, CameraTrace, difference_hash, sharpness, traces_of
from dyna_train.errors import BadInput

HEIGHT, WIDTH = 240, 320


def picture(luma_HW: NDArray[np.uint8]) -> av.VideoFrame:
    frame = av.VideoFrame(luma_HW.shape[1], luma_HW.shape[0], "yuv420p")
    for plane, values in zip(
        frame.planes,
        (luma_HW, np.full((HEIGHT // 2, WIDTH // 2), 128), np.full((HEIGHT // 2, WIDTH // 2), 128)),
        strict=True,
    ):
        rows = np.zeros((values.shape[0], plane.line_size), np.uint8)
        rows[:, : values.shape[1]] = values
        plane.update(rows.tobytes())
    return frame


def flat(level: int) -> av.VideoFrame:
    return picture(np.full((HEIGHT, WIDTH), level, np.uint8))


def scene(seed: int = 0, *, cell: int = 16) -> NDArray[np.uint8]:
    """Squares of random brightness with hard edges."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(40, 220, (HEIGHT // cell, WIDTH // cell), np.uint8)
    return np.kron(cells, np.ones((cell, cell), np.uint8))


def blurred(luma_HW: NDArray[np.uint8], radius: int) -> NDArray[np.uint8]:
    kernel = np.ones(2 * radius + 1) / (2 * radius + 1)
    along = np.apply_along_axis(lambda row: np.convolve(row, kernel, "same"), 1, luma_HW.astype(float))
    return np.apply_along_axis(lambda row: np.convolve(row, kernel, "same"), 0, along).astype(np.uint8)


def traced(*frames: av.VideoFrame | None) -> CameraTrace:
    eye = CameraEye(len(frames))
    for step, frame in enumerate(frames):
        if frame is not None:
            eye.see(step, frame)
    return eye.trace


@pytest.mark.parametrize(
    ("luma", "level"), [(16, 0.0), (235, 255.0), (16 + 219 // 3, 85.0), (0, 0.0), (255, 255.0)]
)
def test_luma_of_limited_range_is_told_in_0_to_255(luma: int, level: float) -> None:
    trace = traced(flat(luma))
    assert trace.level_T[0] == pytest.approx(level, abs=0.01)
    assert trace.low_T[0] == trace.high_T[0] == pytest.approx(level, abs=0.01)


def test_the_overexposed_share_counts_points_from_250_on() -> None:
    luma = np.full((HEIGHT, WIDTH), 100, np.uint8)
    luma[:, : WIDTH // 4] = 235
    assert traced(picture(luma)).clipped_T[0] == pytest.approx(0.25, abs=0.01)


def test_a_repeated_picture_changes_by_nothing_and_the_first_one_has_no_change() -> None:
    first, again = picture(scene()), picture(scene())
    trace = traced(first, first, again, picture(scene(1)))
    assert np.isnan(trace.change_T[0])
    assert trace.change_T[1] == trace.change_T[2] == 0.0
    assert trace.change_T[3] > 10
    assert trace.hashes_T[0] == trace.hashes_T[1] == trace.hashes_T[2] != trace.hashes_T[3]


def test_a_brighter_scene_by_ten_levels_changes_by_ten_levels() -> None:
    trace = traced(flat(100), flat(110))
    assert trace.change_T[1] == pytest.approx(10 * 255 / 219, rel=1e-3)


def test_a_step_without_a_picture_is_nan_and_the_next_is_compared_with_the_last_one_seen() -> None:
    trace = traced(flat(100), None, flat(100))
    assert list(trace.seen_T) == [True, False, True]
    assert np.isnan(trace.change_T[1]) and trace.change_T[2] == 0.0
    assert trace.hashes_T[1] == 0


def test_sharpness_falls_with_every_blur_and_a_flat_picture_has_none() -> None:
    values = [
        sharpness(blurred(scene(), radius)) if radius else sharpness(scene()) for radius in (0, 2, 5, 10)
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.3 > values[-1]
    assert np.isnan(sharpness(np.full((HEIGHT, WIDTH), 90, np.uint8)))


def test_noise_of_a_sensor_leaves_the_hash_of_a_scene_almost_as_it_was() -> None:
    noisy = np.clip(scene() + np.random.default_rng(1).normal(0, 4, (HEIGHT, WIDTH)), 0, 255).astype(np.uint8)
    different = difference_hash(scene()) ^ difference_hash(noisy)
    assert different.bit_count() <= 3
    assert (difference_hash(scene()) ^ difference_hash(scene(5))).bit_count() > 15


@pytest.mark.parametrize("size", [(1, 1), (2, 9), (7, 300), (241, 321)])
def test_odd_and_tiny_pictures_have_a_trace(size: tuple[int, int]) -> None:
    frame = av.VideoFrame(size[1] + size[1] % 2, size[0] + size[0] % 2, "yuv420p")
    for plane in frame.planes:
        plane.update(bytes([120]) * plane.buffer_size)
    assert traced(frame, frame).level_T[1] == pytest.approx((120 - 16) * 255 / 219, rel=1e-3)


def test_a_trace_comes_back_from_the_warehouse_to_eleven_bits() -> None:
    trace = traced(picture(scene()), None, picture(scene(1)))
    back = CameraTrace.from_bytes(trace.to_bytes())
    np.testing.assert_allclose(back.level_T, trace.level_T, rtol=1e-3)
    np.testing.assert_allclose(back.change_T, trace.change_T, rtol=1e-3)
    np.testing.assert_array_equal(back.hashes_T, trace.hashes_T)


def test_traces_of_another_episode_file_are_none_of_this_one() -> None:
    rows = [
        {"camera": camera, "content_hash": made_of, "trace": CameraTrace.empty(num_steps).to_bytes()}
        for camera, made_of, num_steps in (("top", "old", 9), ("top", "new", 4), ("wrist", "old", 9))
    ]
    assert {camera: trace.num_steps for camera, trace in traces_of(rows, "new").items()} == {"top": 4}


@pytest.mark.parametrize("data", [b"", b"nonsense", CameraTrace.empty(3).to_bytes()[:-9]])
def test_bytes_that_are_no_trace_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput, match="not the trace of a camera"):
        CameraTrace.from_bytes(data)
