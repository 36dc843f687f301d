"""Rows of formats without messages, as the JSON messages that an episode file keeps of them.

A row is {"value": ...}. What JSON cannot say is said as protobuf's JSON does: bytes in base64, and the words
"NaN", "Infinity" and "-Infinity" for such numbers; dates are texts.
"""

from __future__ import annotations

import base64
import heapq
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.recording import RawMessage
from dyna_train.episode.channels import ExtraTopic


def row_topic(topic: str, **metadata: str) -> ExtraTopic:
    """How the rows of `topic` are encoded."""
    return ExtraTopic(topic, "json", metadata=metadata)


def row_messages(topic: str, times_N: NDArray[np.int64], values: Iterable[Any]) -> Iterator[RawMessage]:
    """A message for each of the N rows; times in ns."""
    for time_ns, value in zip(times_N.tolist(), values, strict=True):
        yield RawMessage(topic, time_ns, row_json(value))


def merged_rows(streams: Iterable[Iterator[RawMessage]]) -> Iterator[RawMessage]:
    """Streams of rows merged by time; holds one row of each."""
    return heapq.merge(*streams, key=lambda row: row.time_ns)


def row_json(value: Any) -> bytes:
    """The message of one row: a number, a text, bytes, None, an array, or lists and mappings of these."""
    return json.dumps({"value": _in_json(value)}, allow_nan=False, default=str).encode()


def _in_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_in_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _in_json(item) for key, item in value.items()}
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
