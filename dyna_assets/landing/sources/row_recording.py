"""What formats share whose recordings are rows: topics of values by number, on a grid or with times of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.recording import Message, RawMessage, RecordingMeta, TopicInfo
from dyna_assets.landing.sources.base import info_of, merged, paired
from dyna_assets.landing.sources.row_json import merged_rows
from dyna_train.episode.channels import ExtraTopic


class RowRecording(ABC):
    """An open recording whose topics have N rows each; also an `ExtraRecording`, which keeps topics under their names.

    A format says what a topic's times, payloads and kept rows are. where: its address, for errors. Topics in
    meta.missing need not be among `topics`.
    """

    def __init__(self, where: str, meta: RecordingMeta, topics: Mapping[str, TopicInfo]) -> None:
        self.meta = meta
        self.topics = topics
        self._where = where

    def times(self, topic: str) -> NDArray[np.int64]:
        """Times [N] in ns since the recording's start, in the order of the rows. Raises RecordingError."""
        return self._times(self._readable(topic))

    def read(self, topics: Collection[str]) -> Iterator[Message]:
        """Messages of `topics` merged by time; holds a frame or some rows of each. Raises RecordingError."""
        infos = [self._readable(topic) for topic in topics]
        return merged(
            paired(info.name, self._times(info), self._payloads(info), self._where) for info in infos
        )

    def extra_topics(self, topics: Collection[str]) -> list[ExtraTopic]:
        """How `extras` gives the rows: pictures and video as they are, others as JSON. Raises RecordingError."""
        return [self._extra_topic(self._listed(topic)) for topic in topics]

    def extras(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """The rows of `topics` as `extra_topics` says, merged by time. Raises RecordingError."""
        return merged_rows(self._raw(self._listed(topic)) for topic in topics)

    def kept_as(self, topics: Collection[str]) -> Mapping[str, str]:
        """Each topic -> itself."""
        return {topic: topic for topic in topics}

    @abstractmethod
    def close(self) -> None:
        """Release what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _readable(self, topic: str) -> TopicInfo:
        return info_of(self.topics, topic, self._where, self.meta.missing)

    def _listed(self, topic: str) -> TopicInfo:
        """A topic of whatever kind; what is not listed, or missing, is not readable, which says why."""
        is_there = topic in self.topics and topic not in self.meta.missing
        return self.topics[topic] if is_there else self._readable(topic)

    @abstractmethod
    def _times(self, info: TopicInfo) -> NDArray[np.int64]:
        """See `times`."""

    @abstractmethod
    def _payloads(self, info: TopicInfo) -> Iterable[Any]:
        """What `read` gives of each row: a vector, an encoded still picture, or a frame."""

    @abstractmethod
    def _extra_topic(self, info: TopicInfo) -> ExtraTopic:
        """How `_raw` encodes the rows."""

    @abstractmethod
    def _raw(self, info: TopicInfo) -> Iterator[RawMessage]:
        """The rows as they are kept."""
