"""An open RLDS episode: one record, its step features as topics, its times from the rate a person gave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.recording import Folder, Message, RawMessage, RecordingMeta, TopicInfo
from dyna_assets.landing.sources.base import (
    KeptByName,
    damage_named,
    first_of,
    info_of,
    merged,
    paired,
    plain,
    text_of,
    truth_of,
)
from dyna_assets.landing.sources.lerobot_texts import runs
from dyna_assets.landing.sources.rlds_features import (
    STEPS,
    RowTopic,
    is_texts,
    read_declared,
    step_topics,
    whole_list,
)
from dyna_assets.landing.sources.row_json import merged_rows, row_messages, row_topic
from dyna_assets.landing.sources.tf_example import Feature, parse_example
from dyna_assets.landing.sources.tfrecord import read_record
from dyna_assets.landing.sources.video import ticks_to_ns
from dyna_train.episode.channels import ExtraTopic
from dyna_train.errors import CorruptEpisode

EPISODE = "episode_metadata/"
FEW = 64
"""Values of an episode's feature that count as metadata; a longer list is a topic of its own."""
TASK_KEYS = ("language_instruction", "natural_language_instruction", "instruction", "task", "goal")
SUCCESS_KEYS = ("success", "is_success")
ROBOT_KEYS = ("robot", "robot_id", "robot_type")


class RldsRecording(KeptByName):
    """One open record. Topics are its step features: 'observation/image_0', 'action', 'reward'."""

    def __init__(
        self, where: str, rate_hz: Fraction, meta: RecordingMeta, rows: Mapping[str, RowTopic]
    ) -> None:
        self.meta = meta
        self.topics: Mapping[str, TopicInfo] = {topic: row.info for topic, row in rows.items()}
        self._where, self._rate_hz, self._rows = where, rate_hz, rows

    @classmethod
    def open(cls, folder: Folder, file: str, number: int, rate_hz: Fraction) -> RldsRecording:
        """Open record `number` of `file`. Raises RecordingError naming the byte or feature that is wrong."""
        where = f"{folder.at(file)}: record {number}"
        data = read_record(folder, file, number)
        with damage_named((CorruptEpisode,), lambda error: f"{where}: no tf.train.Example: {error}"):
            features = parse_example(data)
        declared, _ = read_declared(folder, file)
        rows, missing = step_topics(features, declared, where)
        facts = {}
        for name, feature in features.items():
            if name.startswith(STEPS):
                continue
            if len(feature) <= FEW and (feature.kind != "bytes" or is_texts(feature)):
                facts[name] = _plain(feature)
            else:
                rows[name] = whole_list(name, feature)
        return cls(where, rate_hz, _meta(facts, rows, rate_hz, missing), rows)

    def times(self, topic: str) -> NDArray[np.int64]:
        """Times [N] in ns since the start, on the grid of the given rate: the format stores none."""
        return self._times(self._readable(topic))

    def read(self, topics: Collection[str]) -> Iterator[Message]:
        """Messages of `topics` merged by time. Raises RecordingError."""
        for topic in topics:
            self._readable(topic)
        return merged(
            paired(topic, self.times(topic), self._payloads(topic), self._where) for topic in topics
        )

    def extra_topics(self, topics: Collection[str]) -> list[ExtraTopic]:
        """Rows as JSON; pictures and bytes in base64. Raises RecordingError."""
        return [row_topic(topic, encoding=self._listed(topic).encoding) for topic in topics]

    def extras(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """The rows of `topics` merged by time. Raises RecordingError."""
        return merged_rows(
            row_messages(topic, self._times(self._listed(topic)), self._rows[topic].rows())
            for topic in topics
        )

    def close(self) -> None:
        """Release the record."""
        self._rows = {}

    def __enter__(self) -> RldsRecording:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _times(self, info: TopicInfo) -> NDArray[np.int64]:
        return _times_of(info.num_messages, self._rate_hz)

    def _readable(self, topic: str) -> TopicInfo:
        return info_of(self.topics, topic, self._where, self.meta.extra["missing"])

    def _listed(self, topic: str) -> TopicInfo:
        """The topic of whatever kind; what is not listed is not readable either, which says why."""
        info = self.topics.get(topic)
        return self._readable(topic) if info is None else info

    def _payloads(self, topic: str) -> Iterator[Any]:
        row = self._rows[topic]
        return row.rows() if row.info.kind == "image" else row.vectors()


def _meta(
    facts: Mapping[str, Any], rows: Mapping[str, RowTopic], rate_hz: Fraction, missing: Mapping[str, str]
) -> RecordingMeta:
    short = {name.removeprefix(EPISODE): value for name, value in facts.items()}
    instructions = _instructions(rows)
    tasks = list(dict.fromkeys(filter(None, instructions)))
    times_ns = _times_of(len(instructions), rate_hz).tolist()
    return RecordingMeta(
        task=tasks[0] if tasks else text_of(first_of(short, *TASK_KEYS)),
        success=truth_of(first_of(short, *SUCCESS_KEYS)),
        robot=text_of(first_of(short, *ROBOT_KEYS)),
        paired_by="number",
        extra={
            "episode": short,
            "tasks": tasks,
            "texts": runs("task", instructions, times_ns) if len(tasks) > 1 else [],
            "rate_hz": float(rate_hz),
            "missing": missing,
            "notes": [],
        },
    )


def _instructions(rows: Mapping[str, RowTopic]) -> list[str]:
    """The instruction at each step, '' where none is said; [] if the steps hold none."""
    named = {name.rpartition("/")[2]: row for name, row in rows.items() if row.info.encoding == "text"}
    texts = next((named[key] for key in TASK_KEYS if key in named), None)
    return [text_of(text) for text in texts.rows()] if texts else []


def _times_of(num_steps: int, rate_hz: Fraction) -> NDArray[np.int64]:
    """Times [N] in ns since the start, on the grid of the rate."""
    return ticks_to_ns(np.arange(num_steps, dtype=np.int64), 1 / rate_hz)


def _plain(feature: Feature) -> Any:
    """The value of a list of one, else the list."""
    values = (
        [str(item, "utf-8") for item in feature.items]
        if feature.kind == "bytes"
        else feature.numbers.tolist()
    )
    return plain(values[0] if len(values) == 1 else values)
