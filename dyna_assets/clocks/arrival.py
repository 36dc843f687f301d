"""Two clocks beside each other: a topic's own, and the recorder's, on which its messages arrive."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dyna_assets.clocks.times import difference_s

_BLOCKS = 32


def drift_against(times_N: NDArray[np.int64], arrivals_N: NDArray[np.int64]) -> dict[str, float]:
    """A capture clock against the recorder's: int64 [N] ns each, of the same N messages.

    latency_s: median of arrival minus capture. drift_ppm: how much faster the capture clock runs than the
    recorder's, the median slope between the least latencies of 32 equal stretches: queues only ever add to a
    latency, so the least ones show the clocks. 0.0 where fewer than two stretches hold messages.
    """
    late_s_N = difference_s(np.asarray(arrivals_N, np.int64), np.asarray(times_N, np.int64))
    if not len(late_s_N):
        return {"latency_s": 0.0, "drift_ppm": 0.0}
    since_s_N = difference_s(times_N, times_N[0])
    blocks = [block for block in np.array_split(np.arange(len(late_s_N)), _BLOCKS) if len(block)]
    least = np.array([block[np.argmin(late_s_N[block])] for block in blocks])
    at_s, late_s = since_s_N[least], late_s_N[least]
    first, second = np.triu_indices(len(least), 1)
    apart_s = at_s[second] - at_s[first]
    slopes = (late_s[second] - late_s[first])[apart_s > 0] / apart_s[apart_s > 0]
    drift_ppm = -1e6 * float(np.median(slopes)) if len(slopes) else 0.0
    return {"latency_s": float(np.median(late_s_N)), "drift_ppm": drift_ppm}
