"""The records of an MCAP file as bytes: found, checked, unpacked and walked, without an object per message.

Every length is compared with what is there before memory is taken for it, and every error names its byte.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any

from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.messages.file import RawRecord
from dyna_train.episode.container import (
    MESSAGE_HEAD_BYTES,
    MOST_UNPACKED_BYTES,
    RECORD_HEAD_BYTES,
    chunk_records,
)
from dyna_train.errors import CorruptEpisode

REPAIR = "Upload the file again, or repair it with `mcap recover` and upload the result"
_HEAD = struct.Struct("<BQ")  # opcode, length
_MESSAGE_HEAD = struct.Struct("<BQHIQQ")  # opcode, length, channel, sequence, log_time, publish_time
_CHUNK_HEAD = struct.Struct("<QQQII")  # start, end, uncompressed size, crc, length of the compression's name
_MESSAGE = int(Opcode.MESSAGE)
_KINDS = {code.value: f"{code.name.title().replace('_', '')} record" for code in Opcode}


@dataclass(frozen=True, slots=True)
class RecordBytes:
    """The bytes of one open file. where: its address, for errors."""

    where: str
    handle: IO[bytes]
    size_bytes: int

    def end_of(self, at: int, length: int, what: str) -> int:
        """Where `length` bytes from byte `at` end. Raises RecordingError if the file ends before."""
        if at + length > self.size_bytes:
            raise self.damage(
                at, f"{what} says it has {length:,} bytes, the file ends at byte {self.size_bytes:,}"
            )
        return at + length

    def take(self, at: int, length: int, what: str) -> bytes:
        """`length` bytes from byte `at`. Raises RecordingError if the file does not have them, or for too many."""
        self.end_of(at, length, what)
        if length > MOST_UNPACKED_BYTES:
            raise self.damage(
                at, f"{what} says it has {length:,} bytes, expected at most {MOST_UNPACKED_BYTES:,}"
            )
        self.handle.seek(at)
        data = self.handle.read(length)
        if len(data) != length:
            raise self.damage(
                at, f"{what} needs {length:,} bytes, found {len(data):,}: the file was cut meanwhile"
            )
        return data

    def head(self, at: int) -> tuple[int, int]:
        """(opcode, length of what follows) of the record at byte `at`."""
        opcode, length = _HEAD.unpack(self.take(at, RECORD_HEAD_BYTES, "a record's head"))
        return opcode, length

    def body(self, at: int, kind: int) -> bytes:
        """What follows the head of the record at byte `at`. Raises RecordingError if it is of another kind."""
        opcode, length = self.head(at)
        if opcode != kind:
            raise self.damage(at, f"expected a {kind_name(kind)}, found a {kind_name(opcode)}")
        return self.take(at + RECORD_HEAD_BYTES, length, f"this {kind_name(kind)}")

    def damage(self, at: int, what: str) -> RecordingError:
        """The error that says what is wrong at byte `at`."""
        return RecordingError(f"{self.where}: damaged at byte {at:,}: {what}. {REPAIR}")

    def chunk(self, at: int, *, check_crc: bool = True) -> bytes | memoryview:
        """The records of the chunk at byte `at`, unpacked.

        Raises RecordingError if there is none, it is damaged, or says that it holds more than may be unpacked.
        """
        body = memoryview(self.body(at, Opcode.CHUNK))
        size, crc, compression, data = self._chunk_parts(at, body)
        if size > MOST_UNPACKED_BYTES:
            raise self.damage(
                at,
                f"a chunk says it holds {size:,} bytes unpacked, expected at most {MOST_UNPACKED_BYTES:,}",
            )
        try:
            records = chunk_records(compression, data, size)
        except CorruptEpisode as error:
            raise self.damage(at, f"a chunk is {error}") from None
        if len(records) != size:
            raise self.damage(at, f"a chunk says it holds {size:,} bytes unpacked, found {len(records):,}")
        if check_crc and crc and (found := zlib.crc32(records)) != crc:
            raise self.damage(at, f"crc validation failed in Chunk: expected {crc:08x}, found {found:08x}")
        return records

    def _chunk_parts(self, at: int, body: memoryview) -> tuple[int, int, str, memoryview]:
        """(size unpacked, crc, compression, data) of a chunk's body."""
        try:
            _, _, size, crc, name_bytes = _CHUNK_HEAD.unpack_from(body)
            start = _CHUNK_HEAD.size + name_bytes + 8
            (length,) = struct.unpack_from("<Q", body, start - 8)
            compression = bytes(body[_CHUNK_HEAD.size : start - 8]).decode()
        except (struct.error, UnicodeDecodeError) as error:
            raise self.damage(at, f"a chunk's head is damaged: {error}") from None
        if start + length > len(body):
            raise self.damage(
                at, f"a chunk says it has {length:,} bytes of records, found {len(body) - start:,}"
            )
        return size, crc, compression, body[start : start + length]


def kind_name(opcode: int) -> str:
    """The format's name for a kind of record: 'ChunkIndex record'."""
    return _KINDS.get(opcode, f"record of the unknown kind 0x{opcode:02x}")


def parsed(kind: Any, body: bytes | memoryview) -> Any:
    """A record of one of the mcap package's classes from its body. Raises what that raises."""
    return kind.read(ReadDataStream(BytesIO(body)))


def other_records(records: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    """(opcode, body) of every record of a chunk that is no message. Raises ValueError with the byte."""
    view = memoryview(records)
    for opcode, start, stop in _walked(view):
        if opcode != _MESSAGE:
            yield opcode, view[start:stop]


def _walked(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """(opcode, first byte of the body, its end) of every record."""
    at, end = 0, len(view)
    while at < end:
        if at + RECORD_HEAD_BYTES > end:
            raise ValueError(f"a record's head is cut at byte {at:,} of its chunk")
        opcode, length = _HEAD.unpack_from(view, at)
        stop = at + RECORD_HEAD_BYTES + length
        if stop > end:
            raise ValueError(f"the record at byte {at:,} of its chunk needs byte {stop:,} of {end:,}")
        yield opcode, at + RECORD_HEAD_BYTES, stop
        at = stop


def messages_in(records: bytes | memoryview, topic_of: Callable[[int], str | None]) -> Iterator[RawRecord]:
    """The messages of a chunk, as views of it, of the channel ids that `topic_of` gives a topic.

    Raises ValueError with the byte.
    """
    view, at, end = memoryview(records), 0, len(records)
    unpack = _MESSAGE_HEAD.unpack_from
    while at + MESSAGE_HEAD_BYTES <= end:
        opcode, length, channel, _, log_ns, publish_ns = unpack(view, at)
        stop = at + RECORD_HEAD_BYTES + length
        if stop > end or (opcode == _MESSAGE and stop < at + MESSAGE_HEAD_BYTES):
            raise ValueError(f"the record at byte {at:,} of its chunk needs byte {stop:,} of {end:,}")
        if opcode == _MESSAGE and (topic := topic_of(channel)) is not None:
            yield RawRecord(topic, log_ns, publish_ns, view[at + MESSAGE_HEAD_BYTES : stop])
        at = stop
    for opcode, start, _ in _walked(view[at:]):  # what is left is too short for a message
        if opcode == _MESSAGE:
            raise ValueError(f"the message at byte {at + start:,} of its chunk is cut in its head")
