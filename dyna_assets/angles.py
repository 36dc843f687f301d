"""Dimensions that turn: angles that begin again after a full turn, and quaternions of four dimensions in a row.

Which dimensions turn follows from their units: 'rad' and 'deg' are angles, four in a row of 'quat' a quaternion (in
either order of its parts). Axis letters: N rows, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError

FULL_TURN = {"rad": 2 * math.pi, "deg": 360.0}
_SLACK = 1e-6  # float32 writes pi a little too large

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Turning:
    """The dimensions of one vector that turn.

    angles: those that begin again; turn_A: their full turn, low_A: where they begin. An angle that covers more
    than a full turn counts its turns, never begins again, and is a plain number. quaternions: first dimension of each.
    """

    angles: tuple[int, ...]
    turn_A: Values
    low_A: Values
    quaternions: tuple[int, ...]

    @classmethod
    def of(cls, values_ND: NDArray[np.floating], units: Sequence[str], *, where: str) -> Turning:
        """Look at the units and at the range the values use. Raises RecordingError for an incomplete quaternion."""
        found = [
            (dim, turn, low)
            for dim, unit in enumerate(units)
            if (turn := FULL_TURN.get(unit)) and (low := _begins_at(values_ND[:, dim], turn)) is not None
        ]
        return cls(
            tuple(dim for dim, _, _ in found),
            np.array([turn for _, turn, _ in found]),
            np.array([low for _, _, low in found]),
            quaternions_in(units, where=where),
        )

    def shorter(self, difference_ND: Values) -> Values:
        """Differences of two rows, those of angles over the shorter way."""
        short_ND = difference_ND.copy()
        angles = list(self.angles)
        short_ND[:, angles] -= self.turn_A * np.round(short_ND[:, angles] / self.turn_A)
        return short_ND

    def between(self, before_ND: Values, after_ND: Values, weight_N: Values) -> Values:
        """Rows at the share `weight_N` (0 to 1) of the way from one row to another.

        Linear; angles over the shorter way and within the range they came in; quaternions by `slerp`.
        """
        straight_ND = after_ND - before_ND
        short_ND = self.shorter(straight_ND)
        made_ND = before_ND + weight_N[:, None] * short_ND
        angles = list(self.angles)
        inside = self.low_A + np.mod(made_ND[:, angles] - self.low_A, self.turn_A)
        begins_again = np.abs(straight_ND[:, angles]) > self.turn_A / 2
        made_ND[:, angles] = np.where(begins_again, inside, made_ND[:, angles])
        for dim in self.quaternions:
            part = slice(dim, dim + 4)
            made_ND[:, part] = slerp(before_ND[:, part], after_ND[:, part], weight_N)
        return made_ND


def quaternions_in(units: Sequence[str], *, where: str) -> tuple[int, ...]:
    """First dimensions of the quaternions. Raises RecordingError if 'quat' does not come in fours."""
    starts, dim = [], 0
    while dim < len(units):
        if units[dim] != "quat":
            dim += 1
            continue
        if list(units[dim : dim + 4]) != ["quat"] * 4:
            num_left = sum(unit == "quat" for unit in units[dim : dim + 4])
            raise RecordingError(
                f"{where}: {num_left} dimensions of unit 'quat' from dimension {dim} on, expected 4 in a row for each "
                "quaternion; correct 'units' in the source's TOML",
                check="topics.present",
            )
        starts.append(dim)
        dim += 4
    return tuple(starts)


def slerp(before_N4: Values, after_N4: Values, weight_N: Values) -> Values:
    """Unit quaternions on the shorter arc between two rotations, turning at a constant rate; float64 [N, 4].

    A quaternion of length 0 is no rotation: there the row before stays.
    """
    length_N1 = [np.linalg.norm(q_N4, axis=1, keepdims=True) for q_N4 in (before_N4, after_N4)]
    is_none_N1 = (length_N1[0] == 0) | (length_N1[1] == 0)
    from_N4, to_N4 = (
        q_N4 / np.where(is_none_N1, 1.0, length)
        for q_N4, length in zip((before_N4, after_N4), length_N1, strict=True)
    )
    to_N4 = np.where((from_N4 * to_N4).sum(axis=1, keepdims=True) < 0, -to_N4, to_N4)
    apart, along = (
        np.linalg.norm(q_N4, axis=1, keepdims=True) for q_N4 in (from_N4 - to_N4, from_N4 + to_N4)
    )
    arc_N1 = 2 * np.arctan2(apart, along)  # unlike arccos, exact for small arcs
    weight_N1 = weight_N[:, None]
    sine_N1 = np.sin(arc_N1)
    tiny_N1 = sine_N1 < 1e-12
    divisor_N1 = np.where(tiny_N1, 1.0, sine_N1)
    from_share = np.where(tiny_N1, 1 - weight_N1, np.sin((1 - weight_N1) * arc_N1) / divisor_N1)
    to_share = np.where(tiny_N1, weight_N1, np.sin(weight_N1 * arc_N1) / divisor_N1)
    mixed_N4 = from_share * from_N4 + to_share * to_N4
    norm_N1 = np.linalg.norm(mixed_N4, axis=1, keepdims=True)
    return np.asarray(np.where(is_none_N1, before_N4, mixed_N4 / np.where(norm_N1 == 0, 1.0, norm_N1)))


def _begins_at(values_N: NDArray[np.floating], turn: float) -> float | None:
    """The lowest angle of the range that the values use; None if they count their turns."""
    finite = values_N[np.isfinite(values_N)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    slack = turn * _SLACK
    if high - low > turn + slack:
        return None
    if low >= -slack:
        return 0.0
    return -turn / 2 if low >= -turn / 2 - slack and high <= turn / 2 + slack else low
