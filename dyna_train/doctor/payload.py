"""One message of a file with its data, and where in the file that lies."""

from __future__ import annotations

from dataclasses import dataclass

from dyna_train.doctor.survey import Chunk


@dataclass(frozen=True, slots=True)
class Payload:
    """One message with its data. byte: where that lies in the file, or its chunk if that is compressed."""

    channel: int
    topic: str
    step: int
    byte: int
    is_packed: bool
    log_ns: int
    publish_ns: int
    data: memoryview

    def byte_of(self, at: int) -> int:
        """Where byte `at` of its data lies in the file, or its chunk if that is compressed."""
        return self.byte if self.is_packed else self.byte + at


def is_packed(chunk: Chunk | None) -> bool:
    """True if the bytes of its messages do not stand in the file as they are."""
    return chunk is not None and bool(chunk.raw.compression)


def file_byte(chunk: Chunk | None, at: int) -> int:
    """Where byte `at` of a chunk's records lies in the file; the chunk's first byte where it is compressed."""
    if chunk is None:
        return at
    return chunk.record.at if is_packed(chunk) else chunk.raw.data_at + at
