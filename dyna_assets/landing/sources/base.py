"""What all readers share: texts that can be stored, topic look-up, files that may be damaged, merging."""

from __future__ import annotations

import codecs
import errno
import heapq
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import SequenceMatcher
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import FileInfo, Folder, Message, Payload, TopicInfo
from dyna_assets.text import sayable
from dyna_train.errors import ConfigError

JOINT_PARTS = ("position", "velocity", "acceleration", "effort")
"""What is known of joints; the first is what they are told to do, too."""
MOST_DIMENSIONS = 4096
"""Numbers in a value that is a vector; more of them are an array, which is no role."""


def decoded(data: bytes) -> str:
    """Text as its byte-order mark says, else UTF-8; other bytes stand as '\\xe9': nothing is guessed, nothing lost."""
    marks = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    encoding = next((name for mark, name in marks.items() if data.startswith(mark)), "utf-8")
    return sayable(data.decode(encoding, errors="backslashreplace"))


def utf8(data: bytes) -> str:
    """UTF-8 text, such as a name inside a format that asks for it; other bytes stand as '\\xe9'."""
    return sayable(data.decode("utf-8", errors="backslashreplace"))


def nearest_first(name: str, names: Iterable[str]) -> list[str]:
    """The names, those that are most like `name` first."""
    return sorted(names, key=lambda other: (-SequenceMatcher(None, name, other).ratio(), other))


def info_of(topics: Mapping[str, TopicInfo], topic: str, where: str, missing: Mapping[str, str]) -> TopicInfo:
    """The topic's entry, readable. Raises RecordingError naming file, topic and the reason."""
    if topic in missing:
        raise RecordingError(
            f"{where}: topic '{topic}' cannot be read: {missing[topic]}", check="recording.complete"
        )
    if topic not in topics:
        raise RecordingError(
            f"{where}: no topic '{topic}'; topics here: {', '.join(nearest_first(topic, topics)) or 'none'}"
        )
    info = topics[topic]
    if info.kind == "other":
        raise RecordingError(
            f"{where}: topic '{topic}' ({info.encoding or 'of unknown type'}) is neither pictures nor "
            "vectors that this reader knows; leave it out of the source's profile"
        )
    return info


def open_file(folder: Folder, name: str) -> IO[bytes]:
    """A recording's file. Raises RecordingError if it is gone."""
    try:
        return folder.open(name)
    except FileNotFoundError:
        raise RecordingError(
            f"{folder.at(name)}: no such file; it was there when its upload was registered. Landed files must stay",
            check="recording.complete",
        ) from None


def read_json(folder: Folder, name: str) -> dict[str, Any]:
    """A JSON object. Raises RecordingError naming file and line."""
    where = folder.at(name)
    try:
        with folder.open(name) as file:
            data = json.load(file)
    except FileNotFoundError:
        raise RecordingError(f"{where}: no such file; upload the whole data set") from None
    except json.JSONDecodeError as error:
        raise RecordingError(f"{where}: not JSON at line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise RecordingError(f"{where}: not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{where}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise RecordingError(f"{where}: expected a JSON object, found {type(data).__name__}")
    return data


def json_line(line: bytes, where: str) -> Any:
    """What one line of a file says. where: file and line. Raises RecordingError."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{where}: not JSON: {error}") from None


@contextmanager
def damage_named(kinds: tuple[type[Exception], ...], explain: Callable[[Exception], str]) -> Iterator[None]:
    """Errors of `kinds` mean a damaged file and become RecordingErrors; a RecordingError stays itself.

    An OSError with a number comes from the store or the network: it passes, so that the run is retried
    and no recording is blamed. But EINVAL is a seek to where a damaged offset points.
    """
    try:
        yield
    except RecordingError:
        raise
    except kinds as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise RecordingError(explain(error)) from None


def merged(streams: Iterable[Iterator[Message]]) -> Iterator[Message]:
    """Streams merged by time; holds one message of each."""
    return heapq.merge(*streams, key=lambda message: message.time_ns)


def paired(
    topic: str, times_N: NDArray[np.int64], payloads: Iterable[Payload], where: str
) -> Iterator[Message]:
    """Messages from times and payloads. Raises RecordingError at the first one that lacks its counterpart."""
    number = 0
    for payload in payloads:
        if number == len(times_N):
            raise RecordingError(f"{where}: topic '{topic}' has {number:,} times, but more payloads")
        yield Message(topic, int(times_N[number]), payload)
        number += 1
    if number < len(times_N):
        raise RecordingError(f"{where}: topic '{topic}' has {len(times_N):,} times, but {number:,} payloads")


def files_with(files: Mapping[str, FileInfo], suffixes: Collection[str]) -> list[str]:
    """Names with one of the suffixes, sorted."""
    return sorted(name for name in files if name.lower().endswith(tuple(suffixes)))


class WithoutOptions:
    """A reader that has no options, and whose format holds nothing to ignore unless it says so."""

    name: str
    options: Mapping[str, Any] = {}
    ignores: Mapping[str, str] = {}
    metadata: tuple[str, ...] = ()

    def configured(self, options: Mapping[str, Any], *, where: str) -> Self:
        """Itself. Raises ConfigError for any option."""
        if options:
            raise ConfigError(f"{where}: reader '{self.name}' has no options, found {', '.join(options)}")
        return self
