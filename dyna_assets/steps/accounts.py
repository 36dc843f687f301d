"""Where everything of a recording went: for each topic what came in, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Recording, TopicInfo
from dyna_assets.steps.align import Counts


def account_rows(
    episode_id: int,
    name: str,
    upload: str,
    recording: Recording,
    source: SourceProfile,
    counts: Mapping[str, Counts] | None = None,
) -> list[dict[str, Any]]:
    """The rows of the table `accounts`, one for every topic of the recording.

    counts: by topic, of those that the episode took something of; None before there is an episode.
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
            **_counted(
                info, counts if counts is None else counts.get(topic, Counts(info.num_messages, 0, 0, 0))
            ),
        }
        for topic, info in recording.topics.items()
    ]


def _counted(info: TopicInfo, counts: Counts | None) -> dict[str, int | None]:
    """The container may state no count, or a wrong one: what was read is what came in."""
    if counts is None:
        return {"num_in": info.num_messages, "num_used": None, "num_outside": None, "num_surplus": None}
    return dict(asdict(counts))


def _roles(source: SourceProfile) -> dict[str, str]:
    """topic -> 'camera top', for messages and reports."""
    named = {role.topic: f"{role.role} {role.name}" for role in source.topic_roles}
    return named | {
        role.confidence: f"confidence of {role.name}" for role in source.vectors if role.confidence
    }
