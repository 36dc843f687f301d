"""What lies in any MCAP file, through the stock reader: topics, schemas, counts, times, compression."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO

from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap.records import Channel, Chunk, Header, Message, Schema
from mcap.stream_reader import StreamReader, breakup_chunk
from mcap.summary import Summary

from dyna_train.episode.profile import PROFILE, RECORD_PROFILE
from dyna_train.errors import EpisodeError
from dyna_train.files import open_store

_UNREADABLE = (McapError, ValueError, struct.error)
"""What the stock reader raises for bytes that are not MCAP, or not all of it."""


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
    def is_rewritten_episode(self) -> bool:
        """True if it was an episode file before another tool wrote it anew."""
        return self.library != PROFILE and RECORD_PROFILE in self.metadata_names

    def topics_of(self, group: str) -> tuple[TopicContents, ...]:
        """The topics whose channels say that they belong to the episode group `group`."""
        return tuple(topic for topic in self.topics if topic.metadata.get("group") == group)


def is_foreign(uri: str) -> bool:
    """True for an MCAP file that this package did not write, whole or not."""
    fs, path = open_store(uri)
    if not fs.isfile(path):
        return False
    with fs.open(path, "rb") as stream:
        try:
            return bool(make_reader(stream).get_header().library != PROFILE)
        except _UNREADABLE:  # not MCAP, or cut before its first record ends
            return False


def read_contents(uri: str) -> McapContents:
    """Look into the MCAP file at `uri` by its summary, or, where it has none, by every record.

    Raises EpisodeError for what the stock reader cannot read.
    """
    fs, path = open_store(uri)
    try:
        with fs.open(path, "rb") as stream:
            reader = make_reader(stream)
            header, summary = reader.get_header(), reader.get_summary()
            if summary is None or summary.statistics is None:
                return _contents(uri, fs.size(path), header, _scan(stream))
            return _contents(uri, fs.size(path), header, _from_summary(summary))
    except FileNotFoundError as error:
        raise EpisodeError(f"{uri}: no such file") from error
    except _UNREADABLE as error:
        raise EpisodeError(
            f"{uri}: the stock MCAP reader cannot read it: {error!r}; expected a whole MCAP file; fetch it again"
        ) from error


@dataclass(slots=True)
class _Found:
    """What was counted so far."""

    schemas: dict[int, Schema] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    num_messages: Counter[int] = field(default_factory=Counter)
    times_ns: list[int] = field(default_factory=list)
    """Nothing, or the first and the last log time."""
    chunks: list[tuple[str, int, int]] = field(default_factory=list)
    attachment_bytes: dict[str, int] = field(default_factory=dict)
    metadata_names: list[str] = field(default_factory=list)


def _from_summary(summary: Summary) -> _Found:
    statistics = summary.statistics
    assert statistics is not None
    return _Found(
        schemas=summary.schemas,
        channels=summary.channels,
        num_messages=Counter(statistics.channel_message_counts),
        times_ns=[statistics.message_start_time, statistics.message_end_time]
        if statistics.message_count
        else [],
        chunks=[
            (chunk.compression, chunk.compressed_size, chunk.uncompressed_size)
            for chunk in summary.chunk_indexes
        ],
        attachment_bytes={index.name: index.data_size for index in summary.attachment_indexes},
        metadata_names=[index.name for index in summary.metadata_indexes],
    )


def _scan(stream: IO[bytes]) -> _Found:
    """Read a file without summary from its beginning, one chunk in memory at a time."""
    found = _Found()
    stream.seek(0)
    for record in StreamReader(stream, emit_chunks=True).records:
        if isinstance(record, Chunk):
            found.chunks.append((record.compression, len(record.data), record.uncompressed_size))
            _count(breakup_chunk(record), found)
        else:
            _count([record], found)
    return found


def _count(records: Iterable[object], found: _Found) -> None:
    for record in records:
        if isinstance(record, Schema):
            found.schemas[record.id] = record
        elif isinstance(record, Channel):
            found.channels[record.id] = record
        elif isinstance(record, Message):
            found.num_messages[record.channel_id] += 1
            times = [*found.times_ns, record.log_time]
            found.times_ns = [min(times), max(times)]


def _contents(uri: str, size_bytes: int, header: Header, found: _Found) -> McapContents:
    start_ns, end_ns = found.times_ns or (None, None)
    span_s = (end_ns - start_ns) / 1e9 if start_ns is not None and end_ns is not None else 0.0
    return McapContents(
        uri=uri,
        size_bytes=size_bytes,
        profile=header.profile,
        library=header.library,
        num_messages=found.num_messages.total(),
        start_ns=start_ns,
        end_ns=end_ns,
        topics=tuple(_topic(channel, found, span_s) for _, channel in sorted(found.channels.items())),
        compressions=_compressions(found.chunks),
        attachment_bytes=found.attachment_bytes,
        metadata_names=tuple(dict.fromkeys(found.metadata_names)),
    )


def _topic(channel: Channel, found: _Found, span_s: float) -> TopicContents:
    schema = found.schemas.get(channel.schema_id)
    count = found.num_messages[channel.id]
    return TopicContents(
        topic=channel.topic,
        schema=schema.name if schema else "",
        encoding=channel.message_encoding,
        num_messages=count,
        rate_hz=(count - 1) / span_s if count > 1 and span_s else None,
        metadata=channel.metadata,
    )


def _compressions(chunks: Iterable[tuple[str, int, int]]) -> tuple[CompressionContents, ...]:
    by_name: dict[str, list[tuple[int, int]]] = {}
    for name, stored, unpacked in chunks:
        by_name.setdefault(name or "none", []).append((stored, unpacked))
    return tuple(
        CompressionContents(
            compression=name,
            num_chunks=len(sizes),
            stored_bytes=sum(stored for stored, _ in sizes),
            unpacked_bytes=sum(unpacked for _, unpacked in sizes),
        )
        for name, sizes in sorted(by_name.items())
    )
