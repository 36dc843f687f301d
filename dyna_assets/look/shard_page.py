"""The page of a shard: how its episodes stand, and a row for each of the worst, so that a person knows where to look.

Array axes: T steps, X pixel columns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dyna_assets.look.badge import LOOKS, draw_badge, draw_mark
from dyna_assets.look.facts import OUTCOMES, PageFacts
from dyna_assets.look.gather import ShardFacts
from dyna_assets.look.lanes import bands_of, gap_bands, of_subject
from dyna_assets.look.strips import LEAST_CHANGE
from dyna_assets.look.verdicts import length_text, verdict_lines
from dyna_assets.quality.trace import CameraTrace
from dyna_train.episode.reader import Episode
from dyna_train.episode.stretches import steps_at
from dyna_train.episode.tracks import CameraTrack
from dyna_train.errors import EpisodeError
from dyna_train.look.axes import MARGIN, PAGE_WIDTH
from dyna_train.look.bands import tint
from dyna_train.look.frames import frame_tiles, key_steps
from dyna_train.look.ink import LABEL_SIZE, SMALL_SIZE, fit, line_height, text_width, wrap, write
from dyna_train.look.palette import BAD, GREY, LINES, PANEL, PAPER, RULE

OpenEpisode = Callable[[PageFacts], AbstractContextManager[Episode]]
"""Opens the file of an episode that has one; raises EpisodeError if it cannot be read."""

_HEAD = 112
_ROW = 92
_MARK, _TEXT_LEFT = 28, 88
_TILE = (112, 72)
_PLOT_HEIGHT, _PLOT_HEAD = 64, 16  # pixels; the head has the scale
_NAME_SIZE = 16


@dataclass(frozen=True, slots=True)
class Columns:
    """How wide the page is, and where its columns begin, in pixels."""

    width: int
    tiles_left: int
    num_tiles: int

    @property
    def plot_left(self) -> int:
        """Behind the frames."""
        return self.tiles_left + self.num_tiles * (_TILE[0] + 3) + 14

    @property
    def right(self) -> int:
        """Where the page's contents end."""
        return self.width - MARGIN


WIDE = Columns(PAGE_WIDTH, tiles_left=580, num_tiles=5)
NARROW = Columns(1000, tiles_left=450, num_tiles=3)
"""For the event log, which keeps no large pictures and shows none."""


def draw_shard_page(shard: ShardFacts, open_episode: OpenEpisode, columns: Columns = WIDE) -> Image.Image:
    """The page: counts of all episodes, then `shard.worst`, one row each."""
    height = _HEAD + max(len(shard.worst), 1) * _ROW + 2 * MARGIN
    page = Image.new("RGB", (columns.width, height), PAPER)
    page.paste(_head(shard, columns), (0, MARGIN))
    for number, facts in enumerate(shard.worst):
        page.paste(_row(facts, open_episode, columns), (0, MARGIN + _HEAD + number * _ROW))
    if not shard.worst:
        write(
            page, (MARGIN, MARGIN + _HEAD), "no step has met an episode of this shard yet", LABEL_SIZE, GREY
        )
    return page


def shard_line(shard: ShardFacts) -> str:
    """The counts in words: '12 episodes · checked 340 of 372 · shown: the worst 6'."""
    episodes = "1 episode" if shard.num_rows == 1 else f"{shard.num_rows:,} episodes"
    checked = f"checked {shard.num_checked:,} of {shard.num_checks:,}"
    shown = (
        "all shown, worst first"
        if len(shard.worst) == shard.num_rows
        else f"the worst {len(shard.worst)} shown"
    )
    return "   ·   ".join((episodes, checked, shown))


def worst_text(facts: PageFacts) -> str:
    """What is wrong with an episode in a line: the worst check with its value, or the step that failed.

    Why a step failed is said here only if there is a file; else it stands where the frames would.
    """
    lines = verdict_lines(facts)
    if not lines:
        return facts.headline
    worst, more = lines[0], len(lines) - 1
    found = worst.measured or (worst.note if facts.content_hash else "")
    said = f"{worst.check} {worst.subject}".rstrip() + (f": {found}" if found else "")
    others = "check" if more == 1 else "checks"
    return f"{said}, and {more} more {others}" if more else said


def _head(shard: ShardFacts, columns: Columns) -> Image.Image:
    """Name, counts, and the outcomes as badges over a bar of their shares."""
    block = Image.new("RGB", (columns.width, _HEAD), PAPER)
    write(block, (MARGIN, -4), shard.key, 24)
    write(block, (MARGIN + text_width(shard.key, 24) + 16, 7), shard_line(shard), LABEL_SIZE, GREY)
    draw = ImageDraw.Draw(block)
    x, left = MARGIN, float(MARGIN)
    for outcome in filter(shard.outcomes.get, OUTCOMES):
        count = shard.outcomes[outcome]
        right = draw_badge(block, (x, 34), outcome, 26)
        write(block, (right + 8, 36), f"{count:,}", 18)
        x = round(right + 8 + text_width(f"{count:,}", 18) + 28)
        width = count / shard.num_rows * (columns.right - MARGIN)
        draw.rectangle((left, 72, left + max(width - 2, 1), 79), fill=LOOKS[outcome].ground)
        left += width
    write(block, (columns.tiles_left, 88), "first to last frame", SMALL_SIZE, GREY)
    write(block, (columns.plot_left, 88), "change of the picture", SMALL_SIZE, GREY)
    draw.line((MARGIN, _HEAD - 4, columns.right, _HEAD - 4), fill=RULE)
    return block


