"""Damage for episode files: bits that flip, and records that are whole but say something wrong."""

from __future__ import annotations

import zlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

from mcap import records as mcap_records
from mcap.data_stream import ReadDataStream, RecordBuilder
from mcap.opcode import Opcode

from dyna_train.episode.container import MAGIC, RECORD_HEAD_BYTES, finished

CRC_BYTES = 4
_CLASSES = {
    Opcode.CHUNK: mcap_records.Chunk,
    Opcode.MESSAGE_INDEX: mcap_records.MessageIndex,
    Opcode.CHANNEL: mcap_records.Channel,
    Opcode.SCHEMA: mcap_records.Schema,
    Opcode.STATISTICS: mcap_records.Statistics,
    Opcode.CHUNK_INDEX: mcap_records.ChunkIndex,
    Opcode.ATTACHMENT_INDEX: mcap_records.AttachmentIndex,
    Opcode.METADATA_INDEX: mcap_records.MetadataIndex,
    Opcode.SUMMARY_OFFSET: mcap_records.SummaryOffset,
    Opcode.FOOTER: mcap_records.Footer,
}


def put(folder: Path, data: bytes) -> Path:
    """A file of these bytes, folder/damaged.mcap."""
    path = folder / "damaged.mcap"
    path.write_bytes(data)
    return path


def records(data: bytes) -> list[tuple[Opcode, int, int]]:
    """(kind, first byte, end byte) of every record outside the chunks of a healthy file."""
    places, at = [], len(MAGIC)
    while at < len(data) - len(MAGIC):
        end = at + RECORD_HEAD_BYTES + int.from_bytes(data[at + 1 : at + RECORD_HEAD_BYTES], "little")
        places.append((Opcode(data[at]), at, end))
        at = end
    return places


def places_of(data: bytes, kind: Opcode) -> list[tuple[int, int]]:
    """(first byte, end byte) of the records of one kind outside the chunks of a healthy file."""
    return [(start, end) for one, start, end in records(data) if one == kind]


def flipped(data: bytes, *places: int) -> bytes:
    """The bytes with one bit of each of these changed."""
    damaged = bytearray(data)
    for place in places:
        damaged[place] ^= 0x40
    return bytes(damaged)


def with_record(data: bytes, kind: Opcode, number: int, **values: Any) -> bytes:
    """A healthy file one of whose records of a kind has other values, of the same length; checksums are right."""
    start, end = places_of(data, kind)[number]
    content = _CLASSES[kind].read(ReadDataStream(BytesIO(data[start + RECORD_HEAD_BYTES : end])))
    builder = RecordBuilder()
    replace(content, **values).write(builder)
    written = finished(builder)
    assert len(written) == end - start, "a record of another length would move all that comes after it"
    return with_right_crcs(data[:start] + written + data[end:], places_of(data, Opcode.DATA_END)[0])


def with_right_crcs(data: bytes, data_end: tuple[int, int]) -> bytes:
    """The file with the checksums of its data section and its summary as they should be.

    data_end: first and end byte of the record between the two.
    """
    (start, end), at = data_end, len(data) - len(MAGIC) - CRC_BYTES
    fixed = bytearray(data)
    fixed[end - CRC_BYTES : end] = zlib.crc32(fixed[:start]).to_bytes(CRC_BYTES, "little")
    fixed[at : at + CRC_BYTES] = zlib.crc32(fixed[end:at]).to_bytes(CRC_BYTES, "little")
    return bytes(fixed)
