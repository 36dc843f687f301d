"""Pictures as files: sizes, colours that survive, whole or absent."""

from __future__ import annotations

import io

import numpy as np
import pytest
from page_samples import near
from PIL import Image

from dyna_assets.look.badge import LOOKS, draw_badge
from dyna_assets.look.image import jpeg_within, picture_path, png_within, save_picture, webp_within
from dyna_train.errors import BadInput


def noisy(width: int = 900, height: int = 500) -> Image.Image:
    """The hardest picture to make small, with a badge of every verdict on it."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    page = Image.fromarray(pixels)
    x = 10
    for outcome in LOOKS:
        x = draw_badge(page, (x, 10), outcome, 46) + 10
    return page


@pytest.mark.parametrize("encode", [jpeg_within, webp_within, png_within])
@pytest.mark.parametrize("limit", [3_000, 40_000, 400_000])
def test_a_picture_is_made_to_fit_its_limit(encode, limit):
    data = encode(noisy(), limit)
    assert 0 < len(data) <= limit
    assert Image.open(io.BytesIO(data)).size[0] >= 32


def test_few_colours_keep_the_colours_of_the_verdicts():
    small = Image.open(io.BytesIO(png_within(noisy(), 400_000))).convert("RGB")
    assert small.width == 900  # colours went, not pixels
    x = 10
    for outcome, look in LOOKS.items():
        assert near(small, (x + 60, 13), look.ground, far=48), outcome
        x = draw_badge(Image.new("RGB", (900, 80)), (x, 10), outcome, 46) + 10


def test_a_page_of_text_and_plots_keeps_its_colours_exactly_enough():
    page = Image.new("RGB", (1440, 900), "#ffffff")
    draw_badge(page, (10, 10), "warn", 46)
    small = Image.open(io.BytesIO(png_within(page, 400_000))).convert("RGB")
    assert near(small, (70, 13), LOOKS["warn"].ground, far=8)


@pytest.mark.parametrize(("name", "form"), [("a.png", "PNG"), ("a.jpg", "JPEG"), ("a.JPEG", "JPEG")])
def test_the_suffix_decides_the_format_and_an_old_file_is_replaced(tmp_path, name, form):
    path = picture_path(str(tmp_path / "new" / name))
    save_picture(noisy(60, 40), path)
    save_picture(Image.new("RGB", (30, 20)), path)
    with Image.open(path) as saved:
        assert (saved.format, saved.size) == (form, (30, 20))
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_another_suffix_and_a_store_are_refused():
    with pytest.raises(
        BadInput, match=r"page\.gif: expected a name that ends in \.png, \.jpg, \.jpeg, found '\.gif'"
    ):
        picture_path("page.gif")
    with pytest.raises(BadInput, match="name a local path"):
        picture_path("s3://bucket/page.png")
