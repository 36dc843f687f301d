"""Painted numbers: they survive what the path does to a picture."""

from __future__ import annotations

from io import BytesIO

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from dyna_assets.simulate import paint_number, read_paint

NUMBERS = st.integers(0, 65_535)


def noisy(seed: int, height: int = 240, width: int = 320) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(14, 242, (height, width, 3), dtype=np.uint8)


@given(number=NUMBERS, height=st.integers(20, 300), width=st.integers(64, 500))
def test_a_painted_number_is_read_back_at_any_size(number: int, height: int, width: int) -> None:
    rgb = noisy(0, height, width)
    paint_number(rgb, number)
    assert read_paint(rgb) == number


@settings(max_examples=40)
@given(number=NUMBERS)
def test_a_painted_number_survives_jpeg_and_a_resize_to_half(number: int) -> None:
    rgb = noisy(1)
    paint_number(rgb, number)
    file = BytesIO()
    Image.fromarray(rgb).save(file, "JPEG", quality=50)
    half = Image.open(file).resize((160, 120), Image.Resampling.BILINEAR)
    assert read_paint(np.asarray(half)) == number


def test_painted_numbers_survive_h264_at_crf_28_and_a_resize_to_half() -> None:
    numbers = [*range(20), 0xAAAA, 0x5555, 0xFFFF, 0]
    file = BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=30, options={"crf": "28", "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for seed, number in enumerate(numbers):
            rgb = noisy(seed)
            paint_number(rgb, number)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        container.mux(stream.encode())
    file.seek(0)
    with av.open(file) as container:
        pictures = [frame.to_image() for frame in container.decode(video=0)]
    halves = [np.asarray(picture.resize((160, 120), Image.Resampling.BILINEAR)) for picture in pictures]
    assert [read_paint(half) for half in halves] == numbers


def test_the_rest_of_the_picture_is_left_as_it_was() -> None:
    before, after = noisy(2), noisy(2)
    paint_number(after, 12_345)
    np.testing.assert_array_equal(before[24:], after[24:])


def test_a_picture_without_paint_is_refused_and_the_cell_named() -> None:
    with pytest.raises(ValueError, match=r"no painted number: cell 0 \(x 0 to 20\) has mean level 128"):
        read_paint(np.full((240, 320, 3), 128, np.uint8))


@pytest.mark.parametrize("number", [-1, 65_536])
def test_a_number_that_does_not_fit_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=rf"cannot paint {number}: 16 cells hold 0 to 65,535"):
        paint_number(noisy(0), number)


def test_a_picture_too_small_for_the_cells_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"a picture of 48x48 is too small for a painted number; the least is 64x20"
    ):
        paint_number(noisy(0, 48, 48), 1)
