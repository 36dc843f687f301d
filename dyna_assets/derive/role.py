"""What a source's TOML says of one derived signal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from dyna_assets.names import Name
from dyna_train.config import Config


class DerivedRole(Config):
    """A vector computed on the grid from others, by a function of `dyna_assets.derive.DERIVED`.

    of: names of state or action vectors of this episode, as 'state/left_arm'. options: the function's own.
    """

    name: Name
    role: Literal["state", "action"] = "state"
    function: str
    of: tuple[str, ...] = Field(min_length=1)
    options: Mapping[str, Any] = Field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its name among all of an episode's signals, as 'state/speed'."""
        return f"{self.role}/{self.name}"

    @property
    def where(self) -> str:
        """How an error names it."""
        return f"derived '{self.key}' ({self.function})"
