"""Where the bytes of an episode file come from: a local file, or any fsspec filesystem, by ranges."""

from __future__ import annotations

import errno
import os
import stat
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from dyna_train.episode.layout import LOCAL_STORE, REMOTE_STORE
from dyna_train.errors import DynaError, EpisodeError, TruncatedEpisode
from dyna_train.files import open_store

Range = tuple[int, int]
"""First byte and end byte."""

_MAX_THREADS = 16  # requests under way at a store that cannot wait for many by itself


@dataclass(slots=True)
class ReadCounters:
    """What reading cost so far: storage requests, bytes read, frames decoded, frames handed out."""

    requests: int = 0
    bytes: int = 0
    decoded: int = 0
    kept: int = 0


def open_source(uri: str | Path, fs: fsspec.AbstractFileSystem | None) -> ByteSource:
    """The source of `uri`; fs: its filesystem, if the caller has it.

    Raises EpisodeError for an address that leads to no file; OSError if its disk or store fails.
    """
    store, path = (fs, str(uri)) if fs is not None else store_of(uri)
    if isinstance(store, LocalFileSystem):
        return LocalSource.open(str(uri), store_of(uri)[1])
    return RemoteSource(str(uri), store, path)


def store_of(uri: str | Path) -> tuple[fsspec.AbstractFileSystem, str]:
    """As `open_store`; raises EpisodeError for an address that no store can be made of."""
    try:
        return open_store(uri)
    except Exception as error:  # fsspec and every store below it has errors of its own
        raise EpisodeError(
            f"{uri}: not an address to read from ({type(error).__name__}: {error}); expected a path, or the "
            "address of a file in a store whose module is installed"
        ) from error


def open_local(uri: str, path: str) -> int:
    """A handle to read a local file by.

    Raises EpisodeError for a path that leads to no file that may be read; OSError if the disk fails.
    """
    shown = uri or "''"
    try:
        mode = os.stat(path).st_mode  # looked at before it is opened: a pipe would wait, a device may act
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
            raise EpisodeError(f"{shown}: {kind}; expected an episode file")
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _missing(uri) from error
    except PermissionError as error:
        raise EpisodeError(f"{shown}: no permission to read it; expected an episode file") from error
    except ValueError as error:
        raise EpisodeError(f"{uri!r}: not a path ({error}); expected an episode file") from error
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENAMETOOLONG):
            raise
        raise EpisodeError(f"{uri}: not a path ({error.strerror}); expected an episode file") from error


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Around reads of a store: EpisodeError if the file is absent, else OSError, whatever its library calls it.

    A store that fails says nothing of the episode, and may work again later.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise _missing(uri) from error
    except OSError as error:
        error.add_note(f"while reading {uri}")
        raise
    except (DynaError, MemoryError):
        raise
    except Exception as error:  # stores have errors of their own kinds, without a common base
        raise OSError(f"{uri}: its store answered {type(error).__name__}: {error}") from error


def read_ranges(wanted: Sequence[tuple[ByteSource, Sequence[Range]]]) -> list[list[memoryview]]:
    """The bytes of ranges of several files, by as few requests as it takes, all of them under way together.

    Ranges of one file that lie closer than its store's gap are one request. Raises TruncatedEpisode if a
    file ends before one of its ranges does.
    """
    merged = [merge_ranges(ranges, source.gap_bytes) for source, ranges in wanted]
    jobs = [(source, parts) for (source, _), parts in zip(wanted, merged, strict=True)]
    for source, ranges in jobs if sum(map(len, merged)) > 1 else ():
        source.announce(ranges)
    found = _read_remote(jobs)
    answers = []
    for place, (source, ranges) in enumerate(jobs):
        data = found[place] if place in found else [source.read_one(part) for part in ranges]
        for (start, end), part in zip(ranges, data, strict=True):
            if len(part) != end - start:
                raise _short(source.uri, source.size(), end)
            source.counters.requests += 1
            source.counters.bytes += len(part)
        answers.append(_split(wanted[place][1], list(zip(ranges, data, strict=True))))
    return answers


