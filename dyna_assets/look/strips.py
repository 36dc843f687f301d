"""Under a camera's frames: its trace (level and change of its picture over time) and its skew histogram.

Array axes: T steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dyna_assets.look.lanes import gap_bands
from dyna_assets.look.skew import HEIGHT, draw_histogram, skew_bins
from dyna_assets.quality.trace import CameraTrace
from dyna_train.episode.stretches import steps_at
from dyna_train.look.axes import LEGEND_LEFT, MARGIN, PAGE_WIDTH, TimeAxis
from dyna_train.look.bands import Band
from dyna_train.look.ink import SMALL_SIZE, line_height, write
from dyna_train.look.palette import GREY, LINES, PAPER
from dyna_train.look.plot import Curve, Scale, paste_plot

_LEVEL, _CHANGE, _GAP, _BELOW = 46, 34, 14, 16  # pixels
_BAND_COLOUR = LINES[5]
LEAST_CHANGE = 2.0
"""Levels at the top of a plot of change, at least: noise of a still picture must not look like motion."""


def draw_strips(
    trace: CameraTrace | None, skew_T: NDArray[np.float64], axis: TimeAxis, bands: Sequence[Band]
) -> Image.Image:
    """Two plots on the time axis and the histogram on their right; skew_T: float64 [T] ms."""
    block = Image.new("RGB", (PAGE_WIDTH, max(_LEVEL + _GAP + _CHANGE, HEIGHT) + _BELOW), PAPER)
    block.paste(draw_histogram(skew_bins(skew_T, 1000 / axis.rate_hz)), (LEGEND_LEFT, 0))
    if trace is None:
        write(block, (MARGIN, 0), "no trace was taken", SMALL_SIZE, GREY)
        return block
    shown = [*bands, *gap_bands(steps_at(np.flatnonzero(~trace.seen_T)))]
    levels = [
        Curve(trace.low_T, _BAND_COLOUR),
        Curve(trace.high_T, _BAND_COLOUR),
        Curve(trace.level_T, LINES[0]),
    ]
    _label(block, 0, "level of 255", "1 %, mean, 99 %")
    paste_plot(block, 0, levels, axis, Scale(0, 255, _LEVEL), shown)
    _label(block, _LEVEL + _GAP, "change, levels", "to the frame before")
    most = float(np.nanmax(trace.change_T, initial=LEAST_CHANGE))
    change = [Curve(trace.change_T, LINES[2])]
    paste_plot(block, _LEVEL + _GAP, change, axis, Scale(0, most * 1.1, _CHANGE), shown)
    return block


def _label(block: Image.Image, top: int, first: str, second: str) -> None:
    for number, text in enumerate((first, second)):
        write(block, (MARGIN, top + number * line_height(SMALL_SIZE)), text, SMALL_SIZE, GREY)
