"""Pictures as files of a bounded size."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from dyna_train.errors import BadInput
from dyna_train.files import local_path, publish

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_COLOURS = (256, 128, 64, 32, 16)
_QUALITIES = (80, 60, 40, 25)


def picture_path(text: str) -> Path:
    """Where to write a picture. Raises BadInput for the address of a store, or an unknown suffix."""
    path = local_path(text)
    if path.suffix.lower() not in FORMATS:
        raise BadInput(f"{text}: expected a name that ends in {', '.join(FORMATS)}, found '{path.suffix}'")
    return path


def save_picture(picture: Image.Image, path: Path) -> None:
    """Publish the picture under `path`, in the format of its suffix; an existing file is replaced whole."""
    with publish(path) as part:
        picture.save(part, FORMATS[path.suffix.lower()], quality=88)


def jpeg_within(picture: Image.Image, max_bytes: int) -> bytes:
    """JPEG at the best quality that keeps the limit, at a smaller size if no quality does."""
    return _lossy_within(picture, max_bytes, "JPEG")


def webp_within(picture: Image.Image, max_bytes: int) -> bytes:
    """WebP likewise: half the bytes of JPEG where letters and frames stand side by side."""
    return _lossy_within(picture, max_bytes, "WEBP")


def _lossy_within(picture: Image.Image, max_bytes: int, form: str) -> bytes:
    while True:
        for quality in _QUALITIES:
            data = _saved(picture, form, quality=quality)
            if len(data) <= max_bytes:
                return data
        picture = _halved(picture)


def png_within(picture: Image.Image, max_bytes: int) -> bytes:
    """PNG with as many colours as keep the limit, at a smaller size if no number does."""
    while True:
        for reduced in _with_fewer_colours(picture):
            data = _saved(reduced, "PNG", compress_level=6)
            if len(data) <= max_bytes:
                return data
        picture = _halved(picture)


def _halved(picture: Image.Image) -> Image.Image:
    return picture.resize((max(picture.width // 2, 1), max(picture.height // 2, 1)))


def _with_fewer_colours(picture: Image.Image) -> Iterator[Image.Image]:
    """Without dithering, whose noise costs more bytes than the colours save.

    Median cut would paint a small orange mark in the red of a large picture; an octree keeps rare colours, and
    takes a tenth of the time.
    """
    for colours in _COLOURS:
        yield picture.quantize(colours, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


def _saved(picture: Image.Image, form: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()
