"""The groups that are not on the grid: events, and the extra topics, which come out as they went in."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from io import BytesIO
from typing import NamedTuple

import zstandard
from mcap.data_stream import ReadDataStream
from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk, Message, Schema

from dyna_train.episode.channels import THEIR_GROUP, ExtraTopic
from dyna_train.episode.container import RECORD_HEAD_BYTES, RawMessage, message_payloads, unpacked
from dyna_train.episode.index import ChunkTable
from dyna_train.episode.profile import EVENT_GROUP, EVENT_TOPIC, EXTRA_GROUP
from dyna_train.episode.schemas import Event, parse_event
from dyna_train.episode.source import ByteSource, Range
from dyna_train.episode.tail import Tail
from dyna_train.errors import BadInput, CorruptEpisode


class StoredMessage(NamedTuple):
    """One message as it lies in a file. Times in ns since the epoch; data: its payload, untouched."""

    log_ns: int
    publish_ns: int
    sequence: int
    data: bytes


def read_events(source: ByteSource, tail: Tail) -> list[Event]:
    """All events of a file in order of time. Raises CorruptEpisode naming the chunk that is damaged."""
    ids = {channel.id for channel in tail.channels if channel.topic == EVENT_TOPIC}
    events = []
    for what, message in _messages(source, tail, EVENT_GROUP, EVENT_TOPIC):
        if message.channel not in ids:
            raise CorruptEpisode(f"{what}: a message of channel {message.channel} among the events")
        events.append(event_of(what, message.log_ns, message.publish_ns, message.payload))
    return sorted(events, key=lambda event: event.time_ns)


def read_extra_topics(tail: Tail) -> tuple[ExtraTopic, ...]:
    """The extra topics as they were declared."""
    extras = [channel for channel in tail.channels if channel.metadata.get("group") == EXTRA_GROUP]
    return tuple(without_group(stored_topic(channel, tail.schemas)) for channel in extras)


def read_extra_messages(source: ByteSource, tail: Tail, topic: str) -> Iterator[StoredMessage]:
    """The messages of one extra topic in file order, one chunk in memory at a time.

    Raises BadInput for a topic that is none, CorruptEpisode naming the chunk that is damaged.
    """
    known = {
        channel.topic: channel.id for channel in tail.channels if channel.metadata.get("group") == EXTRA_GROUP
    }
    check_extra(source.uri, topic, known)
    return (
        StoredMessage(message.log_ns, message.publish_ns, message.sequence, bytes(message.payload))
        for _, message in _messages(source, tail, EXTRA_GROUP, topic)
        if message.channel == known[topic]
    )


def check_extra(uri: str, topic: str, known: Collection[str]) -> None:
    """Raises BadInput if `topic` is none of the extra topics `known`."""
    if topic not in known:
        raise BadInput(f"{uri}: no extra topic '{topic}'; its extra topics: {', '.join(known) or 'none'}")


def event_of(what: str, log_ns: int, publish_ns: int, data: bytes | memoryview) -> Event:
    """The event of one message. Raises CorruptEpisode that starts with `what`."""
    try:
        return parse_event(log_ns, publish_ns, data)
    except CorruptEpisode as error:
        raise CorruptEpisode(f"{what}: {error}") from error


def stored_message(message: Message) -> StoredMessage:
    """The message without its channel."""
    return StoredMessage(message.log_time, message.publish_time, message.sequence, message.data)


def without_group(topic: ExtraTopic) -> ExtraTopic:
    """The topic as it was declared: the writer adds its group to the metadata. One without it is that already."""
    metadata = dict(topic.metadata)
    if metadata.get("group") != EXTRA_GROUP:
        return topic
    del metadata["group"]
    if THEIR_GROUP in metadata:
        metadata["group"] = metadata.pop(THEIR_GROUP)
    return replace(topic, metadata=metadata)


def stored_topic(channel: Channel, schemas: Mapping[int, Schema]) -> ExtraTopic:
    """The topic of a channel, its schema looked up by id."""
    schema = schemas.get(channel.schema_id, Schema(id=0, data=b"", encoding="", name=""))
    return ExtraTopic(
        topic=channel.topic,
        message_encoding=channel.message_encoding,
        schema_name=schema.name,
        schema_encoding=schema.encoding,
        schema_data=schema.data,
        metadata=dict(channel.metadata),
    )


def _messages(source: ByteSource, tail: Tail, group: str, topic: str) -> Iterator[tuple[str, RawMessage]]:
    """Every message of the chunks of `group` in file order, each with what its place is called in errors.

    topic: the one that is wanted, for errors.
    """
    for start, end in _chunk_ranges(tail.index.chunks.get(group)):
        what = f"{source.uri}: {topic}, in the {group} chunk from byte {start:,}"
        (record,) = source.read([(start, end)])
        data = _chunk_data(bytes(record), what)
        for message in message_payloads(memoryview(data), what=what):
            yield what, message


def _chunk_ranges(table: ChunkTable | None) -> list[Range]:
    if table is None:
        return []
    ends = (table.offset_K + table.length_K).tolist()
    return list(zip(table.offset_K.tolist(), ends, strict=True))


def _chunk_data(record: bytes, what: str) -> bytes:
    """The records inside a chunk record, checked."""
    try:
        opcode, length = struct.unpack_from("<BQ", record)
        chunk = Chunk.read(ReadDataStream(BytesIO(record[RECORD_HEAD_BYTES:])))
        if (opcode, length, chunk.compression) != (Opcode.CHUNK, len(record) - RECORD_HEAD_BYTES, "zstd"):
            raise CorruptEpisode(
                f"{what}: expected a zstd chunk of {len(record):,} bytes, found opcode {opcode} of "
                f"{length + RECORD_HEAD_BYTES:,}, compression '{chunk.compression}'; fetch the file again"
            )
        data = unpacked(chunk.data, chunk.uncompressed_size)
    except (struct.error, UnicodeDecodeError, EndOfFile, OverflowError, zstandard.ZstdError) as error:
        raise CorruptEpisode(
            f"{what}: not readable as a zstd chunk: {type(error).__name__} {error}; fetch the file again"
        ) from error
    crc = zlib.crc32(data)
    if (len(data), crc) != (chunk.uncompressed_size, chunk.uncompressed_crc):
        raise CorruptEpisode(
            f"{what}: {len(data):,} bytes with crc32 {crc:08x}, expected {chunk.uncompressed_size:,} with "
            f"{chunk.uncompressed_crc:08x}; fetch the file again"
        )
    return data
