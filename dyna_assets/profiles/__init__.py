"""Run profiles: what a run may redo, and what it does about failures. One job a profile.

The built-in ones are the TOML files beside this module. A profile's `steps` are the asset selection of
its job; which rows of a shard those steps touch is decided by `redo` and the rows' stamps.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from dyna_assets.stamps import STEPS, Redo
from dyna_train.config import Config, load_config
from dyna_train.errors import ConfigError

SAFE = "ingest_online"
"""What runs when nobody names a profile: it only ever does what is missing."""


class RunProfile(Config):
    """One way to run the asset graph over a shard.

    max_failed_share and min_failed_rows: the shard is stopped when at least so many of its rows, and more
    than this share of them, were rejected or failed: then the source is broken, not an episode.
    """

    name: str
    description: str
    steps: tuple[str, ...]
    redo: Redo = "missing"
    max_failed_share: float = Field(default=0.5, ge=0, le=1)
    min_failed_rows: int = Field(default=4, ge=1)
    priority: int = 0

    @field_validator("steps")
    @classmethod
    def _known(cls, steps: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [step for step in steps if step not in STEPS]
        if unknown:
            raise ValueError(f"unknown step {', '.join(unknown)}; steps are {', '.join(STEPS)}")
        return steps

    @property
    def is_complete(self) -> bool:
        """True if it holds every critical step, so that a run of it can settle a shard."""
        return all(step.name in self.steps for step in STEPS.values() if step.critical)


def load_profiles() -> dict[str, RunProfile]:
    """The profiles by name."""
    found = [load_config(RunProfile, path) for path in sorted(Path(__file__).parent.glob("*.toml"))]
    return {profile.name: profile for profile in found}


def profile_named(name: str) -> RunProfile:
    """One profile. Raises ConfigError naming the valid ones."""
    profiles = load_profiles()
    if name not in profiles:
        raise ConfigError(f"no run profile '{name}'; profiles are {', '.join(profiles)}")
    return profiles[name]
