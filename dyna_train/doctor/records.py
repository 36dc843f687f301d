"""The records of an MCAP file, front to back, trusting no index and no record before it was understood.

A record that is damaged does not end the walk: where its length still leads to a record, the walk goes on
there, and otherwise at the next place from which whole records follow one another.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from mcap.data_stream import ReadDataStream, RecordBuilder
from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode
from mcap.records import (
    Attachment,
    AttachmentIndex,
    Channel,
    ChunkIndex,
    DataEnd,
    Footer,
    Header,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
    SummaryOffset,
)
from numpy.typing import NDArray

from dyna_train.episode.container import (
    KINDS,
    MAGIC,
    MESSAGE_HEAD_BYTES,
    RECORD_HEAD_BYTES,
    finished,
    kind_name,
)

_FIRST_PRIVATE = 0x80  # opcodes from here on belong to whoever writes them; readers skip them
MESSAGE_DTYPE = np.dtype(
    [
        ("at", "<i8"),
        ("size", "<i8"),
        ("channel", "<u2"),
        ("sequence", "<u4"),
        ("log_ns", "<i8"),
        ("publish_ns", "<i8"),
    ]
)
"""One message; at, size: first byte and bytes of its data. Times beyond 2**63 show as negative."""
Messages = NDArray[np.void]

_MESSAGE_HEAD = struct.Struct("<BQHIqq")
_CHUNK_HEAD = struct.Struct("<QQQII")  # start, end, uncompressed size, crc, length of compression
_CLASSES: dict[int, Any] = {
    Opcode.HEADER: Header,
    Opcode.FOOTER: Footer,
    Opcode.SCHEMA: Schema,
    Opcode.CHANNEL: Channel,
    Opcode.ATTACHMENT: Attachment,
    Opcode.ATTACHMENT_INDEX: AttachmentIndex,
    Opcode.METADATA: Metadata,
    Opcode.METADATA_INDEX: MetadataIndex,
    Opcode.CHUNK_INDEX: ChunkIndex,
    Opcode.STATISTICS: Statistics,
    Opcode.SUMMARY_OFFSET: SummaryOffset,
    Opcode.DATA_END: DataEnd,
}
_MAX_NAME_BYTES = 32  # of a compression, all of which have short names: a longer one is a damaged length
_PROOF = 16  # records of a kind that proves nothing to look through
_ZEROS = re.compile(rb"\0{3,}")
"""What a damaged stretch is searched for: a record is shorter than 2**40 bytes, so its length ends in zeros."""


@dataclass(frozen=True, slots=True)
class RawChunk:
    """A chunk record; data: its records, compressed as `compression` says, a view of the file."""

    start_ns: int
    end_ns: int
    uncompressed_size: int
    uncompressed_crc: int
    compression: str
    data: memoryview
    data_at: int


@dataclass(frozen=True, slots=True)
class RawMessageIndex:
    """A message index record: entries uint64 [messages, 2] of log time and offset."""

    channel_id: int
    entries: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Record:
    """One whole record: at, end its bytes in the file. content: its parts, None for messages and private kinds.

    trailing: bytes after the parts the format names; it allows them for later versions.
    """

    opcode: int
    at: int
    end: int
    content: Any
    trailing: int = 0

    @property
    def kind(self) -> str:
        """Name of its kind, as the format spells it."""
        return kind_name(self.opcode)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes at .. end of the file that are no whole record: what was expected there, what was found."""

    at: int
    end: int
    expected: str
    found: str


def walk(data: memoryview) -> Iterator[Record | Damage]:
    """Records and damages of the whole file in order; together they cover it, magic bytes apart.

    The last thing is a Damage unless the file ends in footer and closing magic.
    """
    start = bytes(data[: len(MAGIC)])
    if start != MAGIC:
        if MAGIC.startswith(start):
            yield _cut(data, 0)
            return
        yield Damage(0, len(start), f"the magic bytes {MAGIC!r}", repr(start))
    at, last = len(start), -1
    while not _is_end(data, at, last):
        found = _record(data, at) or _damage(data, at, last)
        yield found
        at, last = found.end, found.opcode if isinstance(found, Record) else -1
        if isinstance(found, Damage) and at == len(data):
            return


