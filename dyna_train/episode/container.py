"""Write MCAP with one chunk stream per topic group, over the public record classes of `mcap`.

The stock writer has one chunk builder and one compression per file; we need chunks that hold one group
each, video uncompressed (so that a range of it can be read) and state in zstd. Nothing here knows about
cameras: it takes records and puts them into the file with every index and checksum the format has. What an
index record says of its record stands in a function each, and so does how a chunk's records are unpacked and
walked, for all who read.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Literal, NamedTuple

import lz4.frame
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

from dyna_train.errors import CorruptEpisode

KINDS = {code.value: code.name for code in Opcode}
MAGIC = b"\x89MCAP0\r\n"
RECORD_HEAD_BYTES = 9  # opcode, length
MESSAGE_HEAD_BYTES = RECORD_HEAD_BYTES + 22  # and channel, sequence, log_time, publish_time
FOOTER_BYTES = RECORD_HEAD_BYTES + 20
END_BYTES = FOOTER_BYTES + len(MAGIC)
SUMMARY_OFFSET_BYTES = RECORD_HEAD_BYTES + 17
CRC_BYTES = 4  # of the checksum at the end of a footer and of an attachment
_CHUNK_HEAD_BYTES = RECORD_HEAD_BYTES + 40
_MESSAGE_HEAD = struct.Struct("<BQHIQQ")  # opcode, length, channel, sequence, log_time, publish_time
MOST_UNPACKED_BYTES = 1 << 30
"""The most that is ever unpacked at once. A hundred kB of zstd can hold GiBs of zeros, by right: chunks of all
writers hold some MB, so that more than this is damage or malice."""
_MOST_ZSTD_RATIO = (128 << 10) // 4  # a zstd block holds at most 128 KiB and takes at least 4 bytes
_MOST_LZ4_RATIO = 255  # what one more byte of a length can add

Compression = Literal["", "zstd"]


def kind_name(opcode: int) -> str:
    """Name of a kind of record, as the format spells it."""
    return KINDS.get(opcode, f"0x{opcode:02x}")


def chunk_head_bytes(compression: Compression) -> int:
    """Bytes of a chunk record before its (compressed) records."""
    return _CHUNK_HEAD_BYTES + len(compression)


def unpacked(data: bytes | memoryview, most_bytes: int) -> bytes:
    """What a zstd frame holds, which may be no more than `most_bytes`, nor than MOST_UNPACKED_BYTES.

    The frame says how much it holds, and memory for so much is taken before a byte of it is unpacked: what it
    says is looked at first. Raises zstandard.ZstdError for a frame that is damaged or says too much.
    """
    most = min(most_bytes, len(data) * _MOST_ZSTD_RATIO, MOST_UNPACKED_BYTES)
    stated = zstandard.frame_content_size(data)  # -1 where it does not say
    if stated > most:
        raise zstandard.ZstdError(f"the frame says it holds {stated:,} bytes, expected at most {most:,}")
    found: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=most)
    return found


def chunk_records(compression: str, data: bytes | memoryview, size_bytes: int) -> bytes | memoryview:
    """The records of a chunk whose head says `size_bytes` of them; fewer where the data hold fewer.

    Raises CorruptEpisode with what is wrong, without a place, if the data are damaged or hold more than the head
    says or MOST_UNPACKED_BYTES.
    """
    try:
        if compression == "":
            return data
        if compression == "zstd":
            return unpacked(data, size_bytes)
        if compression == "lz4":
            return _unpacked_lz4(data, size_bytes)
    except (zstandard.ZstdError, RuntimeError) as error:  # lz4 has no error of its own
        raise CorruptEpisode(f"not readable as {compression}: {error}") from error
    raise CorruptEpisode(f"its compression '{compression}' is unknown; expected none, zstd or lz4")


def _unpacked_lz4(data: bytes | memoryview, most_bytes: int) -> bytes:
    most = min(most_bytes, len(data) * _MOST_LZ4_RATIO, MOST_UNPACKED_BYTES)
    frame = lz4.frame.LZ4FrameDecompressor()
    found: bytes = frame.decompress(data, max_length=most + 1)  # room for so much is taken at once
    if len(found) > most:
        raise CorruptEpisode(f"the lz4 frame holds more than {most:,} bytes")
    if not frame.eof:
        raise CorruptEpisode(f"the lz4 frame is cut after {len(found):,} bytes")
    return found


class RawMessage(NamedTuple):
    """A message record as it lies in its chunk; times in ns since the epoch."""

    channel: int
    sequence: int
    log_ns: int
    publish_ns: int
    payload: memoryview


def message_payloads(data: memoryview, *, what: str) -> Iterator[RawMessage]:
    """Every message record in `data`, front to back.

    Raises CorruptEpisode that starts with `what` if the bytes are not message records.
    """
    at, end = 0, len(data)
    while at < end:
        head = at + MESSAGE_HEAD_BYTES
        opcode, length, channel, sequence, log_ns, publish_ns = (
            _MESSAGE_HEAD.unpack_from(data, at) if head <= end else (0,) * 6
        )
        stop = at + RECORD_HEAD_BYTES + length
        if opcode != Opcode.MESSAGE or not head <= stop <= end:
            raise CorruptEpisode(f"{what}: no message record at byte {at:,} of it; fetch the file again")
        yield RawMessage(channel, sequence, log_ns, publish_ns, data[head:stop])
        at = stop


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


def chunk_index(chunk: Chunk, place: Place, index_places: Mapping[int, int], index_bytes: int) -> ChunkIndex:
    """The index record of a chunk that lies at `place`.

    index_places: first byte of the message index records behind it, by channel id; index_bytes: of them all.
    """
    return ChunkIndex(
        chunk_start_offset=place.offset,
        chunk_length=place.length,
        compression=chunk.compression,
        compressed_size=len(chunk.data),
        uncompressed_size=chunk.uncompressed_size,
        message_start_time=chunk.message_start_time,
        message_end_time=chunk.message_end_time,
        message_index_offsets=dict(index_places),
        message_index_length=index_bytes,
    )


def attachment_index(attachment: Attachment, place: Place) -> AttachmentIndex:
    """The index record of an attachment that lies at `place`."""
    return AttachmentIndex(
        offset=place.offset,
        length=place.length,
        log_time=attachment.log_time,
        create_time=attachment.create_time,
        data_size=len(attachment.data),
        name=attachment.name,
        media_type=attachment.media_type,
    )


def metadata_index(name: str, place: Place) -> MetadataIndex:
    """The index record of the metadata record `name` that lies at `place`."""
    return MetadataIndex(offset=place.offset, length=place.length, name=name)


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
        chunk = Chunk(
            compression=compression,
            data=zstandard.ZstdCompressor().compress(records.data) if compression else records.data,
            message_start_time=records.start_ns,
            message_end_time=records.end_ns,
            uncompressed_crc=zlib.crc32(records.data),
            uncompressed_size=len(records.data),
        )
        place = self._write_records([chunk])
        index_start = self.size_bytes
        index_places = {
            channel: self._write_records([MessageIndex(channel, list(entries))]).offset
            for channel, entries in records.offsets.items()
        }
        self._chunks.append(chunk_index(chunk, place, index_places, self.size_bytes - index_start))
        for channel, entries in records.offsets.items():
            self._counts[channel] += len(entries)
        return place

    def add_metadata(self, name: str, values: Mapping[str, str]) -> bytes:
        """One metadata record; returns its bytes."""
        record = _bytes([Metadata(name=name, metadata=dict(values))])
        self._metadata.append(metadata_index(name, Place(self.size_bytes, len(record))))
        self._write(record)
        return record

    def add_attachment(self, name: str, media_type: str, data: bytes, log_time_ns: int) -> None:
        """One attachment; its create_time stays 0, so that equal input gives equal bytes."""
        attachment = Attachment(
            create_time=0, log_time=log_time_ns, name=name, media_type=media_type, data=data
        )
        self._attachments.append(attachment_index(attachment, self._write_records([attachment])))

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
