"""The schemas and channels of an episode file, and who has which id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcap.records import Channel, Schema

from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import (
    DEPTH_GROUP,
    EVENT_GROUP,
    EVENT_TOPIC,
    EXTRA_GROUP,
    GROUPS,
    NAME,
    STATE_GROUP,
    VIDEO_GROUP,
    EpisodeHeader,
    camera_metadata,
    depth_metadata,
    vector_metadata,
)
from dyna_train.episode.schemas import (
    DEPTH_SCHEMA_ID,
    EVENT_SCHEMA_ID,
    FIRST_EXTRA_SCHEMA_ID,
    JSON,
    PROTOBUF,
    VECTOR_SCHEMA_ID,
    VIDEO_SCHEMA_ID,
    schemas,
)
from dyna_train.episode.values import is_text, is_texts
from dyna_train.errors import BadInput
from dyna_train.video.encode import Quality, codec_params

TOPICS = {
    VIDEO_GROUP: (re.compile(f"/camera/{NAME.pattern}/video"), "/camera/<name>/video"),
    STATE_GROUP: (re.compile(f"/(state|action)/{NAME.pattern}"), "/state/<name> or /action/<name>"),
    DEPTH_GROUP: (re.compile(f"/depth/{NAME.pattern}"), "/depth/<name>"),
    EVENT_GROUP: (re.compile(EVENT_TOPIC), EVENT_TOPIC),
}
"""What the topics of a group are called: as a pattern, and in words."""
MAX_ID = (1 << 16) - 1
THEIR_GROUP = "extra.group"
"""Channel metadata of an extra topic: what it said under the key `group`, which is ours."""


@dataclass(frozen=True, slots=True)
class ExtraTopic:
    """A topic that no pattern reads and that is kept as it came; schema_name '' is a topic without schema."""

    topic: str
    message_encoding: str
    schema_name: str = ""
    schema_encoding: str = ""
    schema_data: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=dict)


def is_extra(topic: str, metadata: Mapping[str, str]) -> bool:
    """Whether a channel's topic is kept as it is, by its group; without a group of ours, by its name."""
    group = metadata.get("group")
    if group in GROUPS:
        return group == EXTRA_GROUP
    return not any(form.fullmatch(topic) for form, _ in TOPICS.values())


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """What stands before the first chunk of a file."""

    schemas: tuple[Schema, ...]
    channels: tuple[Channel, ...]
    extras: frozenset[str]
    ids: Mapping[str, int]

    @classmethod
    def of(
        cls,
        header: EpisodeHeader,
        layout: EpisodeLayout,
        quality: Quality,
        copied: Mapping[str, str],
        extras: Sequence[ExtraTopic],
        *,
        has_events: bool,
    ) -> ChannelPlan:
        """Channels in file order. copied: by camera name, its codec parameters.

        Raises BadInput for an extra topic whose name is taken or that is not all text, and for too many.
        """
        for extra in extras:
            _check_extra(extra)
        rate_hz, params = header.rate_hz, codec_params(layout.gop, quality)
        described: list[tuple[str, str, int, dict[str, str]]] = []
        for camera in header.cameras:
            codec = copied.get(camera.name, params)
            metadata = camera_metadata(camera, rate_hz, layout.gop, codec)
            described.append((camera.topic, PROTOBUF, VIDEO_SCHEMA_ID, metadata))
        for vector in header.vectors:
            described.append((vector.topic, PROTOBUF, VECTOR_SCHEMA_ID, vector_metadata(vector, rate_hz)))
        for depth in header.depths:
            described.append((depth.topic, PROTOBUF, DEPTH_SCHEMA_ID, depth_metadata(depth, rate_hz)))
        if has_events:
            described.append((EVENT_TOPIC, JSON, EVENT_SCHEMA_ID, {"group": EVENT_GROUP}))
        extra_schemas = _extra_schemas(extras)
        for extra in extras:
            schema_id = next((schema.id for schema in extra_schemas if _is_of(schema, extra)), 0)
            metadata = {**extra.metadata, "group": EXTRA_GROUP}
            if "group" in extra.metadata:
                metadata[THEIR_GROUP] = extra.metadata["group"]
            described.append((extra.topic, extra.message_encoding, schema_id, metadata))
        topics = [topic for topic, *_ in described]
        twice = sorted(topic for topic, count in Counter(topics).items() if count > 1)
        if max(len(topics), FIRST_EXTRA_SCHEMA_ID + len(extra_schemas)) > MAX_ID:
            raise BadInput(
                f"episode {header.episode_id}: {len(topics):,} topics with {len(extra_schemas):,} schemas of "
                f"their own; a file numbers both in 16 bits, up to {MAX_ID:,}"
            )
        if twice:
            raise BadInput(f"episode {header.episode_id}: topic {', '.join(twice)} stands more than once")
        channels = tuple(
            Channel(id=number, topic=topic, message_encoding=encoding, schema_id=schema, metadata=metadata)
            for number, (topic, encoding, schema, metadata) in enumerate(described, start=1)
        )
        used = {schema for _, _, schema, _ in described}
        return cls(
            schemas=tuple(schema for schema in (*schemas(), *extra_schemas) if schema.id in used),
            channels=channels,
            extras=frozenset(extra.topic for extra in extras),
            ids={channel.topic: channel.id for channel in channels},
        )

    def extra_id(self, topic: str) -> int:
        """Channel id of an extra topic. Raises BadInput for one that was not declared."""
        if topic not in self.extras:
            known = ", ".join(sorted(self.extras)) or "none"
            raise BadInput(f"no extra topic '{topic}' was declared; there are: {known}")
        return self.ids[topic]


def _check_extra(extra: ExtraTopic) -> None:
    """Refuse what the records of a file cannot say."""
    texts = (extra.topic, extra.message_encoding, extra.schema_name, extra.schema_encoding)
    if not (all(map(is_text, texts)) and is_texts(extra.metadata) and isinstance(extra.schema_data, bytes)):
        raise BadInput(
            f"extra topic {extra.topic!r}: expected texts that UTF-8 can say and bytes of a schema, found {extra!r}"
        )


def _extra_schemas(extras: Sequence[ExtraTopic]) -> list[Schema]:
    """Each distinct schema of the extra topics once."""
    found: list[Schema] = []
    for extra in extras:
        if extra.schema_name and not any(_is_of(schema, extra) for schema in found):
            number = FIRST_EXTRA_SCHEMA_ID + len(found)
            found.append(
                Schema(
                    id=number, name=extra.schema_name, encoding=extra.schema_encoding, data=extra.schema_data
                )
            )
    return found


def _is_of(schema: Schema, extra: ExtraTopic) -> bool:
    described = (extra.schema_name, extra.schema_encoding, extra.schema_data)
    return (schema.name, schema.encoding, schema.data) == described
