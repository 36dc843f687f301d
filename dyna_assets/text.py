"""Foreign text as it can be stored and shown."""

from __future__ import annotations


def sayable(text: str) -> str:
    """The text with halves of characters, which UTF-8 cannot say, written as '\\ud800'."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
