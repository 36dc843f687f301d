"""A good recording in memory for the quality checks, of which one thing is changed at a time.

Two cameras at 30 Hz, an arm's state at 100 Hz and its commands at 50 Hz, for ten seconds; every joint follows a
sine of its own. Axis letters: N messages, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Message, RecordingMeta, TopicInfo
from dyna_assets.quality import CHECKS, measure
from dyna_assets.quality.registry import Measured
from dyna_assets.steps import probe

START_NS, NOW_NS = 1_772_442_000_000_000_000, 1_800_000_000_000_000_000
SECONDS, DIMS = 10.0, 6
TOP, WRIST, ARM, LEADER = "/top", "/wrist", "/arm", "/leader"
RATES = {TOP: 30.0, WRIST: 30.0, ARM: 100.0, LEADER: 50.0}
NAMES = tuple(f"joint{joint}" for joint in range(DIMS))
PROFILE: dict[str, Any] = {
    "name": "test",
    "landing": "landing",
    "reader": "mcap",
    "grid": {"rate_hz": 30},
    "cameras": [{"name": "top", "topic": TOP}, {"name": "wrist", "topic": WRIST}],
    "states": [{"name": "arm", "topic": ARM}],
    "actions": [{"name": "leader", "topic": LEADER}],
}
Values = NDArray[np.float64]
Found = dict[str, list[Measured]]


@dataclass
class Recorded:
    """A recording of these clocks and values; its pictures cannot be read."""

    clocks: Mapping[str, NDArray[np.int64]]
    values: Mapping[str, Values]
    meta: RecordingMeta = field(default_factory=RecordingMeta)
    other: Mapping[str, TopicInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(init=False)

    def __post_init__(self) -> None:
        infos = {
            topic: TopicInfo(topic, "vector", len(times_N), NAMES[: self.values[topic].shape[1]])
            if topic in self.values
            else TopicInfo(topic, "image", len(times_N), width=64, height=48)
            for topic, times_N in self.clocks.items()
        }
        self.topics = {**infos, **self.other}

    def times(self, topic: str) -> NDArray[np.int64]:
        return self.clocks[topic]

    def read(self, topics: Collection[str]) -> Iterator[Message]:
        for topic in topics:
            for time_ns, value in zip(self.clocks[topic].tolist(), self.values[topic], strict=True):
                yield Message(topic, time_ns, value)

    def close(self) -> None: ...

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def at(self, topic: str, change: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Recorded:
        """With other times of a topic."""
        return replace(self, clocks={**self.clocks, topic: change(self.clocks[topic].copy())})

    def saying(self, topic: str, change: Callable[[Values], Values]) -> Recorded:
        """With other values of a vector."""
        return replace(self, values={**self.values, topic: change(self.values[topic].copy())})

    def only(self, topic: str, kept_N: NDArray[np.bool_]) -> Recorded:
        """With these messages of a topic only."""
        changed = self.at(topic, lambda times_N: times_N[kept_N])
        return changed.saying(topic, lambda values_ND: values_ND[kept_N]) if topic in self.values else changed


@dataclass
class Arriving(Recorded):
    """The same, with arrivals at the recorder: latency_s later, and later still as drift of them goes."""

    latency_s: Mapping[str, float] = field(default_factory=dict)
    drift: Mapping[str, float] = field(default_factory=dict)

    def arrivals(self, topic: str) -> NDArray[np.int64]:
        times_N = self.clocks[topic]
        late_s = self.latency_s.get(topic, 0.002) + self.drift.get(topic, 0.0) * (times_N - times_N[0]) / 1e9
        return np.asarray(times_N + np.rint(late_s * 1e9).astype(np.int64))


def good(kind: type[Recorded] = Recorded, **more: Any) -> Recorded:
    """The recording with nothing wrong."""
    clocks = {
        topic: START_NS + np.arange(round(SECONDS * hz)) * round(1e9 / hz) for topic, hz in RATES.items()
    }
    return kind(clocks, {ARM: sines(clocks[ARM]), LEADER: sines(clocks[LEADER], 0.1)}, **more)


def paired() -> Recorded:
    """The same on one clock, of a format that pairs pictures and rows by their number."""
    times_N = np.arange(300) * round(1e9 / 30)
    meta = RecordingMeta(paired_by="number", num_listed=300, rate_hz=30.0)
    clocks = dict.fromkeys((TOP, WRIST, ARM, LEADER), times_N)
    return Recorded(clocks, {ARM: sines(times_N), LEADER: sines(times_N, 0.1)}, meta)


def sines(times_N: NDArray[np.int64], ahead_s: float = 0.0) -> Values:
    """Six joints that swing up to 1 rad, with the noise of an encoder; ahead_s: as the leader is."""
    time_s_N1 = ((times_N - times_N[0]) / 1e9)[:, None] + ahead_s
    noise = np.random.default_rng(round(100 * ahead_s)).normal(0, 1e-4, (len(times_N), DIMS))
    return np.asarray(np.sin(time_s_N1 * np.linspace(0.6, 1.6, DIMS) + np.arange(DIMS)) + noise)


def source(**more: Any) -> SourceProfile:
    """Its profile; more: keys that replace or add."""
    return SourceProfile.model_validate({**PROFILE, **more})


def found_in(recorded: Recorded, profile: SourceProfile | None = None) -> Found:
    """What every check before the transform measures."""
    return measure("before", probe.measure(recorded, profile or source(), now_ns=NOW_NS))


def beyond(found: Mapping[str, list[Measured]], level: str) -> set[str]:
    """Checks whose worst subject is beyond their own limit 'warn' or 'reject'."""
    return {
        name
        for name, subjects in found.items()
        if any(CHECKS[name].is_beyond(one.value, getattr(CHECKS[name].limits, level)) for one in subjects)
    }


def worst(found: Mapping[str, list[Measured]], check: str) -> Measured:
    """The worst subject of a check that measured something."""
    one = CHECKS[check].worst(found[check])
    assert one is not None, f"{check} measured nothing"
    return one
