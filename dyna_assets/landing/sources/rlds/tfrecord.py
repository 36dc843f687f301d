"""TFRecord framing: where each record lies, found by reading lengths only; and one record, checked.

A record is its length (uint64), the length's masked crc32c, the data, and the data's masked crc32c, all
little-endian. There is no index: a damaged length hides everything after it.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.base import open_file
from dyna_train.errors import MissingExtra

try:
    from google_crc32c import extend as extend_crc32c
except ImportError as error:
    raise MissingExtra.of("google_crc32c", "assets", "Reading TFRecord files") from error

HEAD_BYTES, FOOT_BYTES = 12, 4
BLOCK_BYTES = 1 << 20
AGAIN = "Write or upload the file again"
COMPRESSED = {b"\x1f\x8b": "gzip", b"\x78\x01": "zlib", b"\x78\x9c": "zlib", b"\x78\xda": "zlib"}
"""How compressed TFRecord files begin; they have no framing outside."""


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """Where a record's data lies. fault: why it cannot be read, '' if it can; then it is the file's last one."""

    start: int
    num_bytes: int
    fault: str = ""


def record_spans(folder: Folder, name: str) -> tuple[RecordSpan, ...]:
    """The records of a file in order; reads 12 bytes of each, and nothing of a file it knows already.

    A cut or damaged file ends with a span that has a fault; an empty file is such a span alone.
    Raises RecordingError if the file is gone.
    """
    with open_file(folder, name) as file:
        size_bytes = file.seek(0, 2)
    return _known_spans(folder, name, size_bytes, folder.fs.ukey(f"{folder.path}/{name}"))


def read_record(folder: Folder, name: str, number: int) -> memoryview:
    """The data of record `number`, once its checksum holds. Raises RecordingError naming the byte otherwise.

    It is copied to a nameless file and mapped: memory stays flat however long the episode, the store is read
    in one pass, and a landed file that is replaced meanwhile cannot change what was checked.
    """
    where = folder.at(name)
    spans = record_spans(folder, name)
    if number >= len(spans):
        raise RecordingError(f"{where}: holds {len(spans)} records, no record {number}; {AGAIN.lower()}")
    span = spans[number]
    if span.fault:
        raise RecordingError(f"{where}: record {number}: {span.fault}")
    with tempfile.TemporaryFile() as copy, open_file(folder, name) as source:
        source.seek(span.start)
        crc, left = 0, span.num_bytes
        while left:
            block = source.read(min(left, BLOCK_BYTES))
            if not block:
                raise RecordingError(
                    f"{where}: record {number}: the file became shorter while it was read; landed files must stay"
                )
            crc, left = extend_crc32c(crc, block), left - len(block)
            copy.write(block)
        _check(f"{where}: record {number}", span, source.read(FOOT_BYTES), crc)
        copy.flush()
        if not span.num_bytes:
            return memoryview(b"")
        return memoryview(mmap.mmap(copy.fileno(), span.num_bytes, access=mmap.ACCESS_READ))


@lru_cache(maxsize=64)  # every recording of a file is found through the lengths of those before it
def _known_spans(folder: Folder, name: str, size_bytes: int, version: str) -> tuple[RecordSpan, ...]:
    """version: the store's fingerprint of the file as it is now."""
    path = f"{folder.path}/{name}"
    # exact ranges: a file object of a store would read megabytes ahead at each length
    return tuple(_walk(lambda start, end: folder.fs.cat_file(path, start=start, end=end), size_bytes))


def _walk(read: Callable[[int, int], bytes], size_bytes: int) -> Iterator[RecordSpan]:
    at = 0
    if not size_bytes:
        yield RecordSpan(0, 0, f"the file is empty, expected records. {AGAIN}")
    while at < size_bytes:
        head = read(at, min(at + HEAD_BYTES, size_bytes))
        num_bytes = int.from_bytes(head[:8], "little")
        fault = _head_fault(head, at, size_bytes)
        if fault:
            yield RecordSpan(at, 0, fault)
            return
        yield RecordSpan(at + HEAD_BYTES, num_bytes)
        at += HEAD_BYTES + num_bytes + FOOT_BYTES


def _head_fault(head: bytes, at: int, size_bytes: int) -> str:
    if at == 0 and head[:2] in COMPRESSED:
        return f"byte 0: the file is compressed with {COMPRESSED[head[:2]]}; unpack it and upload the result"
    if len(head) < HEAD_BYTES:
        return f"the file ends at byte {size_bytes:,}, inside the head of the record at byte {at:,}. {AGAIN}"
    found, expected = int.from_bytes(head[8:], "little"), _masked(extend_crc32c(0, head[:8]))
    if found != expected:
        return (
            f"byte {at:,}: expected a record's length and its checksum {expected:08x}, found {found:08x}: damaged, "
            f"or no TFRecord. The {size_bytes - at:,} bytes from here on cannot be told apart. {AGAIN}"
        )
    end = at + HEAD_BYTES + int.from_bytes(head[:8], "little") + FOOT_BYTES
    if end > size_bytes:
        return (
            f"the file ends at byte {size_bytes:,}, inside the record at byte {at:,}, which needs byte {end:,}: "
            f"it was cut while being written or uploaded. {AGAIN}"
        )
    return ""


def _check(place: str, span: RecordSpan, foot: bytes, crc: int) -> None:
    found, expected = int.from_bytes(foot, "little"), _masked(crc)
    if found != expected:
        raise RecordingError(
            f"{place}: the {span.num_bytes:,} bytes at byte {span.start:,} have the checksum {expected:08x}, "
            f"the file says {found:08x}: damaged. {AGAIN}; its other records are whole"
        )


def _masked(crc: int) -> int:
    """TFRecord's way to store a checksum, so that one over data with checksums stays a good one."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
