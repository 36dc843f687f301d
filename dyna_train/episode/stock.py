"""The stock MCAP reader over our byte sources, with our errors: for files whose layout we do not know."""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from io import BytesIO
from typing import IO, NamedTuple

from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.reader import SeekingReader
from mcap.records import (
    Attachment,
    Channel,
    Chunk,
    ChunkIndex,
    Header,
    McapRecord,
    Message,
    Metadata,
    Schema,
)
from mcap.stream_reader import StreamReader, breakup_chunk
from mcap.summary import Summary

from dyna_train.episode.container import END_BYTES, MAGIC, RECORD_HEAD_BYTES, Place, chunk_records
from dyna_train.episode.source import ByteSource
from dyna_train.episode.tail import cut_error
from dyna_train.errors import CorruptEpisode, DynaError, EpisodeError

_BUFFER_BYTES = 1 << 18  # the stock reader asks for a few bytes at a time
_NEVER_NS = 1 << 64  # beyond what MCAP can say
# What the stock reader, and what it calls, raise for bytes that are not what they should be.
_STOCK_ERRORS = (
    McapError, ValueError, KeyError, struct.error, MemoryError, OverflowError,
)  # fmt: skip


class ChunkSize(NamedTuple):
    """A chunk: its compression ('' for none), bytes with and without it."""

    compression: str
    stored_bytes: int
    unpacked_bytes: int


@dataclass(slots=True)
class Contents:
    """What a file says of itself. By id: schemas, channels, num_messages. By name: metadata, the last of each,
    and the attachments, where they lie and how large their data are.

    start_ns, end_ns: the first and the last log time, None without messages. Without a useful summary there
    are no places: neither `attachments` nor `chunk_indexes` has any.
    """

    profile: str = ""
    library: str = ""
    schemas: dict[int, Schema] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    num_messages: Counter[int] = field(default_factory=Counter)
    start_ns: int | None = None
    end_ns: int | None = None
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    attachments: dict[str, Place] = field(default_factory=dict)
    attachment_bytes: dict[str, int] = field(default_factory=dict)
    chunk_indexes: list[ChunkIndex] = field(default_factory=list)
    chunk_sizes: list[ChunkSize] = field(default_factory=list)


