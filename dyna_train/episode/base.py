"""What an `Episode` and a `ForeignEpisode` have in common.

Array axes: T steps, D state dimensions, A action dimensions, N asked steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.span import Steps, step_numbers
from dyna_train.episode.tracks import Role, Tracks
from dyna_train.errors import BadInput


class EpisodeBase(ABC):
    """An episode on its grid, open until it is closed, or its `with` block ends."""

    uri: str
    tracks: Tracks

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """Steps of the grid."""

    @abstractmethod
    def vector(self, topic: str) -> NDArray[np.float32]:
        """The vector topic `topic` (`/state/<name>`), float32 [T, D]; read-only."""

    @abstractmethod
    def close(self) -> None:
        """Release the file handle."""

    @cached_property
    def state_TD(self) -> NDArray[np.float32]:
        """All state topics side by side in header order, float32 [T, D]; D is 0 without any."""
        return self._role("state")

    @cached_property
    def action_TA(self) -> NDArray[np.float32]:
        """All action topics side by side in header order, float32 [T, A]; A is 0 without any."""
        return self._role("action")

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """What it is, not what is in it."""
        topics = ", ".join(self.tracks.topics)
        steps = f"{self.num_steps} steps at {self.tracks.rate_hz:g} Hz"
        return f"{type(self).__name__}({self.uri!r}: {steps}; {topics})"

    def _role(self, role: Role) -> NDArray[np.float32]:
        parts = [self.vector(track.topic) for track in self.tracks.vectors if track.role == role]
        joined = np.hstack(parts) if parts else np.empty((self.num_steps, 0), np.float32)
        joined.flags.writeable = False
        return joined

    def _checked_steps(self, steps: Steps) -> NDArray[np.int64]:
        """The steps as an array, int64 [N]. Raises BadInput for one outside the episode."""
        return step_numbers(steps, self.num_steps, where=self.uri)

    def _check_topic(self, topic: str) -> None:
        """Raises BadInput for a topic that is not on the grid."""
        if topic not in self.tracks.topics:
            raise BadInput(f"{self.uri}: no topic '{topic}'; its topics: {', '.join(self.tracks.topics)}")
