"""Rows of frames over the time axis: one camera each, with a strip that shows when its frames were captured.

Array axes: T steps, X pixel columns of the time axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw

from dyna_train.episode.reader import Episode
from dyna_train.look.axes import AXIS_LEFT, AXIS_RIGHT, MARGIN, PAGE_WIDTH, TimeAxis
from dyna_train.look.frames import Track, frame_tiles, hatch, key_steps, spread_steps, tile_size
from dyna_train.look.ink import LABEL_SIZE, SMALL_SIZE, fit, line_height, text_width, write
from dyna_train.look.palette import BAD, GREY, INK, LINES, PAPER
from dyna_train.look.summary import CameraSummary, DepthSummary, missing_steps, skew_ms

_STRIP = 7  # pixels
_TILE_GAP = 4
_ROW_GAP = 14
_LABEL_WIDTH = 128  # beside the outer tiles, which reach beyond the ends of the time axis
_ON_TIME = "#dbe9f4"  # a frame captured at its grid time; one _FAR steps away is LINES[0]
_FAR = 1.5
"""Steps. The latest frame before an instant is up to one old, and a little more if the camera's clock shakes."""


def draw_row(
    episode: Episode,
    track: Track,
    summary: CameraSummary | DepthSummary,
    axis: TimeAxis,
    num_rows: int,
    *,
    keyframes: bool = False,
) -> Image.Image:
    """Frames of one camera, the strip of its capture times, and the times of the frames.

    keyframes: show those, which cost least to decode; they lie up to half a GOP beside their place on the axis.
    """
    num_columns, most_height = _tiling(num_rows)
    spacing = (AXIS_RIGHT - AXIS_LEFT) / (num_columns - 1)
    box = (int(spacing) - _TILE_GAP, most_height)
    steps = (
        key_steps(axis.num_steps, num_columns, episode.layout.gop)
        if keyframes
        else spread_steps(axis.num_steps, num_columns)
    )
    height = max(tile_size(track, box)[1], 2 * line_height(SMALL_SIZE))
    block = Image.new("RGB", (PAGE_WIDTH, height + 4 + _STRIP + line_height(SMALL_SIZE) + _ROW_GAP), PAPER)
    for place, (step, tile) in enumerate(zip(steps, frame_tiles(episode, track, steps, box), strict=True)):
        x = axis.x(place * (axis.num_steps - 1) / max(len(steps) - 1, 1))
        block.paste(tile, (round(x) - tile.width // 2, height - tile.height))
        write(block, (axis.x(step), height + 4 + _STRIP), axis.label(step), SMALL_SIZE, GREY, "center")
    block.paste(_strip(episode, track, axis), (AXIS_LEFT, height + 3))
    _draw_labels(block, summary)
    return block


def draw_skew_key(rate_hz: float) -> Image.Image:
    """What the colours of the strips mean."""
    block = Image.new("RGB", (PAGE_WIDTH, line_height(SMALL_SIZE) + _ROW_GAP), PAPER)
    ramp = Image.fromarray(np.repeat(_skew_colours(np.linspace(0, 1, 80))[None], _STRIP, axis=0))
    swatches = (
        (ramp, f"captured on the grid to {_FAR:g} steps ({_FAR * 1000 / rate_hz:.3g} ms) off it"),
        (Image.new("RGB", (24, _STRIP), BAD), "further off"),
        (_gap_pattern((24, _STRIP)), "no frame"),
    )
    x: float = AXIS_LEFT
    for swatch, text in swatches:
        block.paste(swatch, (round(x), 5))
        write(block, (x + swatch.width + 6, 0), text, SMALL_SIZE, GREY)
        x += swatch.width + 6 + text_width(text, SMALL_SIZE) + 28
    return block


def _tiling(num_rows: int) -> tuple[int, int]:
    """Frames in a row, and the most pixels they may be high: small where many rows must fit."""
    if num_rows <= 2:
        return 7, 160
    return (8, 120) if num_rows <= 6 else (12, 72)


def _draw_labels(block: Image.Image, summary: CameraSummary | DepthSummary) -> None:
    write(block, (MARGIN, 0), fit(summary.name, LABEL_SIZE, _LABEL_WIDTH), LABEL_SIZE)
    size = f"{summary.width}x{summary.height}"
    if isinstance(summary, CameraSummary):
        rate = "no frames" if summary.mb_per_minute is None else f"{summary.mb_per_minute:.2f} MB/min"
        left = [(f"{size}, GOP {summary.gop_steps}", GREY), (rate, GREY)]
    else:
        left = [(f"{size}, depth", GREY)]
    _write_lines(block, MARGIN, line_height(LABEL_SIZE), left)
    right: list[tuple[str, str]] = []
    if summary.skew.max_ms is not None:
        right = [
            (f"skew {summary.skew.mean_ms:.1f} ms mean", GREY),
            (f"{summary.skew.max_ms:.1f} ms max", GREY),
        ]
    if summary.gaps:
        missing = sum(map(len, summary.gaps))
        count = "1 gap" if len(summary.gaps) == 1 else f"{len(summary.gaps)} gaps"
        right.append((f"{count}, {missing:,} step{'s' * (missing != 1)}", BAD))
    _write_lines(block, PAGE_WIDTH - MARGIN - _LABEL_WIDTH, 0, right)


def _write_lines(block: Image.Image, left: int, top: int, lines: Sequence[tuple[str, str]]) -> None:
    for number, (text, colour) in enumerate(lines):
        at = (left, top + number * line_height(SMALL_SIZE))
        write(block, at, fit(text, SMALL_SIZE, _LABEL_WIDTH), SMALL_SIZE, colour)


def _strip(episode: Episode, track: Track, axis: TimeAxis) -> Image.Image:
    """The largest skew in each pixel column as a colour; a hatch where the camera has no frame."""
    share_T = np.nan_to_num(np.abs(skew_ms(episode, track.topic)) * axis.rate_hz / 1000 / _FAR)
    missing_T = missing_steps(episode, track.topic)
    share_X, missing_X = _by_column(share_T, axis), _by_column(missing_T.astype(np.float64), axis) > 0
    strip = Image.fromarray(np.repeat(_skew_colours(share_X)[None], _STRIP, axis=0))
    mask = Image.fromarray(np.repeat(missing_X[None], _STRIP, axis=0))
    strip.paste(_gap_pattern(strip.size), (0, 0), mask)
    return strip


def _by_column(values_T: NDArray[np.float64], axis: TimeAxis) -> NDArray[np.float64]:
    """The largest value of the steps in each pixel column, or that of the nearest step, float64 [X]."""
    width = AXIS_RIGHT - AXIS_LEFT + 1
    nearest_X = np.round(np.linspace(0, axis.num_steps - 1, width)).astype(int)
    values_X: NDArray[np.float64] = values_T[nearest_X]
    np.maximum.at(values_X, axis.columns(), values_T)
    return values_X


def _skew_colours(share_X: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Colours of skews in _FAR steps, uint8 [X, 3]: paler to darker up to 1, and another colour beyond."""
    start, end = (np.array(ImageColor.getrgb(colour), np.float64) for colour in (_ON_TIME, LINES[0]))
    share_X1 = np.minimum(share_X, 1.0)[:, None]
    colours_X3 = np.where(share_X[:, None] > 1, ImageColor.getrgb(BAD), start + share_X1 * (end - start))
    return colours_X3.round().astype(np.uint8)


def _gap_pattern(size: tuple[int, int]) -> Image.Image:
    pattern = hatch(size)
    draw = ImageDraw.Draw(pattern)
    draw.line((0, 0, size[0], 0), fill=INK)
    draw.line((0, size[1] - 1, size[0], size[1] - 1), fill=INK)
    return pattern
