"""Facts and pages of what a workspace holds: everything between a name and a picture."""

from __future__ import annotations

from contextlib import AbstractContextManager

from PIL import Image

from dyna_assets.catalog.rows import shard_number
from dyna_assets.lake import open_episode
from dyna_assets.look.facts import PageFacts
from dyna_assets.look.find import find_episode
from dyna_assets.look.gather import page_facts, shard_facts
from dyna_assets.look.page import draw_page
from dyna_assets.look.shard_page import OpenEpisode, draw_shard_page
from dyna_assets.quality.policy import LimitsOf, limits_in_force
from dyna_assets.settings import Settings
from dyna_assets.workspace import Workspace
from dyna_train.episode.address import shard_key
from dyna_train.episode.reader import Episode
from dyna_train.errors import BadInput, EpisodeError


def episode_facts(workspace: Workspace, text: str) -> PageFacts:
    """What the page of the episode that `text` means says; see `find_episode`.

    Raises CurationError for no or more than one such episode.
    """
    return page_facts(workspace.warehouse, find_episode(workspace.warehouse, text), _limits(workspace))


def episode_page(workspace: Workspace, text: str) -> Image.Image:
    """The page of the episode that `text` means, as `episode_facts`. A file that cannot be read stands on it.

    Raises CurationError for no or more than one such episode.
    """
    facts = episode_facts(workspace, text)
    if not facts.content_hash:
        return draw_page(None, facts)
    try:
        with opener(workspace.settings)(facts) as episode:
            return draw_page(episode, facts)
    except EpisodeError as error:
        return draw_page(None, facts.with_failure("episode file", str(error)))


def shard_page(workspace: Workspace, key: str, most: int) -> Image.Image:
    """The page of a shard with its `most` worst episodes. Raises BadInput for a key that is none."""
    try:
        number = shard_number(key)
    except ValueError as error:
        raise BadInput(str(error)) from None
    shard = shard_facts(workspace.warehouse, number, _limits(workspace), most=most)
    return draw_shard_page(shard, opener(workspace.settings))


def opener(settings: Settings) -> OpenEpisode:
    """Opens the episode files of a lake."""

    def open_one(facts: PageFacts) -> AbstractContextManager[Episode]:
        return open_episode(settings, shard_key(facts.shard), facts.episode_id, facts.content_hash)

    return open_one


def _limits(workspace: Workspace) -> LimitsOf:
    return limits_in_force(workspace.catalog.active_policy(), workspace.sources())
