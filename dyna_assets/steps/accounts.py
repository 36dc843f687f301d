"""Where everything of a recording went: for each topic what came in, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Recording, TopicInfo


@dataclass(frozen=True, slots=True)
class Use:
    """What became of a topic's messages: in the episode, outside the common time, between two steps."""

    num_used: int
    num_outside: int = 0
    num_surplus: int = 0


def account_rows(
    episode_id: int,
    name: str,
    upload: str,
    recording: Recording,
    source: SourceProfile,
    uses: Mapping[str, Use] | None = None,
) -> list[dict[str, Any]]:
    """The rows of the table `accounts`, one for every topic of the recording.

    uses: by topic, of those that the episode took something of; None before there is an episode.
    """
    roles = _roles(source)
    return [
        {
            "episode_id": episode_id,
            "source": source.name,
            "name": name,
            "upload": upload,
            "topic": topic,
            "kind": info.kind,
            "encoding": info.encoding,
            "use": source.use_of(topic),
            "role": roles.get(topic, ""),
            **_counts(topic, info, uses),
        }
        for topic, info in recording.topics.items()
    ]


def _counts(topic: str, info: TopicInfo, uses: Mapping[str, Use] | None) -> dict[str, int | None]:
    if uses is None:
        return {"num_in": info.num_messages, "num_used": None, "num_outside": None, "num_surplus": None}
    use = uses.get(topic, Use(0))
    counts = (use.num_used, use.num_outside, use.num_surplus)
    return {
        # the container may state no count, or a wrong one: what was read is what came in
        "num_in": sum(counts) if topic in uses else info.num_messages,
        "num_used": use.num_used,
        "num_outside": use.num_outside,
        "num_surplus": use.num_surplus,
    }


def _roles(source: SourceProfile) -> dict[str, str]:
    """topic -> 'camera top', for messages and reports."""
    every = (("camera", source.cameras), ("state", source.states), ("action", source.actions))
    named = {role.topic: f"{kind} {role.name}" for kind, roles in every for role in roles}
    vectors = (*source.states, *source.actions)
    return named | {role.confidence: f"confidence of {role.name}" for role in vectors if role.confidence}
