"""What a check yields where a file breaks a promise, and the registry of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dyna_train.doctor.case import Case
from dyna_train.doctor.stretches import steps_text, stretches

Level = Literal["fault", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong at one place: what was expected there, what was found.

    topic, steps (stretches of them), gop, byte: where, as far as it applies; byte counts from the file's start.
    """

    expected: str
    found: str
    topic: str = ""
    steps: tuple[range, ...] = ()
    gop: int | None = None
    byte: int | None = None

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


Look = Callable[[Case], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """A named promise and the function that finds where a file breaks it."""

    name: str
    level: Level
    look: Look


CHECKS: dict[str, Check] = {}
"""By name, filled by importing the modules that hold them."""


def check(name: str, level: Level = "fault") -> Callable[[Look], Look]:
    """Register the decorated function as the check `name`."""

    def register(look: Look) -> Look:
        assert name not in CHECKS, f"two checks are called {name}"
        CHECKS[name] = Check(name, level, look)
        return look

    return register


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """The findings; those that say the same of different steps of one topic become one, at the first place."""
    groups: dict[object, Finding] = {}
    for number, finding in enumerate(findings):
        key = (finding.topic, finding.expected, finding.found) if finding.steps else number
        first = groups.get(key)
        groups[key] = replace(first, steps=first.steps + finding.steps) if first else finding
    return [replace(finding, steps=stretches(finding.steps)) for finding in groups.values()]
