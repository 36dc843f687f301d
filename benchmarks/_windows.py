"""Which steps a world model asks for at once, and what a decoder must see for them.

Array axes: W wanted frames, H steps of state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FRAME_OFFSETS = np.arange(8) * 6  # 8 frames, 0.2 s apart, of every camera
HORIZON = 48  # steps of state: 1.6 s


@dataclass(frozen=True, slots=True)
class Window:
    """Steps whose frames and steps whose states one sample needs, int64, ascending."""

    frame_steps_W: NDArray[np.int64]
    state_steps_H: NDArray[np.int64]

    @classmethod
    def at(cls, anchor: int) -> Window:
        """The window that starts at step `anchor`."""
        return cls(anchor + FRAME_OFFSETS, anchor + np.arange(HORIZON))

    def fed_steps(self, gop: int) -> NDArray[np.int64]:
        """The steps whose packets a decoder needs: from each keyframe to the last wanted frame behind it."""
        parts = []
        for number in np.unique(self.frame_steps_W // gop):
            inside = self.frame_steps_W[self.frame_steps_W // gop == number]
            parts.append(np.arange(number * gop, inside[-1] + 1))
        return np.concatenate(parts)


def all_windows(num_steps: int) -> list[Window]:
    """Every window that lies whole within the episode."""
    return [Window.at(anchor) for anchor in range(num_steps - HORIZON + 1)]


def random_windows(num_steps: int, count: int, *, seed: int = 1) -> list[Window]:
    """Windows that lie whole within the episode, anywhere."""
    anchors = np.random.default_rng(seed).integers(0, num_steps - HORIZON + 1, count)
    return [Window.at(int(anchor)) for anchor in anchors]


def random_spans(
    num_steps: int, count: int, span: int, each: int, *, gop: int, seed: int = 2
) -> list[list[Window]]:
    """`count` stretches of `span` steps that begin with a GOP, and `each` windows at random places inside."""
    rng = np.random.default_rng(seed)
    spans = []
    for first_gop in rng.integers(0, (num_steps - span) // gop + 1, count):
        start = first_gop * gop
        anchors = np.sort(rng.integers(start, start + span - HORIZON + 1, each))
        spans.append([Window.at(int(anchor)) for anchor in anchors])
    return spans


def union(windows: Sequence[Window]) -> Window:
    """Everything that any of the windows needs."""
    return Window(
        np.unique(np.concatenate([one.frame_steps_W for one in windows])),
        np.unique(np.concatenate([one.state_steps_H for one in windows])),
    )