class LocalSource:
    """A local file by `pread`: no shared position, so a forked worker may use the same handle."""

    gap_bytes = LOCAL_STORE.gap_bytes

    def __init__(self, uri: str, handle: int) -> None:
        self.uri = uri
        self.counters = ReadCounters()
        self._handle = handle
        self._release = weakref.finalize(self, os.close, handle)  # a dropped reader leaks no handle

    @classmethod
    def open(cls, uri: str, path: str) -> LocalSource:
        """Open the file; errors as `open_local`."""
        return cls(uri, open_local(uri, path))

    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._handle).st_size

    def tail(self, length: int) -> bytes:
        """The last `length` bytes, or the whole file if it is shorter."""
        size = self.size()
        data = self.read_one((max(0, size - length), size))
        self.counters.requests += 1
        self.counters.bytes += len(data)
        return data

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes of each range, see `read_ranges`."""
        return read_ranges([(self, ranges)])[0]

    def announce(self, ranges: Sequence[Range]) -> None:
        """Have the kernel fetch these ranges while others are being read."""
        if hasattr(os, "posix_fadvise"):
            for start, end in ranges:
                os.posix_fadvise(self._handle, start, end - start, os.POSIX_FADV_WILLNEED)

    def read_one(self, part: Range) -> bytes:
        """The bytes of one range; fewer where the file ends before it does."""
        start, end = part
        data = os.pread(self._handle, end - start, start)
        if len(data) == end - start:
            return data
        parts = [data]
        while parts[-1]:  # the kernel hands out at most 2 GiB at once
            start += len(parts[-1])
            parts.append(os.pread(self._handle, end - start, start))
        return b"".join(parts)

    def close(self) -> None:
        """Close the handle."""
        self._release()
        self._handle = -1


class RemoteSource:
    """A file of any fsspec filesystem, by `cat_file` and `cat_ranges`."""

    gap_bytes = REMOTE_STORE.gap_bytes

    def __init__(self, uri: str, fs: fsspec.AbstractFileSystem, path: str) -> None:
        self.uri = uri
        self.path = path
        self.counters = ReadCounters()
        self._fs = fs
        self._process = os.getpid()

    def size(self) -> int:
        """Bytes of the file."""
        with store_errors(self.uri):
            return int(self.filesystem().size(self.path))

    def tail(self, length: int) -> bytes:
        """The last `length` bytes, or the whole file if it is shorter: one suffix request."""
        with store_errors(self.uri):
            data: bytes = self.filesystem().cat_file(self.path, start=-length)
        self.counters.requests += 1
        self.counters.bytes += len(data)
        return data

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes of each range, see `read_ranges`."""
        return read_ranges([(self, ranges)])[0]

    def announce(self, ranges: Sequence[Range]) -> None:
        """Nothing: all requests go out together."""

    def read_one(self, part: Range) -> bytes:
        """The bytes of one range; fewer where the file ends before it does."""
        with store_errors(self.uri):
            data: bytes = self.filesystem().cat_file(self.path, start=part[0], end=part[1])
        return data

    def close(self) -> None:
        """Nothing to release: the filesystem is the caller's or fsspec's."""

    def filesystem(self) -> fsspec.AbstractFileSystem:
        """The filesystem; in a forked worker a new one, because event loops do not survive a fork."""
        if self._process != os.getpid():
            self._fs = type(self._fs)(*self._fs.storage_args, **self._fs.storage_options)
            self._process = os.getpid()
        return self._fs


ByteSource = LocalSource | RemoteSource
"""Reads ranges of one file and counts what it did."""


def _read_remote(jobs: Sequence[tuple[ByteSource, Sequence[Range]]]) -> dict[int, list[bytes]]:
    """The remote ones among `jobs`, by place: every filesystem is asked for all its ranges at once."""
    places: dict[int, list[int]] = {}
    for place, (source, ranges) in enumerate(jobs):
        if isinstance(source, RemoteSource) and ranges:
            places.setdefault(id(source.filesystem()), []).append(place)
    found: dict[int, list[bytes]] = {}
    for group in places.values():
        asked = [(jobs[place][0], part) for place in group for part in jobs[place][1]]
        parts = iter(_ask([(source, part) for source, part in asked if isinstance(source, RemoteSource)]))
        for place in group:
            found[place] = [next(parts) for _ in jobs[place][1]]
    return found


def _ask(asked: Sequence[tuple[RemoteSource, Range]]) -> list[bytes]:
    """Ranges of files of one filesystem, side by side."""
    if len(asked) == 1:
        return [asked[0][0].read_one(asked[0][1])]
    fs = asked[0][0].filesystem()
    if not isinstance(fs, AsyncFileSystem):
        with ThreadPoolExecutor(min(_MAX_THREADS, len(asked))) as pool:
            return list(pool.map(lambda one: one[0].read_one(one[1]), asked))
    starts, ends = [part[0] for _, part in asked], [part[1] for _, part in asked]
    with store_errors(", ".join(sorted({source.uri for source, _ in asked}))):
        parts: list[bytes] = fs.cat_ranges(
            [source.path for source, _ in asked], starts, ends, on_error="raise"
        )
    return parts


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
    return EpisodeError(
        f"{uri}: no such episode file; check the path; in training, that manifest and store belong together"
    )


def _short(uri: str, found: int, needed: int) -> TruncatedEpisode:
    return TruncatedEpisode(
        f"{uri}: file ends at byte {found:,}, a read needs byte {needed:,}; fetch it again"
    )
