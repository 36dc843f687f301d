"""The language columns of a LeRobot episode's rows as texts (pure).

LeRobot repeats `language_persistent` on every row: a list of things that hold from their own `timestamp` on, until the
next one of their style. `language_events` stands on the row at whose time it happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dyna_assets.landing.sources.texts import Said, said_at

UTTERANCE = "utterance"
"""What a row without a style is: something that was said."""


def persistent_texts(rows: Iterable[Mapping[str, Any]], last_ns: int) -> list[Said]:
    """The entries of one row of `language_persistent`, each to the next of its style and camera, or to last_ns."""
    by_kind: dict[tuple[str, str], list[Said]] = {}
    for row in rows:
        for said in _entries(row, round(float(row["timestamp"]) * 1e9)):
            by_kind.setdefault((said["key"], said["subject"]), []).append(said)
    for of_kind in by_kind.values():
        of_kind.sort(key=lambda said: int(said["time_ns"]))
        for said, after in pairwise(of_kind):
            said["end_ns"] = after["time_ns"]
        of_kind[-1]["end_ns"] = max(last_ns, of_kind[-1]["time_ns"])
    return [said for of_kind in by_kind.values() for said in of_kind]


def event_texts(rows: Iterable[Sequence[Mapping[str, Any]] | None], times_ns: Sequence[int]) -> list[Said]:
    """The entries of the column `language_events`, at their rows' times."""
    return [
        said
        for row, time_ns in zip(rows, times_ns, strict=True)
        for entry in row or ()
        for said in _entries(entry, time_ns)
    ]


def _entries(row: Mapping[str, Any], time_ns: int) -> Iterator[Said]:
    """What an entry says, and the tools it calls."""
    key, about = (
        str(row.get("style") or UTTERANCE),
        (str(row.get("camera") or ""), str(row.get("role") or "")),
    )
    if row.get("content"):
        yield said_at(key, str(row["content"]), time_ns, None, *about)
    if row.get("tool_calls"):
        calls = json.dumps(row["tool_calls"], ensure_ascii=False, default=str)
        yield said_at("tool_calls", calls, time_ns, None, *about)
