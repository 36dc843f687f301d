"""What the checks find in one file, and how it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dyna_train.doctor import (
    checks_chunks,
    checks_grid,
    checks_index,
    checks_profile,
    checks_records,
    checks_summary,
    checks_video,
)
from dyna_train.doctor.case import Case
from dyna_train.doctor.fault import CHECKS, Finding, Level, merged
from dyna_train.doctor.survey import Survey
from dyna_train.errors import EpisodeError

ORDER = (
    checks_records,
    checks_profile,
    checks_chunks,
    checks_grid,
    checks_video,
    checks_index,
    checks_summary,
)
"""From what everything stands on to what only repeats it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One promise that a file breaks, at one place."""

    file: str
    check: str
    level: Level
    finding: Finding

    def __str__(self) -> str:
        """One line."""
        one, mark = self.finding, " (warning)" if self.level == "warning" else ""
        text = f"{self.file}: {self.check}{mark}: {one.where}: expected {one.expected}; found {one.found}"
        return " ".join(text.split())

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; steps as [first, end) pairs."""
        one = self.finding
        return {
            "file": self.file,
            "check": self.check,
            "level": self.level,
            "topic": one.topic or None,
            "steps": [[run.start, run.stop] for run in one.steps] or None,
            "gop": one.gop,
            "byte": one.byte,
            "expected": one.expected,
            "found": one.found,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All faults of one file, in the order of the checks; summary: one line about a file that has none."""

    file: str
    faults: tuple[Fault, ...]
    summary: str

    @property
    def level(self) -> Level | None:
        """The worst level among the faults; None for a healthy file."""
        levels = {fault.level for fault in self.faults}
        return "fault" if "fault" in levels else "warning" if levels else None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        faults = [fault.to_dict() for fault in self.faults]
        return {"file": self.file, "ok": not self.faults, "level": self.level, "faults": faults}

    def lines(self) -> Iterator[str]:
        """One line for each fault, or the summary."""
        if not self.faults:
            yield self.summary
        for fault in self.faults:
            yield str(fault)


def examine(uri: str | Path) -> Report:
    """Run every check on the file at `uri`; a file that cannot be opened is a fault too."""
    try:
        survey = Survey.open(uri)
    except EpisodeError as error:
        found = str(error).removeprefix(f"{uri}: ").partition(";")[0]
        return Report(str(uri), (Fault(str(uri), "file", "fault", Finding("an episode file", found)),), "")
    case = Case(survey)
    faults = tuple(
        Fault(str(uri), check.name, check.level, finding)
        for module in ORDER
        for check in CHECKS.values()
        if check.look.__module__ == module.__name__
        for finding in merged(check.look(case))
    )
    return Report(str(uri), faults, _summary(case))


def _summary(case: Case) -> str:
    header = case.header
    if header is None:
        return f"{case.survey.uri}: no episode"
    chunks, checks = len(case.survey.chunks), len(CHECKS)
    return (
        f"{case.survey.uri}: ok: {header.num_steps:,} steps at {header.rate_hz:g} Hz, "
        f"{len(header.cameras)} cameras, {len(header.vectors)} vectors, {chunks} chunks, {checks} checks"
    )
