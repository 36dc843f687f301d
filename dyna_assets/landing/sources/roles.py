"""Which topic plays which role, guessed from names and kinds for the first draft of a source's TOML."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Collection, Mapping

import numpy as np

from dyna_assets.landing.recording import Recording, Roles, TopicInfo
from dyna_assets.landing.sources.base import JOINT_PARTS
from dyna_assets.names import MAX_NAME

IS_ACTION = re.compile(r"leader|action|command|cmd|target", re.IGNORECASE)
IS_LOG = re.compile(r"(^|/)(rosout|parameter_events|diagnostics|clock)(\.|$)")
"""Topics about the software, which may hold numbers too."""
GENERIC_PARTS = frozenset({
    "observation", "observations", "images", "image", "image_raw", "image_rect", "compressed", "color", "rgb",
    "joint_states", "data",
})  # fmt: skip


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
        if len(names) == len(topics) and all(len(name) <= MAX_NAME for name in names):
            return names
    numbered = enumerate(parts.items(), 1)  # paths that differ in punctuation only, or are too long to tell
    return {f"{part[-1][: MAX_NAME - 8]}_{number}": topic for number, (topic, part) in numbered}


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
