"""An MCAP file as a file of messages: in file order, one chunk in memory, and every kind of damage with its byte.

The stock reader holds the whole file when asked for file order, makes an object of every record, and takes a cut
chunk for a short one.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice

from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import (
    AttachmentIndex,
    Channel,
    ChunkIndex,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
)

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.base import damage_named, open_file
from dyna_assets.landing.sources.mcap.contents import Contents, raw_topics, topic_names
from dyna_assets.landing.sources.mcap.records import (
    REPAIR,
    RecordBytes,
    kind_name,
    messages_in,
    other_records,
    parsed,
)
from dyna_assets.landing.sources.messages.file import RawRecord, RawTopic
from dyna_train.episode.container import CRC_BYTES, END_BYTES, MAGIC, RECORD_HEAD_BYTES

# what the mcap package's records and `struct` raise on damaged bytes
DAMAGE = (
    McapError,
    struct.error,
    ValueError,  # text that is not UTF-8; ours, that name the byte
    OverflowError,
    MemoryError,  # within the limits, and still more than there is
    OSError,
)
_TOGETHER = 4096  # messages that are counted together
_FOOTER = struct.Struct("<QQI")  # start of the summary, of its offsets, crc
_ROSBAG2 = "rosbag2"  # its metadata record is its index in YAML, not about the episode


class McapFile:
    """An open MCAP file, a `MessageFile`. attachments: their names."""

    def __init__(self, content: RecordBytes, contents: Contents) -> None:
        self.where = content.where
        self.attachments = tuple(contents.attachments)
        self.metadata: Mapping[str, str] = {
            key: value
            for record in contents.metadata
            if record.name != _ROSBAG2
            for key, value in record.metadata.items()
        }
        self._topic_of = topic_names(contents)
        self.topics: Mapping[str, RawTopic] = raw_topics(contents, self._topic_of)
        self._content, self._contents = content, contents
        self._checked: set[int] = set()

    @classmethod
    def open(cls, folder: Folder, name: str) -> McapFile:
        """Open the file `name`; one without an index is read through once, to count.

        Raises RecordingError naming the byte if it is no MCAP, is cut, or is damaged.
        """
        handle = open_file(folder, name)
        try:
            content = RecordBytes(folder.at(name), handle, handle.seek(0, 2))
            _check_ends(content)
            with _naming_damage(content):
                contents = _from_index(content) or _from_scan(content)
        except RecordingError:
            handle.close()
            raise
        return cls(content, contents)

    def messages(self, topics: Collection[str]) -> Iterator[RawRecord]:
        """The messages of `topics` in file order, one chunk in memory, as views of it.

        Raises RecordingError; also at the end, if there were fewer or more than the file counts itself.
        """
        wanted = {key: topic for key, topic in self._topic_of.items() if topic in topics}
        counts: Counter[str] = Counter()
        with _naming_damage(self._content):
            for records in self._stretches(wanted):
                found = messages_in(records, wanted.get)
                while some := list(islice(found, _TOGETHER)):
                    counts.update([record.topic for record in some])
                    yield from some
        for topic in topics:
            if counts[topic] != self.topics[topic].num_messages:
                raise RecordingError(
                    f"{self.where}: topic '{topic}' has {self.topics[topic].num_messages:,} messages by the file's "
                    f"own count, found {counts[topic]:,}. {REPAIR}",
                    check="recording.complete",
                )

    def first_messages(self) -> Mapping[str, bytes]:
        """The first message of each topic that has one; reads only the chunks that hold them."""
        first = self._contents.first
        pending = {key for key in self._topic_of if self._contents.counts[key]} - first.keys()
        with _naming_damage(self._content):
            for index in self._contents.chunks or () if pending else ():
                if not _may_hold(index, pending):
                    continue
                _keep_first(first, self._chunk(index.chunk_start_offset))
                pending -= first.keys()
        return {topic: first[key] for key, topic in reversed(self._topic_of.items()) if key in first}

    def close(self) -> None:
        """Release the file."""
        self._content.handle.close()

    def _stretches(self, wanted: Mapping[int, str]) -> Iterator[bytes | memoryview]:
        """The records of each chunk that may hold one of the channels; a message outside of chunks by itself."""
        if self._contents.chunks is None:
            for at, opcode, length in _top_records(self._content):
                if opcode == Opcode.CHUNK:
                    yield self._chunk(at)
                elif opcode == Opcode.MESSAGE and _channel_at(self._content, at) in wanted:
                    yield self._content.take(at, RECORD_HEAD_BYTES + length, "this Message record")
            return
        for index in self._contents.chunks:
            if _may_hold(index, wanted):
                yield self._chunk(index.chunk_start_offset)

    def _chunk(self, at: int) -> bytes | memoryview:
        """A chunk's records; its checksum is looked at once as long as the file is open."""
        records = self._content.chunk(at, check_crc=at not in self._checked)
        self._checked.add(at)
        return records


