"""Findings on the time axis: a lane for each with its name and its stretches, which shade the plots around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PIL import Image

from dyna_assets.look.badge import LOOKS, draw_mark
from dyna_assets.look.facts import Finding
from dyna_train.episode.stretches import Stretches
from dyna_train.look.axes import AXIS_LEFT, AXIS_RIGHT, LEGEND_LEFT, MARGIN, PAGE_WIDTH, TimeAxis
from dyna_train.look.bands import Band, shade
from dyna_train.look.ink import SMALL_SIZE, fit, line_height, write
from dyna_train.look.palette import GREY, PANEL, PAPER

LANE = 19  # pixels from one lane to the next
_BAR = 15
_MOST_LANES = 6


def bands_of(findings: Iterable[Finding], rate_hz: float) -> list[Band]:
    """The stretches of the findings in steps; rejects are hatched, and lie over warnings."""
    ordered = sorted(findings, key=lambda finding: finding.severity == "reject")
    return [
        Band(start_s * rate_hz, end_s * rate_hz, LOOKS[one.severity].ground, hatched=one.severity == "reject")
        for one in ordered
        for start_s, end_s in one.spans
    ]


def gap_bands(gaps: Stretches) -> list[Band]:
    """Steps at which there is nothing to see, or nothing to trust."""
    return [Band(gap.start, gap.stop, GREY, hatched=True) for gap in gaps]


def of_subject(findings: Iterable[Finding], names: Sequence[str]) -> list[Finding]:
    """The findings about one of `names`."""
    return [one for one in findings if one.subject in names]


def lane_label(finding: Finding) -> str:
    """What stands beside a lane."""
    return f"{finding.check} {finding.subject}".rstrip()


def draw_lanes(findings: Iterable[Finding], axis: TimeAxis) -> Image.Image:
    """A lane for each finding that has stretches; of no height if none has."""
    shown = [one for one in findings if one.spans][:_MOST_LANES]
    block = Image.new("RGB", (PAGE_WIDTH, LANE * len(shown)), PAPER)
    for number, finding in enumerate(shown):
        top = number * LANE
        draw_mark(block, (MARGIN, top + 1), finding.severity, 14)
        _label(block, top, lane_label(finding), MARGIN + 20)
        _bar(block, top, bands_of([finding], axis.rate_hz), axis)
        room = PAGE_WIDTH - MARGIN - LEGEND_LEFT
        write(block, (LEGEND_LEFT, top), fit(finding.measured, SMALL_SIZE, room), SMALL_SIZE)
    return block


def draw_gap_lane(gaps: Stretches, axis: TimeAxis, label: str) -> Image.Image:
    """A lane of steps that cannot be used; of no height without any."""
    block = Image.new("RGB", (PAGE_WIDTH, LANE if gaps else 0), PAPER)
    if gaps:
        _label(block, 0, label, MARGIN)
        _bar(block, 0, gap_bands(gaps), axis)
        num_steps = sum(map(len, gaps))
        write(block, (LEGEND_LEFT, 0), f"{num_steps:,} of {axis.num_steps:,} steps", SMALL_SIZE)
    return block


def _label(block: Image.Image, top: int, text: str, left: int) -> None:
    write(block, (left, top), fit(text, SMALL_SIZE, AXIS_LEFT - left - 8), SMALL_SIZE)


def _bar(block: Image.Image, top: int, bands: Sequence[Band], axis: TimeAxis) -> None:
    bar = Image.new("RGB", (AXIS_RIGHT - AXIS_LEFT + 1, _BAR), PANEL)
    shade(bar, bands, axis)
    block.paste(bar, (AXIS_LEFT, top + (line_height(SMALL_SIZE) - _BAR) // 2))
