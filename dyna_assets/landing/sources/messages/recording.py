"""A recording made of any file of timed messages: MCAP, a ROS 2 bag.

The first pass over the file learns the times of all topics and the vectors that were asked for; they are kept
as long as the recording is open. Pictures and video are read when they are wanted, one message in memory.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Message, RawMessage, RecordingMeta, TopicInfo
from dyna_assets.landing.sources.base import info_of, merged, paired
from dyna_assets.landing.sources.facts import meta_of, others
from dyna_assets.landing.sources.messages.encodings import message_topic
from dyna_assets.landing.sources.messages.file import MessageFile, RawTopic
from dyna_assets.landing.sources.messages.survey import Clock, Series, capture_ns, fault_of, survey
from dyna_assets.landing.sources.messages.topics import (
    BadMessage,
    MessageTopic,
    Other,
    Pictures,
    Video,
)
from dyna_assets.landing.sources.messages.video import MessageVideo
from dyna_assets.landing.sources.row_json import merged_rows, row_json
from dyna_train.episode.channels import ExtraTopic
from dyna_train.video.coded import CodedVideo


class MessageRecording:
    """One open file. A JointState topic '/arm' becomes '/arm.position', '/arm.velocity', '/arm.effort'.

    A recording in every sense: also `CodedRecording`, `ExtraRecording`, `ArrivalRecording`, `VectorRecording`.
    A compressed video is looked at when it is first asked for: from then on its size stands in `topics`, and
    what had to be left out of it in `meta.notes`.
    """

    def __init__(
        self, file: MessageFile, meta: RecordingMeta, file_topics: Mapping[str, MessageTopic]
    ) -> None:
        self.meta = meta
        self._file, self._file_topics = file, file_topics
        self._parts: dict[str, tuple[MessageTopic, str]] = {}
        self._infos: dict[str, TopicInfo] = {}
        self.topics: Mapping[str, TopicInfo] = self._infos  # everything, also what cannot be read
        for owner in file_topics.values():
            for part, info in owner.infos().items():
                name = _free(info.name, file_topics) if part else info.name
                self._parts[name] = owner, part
                self._infos[name] = replace(info, name=name)
        self._clocks: dict[str, Clock] = {}
        self._videos: dict[str, MessageVideo] = {}

    @classmethod
    def of(cls, file: MessageFile, notes: Sequence[str] = (), **extra: Any) -> MessageRecording:
        """A recording of an open file, which it closes; reads the first message of each topic.

        extra: more for `meta.extra`. Raises RecordingError; the file is closed then.
        """
        try:
            first = file.first_messages()
            file_topics = {
                name: message_topic(raw, first.get(name)) for name, raw in sorted(file.topics.items())
            }
        except RecordingError:
            file.close()
            raise
        missing = {name: topic.missing for name, topic in file_topics.items() if topic.missing}
        extra = {**others(file.metadata), **extra}
        meta = meta_of(file.metadata, missing=missing, notes=tuple(notes), extra=extra)
        return cls(file, meta, file_topics)

    def times(self, topic: str) -> NDArray[np.int64]:
        """Capture times [N] in ns since the epoch: the message's stamp, else publish_time.

        In file order; of video one per frame, in the order in which they are shown. The first call reads the
        file once for all topics. Raises RecordingError.
        """
        owner = self._readable(topic)
        if isinstance(owner.form, Video):
            return self._video(topic).times_ns
        return self._clock(owner).times()

    def arrivals(self, topic: str) -> NDArray[np.int64]:
        """Arrival times [N] in ns since the epoch, one per message in file order. Raises RecordingError."""
        clock = self._clock(self._owner(topic)[0])
        if clock.fault and len(clock.arrivals_N) == 0:
            raise RecordingError(clock.fault)
        return clock.arrivals_N

    def vectors(self, topics: Collection[str]) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """By topic, its capture times [N] and values [N, D], in file order. Raises RecordingError.

        They are read anew at each call, and not kept: of a long recording they are most of what is in memory.
        """
        owners = {topic: self._readable(topic) for topic in topics}
        every = self._survey(wanted={owner.raw.name for owner in owners.values()})
        found = {}
        for topic, owner in owners.items():
            series = every[owner.raw.name]
            if series.fault:
                raise RecordingError(series.fault)
            found[topic] = self._clock(owner).times(), series.values[self._parts[topic][1]]
        return found

    def read(self, topics: Collection[str]) -> Iterator[Message]:
        """Messages of `topics`: vectors from memory, pictures in one pass, each video in a pass of its own.

        Each topic in the order of its `times`, topics merged by time. Raises RecordingError.
        """
        forms = {topic: self._readable(topic).form for topic in topics}
        pictures = {topic for topic, form in forms.items() if isinstance(form, Pictures)}
        videos = [topic for topic, form in forms.items() if isinstance(form, Video)]
        vectors = forms.keys() - pictures - set(videos)
        streams = [self._pictures(pictures)] if pictures else []
        streams += [
            paired(topic, self.times(topic), self._frames(topic), self._file.where) for topic in videos
        ]
        streams += [_rows(topic, *series) for topic, series in self.vectors(vectors).items()]
        return streams[0] if len(streams) == 1 else merged(streams)

    def coded(self, topic: str) -> CodedVideo | None:
        """The packets of a compressed video, one for each of `times(topic)`; None for other topics."""
        return self._video(topic).coded() if isinstance(self._readable(topic).form, Video) else None

    def extra_topics(self, topics: Collection[str]) -> list[ExtraTopic]:
        """How `extras` gives `topics`: as recorded, with schema, under the file's name of the topic.

        But of joint states of which only some quantities are asked for each is a topic, of JSON
        {"names": [...], "value": [...]}.
        """
        whole, single = self._extra_plan(topics)
        return [_extra_topic(owner.raw) for owner in whole.values()] + [
            ExtraTopic(topic, "json") for topic in single
        ]

    def kept_as(self, topics: Collection[str]) -> dict[str, str]:
        """Each of `topics` -> the name under which `extra_topics` and `extras` give it. Raises RecordingError."""
        whole, _ = self._extra_plan(topics)
        owners = {topic: self._parts[topic][0].raw.name for topic in topics}
        return {topic: owner if owner in whole else topic for topic, owner in owners.items()}

    def extras(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """The messages of `topics` as `extra_topics` says. Raises RecordingError.

        time_ns is the capture time, where a message has none its arrival: what is kept is not judged.
        """
        whole, single = self._extra_plan(topics)
        streams = [self._raw_messages(whole)] if whole else []
        streams += [
            _json_rows(topic, self._infos[topic], *series) for topic, series in self.vectors(single).items()
        ]
        return streams[0] if len(streams) == 1 else merged_rows(streams)

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def __enter__(self) -> MessageRecording:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _owner(self, topic: str) -> tuple[MessageTopic, str]:
        """The file's topic that `topic` is made of, and its part."""
        if topic not in self._parts:
            raise RecordingError(
                f"{self._file.where}: no topic '{topic}'; topics here: {', '.join(sorted(self._parts)) or 'none'}"
            )
        return self._parts[topic]

    def _readable(self, topic: str) -> MessageTopic:
        info_of(self._infos, topic, self._file.where, self.meta.missing)
        return self._parts[topic][0]

    def _survey(self, wanted: Collection[str] = ()) -> dict[str, Series]:
        """Read the file once for the clocks that are not known yet, and the vectors of `wanted`, which it gives."""
        due = [
            owner
            for name, owner in self._file_topics.items()
            if name in wanted or (name not in self._clocks and not isinstance(owner.form, Other))
        ]
        clocks, series = survey(self._file, due, wanted) if due else ({}, {})
        self._clocks |= clocks
        return series

    def _clock(self, owner: MessageTopic) -> Clock:
        self._survey()
        name = owner.raw.name
        if name not in self._clocks:
            self._clocks |= survey(self._file, [owner], ())[0]
        return self._clocks[name]

    def _video(self, topic: str) -> MessageVideo:
        if topic not in self._videos:
            owner = self._file_topics[topic]
            assert isinstance(owner.form, Video)
            video = MessageVideo.survey(
                lambda: self._units(owner), owner.form.codec, where=f"{self._file.where}: topic '{topic}'"
            )
            self._videos[topic] = video
            if video.note:
                self.meta = replace(self.meta, notes=(*self.meta.notes, f"topic '{topic}': {video.note}"))
            self._infos[topic] = replace(self._infos[topic], width=video.width, height=video.height)
        return self._videos[topic]

    def _frames(self, topic: str) -> Iterator[av.VideoFrame]:
        yield from self._video(topic).frames()

    def _units(self, owner: MessageTopic) -> Iterator[tuple[int, bytes]]:
        """(capture time, video bytes) of every message of one topic."""
        assert isinstance(owner.form, Video)
        for number, record in enumerate(self._file.messages([owner.raw.name])):
            try:
                yield capture_ns(owner, record), owner.form.unit(record.data)
            except BadMessage as error:
                raise RecordingError(fault_of(self._file.where, record.topic, number, error)) from None

    def _pictures(self, topics: Collection[str]) -> Iterator[Message]:
        numbers = dict.fromkeys(topics, -1)
        for record in self._file.messages(topics):
            owner = self._file_topics[record.topic]
            numbers[record.topic] += 1
            assert isinstance(owner.form, Pictures)
            try:
                message = Message(record.topic, capture_ns(owner, record), owner.form.picture(record.data))
            except BadMessage as error:
                number = numbers[record.topic]
                raise RecordingError(fault_of(self._file.where, record.topic, number, error)) from None
            yield message

    def _extra_plan(self, topics: Collection[str]) -> tuple[dict[str, MessageTopic], list[str]]:
        """(the file's topics to give as recorded, the topics that are part of one which also has roles)."""
        owners = {topic: self._owner(topic)[0] for topic in topics}
        split = {self._parts[topic][0].raw.name for topic in self._parts.keys() - owners.keys()}
        whole = {owner.raw.name: owner for owner in owners.values() if owner.raw.name not in split}
        return whole, [topic for topic, owner in owners.items() if owner.raw.name in split]

    def _raw_messages(self, file_topics: Mapping[str, MessageTopic]) -> Iterator[RawMessage]:
        for record in self._file.messages(file_topics):
            try:
                time_ns = capture_ns(file_topics[record.topic], record)
            except BadMessage:
                time_ns = record.log_ns
            yield RawMessage(record.topic, time_ns, bytes(record.data))


def _free(name: str, taken: Collection[str]) -> str:
    """`name`, made longer where the file has a topic that is called so."""
    while name in taken:
        name += "_"
    return name


def _rows(topic: str, times_N: NDArray[np.int64], values_ND: NDArray[np.float64]) -> Iterator[Message]:
    for time_ns, values_D in zip(times_N.tolist(), values_ND, strict=True):
        yield Message(topic, time_ns, values_D)


def _json_rows(
    topic: str, info: TopicInfo, times_N: NDArray[np.int64], values_ND: NDArray[np.float64]
) -> Iterator[RawMessage]:
    names = json.dumps({"names": info.names}, ensure_ascii=False).encode()[:-1]
    for time_ns, values_D in zip(times_N.tolist(), values_ND, strict=True):
        yield RawMessage(topic, time_ns, names + b", " + row_json(values_D)[1:])


def _extra_topic(raw: RawTopic) -> ExtraTopic:
    return ExtraTopic(
        raw.name, raw.message_encoding, raw.schema_name, raw.schema_encoding, raw.schema_data, raw.metadata
    )
