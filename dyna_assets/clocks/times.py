"""Capture times as numbers: their differences in seconds, and which clocks tell the time of day."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WALL_CLOCK_NS = 10**18
"""September 2001: times before it count from a recording's start or a robot's, not from the epoch."""

Seconds = NDArray[np.float64]


def difference_s(later: NDArray[np.int64], earlier: NDArray[np.int64] | np.int64) -> Seconds:
    """`later` - `earlier` in seconds, also where int64 cannot hold the nanoseconds."""
    later, earlier = np.broadcast_arrays(later, earlier)
    forward = later >= earlier
    high, low = np.where(forward, later, earlier), np.where(forward, earlier, later)
    apart = high.astype(np.uint64) - low.astype(np.uint64)  # modulo 2**64, so exact
    return np.asarray(np.where(forward, 1.0, -1.0) * (apart / 1e9))
