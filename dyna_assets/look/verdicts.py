"""The head of a page: what the episode is, the verdict, and every finding, worst first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from PIL import Image, ImageDraw

from dyna_assets.look.badge import LOOKS, badge_width, draw_badge, draw_mark
from dyna_assets.look.facts import Finding, Outcome, PageFacts
from dyna_train.look.axes import MARGIN, PAGE_WIDTH
from dyna_train.look.ink import LABEL_SIZE, can_write, fit, line_height, text_width, wrap, write
from dyna_train.look.palette import GREY, INK, PAPER, RULE

MOST_FINDINGS = 12
_BADGE = 46  # pixels high
_NAME_SIZE, _HEADLINE_SIZE, _TASK_SIZE = 24, 17, 16
_WIDTH = PAGE_WIDTH - 2 * MARGIN
_LINE = 20  # pixels from one finding to the next
_COLUMNS = (MARGIN, 106, 296, 476, 716)  # verdict, check, subject, value and limit, note
_MOST_TASK_LINES = 3


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One check or step as it is written: a mark, then texts column by column."""

    outcome: Outcome
    check: str
    subject: str
    measured: str
    note: str


def verdict_lines(facts: PageFacts) -> list[VerdictLine]:
    """What the list says: steps that failed, then checks, worst first, each with its worst subject; all of them."""
    lines = [
        VerdictLine("error" if one.status == "error" else "reject", f"step {one.step}", "", "", one.reason)
        for one in facts.failures
    ]
    by_check: dict[str, list[Finding]] = {}
    for finding in facts.findings:
        by_check.setdefault(finding.check, []).append(finding)
    for worst, *others in by_check.values():
        more = f" and {len(others)} more" if others else ""
        lines.append(
            VerdictLine(worst.severity, worst.check, worst.subject + more, worst.measured, worst.note)
        )
    return lines


def checked_line(facts: PageFacts) -> str:
    """How much was checked, by which policy, and what was not: 'checked 31 of 34 · ...'."""
    if not facts.gates:
        return "nothing was checked: no gate has judged it"
    parts = [f"checked {facts.num_checked} of {facts.num_checks}"]
    parts += [f"gate {gate.gate}: {gate.num_checked} of {gate.num_checks}" for gate in facts.gates]
    policies = dict.fromkeys(gate.policy for gate in facts.gates if gate.policy)
    parts += [f"policy {name}" for name in policies]
    unchecked = [name for gate in facts.gates for name in gate.unchecked]
    if unchecked:
        parts.append("not checked: " + ", ".join(unchecked))
    return "   ·   ".join(parts)


def facts_line(facts: PageFacts, num_steps: int = 0, rate_hz: float = 0.0) -> str:
    """Robot, length, time, size and what else identifies the episode."""
    steps = f" ({num_steps:,} steps at {rate_hz:g} Hz)" if num_steps else ""
    success = {True: "success", False: "failure", None: "outcome unknown"}[facts.success]
    raw = f"{facts.raw_bytes / 1e6:.2f} MB raw" if facts.raw_bytes else ""
    size = f"{facts.size_bytes / 1e6:.2f} MB" if facts.size_bytes else raw
    parts = (
        facts.robot or "robot unknown",
        length_text(facts.duration_s) + steps,
        success,
        f"{datetime.fromtimestamp(facts.start_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if facts.start_ns
        else "",
        size,
        f"id {facts.episode_id}",
        f"shard {facts.shard}",
        "" if can_write(facts.name + facts.task) else "boxes are letters that no font of this machine has",
    )
    return "   ·   ".join(filter(None, parts))


def length_text(duration_s: float) -> str:
    """A duration in words; 0 stands for one that nobody measured."""
    if duration_s <= 0:
        return "length unknown"
    if duration_s < 60:
        return f"{duration_s:.2f} s"
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min {seconds:02d} s" if hours else f"{minutes} min {seconds:02d} s"


