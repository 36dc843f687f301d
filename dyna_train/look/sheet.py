"""The contact sheet of an episode: one page on which a person sees in seconds whether it is any good.

From top to bottom: what it is; a row of frames per camera, evenly from the first to the last, with the distance
of capture from grid time and the gaps in a strip below; plots of all state and action vectors. Frames, strips
and plots share one time axis. The page is a stack of blocks, each as wide as the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from PIL import Image, ImageDraw

from dyna_train.episode.reader import Episode
from dyna_train.files import publish
from dyna_train.look.axes import MARGIN, PAGE_WIDTH, TimeAxis
from dyna_train.look.frames import Track
from dyna_train.look.ink import LABEL_SIZE, can_write, fit, line_height, text_width, wrap, write
from dyna_train.look.palette import BAD, GOOD, GREY, INK, PAPER, RULE, WARN
from dyna_train.look.panels import plan_panels
from dyna_train.look.plot import draw_key, draw_panel, draw_time
from dyna_train.look.rows import draw_row, draw_skew_key
from dyna_train.look.summary import CameraSummary, DepthSummary, EpisodeSummary

_TITLE_SIZE = 24
_TASK_SIZE = 16
_MOST_MARKS = 5


def write_sheet(episode: Episode, summary: EpisodeSummary, path: str | Path) -> None:
    """Draw the sheet and publish it as a PNG under `path`."""
    page = draw_sheet(episode, summary)
    with publish(path) as part:
        page.save(part, "PNG", optimize=True)


def draw_sheet(episode: Episode, summary: EpisodeSummary) -> Image.Image:
    """The sheet of an episode file, PAGE_WIDTH pixels wide and as high as it needs."""
    blocks = list(_blocks(episode, summary))
    page = Image.new("RGB", (PAGE_WIDTH, sum(block.height for block in blocks) + 2 * MARGIN), PAPER)
    top = MARGIN
    for block in blocks:
        page.paste(block, (0, top))
        top += block.height
    return page


def _blocks(episode: Episode, summary: EpisodeSummary) -> Iterator[Image.Image]:
    header = episode.header
    axis = TimeAxis(header.num_steps, header.rate_hz)
    yield _title(summary)
    tracks: list[Track] = [*header.cameras, *header.depths]
    rows: list[CameraSummary | DepthSummary] = [*summary.cameras, *summary.depths]
    for track, row in zip(tracks, rows, strict=True):
        yield draw_row(episode, track, row, axis, len(rows))
    if rows:
        yield draw_skew_key(header.rate_hz)
    if header.vectors:
        yield draw_key({vector.role for vector in header.vectors})
        values = {vector.topic: episode.vector(vector.topic) for vector in header.vectors}
        for panel in plan_panels(header.vectors):
            yield draw_panel(panel, values, axis)
        yield draw_time(axis)


def _title(summary: EpisodeSummary) -> Image.Image:
    width = PAGE_WIDTH - 2 * MARGIN
    task = wrap(summary.task or "no task given", _TASK_SIZE, width, max_lines=2)
    height = line_height(_TITLE_SIZE) + line_height(_TASK_SIZE) * len(task) + line_height(LABEL_SIZE) + 26
    block = Image.new("RGB", (PAGE_WIDTH, height), PAPER)
    left = _draw_marks(block, summary)
    name = summary.name or f"episode {summary.episode_id}"
    write(block, (MARGIN, 0), fit(name, _TITLE_SIZE, left - 2 * MARGIN), _TITLE_SIZE)
    top = line_height(_TITLE_SIZE) + 2
    for text in task:
        write(block, (MARGIN, top), text, _TASK_SIZE, INK if summary.task else GREY)
        top += line_height(_TASK_SIZE)
    write(block, (MARGIN, top + 2), fit(_facts(summary), LABEL_SIZE, width), LABEL_SIZE, GREY)
    ImageDraw.Draw(block).line((MARGIN, height - 13, PAGE_WIDTH - MARGIN, height - 13), fill=RULE)
    return block


def _facts(summary: EpisodeSummary) -> str:
    """Robot, duration, size, and what else identifies the episode, in one line."""
    duration = f"{summary.duration_s:.2f} s"
    if summary.duration_s >= 60:
        minutes, seconds = divmod(round(summary.duration_s), 60)
        duration = f"{minutes} min {seconds:02d} s"
    steps = "1 step" if summary.num_steps == 1 else f"{summary.num_steps:,} steps"
    facts = (
        summary.robot or "robot unknown",
        f"{duration} ({steps} at {summary.rate_hz:g} Hz)",
        f"{summary.start_utc[:19]} UTC",
        f"{summary.size_bytes / 1e6:.2f} MB",
        summary.source,
        f"id {summary.episode_id}",
        ""
        if can_write(summary.name + summary.task)
        else "boxes are letters that no font of this machine has",
    )
    return "   ·   ".join(filter(None, facts))


def _draw_marks(block: Image.Image, summary: EpisodeSummary) -> float:
    """Success and verdicts as filled marks from the right; returns where they begin."""
    outcome = {True: ("success", GOOD), False: ("failure", BAD), None: ("outcome unknown", GREY)}
    marks = [outcome[summary.success]]
    for gate, verdict in summary.quality.items():
        marks.append((f"{gate.replace('_', ' ')}: {verdict}", GOOD if verdict == "pass" else WARN))
    right: float = PAGE_WIDTH - MARGIN
    for text, colour in reversed(marks[:_MOST_MARKS]):
        text = fit(text, LABEL_SIZE, 220)
        left = right - text_width(text, LABEL_SIZE) - 20
        ImageDraw.Draw(block).rounded_rectangle((left, 4, right, 28), radius=12, fill=colour)
        ink = INK if colour == WARN else PAPER
        write(block, ((left + right) / 2, 8), text, LABEL_SIZE, ink, "center")
        right = left - 8
    return right
