"""Where an episode file lies in a lake: the key of its shard and the name of its object."""

from __future__ import annotations

import re

from dyna_train.errors import BadInput

_HASH = re.compile(r"[0-9a-f]{16}|[0-9a-f]{64}")


def shard_key(number: int) -> str:
    """Key of shard `number`, as it stands in object names and names a partition: shard-000012."""
    return f"shard-{number:06d}"


def episode_path(shard_key: str, episode_id: int, content_hash: str) -> str:
    """The object name of an episode file, from the sha256 of its bytes: all 64 hex digits or the first 16.

    Immutable objects: other content is another name. Raises BadInput for anything but such a hash.
    """
    if not _HASH.fullmatch(content_hash):
        raise BadInput(
            f"content hash of episode {episode_id}: expected 16 or 64 hex digits, found {content_hash!r}"
        )
    return f"episodes/{shard_key}/{episode_id}-{content_hash[:16]}.mcap"