class _Stream(io.RawIOBase):
    """A byte source as the seekable file that the stock reader wants."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._size = source.size()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if at < 0:
            raise ValueError(f"byte {at:,} lies before the file")
        self._at = at
        return at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        (part,) = self._source.read([(self._at, end)])
        buffer[: len(part)] = part
        self._at = end
        return len(part)


class _Buffered(io.BufferedReader):
    """Takes no memory for bytes that the file does not have: the stock reader asks for what a length field says."""

    def __init__(self, source: ByteSource) -> None:
        super().__init__(_Stream(source), _BUFFER_BYTES)
        self._size = source.size()

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _BUFFER_BYTES:
            size = min(size, max(self._size - self.tell(), 0))
        return super().read(size)


def open_stream(source: ByteSource) -> IO[bytes]:
    """The source as a buffered, seekable file."""
    return _Buffered(source)


@contextmanager
def stock_errors(uri: str) -> Iterator[None]:
    """Errors of the stock reader as ours."""
    try:
        yield
    except DynaError:
        raise
    except _STOCK_ERRORS as error:
        raise CorruptEpisode(
            f"{uri}: the stock MCAP reader cannot read it: {type(error).__name__} {error}; fetch the file again, "
            "or save what is whole: dyna-train recover"
        ) from error


def read_contents(source: ByteSource) -> Contents:
    """What a file says of itself, by its summary, or, where that says too little, by reading all of it.

    Raises EpisodeError for an absent file or one that is no MCAP, TruncatedEpisode, CorruptEpisode.
    """
    end = source.tail(END_BYTES)
    size = source.size()
    (magic,) = source.read([(0, min(size, len(MAGIC)))])
    if magic != MAGIC:
        raise EpisodeError(f"{source.uri}: not an MCAP file")
    if size < len(MAGIC) + END_BYTES or not end.endswith(MAGIC):
        raise cut_error(source, size)
    start, _, crc = struct.unpack_from("<QQI", end, RECORD_HEAD_BYTES)
    if start > size - END_BYTES:
        raise CorruptEpisode(
            f"{source.uri}: the footer places the summary at byte {start:,}, the file has {size:,}; fetch it again"
        )
    with stock_errors(source.uri):
        if start and crc:
            (summary,) = source.read([(start, size - len(MAGIC) - 4)])
            if zlib.crc32(summary) != crc:
                raise CorruptEpisode(f"{source.uri}: the summary from byte {start:,} fails its crc32")
        reader = SeekingReader(open_stream(source))
        found = reader.get_summary()
        if found is None or not _is_complete(found):
            return _scan(source)
        return _from_summary(source.uri, size, found, reader)


def _is_complete(summary: Summary) -> bool:
    """Whether the stock reader finds everything by this summary alone, and we the counts."""
    found = summary.statistics
    if found is None or not summary.chunk_indexes:
        return False
    channels = {number for chunk in summary.chunk_indexes for number in chunk.message_index_offsets}
    schemas = {channel.schema_id for channel in summary.channels.values()} - {0}
    return (
        channels | found.channel_message_counts.keys() <= summary.channels.keys()
        and schemas <= summary.schemas.keys()
        and found.chunk_count == len(summary.chunk_indexes)
        and found.metadata_count == len(summary.metadata_indexes)
    )


def _from_summary(uri: str, size: int, summary: Summary, reader: SeekingReader) -> Contents:
    found, header = summary.statistics, reader.get_header()
    assert found is not None
    places = [(f"attachment '{one.name}'", one.offset, one.length) for one in summary.attachment_indexes]
    places += [("a chunk", one.chunk_start_offset, one.chunk_length) for one in summary.chunk_indexes]
    for what, offset, length in places:
        if offset + length > size:
            raise CorruptEpisode(
                f"{uri}: the summary places {what} at bytes {offset:,}-{offset + length:,}, the file has "
                f"{size:,}; fetch it again"
            )
    return Contents(
        profile=header.profile,
        library=header.library,
        schemas=summary.schemas,
        channels=summary.channels,
        num_messages=Counter(found.channel_message_counts),
        start_ns=found.message_start_time if found.message_count else None,
        end_ns=found.message_end_time if found.message_count else None,
        metadata={record.name: record.metadata for record in reader.iter_metadata()},
        attachments={one.name: Place(one.offset, one.length) for one in summary.attachment_indexes},
        attachment_bytes={one.name: one.data_size for one in summary.attachment_indexes},
        chunk_indexes=summary.chunk_indexes,
        chunk_sizes=[
            ChunkSize(one.compression, one.compressed_size, one.uncompressed_size)
            for one in summary.chunk_indexes
        ],
    )


def _scan(source: ByteSource) -> Contents:
    """The contents of a file without a useful summary; reads all of it, one chunk in memory at a time."""
    contents = Contents()
    for record in _every_record(source):
        _note(record, contents)
    return contents


def read_messages(
    source: ByteSource, contents: Contents, topic: str, start_ns: int | None, end_ns: int | None
) -> Iterator[Message]:
    """The messages of `topic` in order of log time, those from start_ns and before end_ns; within `stock_errors`.

    As the stock reader gives them, which unpacks a chunk whatever comes out of it. One chunk is in memory, and
    what of it stands after the start of the next; without an index all messages of the topic.
    """
    ids = {number for number, channel in contents.channels.items() if channel.topic == topic}
    first, stop = start_ns or 0, _NEVER_NS if end_ns is None else end_ns
    if not contents.chunk_indexes:
        every = _wanted(_every_record(source), ids, first, stop)
        yield from sorted((message for _, message in every), key=lambda message: message.log_time)
        return
    waiting: list[tuple[int, int, int, Message]] = []
    for index in sorted(
        contents.chunk_indexes, key=lambda one: (one.message_start_time, one.chunk_start_offset)
    ):
        if index.message_start_time >= stop or index.message_end_time < first:
            continue
        if index.message_index_offsets and ids.isdisjoint(index.message_index_offsets):
            continue
        while waiting and waiting[0][0] < index.message_start_time:
            yield heappop(waiting)[-1]
        for number, message in _wanted(_records_of(source, index), ids, first, stop):
            heappush(waiting, (message.log_time, index.chunk_start_offset, number, message))
    while waiting:
        yield heappop(waiting)[-1]


def _wanted(
    records: Iterable[McapRecord], ids: Collection[int], first_ns: int, stop_ns: int
) -> Iterator[tuple[int, Message]]:
    """The messages of these channels and times, each with its number among the records."""
    for number, record in enumerate(records):
        if isinstance(record, Message) and record.channel_id in ids and first_ns <= record.log_time < stop_ns:
            yield number, record


def _records_of(source: ByteSource, index: ChunkIndex) -> list[McapRecord]:
    """The records of the chunk of an index record. Raises CorruptEpisode if it is none, or damaged."""
    start, end = index.chunk_start_offset, index.chunk_start_offset + index.chunk_length
    (data,) = source.read([(start, end)])
    if data[:1] != bytes([Opcode.CHUNK]):
        raise CorruptEpisode(
            f"{source.uri}: no chunk at byte {start:,}, where the summary has one; fetch it again"
        )
    chunk = Chunk.read(ReadDataStream(BytesIO(data[RECORD_HEAD_BYTES:])))
    return _inside(chunk, f"{source.uri}: the chunk at byte {start:,}")


def _every_record(source: ByteSource) -> Iterator[McapRecord]:
    """All records of the file, front to back, those inside chunks behind their chunk."""
    for number, record in enumerate(
        StreamReader(open_stream(source), emit_chunks=True, validate_crcs=True).records
    ):
        yield record
        if isinstance(record, Chunk):
            yield from _inside(record, f"{source.uri}: record {number:,}, a chunk")


def _inside(chunk: Chunk, what: str) -> list[McapRecord]:
    """The records of a chunk. Raises CorruptEpisode that starts with `what` if it cannot be unpacked."""
    try:
        data = chunk_records(chunk.compression, chunk.data, chunk.uncompressed_size)
    except CorruptEpisode as error:
        raise CorruptEpisode(
            f"{what}: {error}; fetch the file again, or save what is whole: dyna-train recover"
        ) from error
    found: list[McapRecord] = breakup_chunk(
        replace(chunk, compression="", data=bytes(data)), validate_crc=True
    )
    return found


def _note(record: McapRecord, contents: Contents) -> None:
    if isinstance(record, Chunk):
        contents.chunk_sizes.append(ChunkSize(record.compression, len(record.data), record.uncompressed_size))
    elif isinstance(record, Message):
        contents.num_messages[record.channel_id] += 1
        known = [time_ns for time_ns in (contents.start_ns, contents.end_ns) if time_ns is not None]
        contents.start_ns, contents.end_ns = min([*known, record.log_time]), max([*known, record.log_time])
    elif isinstance(record, Header):
        contents.profile, contents.library = record.profile, record.library
    elif isinstance(record, Schema):
        contents.schemas[record.id] = record
    elif isinstance(record, Channel):
        contents.channels[record.id] = record
    elif isinstance(record, Metadata):
        contents.metadata[record.name] = record.metadata
    elif isinstance(record, Attachment):
        contents.attachment_bytes[record.name] = len(record.data)
