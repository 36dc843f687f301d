"""Stretches of samples, as facts and evidence keep them: [start_s, end_s], only the longest, in order of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.stretches import steps_at

MOST_SPANS = 16
"""So many are kept of one finding: enough to find the place, and evidence stays small."""

Spans = list[list[float]]


def spans_of(bad_N: NDArray[np.bool_], times_s_N: NDArray[np.float64]) -> Spans:
    """The longest runs of True as [time of the first, time of the last]."""
    runs = steps_at(np.flatnonzero(bad_N))
    return longest([[float(times_s_N[run.start]), float(times_s_N[run.stop - 1])] for run in runs])


def longest(spans: Spans) -> Spans:
    """The longest of them, rounded to the millisecond."""
    kept = sorted(spans, key=lambda span: span[0] - span[1])[:MOST_SPANS]
    return [[round(start_s, 3), round(end_s, 3)] for start_s, end_s in sorted(kept)]


def as_pairs(kept: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    """The spans as a measurement holds them."""
    return tuple((start_s, end_s) for start_s, end_s in kept)
