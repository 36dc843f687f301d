"""A recording in memory, so that one of its messages can be changed and all others stay as they were recorded.

Axis letters: N messages of a topic, D dimensions of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import av
import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Message, Payload, Reader, Recording, RecordingMeta, TopicInfo
from dyna_assets.landing.sources.base import merged
from dyna_assets.steps.series import read_vectors

Times = NDArray[np.int64]
Values = NDArray[np.float64]
Alter = Callable[[int, av.VideoFrame], av.VideoFrame]


def same(number: int, frame: av.VideoFrame) -> av.VideoFrame:
    """The frame as it was recorded."""
    return frame


@dataclass
class HeldRecording:
    """A recording that offers these topics. altered: camera -> what happens to its frame of a number."""

    meta: RecordingMeta
    topics: Mapping[str, TopicInfo]
    clocks: Mapping[str, Times]
    values: Mapping[str, Values]
    frames: Mapping[str, Sequence[av.VideoFrame]]
    altered: Mapping[str, Alter] = field(default_factory=dict)

    @classmethod
    def of(cls, recording: Recording, profile: SourceProfile, *, pictures: bool) -> Self:
        """All that `profile` gives a role; without `pictures`, cameras have only their times."""
        cameras = [role.topic for role in profile.cameras]
        series = read_vectors(recording, [role.topic for role in (*profile.states, *profile.actions)])
        frames: dict[str, list[av.VideoFrame]] = {topic: [] for topic in cameras}
        for message in recording.read(cameras) if pictures else ():
            assert isinstance(message.payload, av.VideoFrame)
            frames[message.topic].append(message.payload)
        return cls(
            recording.meta,
            {topic: recording.topics[topic] for topic in (*cameras, *series)},
            {
                **{topic: recording.times(topic) for topic in cameras},
                **{topic: found.times_ns for topic, found in series.items()},
            },
            {topic: found.values_MD for topic, found in series.items()},
            frames,
        )

    def times(self, topic: str) -> Times:
        """Capture times [N]."""
        return self.clocks[topic]

    def read(self, topics: Collection[str]) -> Iterator[Message]:
        """Messages of `topics` merged by time."""
        return merged(self._messages(topic) for topic in topics)

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def with_values(self, topic: str, values_ND: Values) -> Self:
        """With other values of a vector."""
        return replace(self, values={**self.values, topic: values_ND})

    def with_times(self, topic: str, times_N: Times) -> Self:
        """With other times of a topic."""
        return replace(self, clocks={**self.clocks, topic: times_N})

    def with_pictures(self, topic: str, alter: Alter) -> Self:
        """With other pictures of a camera."""
        return replace(self, altered={**self.altered, topic: alter})

    def only(self, topic: str, numbers_N: Times) -> Self:
        """With these messages of a topic only, in this order; a number may come again."""
        info = replace(self.topics[topic], num_messages=len(numbers_N))
        changed = replace(self, topics={**self.topics, topic: info}).with_times(
            topic, self.clocks[topic][numbers_N]
        )
        if topic in self.values:
            return changed.with_values(topic, self.values[topic][numbers_N])
        return changed.showing(topic, numbers_N)

    def showing(self, topic: str, numbers_N: Times) -> Self:
        """With the pictures of these numbers in place of a camera's own."""
        held = self.frames[topic]
        shown = [held[number] for number in numbers_N.tolist()] if held else []
        return replace(self, frames={**self.frames, topic: shown})

    def _messages(self, topic: str) -> Iterator[Message]:
        payloads: Iterator[Payload] = (
            iter(self.values[topic]) if topic in self.values else self._pictures(topic)
        )
        for time_ns, payload in zip(self.clocks[topic].tolist(), payloads, strict=True):
            yield Message(topic, time_ns, payload)

    def _pictures(self, topic: str) -> Iterator[av.VideoFrame]:
        alter = self.altered.get(topic, same)
        last: tuple[av.VideoFrame, av.VideoFrame] | None = None
        for number, frame in enumerate(self.frames[topic]):
            if alter is same or last is None or last[0] is not frame:
                last = frame, alter(number, frame)
            yield last[1]


def drafted(reader: Reader, recording: Recording, limits: tuple[float, float]) -> SourceProfile:
    """The source profile that the reader guesses. limits: what its states can be. What has no role is ignored."""
    roles = reader.roles(recording)
    return SourceProfile.model_validate(
        {
            "name": "bench",
            "landing": "landing",
            "reader": reader.name,
            "grid": {"rate_hz": roles.rate_hz},
            "cameras": [{"name": name, "topic": topic} for name, topic in roles.cameras],
            "states": [{"name": name, "topic": topic, "range": limits} for name, topic in roles.states],
            "actions": [{"name": name, "topic": topic} for name, topic in roles.actions],
            "ignore": ["*"],
        }
    )
