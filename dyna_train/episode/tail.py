"""Open an episode file by its tail: metadata, index and summary stand together at its end."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

from mcap.data_stream import ReadDataStream
from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode
from mcap.records import AttachmentIndex, Channel, Footer, Metadata, MetadataIndex, Schema, SummaryOffset

from dyna_train.episode.container import (
    END_BYTES,
    FOOTER_BYTES,
    MAGIC,
    RECORD_HEAD_BYTES,
    SUMMARY_OFFSET_BYTES,
    Place,
    kind_name,
)
from dyna_train.episode.index import INDEX_NAME, EpisodeIndex
from dyna_train.episode.profile import EpisodeHeader, read_header
from dyna_train.episode.source import ByteSource
from dyna_train.errors import CorruptEpisode, EpisodeError, TruncatedEpisode

TAIL_BYTES = 64 * 1024
_SCAN_BYTES = 4096
_FOOTER_HEAD = struct.pack("<BQ", Opcode.FOOTER, FOOTER_BYTES - RECORD_HEAD_BYTES)
_SUMMARY_OFFSET_HEAD = struct.pack("<BQ", Opcode.SUMMARY_OFFSET, SUMMARY_OFFSET_BYTES - RECORD_HEAD_BYTES)
_NOWHERE = Place(0, 0)


@dataclass(frozen=True, slots=True)
class Tail:
    """What the end of a file says: header, index, channels, schemas by id, and where its attachments lie by name."""

    header: EpisodeHeader
    index: EpisodeIndex
    channels: tuple[Channel, ...]
    schemas: Mapping[int, Schema]
    attachments: Mapping[str, Place]


def read_tail(source: ByteSource) -> Tail:
    """Header and index of a file by one read of its tail, or two where the tail is larger than 64 KiB.

    Raises TruncatedEpisode or CorruptEpisode naming the byte, EpisodeError for a file without our index.
    """
    tail = source.tail(TAIL_BYTES)
    footer = _footer(source, tail)
    if not (footer.summary_start and footer.summary_offset_start and footer.summary_crc):
        raise _rewritten(
            source.uri, "an MCAP file without summary, summary offsets or checksum of the summary"
        )
    groups = _summary_groups(source, tail, footer)
    window = _Window(source, tail, base=footer.summary_offset_start - groups.at)
    attachments, metadata = _indexes(source.uri, window, groups)
    wanted = [attachments[INDEX_NAME]] if INDEX_NAME in attachments else []
    window.reach(min([footer.summary_start, *(place.offset for place in (*wanted, *metadata))]))
    _check_summary(source.uri, window, footer)
    if not wanted:
        raise _rewritten(source.uri, f"an MCAP file without the attachment {INDEX_NAME}")
    data = attachment_data(source.uri, window.at(wanted[0]), wanted[0])
    index = EpisodeIndex.from_bytes(data, uri=source.uri)
    _check_first_chunk(source.uri, window.at(groups.places.get(Opcode.CHUNK_INDEX, _NOWHERE)), index)
    channels = tuple(map(Channel.read, _records(window, groups, Opcode.CHANNEL)))
    header = _header(source.uri, window, channels, metadata, index)
    schemas = {one.id: one for one in map(Schema.read, _records(window, groups, Opcode.SCHEMA))}
    return Tail(header, index, channels, schemas, attachments)


def attachment_data(uri: str, record: bytes | memoryview, place: Place) -> memoryview:
    """The data of an attachment record that lies at `place`. Raises CorruptEpisode if its crc32 differs."""
    view = memoryview(record)
    (stored,) = struct.unpack("<I", view[-4:])
    if view[0] != Opcode.ATTACHMENT or zlib.crc32(view[RECORD_HEAD_BYTES:-4]) != stored:
        raise CorruptEpisode(
            f"{uri}: the attachment at byte {place.offset:,} ({place.length:,} bytes) fails its crc32; "
            "fetch the file again"
        )
    at = RECORD_HEAD_BYTES + 16  # after log_time and create_time: name, media type, then the data
    for _ in range(2):
        at += 4 + int(struct.unpack_from("<I", view, at)[0])
    return view[at + 8 : -4]


def cut_error(source: ByteSource, size: int) -> EpisodeError:
    """Why a file of `size` bytes has no end; walks its records to the one that is not whole.

    A record of a kind that cannot be ends the walk: zeros would be so many records of nine bytes.
    """
    (magic,) = source.read([(0, min(size, len(MAGIC)))])
    if magic != MAGIC[:size]:
        return EpisodeError(f"{source.uri}: not an MCAP file; expected an episode file")
    at, first, heads = len(MAGIC), 0, memoryview(b"")
    while at + RECORD_HEAD_BYTES <= size:
        if at + RECORD_HEAD_BYTES > first + len(heads):  # the small records between two chunks are one read
            first = at
            (heads,) = source.read([(at, min(at + _SCAN_BYTES, size))])
        head = heads[at - first : at - first + RECORD_HEAD_BYTES]
        opcode, length = struct.unpack("<BQ", head)
        end = at + RECORD_HEAD_BYTES + length
        if opcode == 0:
            return CorruptEpisode(
                f"{source.uri}: no record at byte {at:,}, which is 0, and no closing magic at the end of the "
                f"{size:,} bytes; fetch the file again, or save what is whole with dyna-train recover"
            )
        if end > size:
            return TruncatedEpisode(
                f"{source.uri}: file ends at byte {size:,}, inside the {kind_name(opcode)} record at byte {at:,} "
                f"that needs byte {end:,}; fetch the file again"
            )
        at = end
        if opcode == Opcode.FOOTER and source.read([(at, min(at + len(MAGIC), size))])[0] == MAGIC:
            at += len(MAGIC)
            return CorruptEpisode(
                f"{source.uri}: {size - at:,} bytes after the closing magic, which ends at byte {at:,}; fetch the "
                "file again, or save what is whole with dyna-train recover"
            )
    return TruncatedEpisode(
        f"{source.uri}: file ends at byte {size:,}, before its closing magic; fetch the file again, "
        "or save what is whole with dyna-train recover"
    )


def _rewritten(uri: str, what: str) -> EpisodeError:
    """For a file of which `what` says why our writer did not write it."""
    return EpisodeError(
        f"{uri}: {what}; expected an episode file. If another tool rewrote one, dyna-train regroup restores it"
    )


class _Window:
    """The bytes of the file from `base` to its end; grows to the front by one more read."""

    def __init__(self, source: ByteSource, data: bytes, base: int) -> None:
        self._source = source
        self._data = data
        self._base = base

    def reach(self, offset: int) -> None:
        """Hold everything from `offset` on."""
        if offset < self._base:
            (front,) = self._source.read([(offset, self._base)])
            self._data = bytes(front) + self._data
            self._base = offset

    def since(self, offset: int) -> memoryview:
        """The bytes from `offset` to the file's end."""
        return memoryview(self._data)[offset - self._base :]

    def at(self, place: Place) -> memoryview:
        """The bytes of one record, or of a group of them."""
        return self.since(place.offset)[: place.length]


