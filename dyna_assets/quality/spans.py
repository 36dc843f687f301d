"""Stretches of samples, as evidence keeps them: [start_s, end_s], only the longest, in order of time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST_SPANS = 16
"""So many are kept of one finding: enough to find the place, and evidence stays small."""

Spans = list[list[float]]


def runs_of(bad_N: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(start, stop) of every run of True."""
    edges = np.flatnonzero(np.diff(bad_N.astype(np.int8), prepend=0, append=0))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def spans_of(bad_N: NDArray[np.bool_], times_s_N: NDArray[np.float64]) -> Spans:
    """The longest runs of True as [time of the first, time of the last]."""
    return longest([[float(times_s_N[start]), float(times_s_N[stop - 1])] for start, stop in runs_of(bad_N)])


def longest(spans: Spans) -> Spans:
    """The longest of them, rounded to the millisecond."""
    kept = sorted(spans, key=lambda span: span[0] - span[1])[:MOST_SPANS]
    return [[round(start_s, 3), round(end_s, 3)] for start_s, end_s in sorted(kept)]
