"""What lies in any MCAP file: topics, schemas, counts, times, compression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcap.records import Channel

from dyna_train.episode.foreign import ForeignFile
from dyna_train.episode.profile import RECORD_PROFILE
from dyna_train.episode.stock import ChunkSize, Contents


@dataclass(frozen=True, slots=True)
class TopicContents:
    """One channel; schema: '' if it has none. rate_hz: messages per second of the file, None for fewer than two."""

    topic: str
    schema: str
    encoding: str
    num_messages: int
    rate_hz: float | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CompressionContents:
    """The chunks of one compression ('none' or its name), bytes with and without it."""

    compression: str
    num_chunks: int
    stored_bytes: int
    unpacked_bytes: int


@dataclass(frozen=True, slots=True)
class McapContents:
    """What an MCAP file holds. Times are log times in ns since the epoch, None without messages."""

    uri: str
    size_bytes: int
    profile: str
    library: str
    num_messages: int
    start_ns: int | None
    end_ns: int | None
    topics: tuple[TopicContents, ...]
    compressions: tuple[CompressionContents, ...]
    attachment_bytes: Mapping[str, int]
    metadata_names: tuple[str, ...]

    @property
    def duration_s(self) -> float:
        """From the first message to the last."""
        return 0.0 if self.start_ns is None or self.end_ns is None else (self.end_ns - self.start_ns) / 1e9

    @property
    def tells_of_an_episode(self) -> bool:
        """True if there is an episode in it; a file that is no episode file was rewritten by another tool."""
        return RECORD_PROFILE in self.metadata_names

    def topics_of(self, group: str) -> tuple[TopicContents, ...]:
        """The topics whose channels say that they belong to the episode group `group`."""
        return tuple(topic for topic in self.topics if topic.metadata.get("group") == group)


def describe(file: ForeignFile) -> McapContents:
    """What an open MCAP file says of itself."""
    contents = file.contents
    return McapContents(
        uri=file.uri,
        size_bytes=file.source.size(),
        profile=contents.profile,
        library=contents.library,
        num_messages=contents.num_messages.total(),
        start_ns=contents.start_ns,
        end_ns=contents.end_ns,
        topics=tuple(_topic(channel, contents) for _, channel in sorted(contents.channels.items())),
        compressions=_compressions(contents.chunk_sizes),
        attachment_bytes=contents.attachment_bytes,
        metadata_names=tuple(contents.metadata),
    )


def _topic(channel: Channel, contents: Contents) -> TopicContents:
    schema = contents.schemas.get(channel.schema_id)
    count = contents.num_messages[channel.id]
    span_s = ((contents.end_ns or 0) - (contents.start_ns or 0)) / 1e9
    return TopicContents(
        topic=channel.topic,
        schema=schema.name if schema else "",
        encoding=channel.message_encoding,
        num_messages=count,
        rate_hz=(count - 1) / span_s if count > 1 and span_s else None,
        metadata=channel.metadata,
    )


def _compressions(chunks: Iterable[ChunkSize]) -> tuple[CompressionContents, ...]:
    by_name: dict[str, list[ChunkSize]] = {}
    for chunk in chunks:
        by_name.setdefault(chunk.compression or "none", []).append(chunk)
    return tuple(
        CompressionContents(
            compression=name,
            num_chunks=len(sizes),
            stored_bytes=sum(size.stored_bytes for size in sizes),
            unpacked_bytes=sum(size.unpacked_bytes for size in sizes),
        )
        for name, sizes in sorted(by_name.items())
    )