@dataclass(frozen=True, slots=True)
class _SummaryGroups:
    """at: where in the tail the summary offset records begin; places: of each group of the summary."""

    at: int
    places: Mapping[int, Place]


def _footer(source: ByteSource, tail: bytes) -> Footer:
    end = tail[-END_BYTES:]
    is_footer = end.startswith(_FOOTER_HEAD)
    if tail.endswith(MAGIC) and is_footer:
        footer: Footer = Footer.read(ReadDataStream(BytesIO(end[RECORD_HEAD_BYTES:])))
        return footer
    size = source.size()
    if is_footer or (tail.endswith(MAGIC) and size > len(MAGIC)):
        raise CorruptEpisode(
            f"{source.uri}: the footer before byte {size:,} is damaged; fetch the file again"
        )
    raise cut_error(source, size)


def _summary_groups(source: ByteSource, tail: bytes, footer: Footer) -> _SummaryGroups:
    """The summary offset records, found backwards from the footer: so nobody need ask for the file's size.

    They have one length, the first points at the summary's start, and the last group ends where they begin.
    """
    at = len(tail) - END_BYTES - SUMMARY_OFFSET_BYTES
    places: dict[int, Place] = {}
    while at >= 0 and tail[at : at + RECORD_HEAD_BYTES] == _SUMMARY_OFFSET_HEAD:
        record = SummaryOffset.read(ReadDataStream(BytesIO(tail[at + RECORD_HEAD_BYTES :])))
        places[record.group_opcode] = Place(record.group_start, record.group_length)
        if record.group_start == footer.summary_start:
            end = max(place.offset + place.length for place in places.values())
            if end == footer.summary_offset_start:
                return _SummaryGroups(at, places)
            break
        at -= SUMMARY_OFFSET_BYTES
    raise CorruptEpisode(
        f"{source.uri}: the footer names a summary from byte {footer.summary_start:,} to "
        f"{footer.summary_offset_start:,}, the summary offset records before it do not; fetch the file again"
    )


