"""Texts that belong to a stretch of a recording (pure).

A text is an entry of `RecordingMeta.texts`: key, text, time_ns and end_ns (None for an instant) on the
recording's clock, subject (a camera, or '') and role (who says it, or '').
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyna_assets.text import sayable

Said = dict[str, Any]


def said_at(key: str, text: str, time_ns: int, end_ns: int | None, subject: str = "", role: str = "") -> Said:
    """One text; see above."""
    return {
        "key": key,
        "text": sayable(text),
        "time_ns": time_ns,
        "end_ns": end_ns,
        "subject": subject,
        "role": role,
    }


def runs(key: str, texts: Sequence[str], times_ns: Sequence[int]) -> list[Said]:
    """One text for each stretch of rows with the same text, '' being none. One text per row."""
    starts = _starts(texts)
    ends = [*(times_ns[row] for row in starts[1:]), *times_ns[-1:]]
    return [
        said_at(key, texts[row], times_ns[row], end)
        for row, end in zip(starts, ends, strict=True)
        if texts[row]
    ]


def num_runs(texts: Sequence[str]) -> int:
    """Stretches of rows with the same text."""
    return len(_starts(texts))


def _starts(texts: Sequence[str]) -> list[int]:
    return [row for row, text in enumerate(texts) if row == 0 or text != texts[row - 1]]
