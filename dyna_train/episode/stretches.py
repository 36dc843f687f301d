"""Sets of steps as the fewest ranges that hold them, and how people write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Stretches = tuple[range, ...]
"""Ascending, not touching each other."""

_SHOWN = 4


def at_step(step: int) -> Stretches:
    """One step as stretches."""
    return (range(step, step + 1),)


def steps_at(steps: NDArray[np.integer[Any]]) -> Stretches:
    """Steps, in any order, as the fewest stretches."""
    ordered = np.unique(steps)
    cuts = np.flatnonzero(np.diff(ordered) != 1) + 1
    runs = np.split(ordered, cuts) if len(ordered) else []
    return tuple(range(int(run[0]), int(run[-1]) + 1) for run in runs)


def stretches(parts: Iterable[range]) -> Stretches:
    """The fewest stretches that hold the same steps, ascending."""
    joined: list[range] = []
    for part in sorted(parts, key=lambda part: part.start):
        if joined and part.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, part.stop))
        else:
            joined.append(part)
    return tuple(joined)


def steps_text(steps: Iterable[range]) -> str:
    """Steps as people write them: 'step 3', 'steps 3-8', 'steps 3-8, 12, 20-21, 30 and 40 more'."""
    found = stretches(steps)
    shown, rest = found[:_SHOWN], found[_SHOWN:]
    text = ", ".join(f"{run.start}-{run.stop - 1}" if len(run) > 1 else str(run.start) for run in shown)
    more = f" and {sum(map(len, rest)):,} more" if rest else ""
    return f"step{'s' if sum(map(len, found)) > 1 else ''} {text}{more}" if found else ""


def missing_from(whole: range, parts: Iterable[range]) -> Stretches:
    """The steps of `whole` that are in none of `parts`."""
    gaps, at = [], whole.start
    for part in stretches(parts):
        gaps.append(range(at, min(part.start, whole.stop)))
        at = max(at, part.stop)
    return tuple(gap for gap in [*gaps, range(at, whole.stop)] if len(gap))
