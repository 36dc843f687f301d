"""Vectors at the grid's instants as they were captured, and how fast they move (pure).

Array axes: T steps, M = T - 1 intervals between steps, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.quality.vector_facts import STILL

SMOOTHED_S = 0.1
"""Speeds are means over this long: what an encoder's last bit does in one step is none."""


@dataclass(frozen=True, slots=True)
class Motion:
    """One vector without the skew of its alignment.

    values_TD: float64, at the instants of the grid, between what was captured before and after each. valid_T: bool,
    the valid steps at which all values are numbers. velocity_MD: float64, per second; 0 where not used_M.
    """

    values_TD: NDArray[np.float64]
    valid_T: NDArray[np.bool_]
    velocity_MD: NDArray[np.float64]
    rate_hz: float

    @classmethod
    def of(
        cls,
        values_TD: NDArray[np.float32],
        seconds_T: NDArray[np.float64],
        rate_hz: float,
        valid_T: NDArray[np.bool_],
    ) -> Motion:
        """From what stands in an episode file.

        seconds_T: when each row was captured, since the episode's start; a row that is held keeps its time. A
        time that is NaN, or earlier than one before, is left out.
        """
        grid_T = np.arange(len(values_TD)) / rate_hz
        found_TD = between(values_TD.astype(np.float64), seconds_T, grid_T)
        valid_T = valid_T & np.isfinite(found_TD).all(axis=1)
        used_M = valid_T[1:] & valid_T[:-1]
        velocity_MD = np.where(used_M[:, None], np.diff(found_TD, axis=0) * rate_hz, 0.0)
        return cls(found_TD, valid_T, velocity_MD, rate_hz)

    @property
    def used_M(self) -> NDArray[np.bool_]:
        """Intervals whose ends are valid, bool [M]."""
        return self.valid_T[1:] & self.valid_T[:-1]

    def speed_M(self, dims: Sequence[int]) -> NDArray[np.float64]:
        """Euclidean speed of some dimensions, in their unit per second, smoothed over SMOOTHED_S; float64 [M]."""
        speed_M = np.sqrt(np.einsum("md,md->m", part_MD := self.velocity_MD[:, dims], part_MD))
        return smoothed(speed_M, self.rate_hz)

    def path(self, dims: Sequence[int]) -> float:
        """How far some dimensions moved together, in their unit."""
        return float(np.linalg.norm(self.velocity_MD[:, dims], axis=1).sum() / self.rate_hz)

    def travel_D(self, dims: Sequence[int]) -> NDArray[np.float64]:
        """From the lowest to the highest valid value of each of `dims`, float64 [D]; 0 without a valid one."""
        values_TD = self.values_TD[self.valid_T][:, dims]
        travel_D: NDArray[np.float64] = np.ptp(values_TD, axis=0) if len(values_TD) else np.zeros(len(dims))
        return travel_D

    def moves(self, dims: Sequence[int]) -> bool:
        """Whether any of `dims` does more than what an encoder's noise does."""
        return bool((self.travel_D(dims) > STILL).any() and self.velocity_MD[:, dims].any())


def between(
    values_ND: NDArray[np.float64], seconds_N: NDArray[np.float64], wanted_T: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Values at `wanted_T` on straight lines between those at `seconds_N`, float64 [T, D]; held beyond the ends.

    Of rows with the same time the first counts. NaN everywhere if no row has a time.
    """
    known_N = np.isfinite(seconds_N)
    times_N = np.maximum.accumulate(np.where(known_N, seconds_N, -np.inf))
    known_N &= np.diff(times_N, prepend=-np.inf) > 0
    values_KD, times_K = values_ND[known_N], seconds_N[known_N]
    if not len(times_K):
        return np.full((len(wanted_T), values_ND.shape[1]), np.nan)
    after_T = np.clip(np.searchsorted(times_K, wanted_T), 1, max(len(times_K) - 1, 1))
    if len(times_K) == 1:
        return np.repeat(values_KD, len(wanted_T), axis=0)
    start_T, end_T = times_K[after_T - 1], times_K[after_T]
    share_T1 = np.clip((wanted_T - start_T) / (end_T - start_T), 0, 1)[:, None]
    start_TD = values_KD[after_T - 1]
    found_TD: NDArray[np.float64] = start_TD + share_T1 * (values_KD[after_T] - start_TD)
    return found_TD


def smoothed(values_M: NDArray[np.float64], rate_hz: float) -> NDArray[np.float64]:
    """Means over SMOOTHED_S around each place (fewer at the ends), float64 [M]."""
    width = min(2 * round(SMOOTHED_S * rate_hz / 2) + 1, len(values_M))
    if width < 2:
        return values_M
    ones = np.ones(width)
    counts_M = np.convolve(np.ones(len(values_M)), ones, "same")
    means_M: NDArray[np.float64] = np.convolve(values_M, ones, "same") / counts_M
    return means_M
