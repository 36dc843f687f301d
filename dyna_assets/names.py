"""What people may call things: sources, roles, policies, manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

MAX_NAME = 64
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=MAX_NAME)]
"""Letters, digits, and ._- behind the first; it becomes part of topics, columns and paths."""


def repeated(names: Iterable[str]) -> list[str]:
    """Those that stand more than once, sorted."""
    return sorted(name for name, num in Counter(names).items() if num > 1)
