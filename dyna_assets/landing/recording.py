"""The one interface between a foreign format and everything after it.

A *reader* looks at an upload's folder and lists its recordings; a *recording* gives its metadata, its
topics, their capture times, and streams of messages. Everything downstream sees only this.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Protocol, runtime_checkable

import av
import fsspec
import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.channels import ExtraTopic
from dyna_train.files import open_store
from dyna_train.video.coded import CodedVideo

Payload = NDArray[np.float64] | bytes | av.VideoFrame
"""A vector [D]; an encoded still picture (JPEG or PNG); or a decoded video frame."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One landed file. modified_ns is the store's clock, ns since the epoch.

    arrived_ns: when it came to lie here, which a copy that keeps old modification times does not hide; 0 if the
    store does not tell. link_to: '' for an ordinary file; for a symbolic link the file it leads to, relative to
    the listed folder ('../' in front: it leaves the folder).
    """

    size_bytes: int
    modified_ns: int
    link_to: str = ""
    arrived_ns: int = 0


@dataclass(frozen=True, slots=True)
class Folder:
    """An upload's folder: relative names in, file objects out. Only ever reads.

    only: the files that belong to the upload; others that lie there are not seen. None: all that lie there.
    """

    fs: fsspec.AbstractFileSystem
    path: str
    only: frozenset[str] | None = None

    def open(self, name: str) -> IO[bytes]:
        """A seekable binary file object of the file `name` (relative, '/'-separated)."""
        if self.only is not None and name not in self.only:
            raise FileNotFoundError(errno.ENOENT, "not among the upload's files", self.at(name))
        handle: IO[bytes] = self.fs.open(f"{self.path}/{name}", "rb")
        return handle

    def exists(self, name: str) -> bool:
        """True if the file `name` is there."""
        self.fs.invalidate_cache(f"{self.path}/{name}")  # an earlier listing may not have seen it
        if self.only is not None and name not in self.only:
            return False
        return bool(self.fs.isfile(f"{self.path}/{name}"))

    def files(self) -> dict[str, FileInfo]:
        """Every file below the folder by relative name, sorted; one recursive listing, never a cached one."""
        # s3fs answers from its cache of earlier listings, where a new upload is missing
        self.fs.invalidate_cache()
        found = self.fs.find(self.path, detail=True)
        if not found and is_local(self.fs) and os.path.isdir(self.path):
            os.listdir(self.path)  # a folder that may not be read looks empty to `find`; this says so
        start = len(self.path.rstrip("/")) + 1
        infos = {name[start:]: _file_info(info, self.path) for name, info in sorted(found.items())}
        return {
            name: info
            for name, info in infos.items()
            if name and info is not None and (self.only is None or name in self.only)
        }

    @property
    def uri(self) -> str:
        """The folder's address, with its protocol unless it is local."""
        return self.path if is_local(self.fs) else str(self.fs.unstrip_protocol(self.path))

    def at(self, name: str) -> str:
        """The address of the file `name`, for messages."""
        return f"{self.uri}/{name}"

    def below(self, name: str) -> Folder:
        """The folder `name` inside this one; '.' is this one."""
        if name == ".":
            return self
        inside = f"{name}/"
        only = self.only and frozenset(
            file.removeprefix(inside) for file in self.only if file.startswith(inside)
        )
        return Folder(self.fs, f"{self.path}/{name}", only)

    def limited_to(self, files: Iterable[str]) -> Folder:
        """This folder, with only `files` in it."""
        return Folder(self.fs, self.path, frozenset(files))

    @classmethod
    def of(cls, uri: str | Path, **options: Any) -> Folder:
        """The folder at `uri` (a local path, s3://…); `options` go to the filesystem."""
        fs, path = open_store(uri, **options)
        return cls(fs, path.rstrip("/"))


def is_local(fs: fsspec.AbstractFileSystem) -> bool:
    """True if paths of `fs` are paths of this machine."""
    return isinstance(fs, fsspec.implementations.local.LocalFileSystem)


