"""Plots of state and action vectors over the time axis of the sheet.

Array axes: T steps, D dimensions, P points of a line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dyna_train.episode.tracks import Role
from dyna_train.look.axes import (
    AXIS_LEFT,
    AXIS_RIGHT,
    LEGEND_LEFT,
    MARGIN,
    PAGE_WIDTH,
    TimeAxis,
    dashes,
    number_label,
    outline,
    round_numbers,
    value_range,
)
from dyna_train.look.bands import Band, shade
from dyna_train.look.ink import LABEL_SIZE, SMALL_SIZE, fit, line_height, wrap, write
from dyna_train.look.palette import GREY, INK, PANEL, PAPER, RULE
from dyna_train.look.panels import Panel

_FINE = 3  # lines are drawn this much larger and made smaller, which smooths them
_LINE_WIDTH = 1.6  # pixels
_DASH = (7.0, 5.0)  # pixels on and off
_HEIGHT = 100
_GAP = 8  # above and below a plot; a label at its edge needs it
_MARK = 20  # pixels between two values beside a plot, at least
_LABEL_WIDTH = 134
_LEGEND_LINE = 22  # pixels of line before a name

Values = Mapping[str, NDArray[np.float32]]
"""Values float32 [T, D] by topic."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot: a value per step, float32 [T]; it is cut where a value is not finite."""

    values_T: NDArray[np.float32]
    colour: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """The values of a plot of `height` pixels."""

    low: float
    high: float
    height: int

    def y(self, values_P: NDArray[np.float64]) -> NDArray[np.float64]:
        """Pixels from the top of the plot to values, float64 [P]."""
        y_P: NDArray[np.float64] = (self.high - values_P) / (self.high - self.low) * self.height
        return y_P

    def marks(self) -> list[tuple[float, float]]:
        """Round values, and the pixels from the top to each."""
        values = round_numbers(self.low, self.high, most=self.height // _MARK)
        return list(zip(values, self.y(np.array(values)).tolist(), strict=True))


def draw_panel(panel: Panel, values: Values, axis: TimeAxis, bands: Sequence[Band] = ()) -> Image.Image:
    """One plot with its label on the left and the names of its lines on the right, as wide as the page.

    bands: stretches of time to shade behind the lines.
    """
    height = max(_HEIGHT, line_height(SMALL_SIZE) * len(panel.legend) + 6)
    block = Image.new("RGB", (PAGE_WIDTH, height + 2 * _GAP), PAPER)
    _draw_label(block, panel)
    _draw_legend(block, panel)
    spread = value_range(np.concatenate([values[line.topic][:, line.index] for line in panel.lines]))
    if spread is None:
        block.paste(PANEL, (AXIS_LEFT, _GAP, AXIS_RIGHT + 1, _GAP + height))
        middle = ((AXIS_LEFT + AXIS_RIGHT) / 2, _GAP + height / 2 - 8)
        write(block, middle, "no finite value", SMALL_SIZE, GREY, "center")
        return block
    scale = Scale(*spread, height)
    curves = [
        Curve(values[line.topic][:, line.index], line.colour, dashed=line.role == "action")
        for line in panel.lines
    ]
    paste_plot(block, _GAP, curves, axis, scale, bands)
    return block


def paste_plot(
    block: Image.Image,
    top: int,
    curves: Sequence[Curve],
    axis: TimeAxis,
    scale: Scale,
    bands: Sequence[Band] = (),
) -> None:
    """Put a plot on the time axis of `block`, with the values of its scale on its left; later curves lie above."""
    marks = scale.marks()
    block.paste(_inside(curves, axis, scale, bands), (AXIS_LEFT, top))
    for value, y in marks:
        label = number_label(value, marks[1][0] - marks[0][0] if len(marks) > 1 else 0.0)
        write(block, (AXIS_LEFT - 6, top + y - 8), label, SMALL_SIZE, GREY, "right")


def draw_time(axis: TimeAxis) -> Image.Image:
    """The times below the plots."""
    block = Image.new("RGB", (PAGE_WIDTH, line_height(SMALL_SIZE) + 8), PAPER)
    for x, label in axis.ticks():
        write(block, (x, 0), label, SMALL_SIZE, GREY, "center")
    return block


def draw_key(roles: Collection[Role]) -> Image.Image:
    """How the lines of states and actions are told apart, of the roles that there are."""
    block = Image.new("RGB", (PAGE_WIDTH, line_height(SMALL_SIZE) + 2), PAPER)
    x: float = AXIS_LEFT
    for role in ("state", "action"):
        if role in roles:
            _sample(block, x, 8, INK, dashed=role == "action", width=34)
            write(block, (x + 40, 0), role, SMALL_SIZE, GREY)
            x += 110
    return block


def _draw_label(block: Image.Image, panel: Panel) -> None:
    top = _GAP
    for text in wrap(panel.title, LABEL_SIZE, _LABEL_WIDTH, max_lines=2):
        write(block, (MARGIN, top), text, LABEL_SIZE)
        top += line_height(LABEL_SIZE)
    part = f"{panel.part} of {panel.num_parts}" if panel.num_parts > 1 else ""
    for text in filter(None, (panel.unit or "unit unknown", part)):
        write(block, (MARGIN, top), fit(text, SMALL_SIZE, _LABEL_WIDTH), SMALL_SIZE, GREY)
        top += line_height(SMALL_SIZE)


def _draw_legend(block: Image.Image, panel: Panel) -> None:
    width = PAGE_WIDTH - MARGIN - LEGEND_LEFT - _LEGEND_LINE - 6
    for number, (name, colour) in enumerate(panel.legend):
        top = _GAP + number * line_height(SMALL_SIZE) + 2
        dashed = all(line.role == "action" for line in panel.lines if line.colour == colour)
        _sample(block, LEGEND_LEFT, top + 8, colour, dashed=dashed, width=_LEGEND_LINE)
        write(block, (LEGEND_LEFT + _LEGEND_LINE + 6, top), fit(name, SMALL_SIZE, width), SMALL_SIZE)


def _sample(block: Image.Image, x: float, y: float, colour: str, *, dashed: bool, width: int) -> None:
    draw = ImageDraw.Draw(block)
    parts = ((0, 9), (13, 22), (26, 34)) if dashed else ((0, width),)
    for start, end in parts:
        if start < width:
            draw.line((x + start, y, x + min(end, width) - 1, y), fill=colour, width=2)


def _inside(curves: Sequence[Curve], axis: TimeAxis, scale: Scale, bands: Sequence[Band]) -> Image.Image:
    """The inside of a plot: bands, rules, then the curves."""
    size = ((AXIS_RIGHT - AXIS_LEFT + 1) * _FINE, scale.height * _FINE)
    fine = Image.new("RGB", size, PANEL)
    shade(fine, bands, axis, _FINE)
    draw = ImageDraw.Draw(fine)
    for x, _ in axis.ticks():
        at = (x - AXIS_LEFT + 0.5) * _FINE
        draw.line((at, 0, at, fine.height), fill=RULE, width=_FINE)
    for _, y in scale.marks():
        draw.line((0, y * _FINE, fine.width, y * _FINE), fill=RULE, width=_FINE)
    for curve in curves:
        for points in outline(curve.values_T):
            x_P, y_P = points[:, 0] - AXIS_LEFT + 0.5, scale.y(points[:, 1])
            _draw_line(draw, np.stack([x_P, y_P], axis=1) * _FINE, curve.colour, dashed=curve.dashed)
    return fine.reduce(_FINE)


def _draw_line(draw: ImageDraw.ImageDraw, points: NDArray[np.float64], colour: str, *, dashed: bool) -> None:
    if len(points) == 1:
        x, y = points[0]
        radius = 3 * _FINE
        draw.ellipse(
            (x - radius, y - radius, x + radius, y + radius), None if dashed else colour, colour, _FINE
        )
        return
    width = round(_LINE_WIDTH * _FINE)
    on, off = (length * _FINE for length in _DASH)
    for part in dashes(points, on, off) if dashed else (points,):
        draw.line([*part.ravel().tolist()], fill=colour, width=width, joint="curve")