def _row(facts: PageFacts, open_episode: OpenEpisode, columns: Columns) -> Image.Image:
    block = Image.new("RGB", (columns.width, _ROW), PAPER)
    middle = (MARGIN + _TEXT_LEFT - 12) // 2
    draw_mark(block, (middle - _MARK // 2, 6), facts.outcome, _MARK)
    for number, word in enumerate(LOOKS[facts.outcome].word.split()):
        write(block, (middle, 38 + number * 15), word, SMALL_SIZE, align="center")
    room = columns.tiles_left - _TEXT_LEFT - 16
    write(block, (_TEXT_LEFT, 0), fit(facts.name, _NAME_SIZE, room), _NAME_SIZE)
    top = line_height(_NAME_SIZE) + 1
    for text in wrap(worst_text(facts), LABEL_SIZE, room, 2):
        write(block, (_TEXT_LEFT, top), text, LABEL_SIZE)
        top += line_height(LABEL_SIZE)
    write(block, (_TEXT_LEFT, 62), fit(_about(facts), SMALL_SIZE, room), SMALL_SIZE, GREY)
    _draw_pictures(block, facts, open_episode, columns)
    ImageDraw.Draw(block).line((MARGIN, _ROW - 6, columns.right, _ROW - 6), fill=RULE)
    return block


def _about(facts: PageFacts) -> str:
    parts = (facts.source, f"id {facts.episode_id}", length_text(facts.duration_s))
    return "   ·   ".join((*parts, f"checked {facts.num_checked} of {facts.num_checks}"))


def _draw_pictures(block: Image.Image, facts: PageFacts, open_episode: OpenEpisode, columns: Columns) -> None:
    """Frames and trace of one camera, or why there are none."""
    room = columns.right - columns.tiles_left
    if not facts.content_hash:
        said = wrap(f"no episode file was made: {facts.headline}", SMALL_SIZE, room, 4)
        for number, text in enumerate(said):
            write(block, (columns.tiles_left, 4 + number * line_height(SMALL_SIZE)), text, SMALL_SIZE, GREY)
        return
    try:
        with open_episode(facts) as episode:
            camera = _camera(episode, facts)
            if camera is None:
                write(block, (columns.tiles_left, 28), "no camera", SMALL_SIZE, GREY)
                return
            steps = key_steps(episode.num_steps, columns.num_tiles, episode.layout.gop)
            tiles = frame_tiles(episode, camera, steps, _TILE)
            rate_hz = episode.header.rate_hz
    except EpisodeError as error:  # the others are to be seen all the same
        write(block, (columns.tiles_left, 28), fit(str(error), SMALL_SIZE, room), SMALL_SIZE, BAD)
        return
    for number, tile in enumerate(tiles):
        block.paste(tile, (columns.tiles_left + number * (_TILE[0] + 3), 0))
    write(block, (columns.tiles_left, _TILE[1] - 1), camera.name, SMALL_SIZE, GREY)
    trace = facts.traces.get(camera.name)
    if trace is not None:
        width = columns.right - columns.plot_left
        block.paste(_spark(trace, facts, camera.name, rate_hz, width), (columns.plot_left, 4))


def _camera(episode: Episode, facts: PageFacts) -> CameraTrack | None:
    """The camera that the worst finding about a camera names, or else the first one."""
    cameras = {camera.name: camera for camera in episode.header.cameras}
    named = [one.subject for one in facts.findings if one.subject in cameras]
    return cameras[(named or list(cameras))[0]] if cameras else None


def _spark(trace: CameraTrace, facts: PageFacts, camera: str, rate_hz: float, width: int) -> Image.Image:
    """The change of the picture as columns, over the stretches that the findings about the camera name."""
    plot = Image.new("RGB", (width, _PLOT_HEIGHT), PANEL)
    draw = ImageDraw.Draw(plot)
    scale = width / trace.num_steps
    gaps = gap_bands(steps_at(np.flatnonzero(~trace.seen_T)))
    for band in [*bands_of(of_subject(facts.findings, [camera, ""]), rate_hz), *gaps]:
        left, right = band.start * scale, max(band.stop * scale, band.start * scale + 2)
        draw.rectangle((left, 0, right, _PLOT_HEIGHT), fill=tint(band.colour, 0.35))
    change_X = column_maxima(trace.change_T, width)
    most = max(float(change_X.max()), LEAST_CHANGE)
    for x, change in enumerate(change_X.tolist()):
        if change > 0:
            top = _PLOT_HEIGHT - max(round(change / most * (_PLOT_HEIGHT - _PLOT_HEAD)), 1)
            draw.line((x, top, x, _PLOT_HEIGHT), fill=LINES[0])
    write(plot, (width - 3, 0), f"{most:.3g} levels", SMALL_SIZE, GREY, "right")
    return plot


def column_maxima(values_T: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The largest value of the steps in each of `width` columns, float32 [X]; 0 where there is none."""
    known_T = np.nan_to_num(values_T, nan=0.0)
    if len(known_T) <= width:
        nearest_X: NDArray[np.float32] = known_T[np.arange(width) * len(known_T) // width]
        return nearest_X
    starts_X = np.arange(width) * len(known_T) // width
    largest_X: NDArray[np.float32] = np.maximum.reduceat(known_T, starts_X)
    return largest_X
