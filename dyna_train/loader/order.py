"""A permutation of 0..n-1 without an array: position in, index out, in any order, for n below 2**63.

A Feistel network permutes [0, 4**h), the smallest such range that holds n; a result outside [0, n) goes
through it again until it falls inside (cycle walking, under 4 passes on average), which keeps it a
bijection. Four rounds pass the tests of randomness that two fail.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_ROUNDS = 4
_GOLDEN = 0x9E3779B97F4A7C15
_MASK64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Permutation:
    """The order of `size` things; build it with `of`."""

    size: int
    keys: tuple[int, ...]

    @classmethod
    def of(cls, size: int, *, seed: int, epoch: int = 0) -> Permutation:
        """The permutation of (seed, epoch): the same on every machine, rank and version of numpy.

        Raises ValueError for a size outside 1..2**63-1 or a negative seed or epoch.
        """
        if not 1 <= size < 1 << 63:
            raise ValueError(f"cannot permute {size} things; expected 1 to 2**63 - 1")
        if not (0 <= seed < 1 << 64 and 0 <= epoch < 1 << 64):
            raise ValueError(f"seed {seed} and epoch {epoch} must lie in 0..2**64-1")
        state = _mix(_mix(seed) ^ (epoch + _GOLDEN & _MASK64))
        keys = tuple(_mix(state + (round_ + 1) * _GOLDEN & _MASK64) for round_ in range(NUM_ROUNDS))
        return cls(size, keys)

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices at `positions`, int64 of the same shape. Raises IndexError for one outside [0, size).

        Calls on blocks of thousands cost 0.3 µs an index; single positions cost a hundred times that.
        """
        asked = np.asarray(positions, dtype=np.int64)
        if asked.size and not (asked.min() >= 0 and asked.max() < self.size):
            raise IndexError(f"positions {asked.min()} to {asked.max()} leave the permutation of {self.size}")
        values = self._once(asked.astype(np.uint64).ravel())
        outside = np.flatnonzero(values >= self.size)
        while outside.size:
            values[outside] = self._once(values[outside])
            outside = outside[values[outside] >= self.size]
        return values.astype(np.int64).reshape(asked.shape)

    def _once(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        half = np.uint64(max(1, ((self.size - 1).bit_length() + 1) // 2))
        mask = (np.uint64(1) << half) - np.uint64(1)
        left, right = values >> half, values & mask
        for key in self.keys:
            left, right = right, left ^ (_mix_array(right + np.uint64(key)) & mask)
        return (left << half) | right


def _mix(value: int) -> int:
    """The finalizer of splitmix64: every bit of the input reaches every bit of the output."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK64
    return value ^ value >> 31


def _mix_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`_mix` over an array; uint64 arithmetic wraps as wanted."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
