"""Which steps one training sample takes, relative to its anchor step.

Array axes: T steps of an episode, H offsets of a window, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_train.errors import BadInput

GRID_TOLERANCE_STEPS = 1e-3  # a config file writes 0.0333 s for 1/30 s; a hundredth of a step is a mistake


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowSpec:
    """Offsets in steps from the anchor, for frames, state and action; each may be empty, not all.

    Negative offsets look back, 0 is the anchor itself. `cameras` selects and orders the cameras; None
    takes all of the manifest in its order.
    """

    frames: tuple[int, ...] = (0,)
    state: tuple[int, ...] = (0,)
    action: tuple[int, ...] = (0,)
    cameras: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse offsets that are no integers, an empty window, and a camera named twice."""
        for name in ("frames", "state", "action"):
            offsets = getattr(self, name)
            if not isinstance(offsets, tuple) or not all(type(offset) is int for offset in offsets):
                raise BadInput(f"window offsets of {name} are {offsets!r}; expected a tuple of whole steps")
        if not (self.frames or self.state or self.action):
            raise BadInput("the window is empty: give at least one offset for frames, state or action")
        if self.cameras is not None and len(set(self.cameras)) != len(self.cameras):
            raise BadInput(f"a camera is named twice in {', '.join(self.cameras)}; name each camera once")

    @classmethod
    def from_seconds(
        cls,
        rate_hz: float,
        *,
        frames_s: Sequence[float] = (0.0,),
        state_s: Sequence[float] = (0.0,),
        action_s: Sequence[float] = (0.0,),
        cameras: tuple[str, ...] | None = None,
    ) -> WindowSpec:
        """The same window given in seconds on a grid of `rate_hz` steps per second.

        Raises BadInput for an offset that is no multiple of 1/rate_hz, naming the two nearest that are.
        """
        return cls(
            frames=_steps("frames", frames_s, rate_hz),
            state=_steps("state", state_s, rate_hz),
            action=_steps("action", action_s, rate_hz),
            cameras=cameras,
        )


def _steps(name: str, offsets_s: Sequence[float], rate_hz: float) -> tuple[int, ...]:
    """Offsets in seconds as whole steps."""
    if not rate_hz > 0:
        raise BadInput(f"rate_hz is {rate_hz}; expected steps per second, greater than 0")
    exact = [float(offset_s) * rate_hz for offset_s in offsets_s]
    for offset_s, steps in zip(offsets_s, exact, strict=True):
        if not abs(steps - round(steps)) <= GRID_TOLERANCE_STEPS:
            below = int(np.floor(steps))
            raise BadInput(
                f"{name} offset {offset_s} s is {steps:.4g} steps of the {rate_hz:g} Hz grid; expected a "
                f"whole number. The nearest are {below / rate_hz:.6g} s and {(below + 1) / rate_hz:.6g} s"
            )
    return tuple(round(steps) for steps in exact)


def window_rows(
    step: int, offsets_H: Sequence[int], *, start: int, stop: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows that a window reads, for a stretch [start, stop) of an episode.

    step: the anchor, start <= step < stop. Returns (int64 [H] rows, bool [H] is_pad): an offset that
    leaves the stretch takes its nearest row and is marked pad. Raises IndexError for an anchor outside.
    """
    if not start <= step < stop:
        raise IndexError(f"anchor step {step} is outside the stretch [{start}, {stop})")
    wanted_H = step + np.asarray(offsets_H, dtype=np.int64)
    rows_H = np.clip(wanted_H, start, stop - 1)
    return rows_H, rows_H != wanted_H


def gather_window(
    values_TD: NDArray[Any], step: int, offsets_H: Sequence[int], *, start: int = 0, stop: int | None = None
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Rows of one episode around `step`.

    values_TD: [T, D] on the grid. start, stop: the stretch, all of the episode unless given.
    Returns ([H, D] copy, bool [H] is_pad); the edge rule is that of `window_rows`.
    """
    rows_H, is_pad_H = window_rows(
        step, offsets_H, start=start, stop=len(values_TD) if stop is None else stop
    )
    return values_TD[rows_H], is_pad_H