def read_messages(data: memoryview, at: int, end: int) -> tuple[Messages, list[Record], int]:
    """The messages from byte `at` to `end` of a chunk's records, and the records of other kinds among them.

    Returns (messages, others, stop): stop is `end`, or the first byte from which no record could be read.
    """
    rows: list[tuple[int, ...]] = []
    others: list[Record] = []
    while at + RECORD_HEAD_BYTES <= end:
        if data[at] != Opcode.MESSAGE:
            record = _record(data[:end], at)
            if record is None:
                break
            others.append(record)
            at = record.end
            continue
        row = message_row(data, at, end)
        if row is None:
            break
        rows.append(row)
        at = row[0] + row[1]
    return np.array(rows, MESSAGE_DTYPE), others, at


def message_row(data: memoryview, at: int, end: int) -> tuple[int, ...] | None:
    """The fields of MESSAGE_DTYPE of the message record at byte `at`; None if it does not end before `end`."""
    if at + MESSAGE_HEAD_BYTES > end:
        return None
    _, length, *fields = _MESSAGE_HEAD.unpack_from(data, at)
    size = length + RECORD_HEAD_BYTES - MESSAGE_HEAD_BYTES
    first = at + MESSAGE_HEAD_BYTES
    return (first, size, *fields) if 0 <= size <= end - first else None


def _is_end(data: memoryview, at: int, last: int) -> bool:
    return last == Opcode.FOOTER and at == len(data) - len(MAGIC) and bytes(data[at:]) == MAGIC


def _record(data: memoryview, at: int) -> Record | None:
    """The record at byte `at`, if its parts fill it as the format says.

    Bytes after its parts, and private kinds, are allowed if the file goes on well after them; else it is the
    length or the kind that is damaged.
    """
    record = _parsed(data, at)
    if record is None or (not record.trailing and record.opcode < _FIRST_PRIVATE):
        return record
    return record if _follows(data, record.end, record.opcode) else None


def _parsed(data: memoryview, at: int) -> Record | None:
    if at + RECORD_HEAD_BYTES > len(data):
        return None
    opcode, length = struct.unpack_from("<BQ", data, at)
    end = at + RECORD_HEAD_BYTES + length
    if end > len(data):
        return None
    if opcode in _CLASSES:
        return _small(opcode, data[at + RECORD_HEAD_BYTES : end], at)
    if opcode == Opcode.CHUNK:
        return _chunk(data, at, end)
    if opcode == Opcode.MESSAGE_INDEX:
        return _message_index(data, at, end)
    is_message = opcode == Opcode.MESSAGE and message_row(data, at, end) is not None
    return Record(opcode, at, end, None) if is_message or opcode >= _FIRST_PRIVATE else None


def _small(opcode: int, body: memoryview, at: int) -> Record | None:
    """A record of the kinds that `mcap` reads: whole if it writes the same bytes again.

    Its readers take what is left where too little is, so that only the comparison tells.
    """
    kind = _CLASSES[opcode]
    try:
        content = kind.read(ReadDataStream(BytesIO(body)))
    except (EndOfFile, struct.error, UnicodeDecodeError, OverflowError, MemoryError):
        return None
    builder = RecordBuilder()
    content.write(builder)
    written = finished(builder)[RECORD_HEAD_BYTES:]
    same = len(written)
    if opcode == Opcode.ATTACHMENT:
        same -= 4  # its checksum, which `mcap` does not read: a check of its own
    if len(written) > len(body) or bytes(body[:same]) != written[:same]:
        return None
    end = at + RECORD_HEAD_BYTES + len(body)
    return Record(opcode, at, end, content, trailing=len(body) - len(written))


