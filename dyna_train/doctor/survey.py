"""What the records of an episode file say, read front to back: the ground that all checks stand on."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from fsspec.implementations.local import LocalFileSystem
from mcap.opcode import Opcode
from mcap.records import Channel, Footer, Metadata, Schema
from mcap.records import Chunk as RecordChunk

from dyna_train.doctor.records import (
    MESSAGE_DTYPE,
    Damage,
    Messages,
    RawChunk,
    Record,
    message_row,
    read_messages,
    walk,
)
from dyna_train.episode.container import CRC_BYTES, RECORD_HEAD_BYTES, chunk_records
from dyna_train.episode.source import open_local, store_errors, store_of
from dyna_train.errors import CorruptEpisode

_SUMMARY_KINDS = frozenset(
    {
        Opcode.STATISTICS,
        Opcode.CHUNK_INDEX,
        Opcode.ATTACHMENT_INDEX,
        Opcode.METADATA_INDEX,
        Opcode.SUMMARY_OFFSET,
        Opcode.FOOTER,
    }
)
_NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk. messages: those that could be read; others: the records of other kinds among them.

    indexes: the message index records that follow it. crc: crc32 of its records, uncompressed, as they are.
    problem: why not all of its records could be read, or nothing.
    """

    number: int
    record: Record
    raw: RawChunk
    indexes: tuple[Record, ...]
    messages: Messages
    others: tuple[Record, ...]
    crc: int
    problem: str

    def records(self) -> memoryview:
        """Its records, uncompressed; the `at` of a message counts from their start."""
        return _unpacked(self.raw)[0]

    @property
    def is_whole(self) -> bool:
        """True if every one of its records is the one that was written."""
        return not self.problem and self.crc == self.raw.uncompressed_crc

    @property
    def is_unchecked(self) -> bool:
        """True if its writer left out the checksum, and its records can be read.

        A chunk without records is none of these: its checksum is 0 by right.
        """
        return not self.problem and self.raw.uncompressed_crc == 0 and self.raw.uncompressed_size > 0


