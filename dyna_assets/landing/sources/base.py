"""What all readers share: values of foreign metadata, topic look-up, merging, guessing roles."""

from __future__ import annotations

import codecs
import errno
import heapq
import re
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import SequenceMatcher
from fractions import Fraction
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import FileInfo, Folder, Message, Payload, Recording, Roles, TopicInfo
from dyna_train.errors import ConfigError

IS_ACTION = re.compile(r"leader|action|command|cmd|target", re.IGNORECASE)
IS_LOG = re.compile(r"(^|/)(rosout|parameter_events|diagnostics|clock)(\.|$)")
"""Topics about the software, which may hold numbers too."""
GENERIC_PARTS = frozenset(
    {
        "observation",
        "observations",
        "images",
        "image",
        "image_raw",
        "image_rect",
        "compressed",
        "color",
        "rgb",
    }
    | {"joint_states", "data"}
)
JOINT_PARTS = ("position", "velocity", "effort")
MAX_HZ = 100_000
MOST_DIMENSIONS = 4096
"""Numbers in a value that is a vector; more of them are an array, which is no role."""
NAME_LENGTH = 64  # what a profile allows
TRUE_WORDS = frozenset({"true", "yes", "1", "success", "succeeded"})
FALSE_WORDS = frozenset({"false", "no", "0", "failure", "failed", "fail"})


def text_of(value: Any) -> str:
    """Text from a metadata value that may be bytes, an array of one, None."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, bytes):
        return decoded(value)
    return "" if value is None else str(value)


def decoded(data: bytes) -> str:
    """Text as its byte-order mark says, else UTF-8; other bytes stand as '\\xe9': nothing is guessed, nothing lost."""
    marks = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    encoding = next((name for mark, name in marks.items() if data.startswith(mark)), "utf-8")
    return sayable(data.decode(encoding, errors="backslashreplace"))


def sayable(text: str) -> str:
    """The text with halves of characters, which UTF-8 cannot say, written as '\\ud800'."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def truth_of(value: Any) -> bool | None:
    """True, False, or None where the value says neither."""
    word = text_of(value).strip().lower()
    if word in TRUE_WORDS or word == "1.0":
        return True
    if word in FALSE_WORDS or word == "0.0":
        return False
    return None


def exact_rate(value: Any) -> Fraction:
    """A rate in Hz, exact (30, 30000/1001). Raises ValueError for what is none between 0 and MAX_HZ."""
    text = text_of(value)
    # a huge exponent makes a fraction that fills memory, and a float 'inf' or 0
    rate_hz = Fraction(repr(float(text)) if "e" in text.lower() else text)
    if not 0 < rate_hz <= MAX_HZ:
        raise ValueError(f"expected a rate above 0 and up to {MAX_HZ:,} Hz, found {text!r}")
    return rate_hz


def first_of(values: Mapping[str, Any], *keys: str) -> Any:
    """The value of the first key that is there, else None."""
    return next((values[key] for key in keys if key in values), None)


def plain(value: Any) -> Any:
    """The value as JSON knows it."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return sayable(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


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


def guess_roles(topics: Mapping[str, TopicInfo], rate_hz: float) -> Roles:
    """Cameras are pictures; vectors are actions by their name, else state.

    Of a commanding arm's joints only the positions are an action: it also measures velocity and effort.
    """
    cameras = [name for name, info in topics.items() if info.kind == "image"]
    vectors = [name for name, info in topics.items() if info.kind == "vector" and not IS_LOG.search(name)]
    actions = [name for name in vectors if IS_ACTION.search(name)]
    states = [name for name in vectors if name not in actions]
    actions = [name for name in actions if not _measured_beside_position(name, actions)]
    return Roles(_named(cameras), _named(states), _named(actions), rate_hz)


def _named(topics: Collection[str]) -> tuple[tuple[str, str], ...]:
    return tuple(short_names(topics).items())


def _measured_beside_position(name: str, names: Collection[str]) -> bool:
    base, _, last = name.rpartition(".")
    return last in JOINT_PARTS[1:] and f"{base}.position" in names


def short_names(topics: Collection[str]) -> dict[str, str]:
    """Short unique name -> topic: the last parts of the topic's path that tell it from the others."""
    parts = {topic: _telling_parts(topic) for topic in topics}
    longest = max((len(part) for part in parts.values()), default=0)
    for count in range(1, longest + 1):
        names = {"_".join(part[-count:]): topic for topic, part in parts.items()}
        if len(names) == len(topics) and all(len(name) <= NAME_LENGTH for name in names):
            return names
    numbered = enumerate(parts.items(), 1)  # paths that differ in punctuation only, or are too long to tell
    return {f"{part[-1][: NAME_LENGTH - 8]}_{number}": topic for number, (topic, part) in numbered}


def _telling_parts(topic: str) -> list[str]:
    parts = [re.sub(r"[^A-Za-z0-9_-]", "_", part).lstrip("_-") for part in re.split(r"[/.]", topic)]
    parts = [part for part in parts if part]
    telling = [part for part in parts if part.lower() not in GENERIC_PARTS] or parts or ["topic"]
    if len(telling) > 1 and telling[-1] in JOINT_PARTS:  # 'position' alone says too little
        telling[-2:] = ["_".join(telling[-2:])]
    return telling


def camera_rate_hz(recording: Recording, fallback_hz: float) -> float:
    """The cameras' median rate, rounded to whole Hz; of the vectors' where there is no camera."""
    rates = _rates(recording, lambda info: info.kind == "image")
    rates = rates or _rates(recording, lambda info: info.kind == "vector")
    return float(max(1, round(statistics.median_low(rates)))) if rates else fallback_hz


def _rates(recording: Recording, wanted: Callable[[TopicInfo], bool]) -> list[float]:
    rates = []
    for name, info in recording.topics.items():
        times = recording.times(name) if wanted(info) and info.num_messages > 1 else np.empty(0, np.int64)
        step_ns = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
        if step_ns > 0:
            rates.append(1e9 / step_ns)
    return rates


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


class KeptByName:
    """A recording whose extra topics are kept under the names by which it lists them."""

    def kept_as(self, topics: Collection[str]) -> Mapping[str, str]:
        """Each topic -> itself."""
        return {topic: topic for topic in topics}