def _check_ends(content: RecordBytes) -> None:
    """Both magics; a recorder that was killed, or an upload that was cut, lacks the second."""
    where, size, handle = content.where, content.size_bytes, content.handle
    handle.seek(0)
    start = handle.read(len(MAGIC))
    if start != MAGIC:
        raise RecordingError(
            f"{where}: byte 0: expected the MCAP magic {MAGIC.hex(' ')}, "
            f"found {start.hex(' ') or 'an empty file'}"
        )
    handle.seek(max(0, size - len(MAGIC)))
    if size < 2 * len(MAGIC) or handle.read(len(MAGIC)) != MAGIC:
        raise RecordingError(
            f"{where}: the file ends at byte {size:,} without the closing MCAP magic: it was cut while being "
            "recorded or uploaded. Upload it again, or repair it with `mcap recover` and upload the result"
        )


def _naming_damage(content: RecordBytes) -> AbstractContextManager[None]:
    return damage_named(
        DAMAGE,
        lambda error: (
            f"{content.where}: damaged before byte {content.handle.tell():,}: "
            f"{str(error) or type(error).__name__}. {REPAIR}"
        ),
    )


def _from_index(content: RecordBytes) -> Contents | None:
    """The contents by the summary section; None where that does not describe the whole file."""
    contents, stats, chunks, metadata = Contents(), None, [], []
    for opcode, body in other_records(_summary(content)):
        if opcode == Opcode.STATISTICS:
            stats = parsed(Statistics, body)
        elif opcode == Opcode.CHUNK_INDEX:
            chunks.append(parsed(ChunkIndex, body))
        elif opcode == Opcode.ATTACHMENT_INDEX:
            contents.attachments.append(parsed(AttachmentIndex, body).name)
        elif opcode == Opcode.METADATA_INDEX:
            metadata.append(parsed(MetadataIndex, body).offset)
        else:
            _note(contents, opcode, body)
    if stats is None or not _is_complete(contents, stats, len(chunks), len(metadata)):
        return None
    contents.counts.update(stats.channel_message_counts)
    contents.chunks = tuple(sorted(chunks, key=lambda index: index.chunk_start_offset))
    for at in metadata:
        _note(contents, Opcode.METADATA, content.body(at, Opcode.METADATA))
    return contents


def _summary(content: RecordBytes) -> bytes:
    """The records of the summary section, empty if there is none; checked where the file has a checksum of it."""
    at = content.size_bytes - END_BYTES
    footer = content.body(at, Opcode.FOOTER)
    start, _, crc = _FOOTER.unpack_from(footer)
    if start == 0:
        return b""
    if not len(MAGIC) <= start <= at:
        raise content.damage(at, f"the footer places the summary at byte {start:,}")
    summary = content.take(start, at - start, "the summary")
    head = struct.pack("<BQ", Opcode.FOOTER, len(footer)) + footer[: _FOOTER.size - CRC_BYTES]
    if crc and (found := zlib.crc32(head, zlib.crc32(summary))) != crc:
        raise content.damage(
            start, f"crc validation failed in the summary: expected {crc:08x}, found {found:08x}"
        )
    return summary


