"""A check: a named promise, the function that finds where a file breaks it, and what that yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from dyna_train.doctor.case import Case
from dyna_train.episode.stretches import steps_text, stretches

Level = Literal["fault", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong at one place: what was expected there, what was found.

    topic, steps (stretches of them), gop, byte: where, as far as it applies; byte counts from the file's start.
    check, level: of the check that found it, which need not say so itself.
    """

    expected: str
    found: str
    topic: str = ""
    steps: tuple[range, ...] = ()
    gop: int | None = None
    byte: int | None = None
    check: str = ""
    level: Level = "fault"

    @property
    def where(self) -> str:
        """The place in words."""
        parts = [
            self.topic,
            steps_text(self.steps),
            "" if self.gop is None else f"GOP {self.gop}",
            "" if self.byte is None else f"byte {self.byte:,}",
        ]
        return ", ".join(part for part in parts if part) or "file"

    def __str__(self) -> str:
        """One line."""
        mark = " (warning)" if self.level == "warning" else ""
        text = f"{self.check}{mark}: {self.where}: expected {self.expected}; found {self.found}"
        return " ".join(text.split())

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; steps as [first, end) pairs."""
        return {
            "check": self.check,
            "level": self.level,
            "topic": self.topic or None,
            "steps": [[run.start, run.stop] for run in self.steps] or None,
            "gop": self.gop,
            "byte": self.byte,
            "expected": self.expected,
            "found": self.found,
        }


Find = Callable[[Case], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """A named promise and the function that finds where a file breaks it."""

    name: str
    level: Level
    find: Find

    def findings(self, case: Case) -> list[Finding]:
        """Where the file breaks it, each place once, signed with its name."""
        return [replace(one, check=self.name, level=self.level) for one in merged(self.find(case))]


def check(name: str, level: Level = "fault") -> Callable[[Find], Check]:
    """Make the decorated function the check `name`."""
    return lambda find: Check(name, level, find)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """The findings; those that say the same of different steps of one topic become one, at the first place."""
    groups: dict[object, Finding] = {}
    for number, finding in enumerate(findings):
        key = (finding.topic, finding.expected, finding.found) if finding.steps else number
        first = groups.get(key)
        groups[key] = replace(first, steps=first.steps + finding.steps) if first else finding
    return [replace(finding, steps=stretches(finding.steps)) for finding in groups.values()]
