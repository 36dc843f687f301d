"""Text on a picture, in any script, at a size in pixels.

Pillow brings one scalable font, which has little more than ASCII. Text it cannot write is looked for in the
fonts of the machine; a letter that no font has becomes its base letter (an accent is lost) or an empty box.
Our own labels are ASCII, so that a sheet looks the same everywhere.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import Literal

from PIL import Image, ImageDraw, ImageFont

from dyna_train.look.palette import INK

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Align = Literal["left", "center", "right"]

LABEL_SIZE = 13
SMALL_SIZE = 12  # nothing on a sheet is smaller

_LINE_HEIGHT = 1.3
_BASELINE = 0.98  # of the size, below the top of the line
_ELLIPSIS = "..."
_NOWHERE = "\uffff"  # not a character: every font shows its box for it
# Tried in this order where the default font lacks a letter; names as Linux, macOS and Windows have them.
_OTHER_FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "wqy-microhei.ttc",
    "Arial Unicode.ttf",
    "Arial.ttf",
    "msyh.ttc",
    "malgun.ttf",
    "NotoSansArabic-Regular.ttf",
    "NotoSansHebrew-Regular.ttf",
    "NotoSansDevanagari-Regular.ttf",
    "NotoSansThai-Regular.ttf",
)


def line_height(size: int) -> int:
    """Pixels from one line of text of `size` pixels to the next."""
    return round(size * _LINE_HEIGHT)


def text_width(text: str, size: int) -> float:
    """Pixels that `write` needs for `text`."""
    return sum(font.getlength(part) for font, part in _runs(text, size))


def fit(text: str, size: int, width: float) -> str:
    """`text`, or its beginning and `...`, so that it is at most `width` pixels wide."""
    if text_width(text, size) <= width:
        return text
    low, high = 0, len(text)  # the longest beginning that fits
    while low < high:
        middle = (low + high + 1) // 2
        if text_width(text[:middle].rstrip() + _ELLIPSIS, size) <= width:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip() + _ELLIPSIS


def wrap(text: str, size: int, width: float, max_lines: int) -> list[str]:
    """`text` in at most `max_lines` lines of at most `width` pixels, cut between words where it can be."""
    lines: list[str] = []
    rest = " ".join(text.split())
    while rest and len(lines) < max_lines - 1 and text_width(rest, size) > width:
        end = len(fit(rest, size, width)) - len(_ELLIPSIS)
        while end < len(rest) and text_width(rest[: end + 1], size) <= width:
            end += 1
        cut = rest.rfind(" ", 0, end + 1)
        cut = cut if cut > end // 2 else max(end, 1)  # scripts without spaces, and very long words
        lines.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*lines, fit(rest, size, width)] if rest else lines


def can_write(text: str) -> bool:
    """True if every letter of `text` has a glyph in some font of this machine."""
    return all(
        any(_has(name, letter) for name in _fonts_for(letter)) for letter in text if letter.isprintable()
    )


def write(
    page: Image.Image,
    xy: tuple[float, float],
    text: str,
    size: int,
    colour: str = INK,
    align: Align = "left",
) -> None:
    """Write one line; xy: its top and its left end, middle or right end, as `align` says."""
    draw = ImageDraw.Draw(page)
    x, top = xy
    x -= text_width(text, size) * {"left": 0.0, "center": 0.5, "right": 1.0}[align]
    for font, part in _runs(text, size):
        draw.text((x, top + size * _BASELINE), part, font=font, fill=colour, anchor="ls")
        x += font.getlength(part)


def _runs(text: str, size: int) -> Iterator[tuple[Font, str]]:
    """Stretches of `text` with the font that writes each: one font for all of it if there is one."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    whole = next((name for name in _fonts_for(text) if all(_has(name, letter) for letter in text)), None)
    if whole is not None:
        yield _font(whole, size), text
        return
    styled = [_letter(letter) for letter in text]
    for name, letters in groupby(styled, key=lambda pair: pair[0]):
        yield _font(name, size), "".join(letter for _, letter in letters)


def _letter(letter: str) -> tuple[str, str]:
    """A font and what to write with it for one letter."""
    for name in _fonts_for(letter):
        if _has(name, letter):
            return name, letter
    base = unicodedata.normalize("NFKD", letter)[0]
    return "", base if _has("", base) else letter


def _fonts_for(text: str) -> tuple[str, ...]:
    """Names of fonts to try; '' is Pillow's own."""
    return ("",) if text.isascii() else ("", *filter(_is_there, _OTHER_FONTS))


@lru_cache(maxsize=256)
def _font(name: str, size: int) -> Font:
    return ImageFont.truetype(name, size) if name else ImageFont.load_default(size)


@lru_cache(maxsize=64)
def _is_there(name: str) -> bool:
    try:
        ImageFont.truetype(name, 12)
    except OSError:  # Pillow's way to say that there is no such font
        return False
    return True


@lru_cache(maxsize=4096)
def _has(name: str, letter: str) -> bool:
    """True if the font has a glyph of its own for `letter`."""
    if letter.isspace():
        return True
    font = _font(name, 12)
    return bytes(font.getmask(letter)) != bytes(font.getmask(_NOWHERE))