def draw_title(facts: PageFacts, num_steps: int = 0, rate_hz: float = 0.0) -> Image.Image:
    """Badge, name and headline; task; facts."""
    task = wrap(facts.task or "no task given", _TASK_SIZE, _WIDTH, _MOST_TASK_LINES)
    left = MARGIN + badge_width(facts.outcome, _BADGE) + 14
    room = PAGE_WIDTH - MARGIN - left
    headline = wrap(facts.headline, _HEADLINE_SIZE, room, 2)
    top = _BADGE + 10 + line_height(_HEADLINE_SIZE) * (len(headline) - 1)
    height = top + line_height(_TASK_SIZE) * len(task) + line_height(LABEL_SIZE) + 18
    block = Image.new("RGB", (PAGE_WIDTH, height), PAPER)
    draw_badge(block, (MARGIN, 0), facts.outcome, _BADGE)
    source = fit(facts.source, LABEL_SIZE, room / 3)
    name = fit(facts.name, _NAME_SIZE, room - text_width(source, LABEL_SIZE) - 14)
    write(block, (left, -4), name, _NAME_SIZE)
    write(block, (left + text_width(name, _NAME_SIZE) + 12, 7), source, LABEL_SIZE, GREY)
    for number, text in enumerate(headline):
        write(block, (left, 27 + number * line_height(_HEADLINE_SIZE)), text, _HEADLINE_SIZE)
    for text in task:
        write(block, (MARGIN, top), text, _TASK_SIZE, INK if facts.task else GREY)
        top += line_height(_TASK_SIZE)
    line = facts_line(facts, num_steps, rate_hz)
    write(block, (MARGIN, top + 2), fit(line, LABEL_SIZE, _WIDTH), LABEL_SIZE, GREY)
    ImageDraw.Draw(block).line((MARGIN, height - 9, PAGE_WIDTH - MARGIN, height - 9), fill=RULE)
    return block


def draw_verdicts(facts: PageFacts) -> Image.Image:
    """Every failing check in a row: mark and word, check, subject, value and limit, note; how much was checked."""
    lines = verdict_lines(facts)
    rows = [_row(line) for line in lines[:MOST_FINDINGS]]
    if len(lines) > len(rows):
        hidden = len(lines) - len(rows)
        rows.append(_remark(f"and {hidden:,} more, less far beyond their limits", _COLUMNS[1]))
    rows.append(_remark(checked_line(facts), MARGIN))
    block = Image.new("RGB", (PAGE_WIDTH, sum(row.height for row in rows) + 14), PAPER)
    top = 0
    for row in rows:
        block.paste(row, (0, top))
        top += row.height
    return block


def _row(line: VerdictLine) -> Image.Image:
    """One line; what is said at its end may take two."""
    cells, said = [line.check, line.subject, line.measured], line.note
    if not (line.subject or line.measured):  # the reason of a step has the whole line
        cells = [line.check]
    edges = _COLUMNS[1 : len(cells) + 2]
    wrapped = wrap(said, LABEL_SIZE, PAGE_WIDTH - MARGIN - edges[-1], 2)
    more = max(len(wrapped) - 1, 0) * line_height(LABEL_SIZE)
    block = Image.new("RGB", (PAGE_WIDTH, _LINE + more), PAPER)
    draw_mark(block, (MARGIN, 1), line.outcome, 15)
    write(block, (MARGIN + 22, 0), LOOKS[line.outcome].word, LABEL_SIZE)
    for text, left, right in zip(cells, edges[:-1], edges[1:], strict=True):
        write(block, (left, 0), fit(text, LABEL_SIZE, right - left - 10), LABEL_SIZE)
    for number, text in enumerate(wrapped):
        write(block, (edges[-1], number * line_height(LABEL_SIZE)), text, LABEL_SIZE)
    return block


def _remark(text: str, left: int) -> Image.Image:
    block = Image.new("RGB", (PAGE_WIDTH, _LINE), PAPER)
    write(block, (left, 0), fit(text, LABEL_SIZE, PAGE_WIDTH - MARGIN - left), LABEL_SIZE, GREY)
    return block
