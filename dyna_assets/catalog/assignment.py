"""Which shard takes a group of episodes that were registered together (pure).

A group goes whole into one shard of its source, so that a broken source stops no other. A source has at
most one open shard; it closes when it is full, after a quiet hour, or when a step version changes, so
that the rows of a shard share their versions at birth.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from dyna_assets.settings import ShardLimits


class OpenShard(Protocol):
    """What the decision needs to know of the open shard."""

    @property
    def versions(self) -> str: ...  # noqa: D102

    @property
    def num_episodes(self) -> int: ...  # noqa: D102

    @property
    def size_bytes(self) -> int: ...  # noqa: D102

    @property
    def last_added_at(self) -> datetime: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Placement:
    """opens_next: close the open shard if there is one, and use a new one. closes: the group fills its shard."""

    opens_next: bool
    closes: bool


def place(
    shard: OpenShard | None,
    num_episodes: int,
    size_bytes: int,
    *,
    versions: str,
    limits: ShardLimits,
    now: datetime,
) -> Placement:
    """Where a group of `num_episodes` (size_bytes in all) goes; one over the limits gets a shard of its own."""
    if shard is None:
        return Placement(True, _is_full(num_episodes, size_bytes, limits))
    quiet_s = (now - shard.last_added_at).total_seconds()
    together = (shard.num_episodes + num_episodes, shard.size_bytes + size_bytes)
    is_over = together[0] > limits.max_episodes or together[1] > limits.max_bytes
    if is_over or quiet_s > limits.quiet_s or versions != shard.versions:
        return Placement(True, _is_full(num_episodes, size_bytes, limits))
    return Placement(False, _is_full(*together, limits))


def _is_full(num_episodes: int, size_bytes: int, limits: ShardLimits) -> bool:
    return num_episodes >= limits.max_episodes or size_bytes >= limits.max_bytes
