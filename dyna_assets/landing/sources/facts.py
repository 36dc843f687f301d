"""What recordings say of themselves: foreign values as texts, truths and rates, by their usual names."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from dyna_assets.landing.recording import RecordingMeta
from dyna_assets.landing.sources.base import decoded
from dyna_assets.text import sayable

TASK_KEYS = (
    "language_instruction", "natural_language_instruction", "instruction", "task", "task_description", "prompt",
)  # fmt: skip
SUCCESS_KEYS = ("success", "is_success", "episode_success", "is_episode_successful")
ROBOT_KEYS = ("robot", "robot_id", "robot_type")
OPERATOR_KEYS = ("operator",)
VERSION_KEYS = ("robot_software_version", "software_version")
_EVERY = (TASK_KEYS, SUCCESS_KEYS, ROBOT_KEYS, OPERATOR_KEYS, VERSION_KEYS)
MAX_HZ = 100_000
TRUE_WORDS = frozenset({"true", "yes", "1", "success", "succeeded"})
FALSE_WORDS = frozenset({"false", "no", "0", "failure", "failed", "fail"})


def meta_of(facts: Mapping[str, Any], **more: Any) -> RecordingMeta:
    """What the facts say under the usual names. more: the other fields of `RecordingMeta`."""
    return RecordingMeta(
        task=text_of(first_of(facts, *TASK_KEYS)),
        success=truth_of(first_of(facts, *SUCCESS_KEYS)),
        robot=text_of(first_of(facts, *ROBOT_KEYS)),
        operator=text_of(first_of(facts, *OPERATOR_KEYS)),
        robot_software_version=text_of(first_of(facts, *VERSION_KEYS)),
        **more,
    )


def others(facts: Mapping[str, Any], *used: str) -> dict[str, Any]:
    """The facts that `meta_of` leaves and `used` does not list, as JSON knows them."""
    read = {next((key for key in keys if key in facts), None) for keys in _EVERY}
    return {key: plain(value) for key, value in facts.items() if key not in read and key not in used}


def text_of(value: Any) -> str:
    """Text, which can be stored, from a metadata value that may be bytes, an array of one, None."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, bytes):
        return decoded(value)
    return "" if value is None else sayable(str(value))


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
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {text_of(key): plain(item) for key, item in value.items()}
    return value if isinstance(value, int | float | bool | None) else text_of(value)
