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
from dyna_train.doctor.check import Check, Finding, Level
from dyna_train.doctor.survey import Survey
from dyna_train.errors import EpisodeError
from dyna_train.files import describe

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


CHECKS = tuple(one for module in ORDER for one in vars(module).values() if isinstance(one, Check))
"""Every check, in that order."""


@dataclass(frozen=True, slots=True)
class Report:
    """What all checks find in one file, in the order of the checks; summary: one line about a file that has none."""

    file: str
    faults: tuple[Finding, ...]
    summary: str

    @property
    def level(self) -> Level | None:
        """The worst level among the faults; None for a healthy file."""
        levels = {fault.level for fault in self.faults}
        return "fault" if "fault" in levels else "warning" if levels else None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        faults = [{"file": self.file, **fault.to_dict()} for fault in self.faults]
        return {"file": self.file, "ok": not self.faults, "level": self.level, "faults": faults}

    def lines(self) -> Iterator[str]:
        """One line for each fault, or the summary."""
        if not self.faults:
            yield self.summary
        for fault in self.faults:
            yield f"{self.file}: {fault}"


def examine(uri: str | Path) -> Report:
    """Run every check on the file at `uri`; a file that cannot be opened or read is a fault too."""
    try:
        survey = Survey.open(uri)
    except (EpisodeError, OSError) as error:
        said = describe(error) if isinstance(error, OSError) else str(error)
        found = said.removeprefix(f"{uri}: ").partition(";")[0]
        return Report(str(uri), (Finding("an episode file", found, check="file"),), "")
    case = Case(survey)
    faults = tuple(finding for check in CHECKS for finding in check.findings(case))
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
