"""Where an installation's episode files lie in its lake, and how one is opened."""

from __future__ import annotations

from dyna_assets.settings import Settings
from dyna_train.episode.address import episode_path
from dyna_train.episode.reader import Episode
from dyna_train.files import open_store


def episode_uri(settings: Settings, shard_key: str, episode_id: int, content_hash: str) -> str:
    """The address of the episode file that has this sha256."""
    return f"{settings.lake}/{episode_path(shard_key, episode_id, content_hash)}"


def open_episode(settings: Settings, shard_key: str, episode_id: int, content_hash: str) -> Episode:
    """The episode file that has this sha256, open. Raises EpisodeError if it cannot be read."""
    uri = episode_uri(settings, shard_key, episode_id, content_hash)
    return Episode.open(uri, open_store(uri, **settings.storage_options(uri))[0])