def _is_complete(contents: Contents, stats: Statistics, num_chunks: int, num_metadata: int) -> bool:
    """True if every message, metadata record and attachment can be found through the summary."""
    return (
        stats.chunk_count == num_chunks
        and (stats.chunk_count > 0 or stats.message_count == 0)
        and stats.metadata_count == num_metadata
        and stats.attachment_count == len(contents.attachments)
        and stats.message_count == sum(stats.channel_message_counts.values())
        and stats.channel_message_counts.keys() <= contents.channels.keys()
        and all(channel.schema_id in (0, *contents.schemas) for channel in contents.channels.values())
    )


def _from_scan(content: RecordBytes) -> Contents:
    """The contents by every record of the file, one chunk in memory."""
    contents = Contents()
    for at, opcode, length in _top_records(content):
        if opcode == Opcode.CHUNK:
            records = content.chunk(at)
            for inner, body in other_records(records):
                _note(contents, inner, body)
            contents.counts.update(int(record.topic) for record in messages_in(records, str))
            _keep_first(contents.first, records)
        elif opcode == Opcode.MESSAGE:
            key = _channel_at(content, at)
            contents.counts[key] += 1
            if key not in contents.first:
                _keep_first(
                    contents.first, content.take(at, RECORD_HEAD_BYTES + length, "this Message record")
                )
        elif opcode == Opcode.ATTACHMENT:
            contents.attachments.append(_attachment_name(content, at))
        elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.METADATA):
            _note(contents, opcode, content.body(at, opcode))
    if undescribed := contents.counts.keys() - contents.channels.keys():
        raise RecordingError(
            f"{content.where}: no record describes channel {min(undescribed)}, which has "
            f"{contents.counts[min(undescribed)]:,} messages. {REPAIR}"
        )
    return contents


def _top_records(content: RecordBytes) -> Iterator[tuple[int, int, int]]:
    """(first byte, opcode, length of the body) of the records outside of chunks, up to the end of the data."""
    at, opcode = len(MAGIC), 0
    while opcode not in (Opcode.DATA_END, Opcode.FOOTER):
        opcode, length = content.head(at)
        end = content.end_of(at, RECORD_HEAD_BYTES + length, f"this {kind_name(opcode)}")
        yield at, opcode, length
        at = end


def _channel_at(content: RecordBytes, at: int) -> int:
    """The channel id of the message record at byte `at`."""
    return int.from_bytes(content.take(at + RECORD_HEAD_BYTES, 2, "a message's channel"), "little")


def _attachment_name(content: RecordBytes, at: int) -> str:
    """The name of the attachment at byte `at`, without reading its data."""
    start = at + RECORD_HEAD_BYTES + 16  # after log_time and create_time
    (name_bytes,) = struct.unpack("<I", content.take(start, 4, "an attachment's name"))
    return content.take(start + 4, name_bytes, "an attachment's name").decode()


def _note(contents: Contents, opcode: int, body: bytes | memoryview) -> None:
    if opcode == Opcode.CHANNEL:
        channel = parsed(Channel, body)
        contents.channels[channel.id] = channel
    elif opcode == Opcode.SCHEMA:
        schema = parsed(Schema, body)
        contents.schemas[schema.id] = schema
    elif opcode == Opcode.METADATA:
        contents.metadata.append(parsed(Metadata, body))


def _keep_first(first: dict[int, bytes], records: bytes | memoryview) -> None:
    """Add the first message of each channel that is not in `first`."""
    for record in messages_in(records, lambda key: None if key in first else str(key)):
        first[int(record.topic)] = bytes(record.data)


def _may_hold(index: ChunkIndex, wanted: Collection[int]) -> bool:
    """False only if the chunk's index says that none of the channels is inside."""
    offsets = index.message_index_offsets
    return bool(wanted) and (not offsets or not offsets.keys().isdisjoint(wanted))
