"""An open RLDS episode: one record, its step features as topics, its times from the rate a person gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.recording import Folder, RawMessage, RecordingMeta, TopicInfo
from dyna_assets.landing.sources.base import damage_named
from dyna_assets.landing.sources.facts import TASK_KEYS, meta_of, plain, text_of
from dyna_assets.landing.sources.rlds.features import (
    STEPS,
    RowTopic,
    is_texts,
    read_declared,
    step_topics,
    whole_list,
)
from dyna_assets.landing.sources.rlds.tf_example import Feature, parse_example
from dyna_assets.landing.sources.rlds.tfrecord import read_record
from dyna_assets.landing.sources.row_json import row_messages, row_topic
from dyna_assets.landing.sources.row_recording import RowRecording
from dyna_assets.landing.sources.texts import runs
from dyna_assets.landing.sources.video import ticks_to_ns
from dyna_train.episode.channels import ExtraTopic
from dyna_train.errors import CorruptEpisode

EPISODE = "episode_metadata/"
FEW = 64
"""Values of an episode's feature that count as metadata; a longer list is a topic of its own."""


class RldsRecording(RowRecording):
    """One open record. Topics are its step features: 'observation/image_0', 'action', 'reward'."""

    def __init__(
        self, where: str, rate_hz: Fraction, meta: RecordingMeta, rows: Mapping[str, RowTopic]
    ) -> None:
        super().__init__(where, meta, {topic: row.info for topic, row in rows.items()})
        self._rate_hz, self._rows = rate_hz, rows

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

    def close(self) -> None:
        """Release the record."""
        self._rows = {}

    def _times(self, info: TopicInfo) -> NDArray[np.int64]:
        """On the grid of the given rate: the format stores none."""
        return _times_of(info.num_messages, self._rate_hz)

    def _payloads(self, info: TopicInfo) -> Iterator[Any]:
        row = self._rows[info.name]
        return row.rows() if info.kind == "image" else row.vectors()

    def _extra_topic(self, info: TopicInfo) -> ExtraTopic:
        """JSON, also pictures and bytes, in base64."""
        return row_topic(info.name, encoding=info.encoding)

    def _raw(self, info: TopicInfo) -> Iterator[RawMessage]:
        return row_messages(info.name, self._times(info), self._rows[info.name].rows())


def _meta(
    facts: Mapping[str, Any], rows: Mapping[str, RowTopic], rate_hz: Fraction, missing: Mapping[str, str]
) -> RecordingMeta:
    short = {name.removeprefix(EPISODE): value for name, value in facts.items()}
    instructions = _instructions(rows)
    tasks = list(dict.fromkeys(filter(None, instructions)))
    times_ns = _times_of(len(instructions), rate_hz).tolist()
    said = meta_of(
        short,
        paired_by="number",
        texts=runs("task", instructions, times_ns) if len(tasks) > 1 else [],
        missing=missing,
        extra={"episode": short, "tasks": tasks},
    )
    return replace(said, task=tasks[0]) if tasks else said


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
