"""How far from its grid time a camera's frames were captured, as a histogram.

Array axes: T steps, B bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dyna_train.look.ink import SMALL_SIZE, fit, line_height, text_width, write
from dyna_train.look.palette import BAD, GREY, INK, LINES, PANEL, PAPER

NUM_BINS = 50
_BIN = 4  # pixels
WIDTH = NUM_BINS * _BIN
_PLOT = 44  # pixels high
HEIGHT = _PLOT + 2 * line_height(SMALL_SIZE) + 2


@dataclass(frozen=True, slots=True)
class SkewBins:
    """Counts int64 [B] of skews from -reach_ms to reach_ms; those beyond stand in the outer bins too."""

    counts_B: NDArray[np.int64]
    reach_ms: float
    period_ms: float
    num_beyond: int

    def x(self, skew_ms: float) -> float:
        """Pixels from the left edge to a skew."""
        return (skew_ms / self.reach_ms + 1) / 2 * WIDTH


def skew_bins(skew_T: NDArray[np.float64], period_ms: float) -> SkewBins:
    """The histogram of capture less grid time, ms; NaN is no frame. Reaches from 1.25 to 5 frame periods."""
    known_N = skew_T[np.isfinite(skew_T)]
    farthest = float(np.abs(known_N).max(initial=0.0))
    reach_ms = period_ms * 1.25 * min(max(np.ceil(farthest / (1.25 * period_ms)), 1.0), 4.0)
    counts_B, _ = np.histogram(known_N.clip(-reach_ms, reach_ms), NUM_BINS, (-reach_ms, reach_ms))
    return SkewBins(counts_B, float(reach_ms), period_ms, int((np.abs(known_N) > reach_ms).sum()))


def draw_histogram(bins: SkewBins) -> Image.Image:
    """The histogram, WIDTH x HEIGHT pixels, with zero and one frame period to either side marked."""
    block = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    write(block, (0, 0), fit("captured, ms from grid", SMALL_SIZE, WIDTH), SMALL_SIZE, GREY)
    top = line_height(SMALL_SIZE)
    draw = ImageDraw.Draw(block)
    draw.rectangle((0, top, WIDTH - 1, top + _PLOT - 1), fill=PANEL)
    for skew_ms in (-bins.period_ms, bins.period_ms):
        for y in range(top, top + _PLOT, 5):
            draw.line((bins.x(skew_ms), y, bins.x(skew_ms), y + 2), fill=GREY)
    draw.line((bins.x(0), top, bins.x(0), top + _PLOT - 1), fill=INK)
    tallest = max(int(bins.counts_B.max()), 1)
    for number in np.flatnonzero(bins.counts_B).tolist():
        height = max(2, round(int(bins.counts_B[number]) / tallest * (_PLOT - 3)))
        far = bins.num_beyond and number in (0, NUM_BINS - 1)
        box = (number * _BIN, top + _PLOT - height, number * _BIN + _BIN - 2, top + _PLOT - 1)
        draw.rectangle(box, fill=BAD if far else LINES[0])
    _draw_labels(block, bins, top + _PLOT + 1)
    return block


def _draw_labels(block: Image.Image, bins: SkewBins, top: int) -> None:
    """Zero, and one frame period to either side; where these are too near to each other the ends."""
    is_roomy = bins.x(bins.period_ms) - bins.x(0) > text_width("+33.3 0", SMALL_SIZE)
    shown_ms = bins.period_ms if is_roomy else bins.reach_ms
    for skew_ms in (-shown_ms, 0.0, shown_ms):
        text = f"{skew_ms:+.3g}" if skew_ms else "0"
        half = text_width(text, SMALL_SIZE) / 2
        x = min(max(bins.x(skew_ms), half), WIDTH - half)
        write(block, (x, top), text, SMALL_SIZE, GREY, "center")
    if bins.num_beyond:
        text = f"{bins.num_beyond:,} farther"
        write(block, (WIDTH, 0), text, SMALL_SIZE, BAD, "right")
