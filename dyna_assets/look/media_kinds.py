"""The kinds of media of an episode: their versions, and where they lie."""

from __future__ import annotations

from collections.abc import Mapping

KINDS: Mapping[str, tuple[int, str]] = {
    "thumbnail": (1, "jpg"),
    "sheet": (1, "jpg"),
    "preview": (1, "mp4"),
    "page": (2, "png"),
}
"""kind -> its version, raised when it looks otherwise, and its suffix."""


def media_versions() -> dict[str, int]:
    """kind -> its version, for the step's stamp."""
    return {kind: version for kind, (version, _) in KINDS.items()}


def media_path(shard_key: str, episode_id: int, content_hash: str, kind: str) -> str:
    """Where one of an episode's media lies below the lake: media/shard-000012/34-<hash>/page-2.png."""
    version, suffix = KINDS[kind]
    return f"media/{shard_key}/{episode_id}-{content_hash[:16]}/{kind}-{version}.{suffix}"
