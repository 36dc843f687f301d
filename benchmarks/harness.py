"""What every benchmark shares: timing, figures with bars and limits, one report for people and machines.

A benchmark is a module of this package with a function `build() -> Report` and

    if __name__ == "__main__":
        main(build)

`python -m benchmarks.<name>` prints a table; with `--json` it prints one object with stable keys:
{name, date, machine, figures: [{key, value, unit, bar, limit, peers, ok}]}.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import resource
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dyna_train.errors import DynaError

OK, MISSED, BROKEN = 0, 1, 2
"""Exit codes: all bars held, a bar was missed, the benchmark could not run."""

Direction = Literal["<=", ">="]


@dataclass(frozen=True, slots=True)
class Figure:
    """One published number.

    bar: what we promise; `direction` says on which side of it `value` must be.  limit: what physics or the
    best possible implementation would give, same unit.  peers: the same number of other tools, same run,
    same machine.  ok: whether the bar holds, worked out from it; None without a bar.  Where a promise is no
    number, leave out the bar and give ok.
    """

    key: str
    value: float
    unit: str
    bar: float | None = None
    limit: float | None = None
    peers: Mapping[str, float] = field(default_factory=dict)
    ok: bool | None = None
    direction: Direction = "<="

    def __post_init__(self) -> None:
        """Refuse what is no number, and hold the value against its bar."""
        numbers = {"value": self.value, "bar": self.bar, "limit": self.limit, **self.peers}
        for name, number in numbers.items():
            if number is not None and not math.isfinite(number):
                raise ValueError(f"figure {self.key}: {name} is {number}; expected a finite number")
        if self.direction not in ("<=", ">="):
            raise ValueError(f"figure {self.key}: direction {self.direction!r}; expected '<=' or '>='")
        if self.bar is None:
            return
        if self.ok is not None:
            raise ValueError(f"figure {self.key}: ok follows from the bar {self.bar:g}; give one of the two")
        held = self.value <= self.bar if self.direction == "<=" else self.value >= self.bar
        object.__setattr__(self, "ok", held)

    def as_json(self) -> dict[str, Any]:
        """The figure as it stands in the JSON report."""
        data = asdict(self)
        del data["direction"]
        return data


@dataclass(frozen=True, slots=True)
class Run:
    """One run: elapsed seconds, and CPU seconds of this process and of the children it waited for."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians over `runs`."""

    wall_s: float
    cpu_s: float
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What one benchmark found. notes: lines for people, below the table."""

    name: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    machine: Mapping[str, Any] = field(default_factory=lambda: describe_machine())

    def __post_init__(self) -> None:
        """Refuse two figures with one key."""
        keys = [figure.key for figure in self.figures]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"report {self.name}: more than one figure is called {', '.join(twice)}")

    @property
    def missed(self) -> list[str]:
        """Keys of the figures that miss their bar."""
        return [figure.key for figure in self.figures if figure.ok is False]

    def as_json(self) -> dict[str, Any]:
        """The report as `--json` prints it."""
        return {
            "name": self.name,
            "date": self.date,
            "machine": dict(self.machine),
            "figures": [figure.as_json() for figure in self.figures],
        }


def measure(
    fn: Callable[[], object], runs: int = 5, warmup: int = 1, prepare: Callable[[], object] | None = None
) -> Timing:
    """Call `fn` `warmup` times unmeasured, then `runs` times; `prepare` runs before each call, unmeasured.

    CPU of child processes counts once they have been waited for, so `fn` must join what it starts.
    Raises ValueError for fewer than one run.
    """
    if runs < 1:
        raise ValueError(f"runs is {runs}; a median needs 1 or more")
    taken: list[Run] = []
    for number in range(warmup + runs):
        if prepare is not None:
            prepare()
        cpu_s, wall_s = cpu_seconds(), time.perf_counter()
        fn()
        run = Run(time.perf_counter() - wall_s, cpu_seconds() - cpu_s)
        if number >= warmup:
            taken.append(run)
    wall_s, cpu_s = (statistics.median(getattr(run, name) for run in taken) for name in ("wall_s", "cpu_s"))
    return Timing(wall_s, cpu_s, tuple(taken))


def cpu_seconds() -> float:
    """User and system CPU seconds so far, of this process and of all children it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def describe_machine() -> dict[str, Any]:
    """What a figure has to be read with: processor, cores, memory, Python, and who else was working."""
    return {
        "cpu": _cpu_model(),
        "cores": _usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "load_average": list(os.getloadavg()),
    }


def show(report: Report, console: Console) -> None:
    """Print the report as a table: what was promised beside what was found, and what is possible."""
    table = Table(
        title=f"{report.name}  {report.date}", title_justify="left", caption_justify="left", box=SIMPLE_HEAD
    )
    for name in ("figure", "value", "unit", "bar", "", "limit", "peers"):
        is_number = name in ("value", "bar", "limit")
        table.add_column(
            name, justify="right" if is_number else "left", no_wrap=is_number or name in ("figure", "")
        )
    for figure in report.figures:
        peers = ", ".join(f"{name} {_number(value)}" for name, value in figure.peers.items())
        bar = "" if figure.bar is None else f"{figure.direction} {_number(figure.bar)}"
        limit = "" if figure.limit is None else _number(figure.limit)
        table.add_row(figure.key, _number(figure.value), figure.unit, bar, _VERDICTS[figure.ok], limit, peers)
    machine = report.machine
    table.caption = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.1f} GiB, "
        f"Python {machine['python']}, load {machine['load_average'][0]:.1f}"
    )
    console.print(table)
    for note in report.notes:
        console.print(note)


WIDTH = 120
"""Columns of a table that goes into a file."""
_VERDICTS = {True: "[green]ok[/green]", False: "[bold red]MISSED[/bold red]", None: ""}


def main(build: Callable[[], Report], argv: Sequence[str] | None = None) -> NoReturn:
    """Run one benchmark from the command line and exit: 0 ok, 1 a bar was missed, 2 it could not run."""
    parser = argparse.ArgumentParser(description=sys.modules[build.__module__].__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args(argv).json
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for the report alone
            report = build()
    except DynaError as error:
        print(f"benchmark could not run: {error}", file=sys.stderr)
        sys.exit(BROKEN)
    except Exception:  # the process's edge: Python itself would exit with 1, which means a missed bar here
        traceback.print_exc()
        sys.exit(BROKEN)
    if as_json:
        print(json.dumps(report.as_json(), indent=1, allow_nan=False))
    else:
        # a file has no width, and what is cut there is lost
        show(report, Console() if sys.stdout.isatty() else Console(width=WIDTH))
    sys.exit(MISSED if report.missed else OK)


def _number(value: float) -> str:
    """Three significant digits, and no exponent where a person would write none."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _usable_cores() -> int:
    """Cores that this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
