"""Frames as tiles: small pictures of some steps of a camera, and what stands where there is no frame.

Array axes: T steps, N tiles, H W pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dyna_train.episode.reader import Episode
from dyna_train.episode.span import fetch
from dyna_train.episode.tracks import CameraTrack, DepthTrack
from dyna_train.look.ink import SMALL_SIZE, write
from dyna_train.look.palette import GREY, PANEL, RULE
from dyna_train.look.summary import missing_steps

_HATCH = 9  # pixels between the lines of a hatch
_FEW_GOPS = 4
_NEAR_FAR = (2, 98)  # percentiles of the depths of a row that are shown white and black

Track = CameraTrack | DepthTrack


def spread_steps(num_steps: int, num_columns: int) -> list[int]:
    """At most `num_columns` different steps, evenly from the first to the last."""
    steps: list[int] = np.unique(np.linspace(0, num_steps - 1, num_columns).round().astype(int)).tolist()
    return steps


def key_steps(num_steps: int, num_columns: int, gop: int) -> list[int]:
    """At most `num_columns` steps from the first to the last, but for the last one keyframes, which cost a frame each.

    They lie as evenly as keyframes do. An episode of fewer than four GOPs is shown as by `spread_steps`.
    """
    if num_steps < _FEW_GOPS * gop:
        return spread_steps(num_steps, num_columns)
    last = num_steps - 1
    keys = {round(step / gop) * gop for step in spread_steps(num_steps, num_columns)[:-1]}
    least = last / num_columns / 2  # from the last one, so that their times can be written below them
    return [*sorted(key for key in keys if key <= last - least), last]


def tile_size(track: Track, box: tuple[int, int]) -> tuple[int, int]:
    """Width and height, even and at least 2, of the camera's frames made to fit into `box` pixels."""
    scale = min(box[0] / track.width, box[1] / track.height)
    return max(2, round(track.width * scale / 2) * 2), max(2, round(track.height * scale / 2) * 2)


def frame_tiles(
    episode: Episode, track: Track, steps: Sequence[int], box: tuple[int, int]
) -> list[Image.Image]:
    """A tile for each of `steps`: the camera's frame made to fit into `box` (width, height), or a hatch.

    Depth is shown grey, from white (near) to black (far, or not measured), by one scale for all tiles.
    """
    size = tile_size(track, box)
    missing_T = missing_steps(episode, track.topic)
    present = [step for step in steps if not missing_T[step]]
    pictures = dict(zip(present, _pictures(episode, track, present, size), strict=True)) if present else {}
    return [pictures[step] if step in pictures else _empty_tile(size) for step in steps]


def hatch(size: tuple[int, int]) -> Image.Image:
    """The pattern of what is not there, `size` (width, height) pixels."""
    width, height = size
    tile = Image.new("RGB", size, PANEL)
    draw = ImageDraw.Draw(tile)
    for x in range(-height, width, _HATCH):
        draw.line((x, height, x + height, 0), fill=RULE, width=2)
    return tile


def _pictures(
    episode: Episode, track: Track, steps: Sequence[int], size: tuple[int, int]
) -> Iterable[Image.Image]:
    if isinstance(track, CameraTrack):
        frames_NHWC = episode.frames(track.name, steps, size=(size[1], size[0]))
        return map(Image.fromarray, frames_NHWC)
    (span,) = fetch([episode.plan(depth_steps=steps)])
    depths_NHW = span.depth(track.name, steps)
    return (Image.fromarray(grey_HW).resize(size) for grey_HW in _grey(depths_NHW))


def _grey(depths_NHW: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Near white, far black, 0 (not measured) black, uint8 [N, H, W]."""
    measured = depths_NHW[depths_NHW > 0]
    if not measured.size:
        return np.zeros(depths_NHW.shape, np.uint8)
    near, far = np.percentile(measured, _NEAR_FAR)
    share = np.clip((far - depths_NHW) / max(far - near, 1.0), 0.0, 1.0)
    grey_NHW: NDArray[np.uint8] = (np.where(depths_NHW > 0, share, 0.0) * 255).astype(np.uint8)
    return grey_NHW


def _empty_tile(size: tuple[int, int]) -> Image.Image:
    tile = hatch(size)
    ImageDraw.Draw(tile).rectangle((0, 0, size[0] - 1, size[1] - 1), outline=RULE)
    if size[0] >= 60:
        write(tile, (size[0] / 2, size[1] / 2 - 8), "no frame", SMALL_SIZE, GREY, "center")
    return tile
