"""The clocks of a recording as a table: what each topic sent, how regularly, and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from PIL import Image, ImageDraw

from dyna_assets.look.badge import draw_mark
from dyna_assets.look.facts import PageFacts
from dyna_assets.look.verdicts import length_text
from dyna_train.look.axes import MARGIN, PAGE_WIDTH
from dyna_train.look.ink import LABEL_SIZE, SMALL_SIZE, fit, write
from dyna_train.look.palette import BAD, GREY, LINES, PANEL, PAPER, RULE

_ROW = 19
_TOPIC_WIDTH, _ROLE_LEFT, _ROLE_WIDTH = 330, 356, 170
_LINE_LEFT, _LINE_RIGHT = 1000, PAGE_WIDTH - MARGIN
_MOST_ROWS = 40

# Heading, fact, factor, format, right edge. A fact that is not known is an empty cell.
_COLUMNS = (
    ("messages", "num_messages", 1, "{:,.0f}", 590),
    ("rate, Hz", "rate_hz", 1, "{:.2f}", 660),
    ("jitter, ms", "jitter_s", 1000, "{:.2f}", 732),
    ("drift, ppm", "drift_ppm", 1, "{:+z.0f}", 812),
    ("gap, s", "max_gap_s", 1, "{:.3f}", 872),
    ("lost, %", "lost_share", 100, "{:.1f}", 960),
)


def draw_clocks(facts: PageFacts) -> Iterator[Image.Image]:
    """A heading, then a row per topic: counts, rate, gaps, and the time it covers; nothing without topics."""
    if not facts.topics:
        return
    ends_s = [found["last_s"] for found in facts.topics.values() if "last_s" in found]
    last_s = max(ends_s, default=0.0)
    yield _heading(last_s)
    for topic, found in list(facts.topics.items())[:_MOST_ROWS]:
        yield _row(topic, found, last_s)
    if len(facts.topics) > _MOST_ROWS:
        block = Image.new("RGB", (PAGE_WIDTH, _ROW), PAPER)
        write(block, (MARGIN, 0), f"and {len(facts.topics) - _MOST_ROWS:,} more topics", SMALL_SIZE, GREY)
        yield block


def clock_cells(found: Mapping[str, Any]) -> list[str]:
    """The numbers of a topic as the table writes them; '' for what is not known."""
    return [
        "" if found.get(fact) is None else text.format(found[fact] * factor)
        for _, fact, factor, text, _ in _COLUMNS
    ]


def _heading(last_s: float) -> Image.Image:
    block = Image.new("RGB", (PAGE_WIDTH, _ROW + 14), PAPER)
    write(block, (MARGIN, 8), "topics of the recording", LABEL_SIZE)
    for heading, *_, right in _COLUMNS:
        write(block, (right, 9), heading, SMALL_SIZE, GREY, "right")
    write(block, (_LINE_LEFT, 9), "0 s", SMALL_SIZE, GREY)
    write(block, (_LINE_RIGHT, 9), length_text(last_s), SMALL_SIZE, GREY, "right")
    bottom = block.height - 3
    ImageDraw.Draw(block).line((MARGIN, bottom, PAGE_WIDTH - MARGIN, bottom), fill=RULE)
    return block


def _row(topic: str, found: Mapping[str, Any], last_s: float) -> Image.Image:
    block = Image.new("RGB", (PAGE_WIDTH, _ROW), PAPER)
    write(block, (MARGIN, 1), fit(topic, SMALL_SIZE, _TOPIC_WIDTH), SMALL_SIZE)
    role = f"{found.get('role', '')} {found.get('name', '')}".strip()
    write(block, (_ROLE_LEFT, 1), fit(role, SMALL_SIZE, _ROLE_WIDTH), SMALL_SIZE, GREY)
    if "reason" in found:  # missing: no numbers, but why
        left = _COLUMNS[0][-1]
        draw_mark(block, (left - 20, 1), "reject", 14)
        write(block, (left, 1), fit(found["reason"], SMALL_SIZE, PAGE_WIDTH - MARGIN - left), SMALL_SIZE)
        return block
    for cell, (*_, right) in zip(clock_cells(found), _COLUMNS, strict=True):
        write(block, (right, 1), cell, SMALL_SIZE, align="right")
    _draw_line(block, found, last_s)
    return block


def _draw_line(block: Image.Image, found: Mapping[str, Any], last_s: float) -> None:
    """From the first message of the topic to its last, cut at its silences; a mark where its clock went back."""
    draw = ImageDraw.Draw(block)
    draw.rectangle((_LINE_LEFT, 5, _LINE_RIGHT, 13), fill=PANEL)
    if last_s <= 0 or "first_s" not in found:
        return

    def x(time_s: float) -> float:
        return _LINE_LEFT + time_s / last_s * (_LINE_RIGHT - _LINE_LEFT)

    left, right = x(found["first_s"]), x(found["last_s"])
    draw.rectangle((left, 7, max(right, left + 2), 11), fill=LINES[0])
    for start_s, end_s in found.get("gaps", ()):
        draw.rectangle((x(start_s), 5, max(x(end_s), x(start_s) + 1), 13), fill=PANEL)
    for _, before_s, _ in found.get("restarts", ()):
        draw.rectangle((x(before_s) - 1, 3, x(before_s) + 1, 15), fill=BAD)
