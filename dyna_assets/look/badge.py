"""Verdicts as marks that differ in shape, colour and word: no one of the three is needed to tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import cos, pi, sin

from PIL import Image, ImageDraw

from dyna_assets.look.facts import Outcome
from dyna_train.look.ink import text_width, write
from dyna_train.look.palette import BAD, GOOD, GREY, INK, PAPER, WARN

_FINE = 4  # marks are drawn so much larger and made smaller, which smooths them


@dataclass(frozen=True, slots=True)
class Look:
    """How a verdict looks: its word, the colour of its ground, and that of what stands on it."""

    word: str
    ground: str
    ink: str


LOOKS: dict[Outcome, Look] = {
    "pass": Look("PASS", GOOD, PAPER),
    "warn": Look("WARN", WARN, INK),
    "reject": Look("REJECT", BAD, PAPER),
    "error": Look("ERROR", INK, PAPER),
    "unchecked": Look("NOT JUDGED", GREY, PAPER),
}


def badge_width(outcome: Outcome, height: int) -> int:
    """Pixels of a badge that is `height` pixels high."""
    return round(height * 1.3 + text_width(LOOKS[outcome].word, round(height * 0.52)))


def draw_badge(page: Image.Image, xy: tuple[int, int], outcome: Outcome, height: int) -> int:
    """A filled plate with mark and word, its upper left corner at xy; returns where it ends on the right."""
    look, (left, top) = LOOKS[outcome], xy
    inset, right = round(height * 0.24), left + badge_width(outcome, height)
    ImageDraw.Draw(page).rounded_rectangle((left, top, right, top + height), height // 5, look.ground)
    draw_mark(page, (left + inset, top + round(height * 0.16)), outcome, round(height * 0.68), on_plate=True)
    at = (left + inset + height * 0.82, top + height * 0.2)
    write(page, at, look.word, round(height * 0.52), look.ink)
    return right


def draw_mark(
    page: Image.Image, xy: tuple[int, int], outcome: Outcome, size: int, *, on_plate: bool = False
) -> None:
    """The shape of a verdict in a square of `size` pixels; on_plate: with the plate's colours swapped."""
    look = LOOKS[outcome]
    shape, sign = (look.ink, look.ground) if on_plate else (look.ground, look.ink)
    mark = _mark(outcome, size, shape, sign)
    page.paste(mark, xy, mark)


@lru_cache(maxsize=64)
def _mark(outcome: Outcome, size: int, shape: str, sign: str) -> Image.Image:
    """Tick in a disc, ! in a triangle, x in an octagon, ? in a square, a ring."""
    side = size * _FINE
    fine = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    draw = ImageDraw.Draw(fine)
    thick = max(side // 8, 1)

    def line(*points: tuple[float, float]) -> None:
        draw.line([(x * side, y * side) for x, y in points], fill=sign, width=thick, joint="curve")

    if outcome == "pass":
        draw.ellipse((0, 0, side - 1, side - 1), fill=shape)
        line((0.26, 0.52), (0.43, 0.70), (0.75, 0.32))
    elif outcome == "warn":
        draw.polygon([(side / 2, 0), (side - 1, side - 1), (0, side - 1)], fill=shape)
        line((0.5, 0.36), (0.5, 0.68))
        draw.ellipse((side * 0.44, side * 0.77, side * 0.56, side * 0.89), fill=sign)
    elif outcome == "reject":
        draw.polygon(_regular(8, side), fill=shape)
        line((0.3, 0.3), (0.7, 0.7))
        line((0.3, 0.7), (0.7, 0.3))
    elif outcome == "error":
        draw.rectangle((0, 0, side - 1, side - 1), fill=shape)
        line((0.34, 0.34), (0.42, 0.24), (0.58, 0.24), (0.66, 0.36), (0.52, 0.50), (0.5, 0.66))
        draw.ellipse((side * 0.44, side * 0.74, side * 0.56, side * 0.86), fill=sign)
    else:
        draw.ellipse((thick // 2, thick // 2, side - thick, side - thick), outline=shape, width=thick)
    return fine.reduce(_FINE)


def _regular(corners: int, side: int) -> list[tuple[float, float]]:
    """The corners of a regular polygon that stands on an edge and fills a square."""
    turn, radius = pi / corners, side / 2 / cos(pi / corners)
    angles = [turn + 2 * turn * corner for corner in range(corners)]
    return [(side / 2 + radius * sin(angle), side / 2 + radius * cos(angle)) for angle in angles]
