"""Which process of how many this one is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class World:
    """Rank `rank` of `size` processes; `local_rank` counts within this node."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    def __post_init__(self) -> None:
        """Refuse a rank outside the world."""
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {self.rank} is outside a world of {self.size}; expected 0 <= rank < size")

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> World:
        """As `torchrun` announces it (RANK, WORLD_SIZE, LOCAL_RANK); one process without it."""
        return cls(int(env.get("RANK", 0)), int(env.get("WORLD_SIZE", 1)), int(env.get("LOCAL_RANK", 0)))
