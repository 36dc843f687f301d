"""The stock MCAP reader over our byte sources, with our errors: for files whose layout we do not know."""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

import zstandard
from mcap.exceptions import McapError
from mcap.reader import SeekingReader
from mcap.records import Channel, Message, Metadata, Schema
from mcap.stream_reader import StreamReader
from mcap.summary import Summary

from dyna_train.episode.container import FOOTER_BYTES, MAGIC, RECORD_HEAD_BYTES, Place
from dyna_train.episode.source import ByteSource
from dyna_train.errors import CorruptEpisode, DynaError, EpisodeError, TruncatedEpisode

_END_BYTES = FOOTER_BYTES + len(MAGIC)
_BUFFER_BYTES = 1 << 18
# What the stock reader, and what it calls, raise for bytes that are not what they should be.
_STOCK_ERRORS = (
    McapError, ValueError, KeyError, struct.error, zstandard.ZstdError, RuntimeError, MemoryError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file says of itself. By id: schemas, channels, num_messages. By name: metadata, the last of each,
    and the places of the attachments. chunks: their places, none for a file without a useful index of them.
    """

    schemas: dict[int, Schema] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    num_messages: Counter[int] = field(default_factory=Counter)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    attachments: dict[str, Place] = field(default_factory=dict)
    chunks: frozenset[Place] = frozenset()


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
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        (part,) = self._source.read([(self._at, end)])
        buffer[: len(part)] = part
        self._at = end
        return len(part)


def open_stream(source: ByteSource) -> IO[bytes]:
    """The source as a buffered, seekable file."""
    return io.BufferedReader(_Stream(source), _BUFFER_BYTES)


@contextmanager
def stock_errors(uri: str) -> Iterator[None]:
    """Errors of the stock reader as ours."""
    try:
        yield
    except DynaError:
        raise
    except _STOCK_ERRORS as error:
        raise CorruptEpisode(
            f"{uri}: the stock MCAP reader cannot read it: {error!r}; fetch the file again, or save what is "
            "whole: dyna-train recover"
        ) from error


def read_contents(source: ByteSource) -> Contents:
    """What a file says of itself, by its summary, or, where that says too little, by reading all of it.

    Raises EpisodeError for an absent file or one that is no MCAP, TruncatedEpisode, CorruptEpisode.
    """
    end = source.tail(_END_BYTES)
    size = source.size()
    (magic,) = source.read([(0, min(size, len(MAGIC)))])
    if magic != MAGIC:
        raise EpisodeError(f"{source.uri}: not an MCAP file")
    if size < len(MAGIC) + _END_BYTES or not end.endswith(MAGIC):
        raise TruncatedEpisode(
            f"{source.uri}: file ends at byte {size:,} without the closing magic of MCAP; fetch it again, or "
            "save what is whole: dyna-train recover"
        )
    start, _, crc = struct.unpack_from("<QQI", end, RECORD_HEAD_BYTES)
    with stock_errors(source.uri):
        if start and crc:
            (summary,) = source.read([(start, size - len(MAGIC) - 4)])
            if zlib.crc32(summary) != crc:
                raise CorruptEpisode(f"{source.uri}: the summary from byte {start:,} fails its crc32")
        reader = SeekingReader(open_stream(source))
        found = reader.get_summary()
        if found is None or not _is_complete(found):
            return _scan(source)
        return _from_summary(found, reader)


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


def _from_summary(summary: Summary, reader: SeekingReader) -> Contents:
    assert summary.statistics is not None
    return Contents(
        schemas=summary.schemas,
        channels=summary.channels,
        num_messages=Counter(summary.statistics.channel_message_counts),
        metadata={record.name: record.metadata for record in reader.iter_metadata()},
        attachments={one.name: Place(one.offset, one.length) for one in summary.attachment_indexes},
        chunks=frozenset(Place(one.chunk_start_offset, one.chunk_length) for one in summary.chunk_indexes),
    )


def _scan(source: ByteSource) -> Contents:
    """The contents of a file without a useful summary; reads all of it."""
    contents = Contents()
    for record in StreamReader(open_stream(source), validate_crcs=True).records:
        if isinstance(record, Schema):
            contents.schemas[record.id] = record
        elif isinstance(record, Channel):
            contents.channels[record.id] = record
        elif isinstance(record, Metadata):
            contents.metadata[record.name] = record.metadata
        elif isinstance(record, Message):
            contents.num_messages[record.channel_id] += 1
    return contents
