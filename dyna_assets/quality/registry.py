"""The quality checks by name: each a small function that measures, and never judges.

A check looks at facts that a step wrote down (it opens no file) and gives a value for each of its subjects, in its own
unit, with the stretches of time it concerns. Whether a value is good is a policy's business: a check only
says in which direction it gets worse, and where the limits lie when nobody says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import FiniteFloat

from dyna_train.config import Config
from dyna_train.errors import did_you_mean

Gate = Literal["before", "after"]
GATES: tuple[Gate, ...] = ("before", "after")
Worse = Literal["above", "below"]
Facts = Mapping[str, Any]


class Limits(Config):
    """Where a check's value starts to warn and to reject; None never does."""

    warn: FiniteFloat | None = None
    reject: FiniteFloat | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What a check found of one subject.

    subject: the camera or topic, '' for the whole episode. spans: (start_s, end_s) since the recording's start
    (gate before) or the episode's (gate after), where the value comes from. note: the finding as a sentence
    that a person can act on, with what was found; it is shown when a policy warns or rejects.
    """

    subject: str
    value: float
    note: str = ""
    spans: tuple[tuple[float, float], ...] = ()


Measure = Callable[[Facts], Iterable[Measured]]


@dataclass(frozen=True, slots=True)
class Check:
    """A registered check. It measured nothing (`not checked`) if it gives no subject."""

    name: str
    gate: Gate
    version: int
    unit: str
    worse: Worse
    limits: Limits
    measure: Measure

    @property
    def column(self) -> str:
        """Its column in the table `qc_evidence`."""
        return self.name.replace(".", "_")

    @property
    def says(self) -> str:
        """What it is about, in one line."""
        return (self.measure.__doc__ or "").strip().splitlines()[0]

    def worst(self, measured: Iterable[Measured]) -> Measured | None:
        """The subject in the worst state; None if nothing was measured."""
        best_first = sorted(measured, key=lambda one: one.value, reverse=self.worse == "below")
        return best_first[-1] if best_first else None

    def is_beyond(self, value: float, limit: float | None) -> bool:
        """Whether a value is worse than a limit: not at it, never without one, and always if it is no number."""
        if limit is None:
            return False
        return math.isnan(value) or (value > limit if self.worse == "above" else value < limit)


CHECKS: dict[str, Check] = {}


def check(
    name: str,
    gate: Gate,
    *,
    unit: str,
    warn: float | None = None,
    reject: float | None = None,
    worse: Worse = "above",
    version: int = 1,
) -> Callable[[Measure], Measure]:
    """Register the decorated function as a check. A value beyond a limit (not at it) warns or rejects."""

    def register(measure: Measure) -> Measure:
        limits = Limits(warn=warn, reject=reject)
        CHECKS[name] = Check(name, gate, version, unit, worse, limits, measure)
        return measure

    return register


def check_versions(gate: Gate) -> dict[str, int]:
    """check -> its version, for every check of one gate."""
    return {rule.name: rule.version for rule in checks_of(gate)}


def checks_of(gate: Gate) -> list[Check]:
    """The checks of one gate, in the order of the registry."""
    return [rule for rule in CHECKS.values() if rule.gate == gate]


def known_check(name: str) -> str:
    """The name, if a check is called so. Raises ValueError with the nearest name."""
    if name not in CHECKS:
        raise ValueError(f"no check is called '{name}'; {did_you_mean(name, sorted(CHECKS), 'checks')}")
    return name


def known_limits(limits: Mapping[str, Limits]) -> Mapping[str, Limits]:
    """The limits, if each is of a known check and warns before it rejects. Raises ValueError naming what is not."""
    for name, here in limits.items():
        rule = CHECKS[known_check(name)]
        if here.warn is not None and here.reject is not None and rule.is_beyond(here.warn, here.reject):
            raise ValueError(
                f"'{name}' gets worse {rule.worse} a limit, so that with warn = {here.warn:g} and "
                f"reject = {here.reject:g} it would never warn; expected "
                f"warn {'<=' if rule.worse == 'above' else '>='} reject. Exchange the two"
            )
    return limits
