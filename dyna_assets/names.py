"""What people may call things: sources, roles, policies, manifests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
"""Letters, digits, and ._- behind the first; it becomes part of topics, columns and paths."""
