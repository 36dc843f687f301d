"""How much later one signal is than another (pure).

Array axes: M samples at one rate, D dimensions that are looked at together, K lags.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Peak:
    """Where two signals are most alike: the second is lag_s later than the first. height: their correlation."""

    lag_s: float
    height: float


def lag_between(
    first_MD: NDArray[np.float64],
    second_MD: NDArray[np.float64],
    used_M: NDArray[np.bool_],
    rate_hz: float,
    max_lag_s: float,
) -> Peak | None:
    """The highest peak of the correlation of both signals, over lags up to max_lag_s either way.

    All dimensions share one lag, and count by how much they move. used_M: samples outside are left out. Between
    samples the peak is found by a parabola. None if nothing moves, or the signals are most alike at an end of
    the range, where no peak can be told.
    """
    correlation_K = _correlation(first_MD, second_MD, used_M, round(max_lag_s * rate_hz))
    top = int(np.argmax(correlation_K))
    if not 0 < top < len(correlation_K) - 1 or correlation_K[top] <= 0:
        return None
    before, at, after = correlation_K[top - 1 : top + 2].tolist()
    beyond = 0.5 * (before - after) / (before - 2 * at + after)
    height = at - 0.25 * (before - after) * beyond
    return Peak((top - len(correlation_K) // 2 + beyond) / rate_hz, min(height, 1.0))


def _correlation(
    first_MD: NDArray[np.float64], second_MD: NDArray[np.float64], used_M: NDArray[np.bool_], most: int
) -> NDArray[np.float64]:
    """Correlation at lags -most .. most samples, float64 [K], each over the samples that overlap at it.

    `most` is cut to half of the samples, so that at least half overlap.
    """
    num_samples = len(used_M)
    most = min(most, num_samples // 2)
    if most < 1 or not used_M.any():
        return np.zeros(1)
    first_MD, second_MD = _centred(first_MD, used_M), _centred(second_MD, used_M)
    length = 1 << (num_samples + most).bit_length()
    spectrum = np.conj(np.fft.rfft(first_MD, length, axis=0)) * np.fft.rfft(second_MD, length, axis=0)
    products = np.fft.irfft(spectrum.sum(axis=1), length)
    lags_K = np.arange(-most, most + 1)
    first_K = _energy(first_MD, np.maximum(-lags_K, 0), num_samples - np.maximum(lags_K, 0))
    second_K = _energy(second_MD, np.maximum(lags_K, 0), num_samples - np.maximum(-lags_K, 0))
    energy_K = np.sqrt(first_K * second_K)
    found_K: NDArray[np.float64] = np.divide(
        products[lags_K], energy_K, out=np.zeros(len(lags_K)), where=energy_K > 0
    )
    return found_K


def _centred(values_MD: NDArray[np.float64], used_M: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Without the mean of the used samples, and 0 at the others."""
    return np.where(used_M[:, None], values_MD - values_MD[used_M].mean(axis=0), 0.0)


def _energy(
    values_MD: NDArray[np.float64], starts_K: NDArray[np.int64], ends_K: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum of squares from each start to its end, float64 [K]."""
    sums = np.concatenate([[0.0], np.cumsum(np.einsum("md,md->m", values_MD, values_MD))])
    summed_K: NDArray[np.float64] = sums[ends_K] - sums[starts_K]
    return summed_K
