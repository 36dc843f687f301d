"""The checks of what cameras show: each at its weakest fault, and on what looks like one and is none."""

from __future__ import annotations

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from picture_samples import (
    STEPS,
    Luma,
    exposed,
    film,
    found_in,
    frame_of,
    scene,
    state,
    traced,
)
from PIL import Image, ImageFilter
from quality_samples import beyond, worst

from dyna_assets.quality.picture_facts import moving
from dyna_assets.quality.trace import CameraTrace


def good(step: int) -> Luma:
    return exposed(scene(step), step)


def shots(gain: float) -> list[av.VideoFrame]:
    return film(lambda step: exposed(scene(step), step, gain))


def garbage(share: float, at: set[int]) -> list[av.VideoFrame]:
    """The good film with this share of some pictures replaced by plain blocks."""

    def shot(step: int) -> Luma:
        luma_HW = good(step)
        if step in at:
            rng = np.random.default_rng(step)
            blocks = rng.permutation(48)[: round(48 * share)]
            for block in blocks.tolist():
                y, x = 16 * (block // 8), 16 * (block % 8)
                luma_HW[y : y + 16, x : x + 16] = rng.integers(16, 235)
        return luma_HW

    return film(shot)


def test_a_good_film_is_within_every_limit_and_every_check_of_pictures_measures_it() -> None:
    found = found_in(traced(film(good)))
    assert beyond(found, "warn") == set()
    assert [name for name, subjects in found.items() if not subjects] == ["video.readback"]


@pytest.mark.parametrize(("gain", "level"), [(0.0, "reject"), (0.08, "reject"), (0.11, "warn"), (0.2, "")])
def test_a_camera_is_dark_by_its_brightest_pixels(gain: float, level: str) -> None:
    found = found_in(traced(shots(gain)))
    assert ("camera.dark" in beyond(found, "reject")) == (level == "reject")
    assert ("camera.dark" in beyond(found, "warn")) == (level != "")


def test_a_dim_room_with_one_lamp_and_a_dim_top_view_are_not_dark() -> None:
    def lamp(step: int) -> Luma:
        light = 0.04 * scene(step)
        light[40:60, 60:80] = 0.5
        return exposed(light, step)

    found = found_in(traced(film(lamp)))
    assert worst(found, "camera.dark").value > 100
    assert "mean level 9" in worst(found, "camera.dark").note  # no brighter than a black camera's noise
    top = found_in(traced(shots(0.35)))  # mean level 46, as the simulator's top view
    assert beyond(top, "warn") == set()


def test_a_camera_that_is_dark_for_a_fifth_of_the_time_rejects_and_one_that_starts_dark_does_not() -> None:
    for num_dark, refused in ((STEPS // 5, True), (10, False)):
        gains = [0.0] * num_dark + [1.0] * (STEPS - num_dark)
        found = found_in(
            traced(frame_of(exposed(scene(step), step, gain)) for step, gain in enumerate(gains))
        )
        assert ("camera.dark" in beyond(found, "reject")) == refused
        assert worst(found, "camera.dark").spans == ((0.0, round((num_dark - 1) / 30, 3)),)


def test_a_picture_that_is_mostly_white_rejects_and_a_bright_window_does_not() -> None:
    found = found_in(traced(shots(4.0)))
    assert "camera.overexposed" in beyond(found, "reject")
    assert "Shorten its exposure" in worst(found, "camera.overexposed").note

    def window(step: int) -> Luma:
        light = scene(step)
        light[:20] = 1.2
        return exposed(light, step)

    assert beyond(found_in(traced(film(window))), "warn") == set()


def test_a_plain_picture_is_flat_and_one_behind_a_veil_is_not() -> None:
    plain = found_in(traced(film(lambda step: exposed(np.full((96, 128), 0.5), step))))
    assert "camera.flat" in beyond(plain, "reject")
    veiled = film(lambda step: exposed(0.5 * scene(step) + 0.25, step))
    assert "camera.flat" not in beyond(found_in(traced(veiled)), "warn")


def test_a_picture_out_of_focus_is_blurred_and_soft_or_noisy_ones_are_not() -> None:
    def out_of_focus(radius: float) -> list[av.VideoFrame]:
        def shot(step: int) -> Luma:
            picture = Image.fromarray(np.rint(255 * scene(step)).astype(np.uint8))
            blurred = np.asarray(picture.filter(ImageFilter.GaussianBlur(radius)))
            return exposed(blurred / 255, step)

        return film(shot)

    assert "camera.blurred" in beyond(found_in(traced(out_of_focus(6))), "warn")
    assert "camera.blurred" not in beyond(found_in(traced(out_of_focus(1))), "warn")
    noisy = film(
        lambda step: exposed(scene(step) + np.random.default_rng(step).normal(0, 0.05, (96, 128)), step)
    )
    assert "camera.blurred" not in beyond(found_in(traced(noisy)), "warn")


def frozen_for(first: int, stop: int) -> CameraTrace:
    return traced(film(lambda step: good(first if first <= step < stop else step)))


def test_a_picture_that_stands_still_while_the_robot_moves_is_frozen_and_says_when() -> None:
    one = worst(found_in(frozen_for(60, 90)), "camera.frozen")
    assert one.value == pytest.approx(29 / 30, abs=0.04)
    assert one.spans[0] == pytest.approx((2.0, 3.0), abs=0.05)
    assert "camera.frozen" in beyond(found_in(frozen_for(60, 90)), "warn")
    assert "camera.frozen" in beyond(found_in(frozen_for(40, 100)), "reject")
    assert beyond(found_in(frozen_for(60, 70)), "warn") == set()


def test_a_still_picture_of_a_still_robot_proves_nothing() -> None:
    still = traced(film(lambda step: exposed(scene(0), 0)))
    at_rest = found_in(still, state(travel=0.0))
    assert at_rest["camera.frozen"] == at_rest["camera.repeats"] == []
    assert beyond(at_rest, "warn") == set()


def test_a_robot_that_rests_while_the_picture_stands_does_not_make_it_frozen() -> None:
    arm = state()
    arm[60:] = arm[60]
    arm += np.random.default_rng(3).normal(0, 1e-3, arm.shape).astype(np.float32)
    assert worst(found_in(frozen_for(75, 150), arm), "camera.frozen").value < 0.5


def test_a_frozen_video_whose_keyframes_code_the_picture_anew_is_still_frozen() -> None:
    def coded(step: int) -> Luma:
        if not 40 <= step < 110:
            return good(step)
        coding = np.random.default_rng(step // 10).choice([0, 1], (96, 128))
        return np.asarray(np.clip(good(40) + coding, 16, 235), np.uint8)

    assert worst(found_in(traced(film(coded))), "camera.frozen").value > 2


def test_a_slow_camera_repeats_a_third_of_its_pictures_without_a_word_and_half_of_them_warns() -> None:
    third = traced(film(lambda step: good(step - (step % 3 == 2))))
    assert worst(found_in(third), "camera.repeats").value == pytest.approx(1 / 3, abs=0.02)
    assert beyond(found_in(third), "warn") == set()
    half = traced(film(lambda step: good(step - step % 2)))
    assert beyond(found_in(half), "warn") == {"camera.repeats"}


def test_what_only_the_grid_repeats_is_no_repeat_of_the_camera() -> None:
    half = traced(film(lambda step: good(step - step % 2)))
    slow_ns: NDArray[np.int64] = np.arange(STEPS) // 2 * 66_666_666
    assert worst(found_in(half, capture_ns_T=slow_ns), "camera.repeats").value == 0


def test_one_picture_with_a_third_of_garbage_warns_and_names_its_moment() -> None:
    one = worst(found_in(traced(garbage(0.34, {75}))), "camera.glitch")
    assert one.value == pytest.approx(1 / STEPS)
    assert one.spans == ((2.5, 2.5),)
    assert beyond(found_in(traced(garbage(0.34, {75}))), "warn") == {"camera.glitch"}
    assert "camera.glitch" in beyond(found_in(traced(garbage(0.5, {20, 50, 75, 100}))), "reject")


def test_garbage_that_lasts_until_the_next_keyframe_is_one_glitch() -> None:
    def shot(step: int) -> Luma:
        luma_HW = good(step)
        if 70 <= step < 74:
            luma_HW[32:] = np.random.default_rng(1).integers(16, 235, (64, 128)) // 32 * 32
        return luma_HW

    assert worst(found_in(traced(film(shot))), "camera.glitch").value == pytest.approx(4 / STEPS)


def test_a_cut_to_another_scene_or_a_light_that_goes_on_is_no_glitch() -> None:
    cut = film(lambda step: good(step) if step < 75 else np.ascontiguousarray(good(step)[::-1]))
    assert worst(found_in(traced(cut)), "camera.glitch").value == 0
    light = film(lambda step: exposed(scene(step), step, 0.6 if step < 75 else 1.0))
    assert worst(found_in(traced(light)), "camera.glitch").value == 0


def test_a_camera_without_a_single_picture_is_measured_by_its_frames_only() -> None:
    found = found_in(CameraTrace.empty(STEPS))
    assert {name for name, subjects in found.items() if subjects} == {"video.frames", "episode.steps"}


def test_a_gap_in_the_pictures_is_neither_dark_nor_frozen() -> None:
    frames = film(good)
    whole = traced(frames)
    for name in ("level_T", "low_T", "high_T", "clipped_T", "change_T", "sharpness_T"):
        getattr(whole, name)[50:100] = np.nan
    capture_ns = np.arange(STEPS) * 33_333_333
    capture_ns[50:100] = -1
    assert beyond(found_in(whole, capture_ns_T=capture_ns), "warn") == set()


def test_motion_is_more_than_the_noise_of_encoders_in_whatever_unit() -> None:
    rng = np.random.default_rng(0)
    noise = np.full((STEPS, 2), 12.0) + rng.normal(0, 0.1, (STEPS, 2))  # degrees
    assert not moving(noise.astype(np.float32), 30.0).any()
    assert moving((noise + 20 * state()).astype(np.float32), 30.0).mean() > 0.9
    assert not moving(np.zeros((STEPS, 0), np.float32), 30.0).any()
    assert not moving(np.full((STEPS, 2), np.nan, np.float32), 30.0).any()
    assert moving(np.zeros((1, 2), np.float32), 30.0).tolist() == [False]