def describe_files(files: Collection[str], at_most: int = 4) -> str:
    """What kind of files these are, for messages: '12 files (9 .txt, 3 .csv), for example a.txt'."""
    if not files:
        return "no files"
    kinds = Counter(posixpath.splitext(name)[1] or "without suffix" for name in files)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(at_most))
    more = ", …" if len(kinds) > at_most else ""
    noun = "file" if len(files) == 1 else "files"
    return f"{len(files)} {noun} ({counts}{more}), for example {min(files)}"


def _file_info(info: Mapping[str, Any], root: str) -> FileInfo | None:
    """One entry of a listing; None for what is no file (a folder's placeholder, a broken link)."""
    name = str(info["name"])
    if info["type"] == "directory" or name.endswith("/"):
        return None
    if not info.get("islink"):
        arrived_ns = int(float(info.get("created") or 0) * 1e9) if "mtime" in info else 0
        whole = FileInfo(int(info["size"]), _modified_ns(info), arrived_ns=arrived_ns)
        return whole if info["type"] == "file" else None
    target = os.path.realpath(name)
    if not os.path.isfile(target):
        return None
    link_to = os.path.relpath(target, os.path.realpath(root))
    return FileInfo(int(info["size"]), _modified_ns(info), Path(link_to).as_posix())


def _modified_ns(info: Mapping[str, Any]) -> int:
    """Local files give 'mtime' in seconds, S3 a datetime under 'LastModified'."""
    stamp = info.get("mtime", info.get("LastModified", info.get("created", 0)))
    seconds = stamp.timestamp() if hasattr(stamp, "timestamp") else float(stamp)
    return int(seconds * 1e9)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic of a recording.

    kind 'image': pictures (width, height in pixels). kind 'vector': float vectors with `names`, one per
    dimension. kind 'other': known to be there, not readable as either; never selected.
    num_messages: as the container states it, or counted.
    """

    name: str
    kind: Literal["image", "vector", "other"]
    num_messages: int
    names: tuple[str, ...] = ()
    width: int = 0
    height: int = 0
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message: capture time in ns since the epoch (or since the start where no wall clock is known)."""

    topic: str
    time_ns: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class RecordingRef:
    """A recording inside an upload: the source's own name and the files it is read from.

    facts: a digest of what shared metadata (a rate, an episode list) says of it; other facts are other input.
    """

    name: str
    files: tuple[str, ...]
    facts: str = ""


@dataclass(frozen=True, slots=True)
class RecordingMeta:
    """What the recording says of itself; None or '' where it says nothing.

    paired_by 'number': the format has no clock per topic, its k-th picture belongs to its k-th row.
    num_listed: how many rows the data set's own list says the recording has. rate_hz: of its rows, as it declares it.
    texts: what is said in it and when (see `dyna_assets.landing.sources.texts`). missing: topic -> why it cannot be
    read. notes: what had to be left out or assumed. extra: everything else, which is kept and not read.
    """

    task: str = ""
    success: bool | None = None
    robot: str = ""
    operator: str = ""
    robot_software_version: str = ""
    paired_by: Literal["clock", "number"] = "clock"
    num_listed: int | None = None
    rate_hz: float | None = None
    texts: Sequence[Mapping[str, Any]] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


class Recording(Protocol):
    """An open recording. Use as a context manager."""

    meta: RecordingMeta
    topics: Mapping[str, TopicInfo]

    def times(self, topic: str) -> NDArray[np.int64]:
        """Capture times [N] in file order, without decoding a payload.

        Raises RecordingError naming file and topic if the topic cannot be read.
        """
        ...

    def read(self, topics: Collection[str]) -> Iterator[Message]:
        """Messages of `topics`, each topic in file order, topics merged roughly in time order.

        The k-th message of a topic has the k-th capture time of `times(topic)`.
        Raises RecordingError at the message that cannot be read (file, topic, what was expected, found).
        """
        ...

    def close(self) -> None:
        """Release files."""
        ...

    def __enter__(self) -> Recording: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class CodedRecording(Protocol):
    """A recording that can also give pictures as they were coded, so that they need not be coded again."""

    def coded(self, topic: str) -> CodedVideo | None:
        """The packets of one image topic, one for each of `times(topic)`; None if it holds no video.

        Raises RecordingError, also while the packets are read.
        """
        ...


