"""Read windows from any MCAP file chunk by chunk, with all its indexes held; and a store that is far away.

This is the best a reader of whole chunks can do: it fetches no chunk that holds nothing it needs, and finds every
message by the message indexes. Stock readers do less.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.reader import make_reader
from mcap.records import MessageIndex
from numpy.typing import NDArray

from benchmarks._windows import Window

_CHUNK_HEAD_BYTES = 9 + 40  # opcode, length, times, size, crc, lengths; the name of the compression follows
_MESSAGE_HEAD = struct.Struct("<BQHIQQ")


class DistantStore(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Local files behind a real sleep: latency_s a request, then its bytes at `bandwidth` bytes a second.

    Requests in parallel do not share the bandwidth.
    """

    protocol = "distant"
    cachable = False

    def __init__(self, latency_s: float = 0.020, bandwidth: float = 200e6) -> None:
        super().__init__()
        self.latency_s = latency_s
        self.bandwidth = bandwidth

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The bytes from `start` (from the end if negative) to `end`, as late as they would come."""
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            first = max(0, size + start) if start is not None and start < 0 else start or 0
            file.seek(first)
            data = file.read((size if end is None else end) - first)
        time.sleep(self.latency_s + len(data) / self.bandwidth)
        return data


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """One chunk: first byte and length of its record, and how its records are packed."""

    start: int
    length: int
    compression: str


@dataclass(frozen=True, slots=True)
class TopicPlaces:
    """Where each message of a topic lies, int64 [T] by step: its chunk, and its place in the chunk."""

    chunk_T: NDArray[np.int64]
    offset_T: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChunkedFile:
    """An MCAP file whose summary and message indexes are known; one message a topic and step."""

    path: Path
    chunks: tuple[ChunkPlace, ...]
    cameras: Mapping[str, TopicPlaces]
    states: Mapping[str, TopicPlaces]
    gop: int

    @classmethod
    def open(cls, path: Path, gop: int) -> ChunkedFile:
        """Read the summary and every message index."""
        with path.open("rb") as stream:
            summary = make_reader(stream).get_summary()
            assert summary is not None
            indexes = sorted(summary.chunk_indexes, key=lambda one: one.chunk_start_offset)
            found: dict[int, list[tuple[int, int, int]]] = {}
            for number, index in enumerate(indexes):
                for channel, at in index.message_index_offsets.items():
                    stream.seek(at + 9)  # opcode and length of the record
                    entries = MessageIndex.read(ReadDataStream(stream)).records
                    found.setdefault(channel, []).extend(
                        (time_ns, number, offset) for time_ns, offset in entries
                    )
        places = {summary.channels[channel].topic: _places(rows) for channel, rows in sorted(found.items())}
        return cls(
            path=path,
            chunks=tuple(
                ChunkPlace(index.chunk_start_offset, index.chunk_length, index.compression)
                for index in indexes
            ),
            cameras={topic: place for topic, place in places.items() if topic.startswith("/camera/")},
            states={topic: place for topic, place in places.items() if topic.startswith("/state/")},
            gop=gop,
        )

    def touched(self, window: Window) -> list[int]:
        """The chunks that hold a message the window needs, in file order."""
        fed = window.fed_steps(self.gop)
        parts = [place.chunk_T[fed] for place in self.cameras.values()]
        parts += [place.chunk_T[window.state_steps_H] for place in self.states.values()]
        numbers: list[int] = np.unique(np.concatenate(parts)).tolist()
        return numbers

    def num_bytes(self, chunks: Sequence[int]) -> int:
        """Bytes of these chunk records."""
        return sum(self.chunks[number].length for number in chunks)

    def read(
        self, store: fsspec.AbstractFileSystem, window: Window, side_by_side: Executor | None = None
    ) -> tuple[list[list[bytes]], NDArray[np.float32]]:
        """Messages of every camera to feed a decoder with, and state float32 [H, D], of all topics.

        The chunks are fetched one after the other, or all at once by `side_by_side`.
        """
        numbers = self.touched(window)
        each = map if side_by_side is None else side_by_side.map
        data = dict(zip(numbers, each(lambda number: self._records(store, number), numbers), strict=True))
        fed = window.fed_steps(self.gop)
        videos = [[_payload(data, place, int(step)) for step in fed] for place in self.cameras.values()]
        rows = [
            b"".join(_payload(data, place, int(step))[2:] for place in self.states.values())
            for step in window.state_steps_H
        ]
        return videos, np.frombuffer(b"".join(rows), "<f4").reshape(len(rows), -1)

    def _records(self, store: fsspec.AbstractFileSystem, number: int) -> bytes:
        place = self.chunks[number]
        data: bytes = store.cat_file(str(self.path), place.start, place.start + place.length)
        packed = memoryview(data)[_CHUNK_HEAD_BYTES + len(place.compression) :]
        return zstandard.ZstdDecompressor().decompress(packed) if place.compression else bytes(packed)


def _places(rows: list[tuple[int, int, int]]) -> TopicPlaces:
    """Rows of time, chunk and offset, put in order of time: the n-th message is that of step n."""
    _, chunk_T, offset_T = np.array(sorted(rows), np.int64).T
    return TopicPlaces(chunk_T, offset_T)


def _payload(data: Mapping[int, bytes], place: TopicPlaces, step: int) -> bytes:
    """The payload of one message; its record says how long it is."""
    records, at = data[int(place.chunk_T[step])], int(place.offset_T[step])
    length = int(_MESSAGE_HEAD.unpack_from(records, at)[1])
    return records[at + _MESSAGE_HEAD.size : at + 9 + length]
