"""Statistics that a few wild values do not move."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAD_SIGMAS = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""


def robust_sigma(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation along the last axis, which is not empty, from the median absolute deviation."""
    apart = np.abs(values - np.median(values, axis=-1, keepdims=True))
    return np.asarray(MAD_SIGMAS * np.median(apart, axis=-1))
