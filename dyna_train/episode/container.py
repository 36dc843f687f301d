"""Write MCAP with one chunk stream per topic group, over the public record classes of `mcap`.

The stock writer has one chunk builder and one compression per file; we need chunks that hold one group
each, video uncompressed (so that a range of it can be read) and state in zstd. Nothing here knows about
cameras: it takes records and puts them into the file with every index and checksum the format has.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Literal

import zstandard
from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode
from mcap.records import (
    Attachment,
    AttachmentIndex,
    Channel,
    Chunk,
    ChunkIndex,
    DataEnd,
    Footer,
    Header,
    McapRecord,
    MessageIndex,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
    SummaryOffset,
)

MAGIC = b"\x89MCAP0\r\n"
RECORD_HEAD_BYTES = 9  # opcode, length
MESSAGE_HEAD_BYTES = RECORD_HEAD_BYTES + 22  # and channel, sequence, log_time, publish_time
FOOTER_BYTES = RECORD_HEAD_BYTES + 20
SUMMARY_OFFSET_BYTES = RECORD_HEAD_BYTES + 17
_CHUNK_HEAD_BYTES = RECORD_HEAD_BYTES + 40

Compression = Literal["", "zstd"]


def chunk_head_bytes(compression: Compression) -> int:
    """Bytes of a chunk record before its (compressed) records."""
    return _CHUNK_HEAD_BYTES + len(compression)


@dataclass(frozen=True, slots=True)
class ChunkRecords:
    """Message records of one chunk, uncompressed.

    offsets: by channel id, (log_time, offset in data) of each of its messages, in order. A chunk without
    messages starts and ends at 0, as the format has it.
    """

    data: bytes
    start_ns: int
    end_ns: int
    offsets: Mapping[int, Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Place:
    """A record in the file: its first byte and its length, opcode and all."""

    offset: int
    length: int


class McapSink:
    """Writes one MCAP file, front to back, in the order of the calls: begin, add..., end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.size_bytes = 0
        self._stream = stream
        self._sha256 = hashlib.sha256()
        self._crc = 0
        self._schemas: Sequence[Schema] = ()
        self._channels: Sequence[Channel] = ()
        self._chunks: list[ChunkIndex] = []
        self._attachments: list[AttachmentIndex] = []
        self._metadata: list[MetadataIndex] = []
        self._counts: dict[int, int] = {}

    @property
    def sha256(self) -> str:
        """Hex sha256 of everything written so far."""
        return self._sha256.hexdigest()

    def begin(
        self, profile: str, library: str, schemas: Sequence[Schema], channels: Sequence[Channel]
    ) -> None:
        """Magic, header, and all schemas and channels, which stand outside the chunks."""
        self._schemas, self._channels = schemas, channels
        self._counts = {channel.id: 0 for channel in channels}
        self._write(MAGIC)
        self._write_records([Header(profile=profile, library=library), *schemas, *channels])

    def add_chunk(self, records: ChunkRecords, compression: Compression) -> Place:
        """One chunk and its message indexes; returns where the chunk record lies."""
        packed = zstandard.ZstdCompressor().compress(records.data) if compression else records.data
        place = self._write_records(
            [
                Chunk(
                    compression=compression,
                    data=packed,
                    message_start_time=records.start_ns,
                    message_end_time=records.end_ns,
                    uncompressed_crc=zlib.crc32(records.data),
                    uncompressed_size=len(records.data),
                )
            ]
        )
        index_start = self.size_bytes
        index_places = {
            channel: self._write_records([MessageIndex(channel, list(entries))]).offset
            for channel, entries in records.offsets.items()
        }
        self._chunks.append(
            ChunkIndex(
                chunk_start_offset=place.offset,
                chunk_length=place.length,
                compression=compression,
                compressed_size=len(packed),
                uncompressed_size=len(records.data),
                message_start_time=records.start_ns,
                message_end_time=records.end_ns,
                message_index_offsets=index_places,
                message_index_length=self.size_bytes - index_start,
            )
        )
        for channel, entries in records.offsets.items():
            self._counts[channel] += len(entries)
        return place

    def add_metadata(self, name: str, values: Mapping[str, str]) -> bytes:
        """One metadata record; returns its bytes."""
        record = _bytes([Metadata(name=name, metadata=dict(values))])
        self._metadata.append(MetadataIndex(offset=self.size_bytes, length=len(record), name=name))
        self._write(record)
        return record

    def add_attachment(self, name: str, media_type: str, data: bytes, log_time_ns: int) -> None:
        """One attachment; its create_time stays 0, so that equal input gives equal bytes."""
        attachment = Attachment(
            create_time=0, log_time=log_time_ns, name=name, media_type=media_type, data=data
        )
        place = self._write_records([attachment])
        self._attachments.append(
            AttachmentIndex(
                offset=place.offset,
                length=place.length,
                log_time=log_time_ns,
                create_time=0,
                data_size=len(data),
                name=name,
                media_type=media_type,
            )
        )

    def end(self) -> None:
        """The data section's checksum, summary, footer, magic."""
        self._write_records([DataEnd(data_section_crc=self._crc)])
        summary_start = self.size_bytes
        groups = self._summary_groups()
        summary = b"".join(_bytes(group) for group in groups)
        offsets, at = [], summary_start
        for group in groups:
            length = len(_bytes(group))
            opcode = _bytes(group[:1])[0]
            offsets.append(SummaryOffset(group_opcode=opcode, group_start=at, group_length=length))
            at += length
        summary += _bytes(offsets)
        # The checksum covers the footer up to itself.
        footer_head = struct.pack("<BQQQ", Opcode.FOOTER, FOOTER_BYTES - RECORD_HEAD_BYTES, summary_start, at)
        crc = zlib.crc32(footer_head, zlib.crc32(summary))
        self._write(summary)
        self._write_records([Footer(summary_start=summary_start, summary_offset_start=at, summary_crc=crc)])
        self._write(MAGIC)

    def _summary_groups(self) -> list[Sequence[McapRecord]]:
        """Records of the summary by kind; attachment and metadata indexes last, nearest to the file's end,
        so that one read of the tail always holds them.
        """
        groups: list[Sequence[McapRecord]] = [
            self._schemas,
            self._channels,
            [self._statistics()],
            self._chunks,
            self._attachments,
            self._metadata,
        ]
        return [group for group in groups if group]

    def _statistics(self) -> Statistics:
        filled = [chunk for chunk in self._chunks if chunk.uncompressed_size]
        return Statistics(
            attachment_count=len(self._attachments),
            channel_count=len(self._channels),
            channel_message_counts=dict(self._counts),
            chunk_count=len(self._chunks),
            message_count=sum(self._counts.values()),
            message_start_time=min((chunk.message_start_time for chunk in filled), default=0),
            message_end_time=max((chunk.message_end_time for chunk in filled), default=0),
            metadata_count=len(self._metadata),
            schema_count=len(self._schemas),
        )

    def _write_records(self, records: Iterable[McapRecord]) -> Place:
        offset, data = self.size_bytes, _bytes(records)
        self._write(data)
        return Place(offset, len(data))

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._sha256.update(data)
        self._crc = zlib.crc32(data, self._crc)
        self.size_bytes += len(data)


def _bytes(records: Iterable[McapRecord]) -> bytes:
    builder = RecordBuilder()
    for record in records:
        record.write(builder)
    return finished(builder)


def finished(builder: RecordBuilder) -> bytes:
    """The bytes of a record builder, which is empty afterwards."""
    data: bytes = builder.end()  # type: ignore[no-untyped-call]
    return data