def _indexes(uri: str, window: _Window, groups: _SummaryGroups) -> tuple[dict[str, Place], tuple[Place, ...]]:
    """Places of the attachments by name, and of the metadata records that hold: of those with one name the last.

    Nothing is verified yet.
    """
    try:
        attachments = {
            record.name: Place(record.offset, record.length)
            for record in map(AttachmentIndex.read, _records(window, groups, Opcode.ATTACHMENT_INDEX))
        }
        last = {
            record.name: Place(record.offset, record.length)
            for record in map(MetadataIndex.read, _records(window, groups, Opcode.METADATA_INDEX))
        }
        metadata = tuple(sorted(last.values(), key=lambda place: place.offset))
    except (EndOfFile, struct.error, UnicodeDecodeError) as error:
        raise CorruptEpisode(
            f"{uri}: the summary is not readable: {type(error).__name__} {error}; fetch the file again"
        ) from error
    return attachments, metadata


def _check_summary(uri: str, window: _Window, footer: Footer) -> None:
    summary = window.since(footer.summary_start)[: -4 - len(MAGIC)]
    crc = zlib.crc32(summary)
    if crc != footer.summary_crc:
        raise CorruptEpisode(
            f"{uri}: the summary from byte {footer.summary_start:,} has crc32 {crc:08x}, "
            f"expected {footer.summary_crc:08x}; fetch the file again"
        )


def _check_first_chunk(uri: str, chunk_indexes: memoryview, index: EpisodeIndex) -> None:
    """A tool that copies attachments copies the index too, with the places of the chunks of the old file."""
    if len(chunk_indexes) < RECORD_HEAD_BYTES + 32:
        return
    offset, length = struct.unpack_from("<QQ", chunk_indexes, RECORD_HEAD_BYTES + 16)  # after the times
    named = [
        (int(table.offset_K[0]), int(table.length_K[0]))
        for table in index.chunks.values()
        if len(table.offset_K)
    ]
    if (offset, length) not in named:
        raise _rewritten(
            uri, f"its first chunk, of {length:,} bytes from byte {offset:,}, is none of {INDEX_NAME}"
        )


def _header(
    uri: str,
    window: _Window,
    channels: Sequence[Channel],
    metadata: Sequence[Place],
    index: EpisodeIndex,
) -> EpisodeHeader:
    """The header from channels and metadata records, which the index vouches for."""
    crc = 0
    for place in metadata:
        crc = zlib.crc32(window.at(place), crc)
    if crc != index.metadata_crc:
        raise CorruptEpisode(
            f"{uri}: the metadata records from byte {metadata[0].offset:,} have crc32 {crc:08x}, "
            f"expected {index.metadata_crc:08x}; fetch the file again"
        )
    streams = (ReadDataStream(BytesIO(window.at(place)[RECORD_HEAD_BYTES:])) for place in metadata)
    records = {record.name: record.metadata for record in map(Metadata.read, streams)}
    header = read_header(uri, {channel.topic: channel.metadata for channel in channels}, records)
    if header.num_steps != index.num_steps:
        raise CorruptEpisode(f"{uri}: the header says {header.num_steps} steps, the index {index.num_steps}")
    return header


def _records(window: _Window, groups: _SummaryGroups, opcode: Opcode) -> Iterator[ReadDataStream]:
    """The contents of the records of one kind in the summary."""
    place = groups.places.get(opcode)
    if place is None:
        return
    window.reach(place.offset)
    group = window.at(place)
    at = 0
    while at < len(group):
        _, length = struct.unpack_from("<BQ", group, at)
        at += RECORD_HEAD_BYTES
        yield ReadDataStream(BytesIO(group[at : at + length]))
        at += length
