"""Where the bytes of an episode file come from: a local file, or any fsspec filesystem, by ranges."""

from __future__ import annotations

import os
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import fsspec
from fsspec.implementations.local import LocalFileSystem

from dyna_train.errors import EpisodeError, TruncatedEpisode
from dyna_train.files import open_store

Range = tuple[int, int]
"""First byte and end byte."""

REMOTE_GAP_BYTES = 4 << 20  # 20 ms of latency at 200 MB/s: reading a smaller gap is cheaper than asking twice


@dataclass(slots=True)
class ReadCounters:
    """What reading cost so far: storage requests, bytes read, frames decoded, frames handed out."""

    requests: int = 0
    bytes: int = 0
    decoded: int = 0
    kept: int = 0


class ByteSource(Protocol):
    """Reads ranges of one file and counts what it did."""

    uri: str
    counters: ReadCounters

    def size(self) -> int:
        """Bytes of the file."""
        ...

    def tail(self, length: int) -> bytes:
        """The last `length` bytes, or the whole file if it is shorter."""
        ...

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes of each range. Raises TruncatedEpisode if the file ends before one does."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


def open_source(uri: str | Path, fs: fsspec.AbstractFileSystem | None) -> ByteSource:
    """The source of `uri`; fs: its filesystem, if the caller has it. Raises EpisodeError if absent."""
    store, path = (fs, str(uri)) if fs is not None else open_store(uri)
    if isinstance(store, LocalFileSystem):
        return LocalSource.open(str(uri), open_store(uri)[1])
    return RemoteSource(str(uri), store, path)


class LocalSource:
    """A local file by `pread`: no shared position, so a forked worker may use the same handle."""

    def __init__(self, uri: str, handle: int) -> None:
        self.uri = uri
        self.counters = ReadCounters()
        self._handle = handle
        self._release = weakref.finalize(self, os.close, handle)  # a dropped reader leaks no handle

    @classmethod
    def open(cls, uri: str, path: str) -> LocalSource:
        """Open the file. Raises EpisodeError if there is none."""
        try:
            return cls(uri, os.open(path, os.O_RDONLY))
        except (FileNotFoundError, IsADirectoryError) as error:
            raise _missing(uri) from error

    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._handle).st_size

    def tail(self, length: int) -> bytes:
        """The last `length` bytes, or the whole file if it is shorter."""
        size = self.size()
        return self._pread(max(0, size - length), size)

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes of each range; ranges that touch are one read."""
        return _split(
            ranges, [(merged, self._pread(*merged)) for merged in merge_ranges(ranges, gap_bytes=0)]
        )

    def close(self) -> None:
        """Close the handle."""
        self._release()
        self._handle = -1

    def _pread(self, start: int, end: int) -> bytes:
        parts = []
        at = start
        while at < end:
            part = os.pread(self._handle, end - at, at)
            if not part:
                raise _short(self.uri, self.size(), end)
            parts.append(part)
            at += len(part)
        self.counters.requests += 1
        self.counters.bytes += end - start
        return parts[0] if len(parts) == 1 else b"".join(parts)


class RemoteSource:
    """A file of any fsspec filesystem, by `cat_file` and `cat_ranges`."""

    def __init__(self, uri: str, fs: fsspec.AbstractFileSystem, path: str) -> None:
        self.uri = uri
        self.counters = ReadCounters()
        self._fs = fs
        self._path = path
        self._process = os.getpid()

    def size(self) -> int:
        """Bytes of the file."""
        return int(self._filesystem().size(self._path))

    def tail(self, length: int) -> bytes:
        """The last `length` bytes, or the whole file if it is shorter: one suffix request."""
        try:
            data: bytes = self._filesystem().cat_file(self._path, start=-length)
        except FileNotFoundError as error:
            raise _missing(self.uri) from error
        self.counters.requests += 1
        self.counters.bytes += len(data)
        return data

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes of each range; ranges that lie close are one request, requests go out together."""
        merged = merge_ranges(ranges, gap_bytes=REMOTE_GAP_BYTES)
        starts, ends = [start for start, _ in merged], [end for _, end in merged]
        parts: list[bytes] = self._filesystem().cat_ranges(
            [self._path] * len(merged), starts, ends, on_error="raise"
        )
        for (start, end), part in zip(merged, parts, strict=True):
            if len(part) != end - start:
                raise _short(self.uri, start + len(part), end)
        self.counters.requests += len(merged)
        self.counters.bytes += sum(end - start for start, end in merged)
        return _split(ranges, list(zip(merged, parts, strict=True)))

    def close(self) -> None:
        """Nothing to release: the filesystem is the caller's or fsspec's."""

    def _filesystem(self) -> fsspec.AbstractFileSystem:
        """The filesystem; in a forked worker a new one, because event loops do not survive a fork."""
        if self._process != os.getpid():
            self._fs = type(self._fs)(*self._fs.storage_args, **self._fs.storage_options)
            self._process = os.getpid()
        return self._fs


def merge_ranges(ranges: Sequence[Range], gap_bytes: int) -> list[Range]:
    """The fewest ranges, ascending, that cover `ranges` when gaps up to `gap_bytes` are read along."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start - merged[-1][1] <= gap_bytes:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _split(ranges: Sequence[Range], parts: Sequence[tuple[Range, bytes]]) -> list[memoryview]:
    """Each of `ranges` as a view of the part that holds it; parts ascend and do not overlap."""
    views = []
    for start, end in ranges:
        (first, _), data = parts[bisect_right(parts, start, key=lambda part: part[0][0]) - 1]
        views.append(memoryview(data)[start - first : end - first])
    return views


def _missing(uri: str) -> EpisodeError:
    return EpisodeError(f"{uri}: no such episode file; check that the manifest and the store belong together")


def _short(uri: str, found: int, needed: int) -> TruncatedEpisode:
    return TruncatedEpisode(
        f"{uri}: file ends at byte {found:,}, a read needs byte {needed:,}; fetch it again"
    )