@runtime_checkable
class ArrivalRecording(Protocol):
    """A recording that also knows when messages arrived at the recorder, so that clocks can be compared."""

    def arrivals(self, topic: str) -> NDArray[np.int64]:
        """Arrival times [N] in ns since the epoch, one per message in file order. Raises RecordingError."""
        ...


@runtime_checkable
class VectorRecording(Protocol):
    """A recording that gives whole vector topics at once, which costs a tenth of message by message."""

    def vectors(self, topics: Collection[str]) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """By topic, its capture times [N] and values [N, D], in file order. Raises RecordingError."""
        ...


@dataclass(frozen=True, slots=True)
class RawMessage:
    """One message as it was recorded, for the `extra` group; time_ns as in `Message`."""

    topic: str
    time_ns: int
    data: bytes


@runtime_checkable
class ExtraRecording(Protocol):
    """A recording that can also give topics as they were recorded, so that what has no role is not lost."""

    def extra_topics(self, topics: Collection[str]) -> list[ExtraTopic]:
        """How the messages of `topics` are encoded; any kind of topic, also 'other'. Raises RecordingError."""
        ...

    def kept_as(self, topics: Collection[str]) -> Mapping[str, str]:
        """Each of `topics` -> the topic under which `extra_topics` and `extras` give it: often itself.

        Joint states are recorded as one topic and listed as several. Raises RecordingError.
        """
        ...

    def extras(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """The messages of `topics` in one pass: as recorded, or a row's value as JSON where a format has rows.

        Raises RecordingError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Roles:
    """A reader's guess of which topics play which role: (name, topic) pairs, and the grid rate in Hz.

    confidence: topic of detected keypoints -> the topic of their confidence.
    """

    cameras: tuple[tuple[str, str], ...]
    states: tuple[tuple[str, str], ...]
    actions: tuple[tuple[str, str], ...]
    rate_hz: float
    confidence: Mapping[str, str] = field(default_factory=dict)


class Reader(Protocol):
    """One foreign format. looks_for: the files it is known by, for messages.

    options: what a source's TOML gives under [reader_options], as `configured` took it; at first the defaults, for
    the draft. ignores: topics, columns and files of this format that carry nothing of their own, as patterns with
    the reason. metadata: patterns of the files that the reader itself reads, besides those of a recording.
    """

    name: str
    looks_for: str

    @property
    def options(self) -> Mapping[str, Any]:
        """See above."""
        ...

    @property
    def ignores(self) -> Mapping[str, str]:
        """See above."""
        ...

    @property
    def metadata(self) -> tuple[str, ...]:
        """See above."""
        ...

    def configured(self, options: Mapping[str, Any], *, where: str) -> Reader:
        """This reader with options. Raises ConfigError that starts with `where` for one it does not have."""
        ...

    def matches(self, files: Mapping[str, FileInfo], folder: Folder) -> bool:
        """True if the folder with these files looks like this format; cheap."""
        ...

    def recordings(self, folder: Folder) -> list[RecordingRef]:
        """The recordings in the folder, from names and metadata only.

        Raises RecordingError if the metadata is unreadable.
        """
        ...

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one recording. Raises RecordingError."""
        ...

    def roles(self, recording: Recording) -> Roles:
        """A guess of the roles from topic names and kinds, for the first draft of a source's TOML."""
        ...

    def notes(self, folder: Folder) -> list[str]:
        """What the folder's metadata promises and the folder does not hold, one sentence each; often []."""
        ...