@dataclass(frozen=True)
class Survey:
    """One file: its records and damages in file order, and what can be said of them without trust.

    loose: the messages that stand outside any chunk; their `at` counts from the file's start.
    """

    uri: str
    data: memoryview
    records: Sequence[Record]
    damages: Sequence[Damage]
    chunks: Sequence[Chunk]
    loose: Messages

    @classmethod
    def open(cls, uri: str | Path) -> Survey:
        """Read the whole file at `uri`. Raises EpisodeError if there is none."""
        data = _read(str(uri))
        found = list(walk(data))
        records = [one for one in found if isinstance(one, Record)]
        loose = [message_row(data, one.at, one.end) for one in records if one.opcode == Opcode.MESSAGE]
        return cls(
            uri=str(uri),
            data=data,
            records=records,
            damages=[one for one in found if isinstance(one, Damage)],
            chunks=list(_chunks(records)),
            loose=np.array([row for row in loose if row is not None], MESSAGE_DTYPE),
        )

    @property
    def is_cut(self) -> bool:
        """True if the file does not reach its own end, so that what stands there is absent."""
        return bool(self.damages) and self.damages[-1].end == len(self.data)

    def is_damaged(self, start: int, end: int) -> bool:
        """True if a damage lies in bytes start .. end, or the file was cut before `end`."""
        if self.is_cut and self.damages[-1].at <= end:
            return True
        return any(damage.at < end and start < damage.end for damage in self.damages)

    @cached_property
    def is_sound(self) -> bool:
        """True if there is no damage and every chunk is whole, so that what is absent was never there."""
        return not self.damages and all(chunk.is_whole or chunk.is_unchecked for chunk in self.chunks)

    @cached_property
    def summary_at(self) -> int:
        """The first byte after the data section."""
        ends = self.of_kind(Opcode.DATA_END)
        if ends:
            return ends[0].end
        if self._is_summary_whole and self.footer is not None:
            return self.footer.summary_start
        summary = [record.at for record in self.records if record.opcode in _SUMMARY_KINDS]
        return min(summary, default=len(self.data))

    @cached_property
    def footer(self) -> Footer | None:
        """The footer."""
        found = self.of_kind(Opcode.FOOTER)
        return found[-1].content if found else None

    @cached_property
    def channels(self) -> Mapping[int, Channel]:
        """Channels by id: the summary's if its checksum holds, else the first of each in the file."""
        return {record.content.id: record.content for record in reversed(self._defined(Opcode.CHANNEL))}

    @cached_property
    def schemas(self) -> Mapping[int, Schema]:
        """Schemas by id, chosen as channels are."""
        return {record.content.id: record.content for record in reversed(self._defined(Opcode.SCHEMA))}

    @cached_property
    def metadata(self) -> Mapping[str, Mapping[str, str]]:
        """Metadata records by name; the last of a name holds."""
        found: list[Metadata] = [record.content for record in self.of_kind(Opcode.METADATA)]
        return {record.name: record.metadata for record in found}

    @cached_property
    def attachments(self) -> Mapping[str, Record]:
        """Attachment records by name; the last of a name holds."""
        return {record.content.name: record for record in self.of_kind(Opcode.ATTACHMENT)}

    def crc_of(self, attachment: Record) -> tuple[int, int]:
        """The crc32 that an attachment record states, and the one it has."""
        body = self.data[attachment.at + RECORD_HEAD_BYTES : attachment.end - attachment.trailing]
        return int.from_bytes(body[-CRC_BYTES:], "little"), zlib.crc32(body[:-CRC_BYTES])

    def of_kind(self, opcode: Opcode) -> list[Record]:
        """The whole records of one kind outside the chunks, in file order."""
        return [record for record in self.records if record.opcode == opcode]

    def batches(self) -> Iterator[tuple[Chunk | None, memoryview, Messages]]:
        """All messages in file order of their chunks: (chunk, the bytes they lie in, messages).

        The last batch holds the messages outside chunks, if there are any; its chunk is None.
        """
        for chunk in self.chunks:
            if len(chunk.messages):
                yield chunk, chunk.records(), chunk.messages
        if len(self.loose):
            yield None, self.data, self.loose

    @cached_property
    def _is_summary_whole(self) -> bool:
        footers = self.of_kind(Opcode.FOOTER)
        if not footers:
            return False
        stated, start = footers[-1].content.summary_crc, footers[-1].content.summary_start
        return bool(stated) and zlib.crc32(self.data[start : footers[-1].end - CRC_BYTES]) == stated

    def _defined(self, opcode: Opcode) -> list[Record]:
        """The schemas or channels: the summary's if its checksum holds, else all of them."""
        inside = [record for chunk in self.chunks for record in chunk.others if record.opcode == opcode]
        outside = self.of_kind(opcode)
        repeated = [record for record in outside if record.at >= self.summary_at]
        return repeated if repeated and self._is_summary_whole else [*outside, *inside]


def mcap_chunk(raw: RawChunk) -> RecordChunk:
    """A chunk as the record class of `mcap`; copies its data."""
    return RecordChunk(
        compression=raw.compression,
        data=bytes(raw.data),
        message_start_time=raw.start_ns,
        message_end_time=raw.end_ns,
        uncompressed_crc=raw.uncompressed_crc,
        uncompressed_size=raw.uncompressed_size,
    )


def _read(uri: str) -> memoryview:
    """All bytes of the file; a local one is mapped, so that only what is looked at is in memory."""
    store, path = store_of(uri)
    if not isinstance(store, LocalFileSystem):
        with store_errors(uri):
            return memoryview(store.cat_file(path))
    with open(open_local(uri, path), "rb") as stream:
        size = stream.seek(0, 2)
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")


def _chunks(records: Sequence[Record]) -> Iterator[Chunk]:
    number = 0
    for place, record in enumerate(records):
        if record.opcode != Opcode.CHUNK:
            continue
        raw: RawChunk = record.content
        data, problem = _unpacked(raw)
        messages, others, stop = read_messages(data, 0, len(data))
        if not problem and stop < len(data):
            problem = f"its records are not readable from byte {stop:,} of {len(data):,}"
        indexes = []
        for following in records[place + 1 :]:
            if following.opcode != Opcode.MESSAGE_INDEX:
                break
            indexes.append(following)
        crc = zlib.crc32(data)
        yield Chunk(number, record, raw, tuple(indexes), messages, tuple(others), crc, problem)
        number += 1


def _unpacked(raw: RawChunk) -> tuple[memoryview, str]:
    """The records of a chunk, uncompressed, or none of them and what is wrong."""
    try:
        data = memoryview(chunk_records(raw.compression, raw.data, raw.uncompressed_size))
    except CorruptEpisode as error:
        return _NOTHING, str(error)
    if len(data) != raw.uncompressed_size:
        return data, f"{len(data):,} bytes of records, where its head says {raw.uncompressed_size:,}"
    return data, ""