def _chunk(data: memoryview, at: int, end: int) -> Record | None:
    body = data[at + RECORD_HEAD_BYTES : end]
    if len(body) < _CHUNK_HEAD.size:
        return None
    start_ns, end_ns, size, crc, name_bytes = _CHUNK_HEAD.unpack_from(body)
    data_at = _CHUNK_HEAD.size + name_bytes + 8
    if data_at > len(body) or name_bytes > _MAX_NAME_BYTES:
        return None
    try:
        compression = bytes(body[_CHUNK_HEAD.size : data_at - 8]).decode()
    except UnicodeDecodeError:
        return None
    (length,) = struct.unpack_from("<Q", body, data_at - 8)
    if data_at + length > len(body):
        return None
    first = at + RECORD_HEAD_BYTES + data_at
    content = RawChunk(start_ns, end_ns, size, crc, compression, body[data_at : data_at + length], first)
    return Record(Opcode.CHUNK, at, end, content, trailing=len(body) - data_at - length)


def _message_index(data: memoryview, at: int, end: int) -> Record | None:
    body = data[at + RECORD_HEAD_BYTES : end]
    if len(body) < 6:
        return None
    channel, length = struct.unpack_from("<HI", body)
    if length % 16 or 6 + length > len(body):
        return None
    entries = np.frombuffer(body[6 : 6 + length], "<u8").reshape(-1, 2)
    return Record(Opcode.MESSAGE_INDEX, at, end, RawMessageIndex(channel, entries), len(body) - 6 - length)


def _follows(data: memoryview, at: int, last: int) -> bool:
    """True if the file goes on well at byte `at`, after a record of kind `last`.

    What any bytes could be, a message or a private record, proves nothing before something else follows.
    """
    for _ in range(_PROOF):
        if at == len(data) or _is_end(data, at, last):
            return True
        record = _parsed(data, at)
        if record is None or record.content is not None:
            return record is not None
        at, last = record.end, record.opcode
    return True


def _damage(data: memoryview, at: int, last: int) -> Damage:
    """What is wrong with the record at byte `at`, and where the next whole one begins."""
    size = len(data)
    if last == Opcode.FOOTER and at + len(MAGIC) == size:
        return Damage(at, size, f"the closing magic bytes {MAGIC!r}", repr(bytes(data[at:])))
    if last == Opcode.FOOTER and bytes(data[at : at + len(MAGIC)]) == MAGIC:
        at += len(MAGIC)
        return Damage(at, size, "the file's end", f"{size - at:,} bytes after the closing magic")
    if at + RECORD_HEAD_BYTES > size:
        return _cut(data, at)
    opcode, length = struct.unpack_from("<BQ", data, at)
    end = at + RECORD_HEAD_BYTES + length
    if end <= size and _follows(data, end, opcode):
        found = "parts that do not fill it" if opcode in KINDS else "a kind that the format does not have"
        return Damage(at, end, f"a whole {kind_name(opcode)} record of {length:,} bytes", found)
    resumed = _resume(data, at + 1)
    if resumed < size:
        return Damage(at, resumed, "a record", f"none before byte {resumed:,}, where the next one begins")
    if end > size and opcode in KINDS:
        return _cut(data, at)
    return Damage(at, size, "a record", f"none up to the file's end at byte {size:,}")


def _resume(data: memoryview, at: int) -> int:
    """The first byte from `at` on where a whole record is followed by another; the file's end without one."""
    for zeros in _ZEROS.finditer(data, at):
        # The run of zeros holds the three highest bytes of a length, the byte of the kind stands before it.
        for start in range(zeros.start() - 6, min(zeros.end() - 8, zeros.start())):
            if start >= at and data[start] in KINDS and data[start] != Opcode.MESSAGE:
                record = _record(data, start)
                if record and record.end < len(data) and _follows(data, record.end, record.opcode):
                    return start
    return len(data)


def _cut(data: memoryview, at: int) -> Damage:
    """The file ends inside or before the record at byte `at`."""
    size = len(data)
    if at >= len(MAGIC) and at + RECORD_HEAD_BYTES <= size:
        opcode, length = struct.unpack_from("<BQ", data, at)
        end = at + RECORD_HEAD_BYTES + length
        where = f"inside the {kind_name(opcode)} record at byte {at:,} that needs byte {end:,}"
    elif at < size:
        where = f"inside the head of the record at byte {at:,}" if at else "inside its opening magic"
    else:
        where = "before its closing magic"
    return Damage(at, size, "footer and closing magic", f"file ends at byte {size:,}, {where}")
