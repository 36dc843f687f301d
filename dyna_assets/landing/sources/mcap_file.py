"""An MCAP file read in file order with one chunk in memory, and every kind of damage named with its byte.

The stock reader holds the whole file when asked for file order, and takes a cut chunk for a short one.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any

import zstandard
from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap.records import Channel, Chunk, ChunkIndex, Message, Metadata, Schema
from mcap.stream_reader import CRCValidationError, StreamReader, breakup_chunk
from mcap.summary import Summary

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.base import damage_named, open_file

MAGIC = b"\x89MCAP0\r\n"
# what the mcap package, its decompressors (lz4: RuntimeError) and `struct` raise on damaged bytes
DAMAGE = (
    McapError,
    CRCValidationError,
    struct.error,
    zstandard.ZstdError,
    RuntimeError,
    ValueError,  # text that is not UTF-8, offsets that no file has
    OverflowError,
    MemoryError,
    OSError,
)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds: channels and schemas by id, messages per channel id, metadata records.

    chunks: where to find messages, in file order; None if the file has no index and is read from end to end.
    first: the first message of each channel, as far as it is known without another read.
    """

    channels: Mapping[int, Channel]
    schemas: Mapping[int, Schema]
    counts: Mapping[int, int]
    metadata: tuple[Metadata, ...]
    chunks: tuple[ChunkIndex, ...] | None
    first: Mapping[int, Message]


class McapFile:
    """An open MCAP file."""

    def __init__(self, where: str, handle: IO[bytes], contents: Contents) -> None:
        self.where = where
        self.contents = contents
        self._handle = handle

    @classmethod
    def open(cls, folder: Folder, name: str) -> McapFile:
        """Open the file `name`; one without an index is read through once, to count.

        Raises RecordingError naming the byte if it is no MCAP, is cut, or is damaged.
        """
        where = folder.at(name)
        handle = open_file(folder, name)
        try:
            _check_ends(handle, where)
            with _naming_damage(handle, where):
                contents = _from_index(handle) or _from_scan(handle)
        except RecordingError:
            handle.close()
            raise
        return cls(where, handle, contents)

    def messages(self, channel_ids: Collection[int]) -> Iterator[Message]:
        """Messages of the channels in file order, one chunk in memory. Raises RecordingError."""
        wanted = frozenset(channel_ids)
        with _naming_damage(self._handle, self.where):
            for record in self._records(wanted):
                if isinstance(record, Message) and record.channel_id in wanted:
                    yield record

    def first_messages(self, channel_ids: Collection[int]) -> dict[int, Message]:
        """The first message of each channel that has one; reads only the chunks that hold them."""
        found = {key: message for key, message in self.contents.first.items() if key in channel_ids}
        pending = {key for key in channel_ids if self.contents.counts.get(key)} - set(found)
        with _naming_damage(self._handle, self.where):
            for index in self.contents.chunks or ():
                for record in self._chunk(index) if _may_hold(index, pending) else ():
                    if isinstance(record, Message) and record.channel_id in pending:
                        pending.discard(record.channel_id)
                        found[record.channel_id] = record
        return found

    def close(self) -> None:
        """Release the file."""
        self._handle.close()

    def _records(self, wanted: frozenset[int]) -> Iterator[Any]:
        if self.contents.chunks is None:
            yield from _all_records(self._handle)
            return
        for index in self.contents.chunks:
            if _may_hold(index, wanted):
                yield from self._chunk(index)

    def _chunk(self, index: ChunkIndex) -> list[Any]:
        self._handle.seek(index.chunk_start_offset)
        chunk = next(StreamReader(self._handle, skip_magic=True, emit_chunks=True).records)
        if not isinstance(chunk, Chunk):
            raise RecordingError(
                f"{self.where}: byte {index.chunk_start_offset:,}: the index promises a chunk, "
                f"found a {type(chunk).__name__} record; the file is damaged"
            )
        return _unpacked(chunk)


def _check_ends(handle: IO[bytes], where: str) -> None:
    """Both magics; a recorder that was killed, or an upload that was cut, lacks the second."""
    size = handle.seek(0, 2)
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


def _naming_damage(handle: IO[bytes], where: str) -> AbstractContextManager[None]:
    return damage_named(
        DAMAGE,
        lambda error: (
            f"{where}: damaged before byte {handle.tell():,}: {str(error) or 'a record ends too early'}. "
            "Upload the file again, or repair it with `mcap recover` and upload the result"
        ),
    )


def _from_index(handle: IO[bytes]) -> Contents | None:
    """The contents by the summary section; None where that does not describe the whole file."""
    handle.seek(0)
    reader = make_reader(handle, validate_crcs=True)
    summary = reader.get_summary()
    if summary is None or not _is_complete(summary):
        return None
    chunks = sorted(summary.chunk_indexes, key=lambda index: index.chunk_start_offset)
    counts = summary.statistics.channel_message_counts if summary.statistics else {}
    metadata = tuple(reader.iter_metadata())
    return Contents(summary.channels, summary.schemas, counts, metadata, tuple(chunks), {})


def _is_complete(summary: Summary) -> bool:
    """True if every message and metadata record can be found through the summary."""
    stats = summary.statistics
    return (
        stats is not None
        and stats.chunk_count == len(summary.chunk_indexes)
        and (stats.chunk_count > 0 or stats.message_count == 0)
        and stats.metadata_count == len(summary.metadata_indexes)
        and set(stats.channel_message_counts) <= set(summary.channels)
        and all(channel.schema_id in (0, *summary.schemas) for channel in summary.channels.values())
    )


def _from_scan(handle: IO[bytes]) -> Contents:
    channels: dict[int, Channel] = {}
    schemas: dict[int, Schema] = {}
    first: dict[int, Message] = {}
    counts: Counter[int] = Counter()
    metadata = []
    for record in _all_records(handle):
        if isinstance(record, Message):
            counts[record.channel_id] += 1
            first.setdefault(record.channel_id, record)
        elif isinstance(record, Channel):
            channels[record.id] = record
        elif isinstance(record, Schema):
            schemas[record.id] = record
        elif isinstance(record, Metadata):
            metadata.append(record)
    return Contents(channels, schemas, counts, tuple(metadata), None, first)


def _all_records(handle: IO[bytes]) -> Iterator[Any]:
    handle.seek(0)
    for record in StreamReader(handle, emit_chunks=True).records:
        if isinstance(record, Chunk):
            yield from _unpacked(record)
        else:
            yield record


def _unpacked(chunk: Chunk) -> list[Any]:
    if chunk.compression == "" and len(chunk.data) != chunk.uncompressed_size:
        raise McapError(f"a chunk needs {chunk.uncompressed_size:,} bytes, found {len(chunk.data):,}")
    return breakup_chunk(chunk, validate_crc=True)


def _may_hold(index: ChunkIndex, wanted: Collection[int]) -> bool:
    """False only if the chunk's index says that none of the channels is inside."""
    offsets = index.message_index_offsets
    return bool(wanted) and (not offsets or not offsets.keys().isdisjoint(wanted))
