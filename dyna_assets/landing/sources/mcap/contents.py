"""What an MCAP file holds: its channels, as the topics they publish on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from mcap.records import Channel, ChunkIndex, Metadata, Schema

from dyna_assets.landing.sources.messages.file import RawTopic


@dataclass(slots=True)
class Contents:
    """What a file holds: channels and schemas by id, messages per channel id, metadata, names of attachments.

    chunks: where to find messages, in file order; None if the file has no index and is read from end to end.
    first: the first message of each channel, as far as it is known without another read.
    """

    channels: dict[int, Channel] = field(default_factory=dict)
    schemas: dict[int, Schema] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)
    metadata: list[Metadata] = field(default_factory=list)
    attachments: list[str] = field(default_factory=list)
    chunks: tuple[ChunkIndex, ...] | None = None
    first: dict[int, bytes] = field(default_factory=dict)


def topic_names(contents: Contents) -> dict[int, str]:
    """Channel id -> the name of its topic here.

    Several channels may publish on one topic. If their messages are of different kinds, each kind is a topic of
    its own, '/topic:pkg/msg/Kind', so that each can be read.
    """
    by_topic: dict[str, dict[tuple[object, ...], list[int]]] = {}
    for key, channel in sorted(contents.channels.items()):
        schema = contents.schemas.get(channel.schema_id)
        described = (schema.name, schema.encoding, schema.data) if schema else (channel.schema_id,)
        kind = (channel.message_encoding, *described)
        by_topic.setdefault(channel.topic, {}).setdefault(kind, []).append(key)
    names: dict[int, str] = {}
    for topic, kinds in sorted(by_topic.items()):
        for keys in kinds.values():
            name = topic if len(kinds) == 1 else f"{topic}:{_kind_of(contents, keys[0])}"
            taken = by_topic.keys() | set(names.values()) if len(kinds) > 1 else set()
            names |= dict.fromkeys(keys, _free(name, taken))
    return names


def _kind_of(contents: Contents, key: int) -> str:
    schema = contents.schemas.get(contents.channels[key].schema_id)
    return schema.name if schema and schema.name else contents.channels[key].message_encoding or str(key)


def _free(name: str, taken: Collection[str]) -> str:
    """`name`, with a number behind it if it is taken."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}.{number}", number + 1
    return free


def raw_topics(contents: Contents, topic_of: Mapping[int, str]) -> dict[str, RawTopic]:
    """The topics as the file declares them. topic_of: channel id -> name, see `topic_names`."""
    topics: dict[str, RawTopic] = {}
    for name in dict.fromkeys(topic_of.values()):
        keys = [key for key, topic in topic_of.items() if topic == name]
        channel = contents.channels[keys[0]]
        schema = contents.schemas.get(channel.schema_id)
        lost = channel.schema_id != 0 and schema is None
        topics[name] = RawTopic(
            name=name,
            schema_name=schema.name if schema else "",
            schema_encoding=schema.encoding if schema else "",
            schema_data=schema.data if schema else b"",
            message_encoding=channel.message_encoding,
            num_messages=sum(contents.counts[key] for key in keys),
            fault=f"it refers to schema {channel.schema_id}, which the file does not hold" if lost else "",
            metadata=channel.metadata,
        )
    return topics
