"""One pass over a file of messages: the clocks of its topics, and the vectors of those that are wanted.

Messages are gathered for a while and decoded together; what is held is what comes out.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.messages.file import MessageFile, RawRecord
from dyna_assets.landing.sources.messages.topics import (
    BadMessage,
    MessageTopic,
    Other,
    Pictures,
    Vectors,
    Video,
)

_MOST_GATHERED = 512
"""Messages of a topic that are decoded together; each has at most MOST_DIMENSIONS numbers."""
_END = 1 << 63
BEYOND_INT64 = "its time is beyond what int64 ns can say"
NO_CAPTURE = "no capture time: the message's stamp and publish_time are both 0"


@dataclass(frozen=True, slots=True)
class Clock:
    """The times of one topic's messages, int64 [N] in ns: captured, and arrived at the recorder.

    fault: why the capture times are not to be had, '' if they are.
    """

    captures_N: NDArray[np.int64]
    arrivals_N: NDArray[np.int64]
    fault: str = ""

    def times(self) -> NDArray[np.int64]:
        """The capture times. Raises RecordingError."""
        if self.fault:
            raise RecordingError(self.fault)
        return self.captures_N


@dataclass(frozen=True, slots=True)
class Series:
    """By part, the vectors of one topic, float64 [N, D]. fault: why they are not to be had, '' if they are."""

    values: Mapping[str, NDArray[np.float64]]
    fault: str = ""


def capture_ns(topic: MessageTopic, record: RawRecord) -> int:
    """When the sensor saw it: its stamp, else publish_time; never log_time, when the recorder got it.

    Raises BadMessage if the message is damaged, or neither is set, or is beyond what int64 can say.
    """
    time_ns = topic.stamp_ns(record.data) or record.publish_ns
    if time_ns == 0:
        raise BadMessage(NO_CAPTURE)
    if not -_END <= time_ns < _END:
        raise BadMessage(BEYOND_INT64)
    return time_ns


def fault_of(where: str, topic: str, number: int, error: object) -> str:
    """What is wrong with one message, and where it is."""
    return f"{where}: topic '{topic}' message {number:,}: {error}"


def survey(
    file: MessageFile, topics: Collection[MessageTopic], wanted: Collection[str]
) -> tuple[dict[str, Clock], dict[str, Series]]:
    """The clocks of `topics`, and the vectors of those that `wanted` names, by the name of the file's topic.

    A message that is not readable is a fault of its topic. Raises RecordingError if the file is damaged.
    """
    gatherers = {
        topic.raw.name: _VectorGatherer(topic, topic.form)
        if topic.raw.name in wanted and not isinstance(topic.form, Pictures | Video | Other)
        else _ClockGatherer(topic)
        for topic in topics
    }
    adders = {name: gatherer.add for name, gatherer in gatherers.items()}
    for record in file.messages(adders):
        adders[record.topic](record)
    clocks = {name: gatherer.clock(file.where) for name, gatherer in gatherers.items()}
    vectors = {
        name: gatherer.series(file.where)
        for name, gatherer in gatherers.items()
        if isinstance(gatherer, _VectorGatherer)
    }
    return clocks, vectors


class _ClockGatherer:
    """The times of one topic. bad: number and text of the first message whose stamp is not readable."""

    def __init__(self, topic: MessageTopic) -> None:
        self.topic = topic
        self.stamps, self.publish, self.log = array("q"), array("q"), array("q")
        self.bad: tuple[int, str] | None = None
        self.beyond: int | None = None

    def add(self, record: RawRecord) -> None:
        _, log_ns, publish_ns, data = record
        self.note(log_ns, publish_ns)
        self.stamp(data)

    def note(self, log_ns: int, publish_ns: int) -> None:
        if log_ns >= _END or publish_ns >= _END:  # MCAP has uint64
            self.beyond = len(self.log) if self.beyond is None else self.beyond
            log_ns = publish_ns = 0
        self.log.append(log_ns)
        self.publish.append(publish_ns)

    def stamp(self, data: bytes | memoryview) -> None:
        try:
            self.stamps.append(self.topic.stamp_ns(data))
        except BadMessage as error:
            self._bad(str(error))
        except OverflowError:
            self._bad(BEYOND_INT64)

    def _bad(self, what: str) -> None:
        self.bad = self.bad or (len(self.stamps), what)
        self.stamps.append(0)

    def clock(self, where: str) -> Clock:
        """What was gathered."""
        name = self.topic.raw.name
        if self.beyond is not None:
            none = np.empty(0, np.int64)
            return Clock(none, none, fault_of(where, name, self.beyond, BEYOND_INT64))
        stamps_N, publish_N, arrivals_N = map(_int64, (self.stamps, self.publish, self.log))
        captures_N = np.where(stamps_N != 0, stamps_N, publish_N)
        if self.bad:
            return Clock(captures_N, arrivals_N, fault_of(where, name, *self.bad))
        unset = np.flatnonzero(captures_N == 0)
        fault = fault_of(where, name, int(unset[0]), NO_CAPTURE) if len(unset) else ""
        return Clock(captures_N, arrivals_N, fault)


class _VectorGatherer(_ClockGatherer):
    """The times and vectors of one topic."""

    def __init__(self, topic: MessageTopic, vectors: Vectors) -> None:
        super().__init__(topic)
        self._vectors = vectors
        self._gathered: list[bytes] = []
        self._rows = {part: _Rows(len(names)) for part, names in vectors.names.items()}
        self._fault: tuple[int, str] | None = None

    def add(self, record: RawRecord) -> None:
        _, log_ns, publish_ns, data = record
        self.note(log_ns, publish_ns)
        self._gathered.append(bytes(data))
        if len(self._gathered) >= _MOST_GATHERED:
            self._decode()

    def clock(self, where: str) -> Clock:
        self._decode()
        return super().clock(where)

    def series(self, where: str) -> Series:
        """What was gathered; after `clock`."""
        if self._fault:
            return Series({}, fault_of(where, self.topic.raw.name, *self._fault))
        return Series({part: rows.values() for part, rows in self._rows.items()})

    def _decode(self) -> None:
        messages, self._gathered = self._gathered, []
        if not messages:
            return
        try:
            block = self._vectors.block(messages)
        except BadMessage:
            self._decode_singly(messages)
            return
        self.stamps.frombytes(block.stamps_N.tobytes())
        self._keep(block.values)

    def _decode_singly(self, messages: list[bytes]) -> None:
        """Find out which one is bad; a message may be unlike the first one and still say when it was taken."""
        for message in messages:
            try:
                self._keep(self._vectors.block([message]).values)
            except BadMessage as error:
                self._fault = self._fault or (len(self.stamps), str(error))
            self.stamp(message)

    def _keep(self, values: Mapping[str, NDArray[np.float64]]) -> None:
        for part, values_ND in values.items():
            self._rows[part].add(values_ND)


class _Rows:
    """Rows of D numbers that come in blocks. One array that grows in place: a list of blocks, joined in the end, would
    take twice the memory, which is most of what a long recording needs.
    """

    def __init__(self, num_dims: int) -> None:
        self._values_ND = np.empty((_MOST_GATHERED, num_dims))
        self._num = 0

    def add(self, values_ND: NDArray[np.float64]) -> None:
        num = self._num + len(values_ND)
        if num > len(self._values_ND):
            self._values_ND.resize((max(num, 2 * len(self._values_ND)), values_ND.shape[1]), refcheck=False)
        self._values_ND[self._num : num] = values_ND
        self._num = num

    def values(self) -> NDArray[np.float64]:
        """All rows; nothing can be added after it."""
        self._values_ND.resize((self._num, self._values_ND.shape[1]), refcheck=False)
        return self._values_ND


def _int64(times: array[int]) -> NDArray[np.int64]:
    return np.array(times, np.int64)
