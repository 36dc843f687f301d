"""Stretches of time that stand out on the sheet's axis: a tint behind what is drawn over it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from PIL import Image, ImageColor, ImageDraw

from dyna_train.look.axes import AXIS_LEFT, AXIS_RIGHT, TimeAxis
from dyna_train.look.palette import PANEL

_NARROWEST = 3  # pixels: a band of one step in an hour is still seen
_HATCH = 8  # pixels between the lines of a hatched band


@dataclass(frozen=True, slots=True)
class Band:
    """Steps [start, stop) in a colour; hatched, so that two kinds are told apart without their colours."""

    start: float
    stop: float
    colour: str
    hatched: bool = False

    def columns(self, axis: TimeAxis) -> tuple[int, int] | None:
        """First and end pixel column of the axis, from 0; None if it lies outside the episode."""
        if self.stop <= 0 or self.start >= axis.num_steps:
            return None
        width = AXIS_RIGHT - AXIS_LEFT + 1
        left, right = (round(axis.x(step)) - AXIS_LEFT for step in (max(self.start, 0), self.stop))
        left = min(left, width - _NARROWEST)
        return left, min(max(right, left + _NARROWEST), width)


def shade(picture: Image.Image, bands: Iterable[Band], axis: TimeAxis, scale: int = 1) -> None:
    """Shade the bands over the whole height of `picture`, whose left edge is that of the axis.

    scale: pixels of the picture for one of the axis.
    """
    draw = ImageDraw.Draw(picture)
    for band in bands:
        columns = band.columns(axis)
        if columns is None:
            continue
        left, right = (column * scale for column in columns)
        inside = pattern((right - left, picture.height), band.colour, hatched=band.hatched, scale=scale)
        picture.paste(inside, (left, 0))
        for edge in (left, right - scale):
            draw.rectangle((edge, 0, edge + scale - 1, picture.height), fill=tint(band.colour, 0.7))


def pattern(size: tuple[int, int], colour: str, *, hatched: bool, scale: int = 1) -> Image.Image:
    """The inside of a band, `size` (width, height) pixels."""
    width, height = size
    inside = Image.new("RGB", size, tint(colour, 0.18))
    draw = ImageDraw.Draw(inside)
    for x in range(-height, width, _HATCH * scale) if hatched else ():
        draw.line((x, height, x + height, 0), fill=tint(colour, 0.4), width=scale)
    return inside


def tint(colour: str, share: float) -> tuple[int, int, int]:
    """`share` of the colour, the rest of it the ground of a plot."""
    pairs = zip(ImageColor.getrgb(colour)[:3], ImageColor.getrgb(PANEL)[:3], strict=True)
    red, green, blue = (round(share * over + (1 - share) * under) for over, under in pairs)
    return red, green, blue
