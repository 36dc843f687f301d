"""Run profiles: what a run may redo, and what it does about failures. One job a profile.

The built-in ones are the TOML files beside this module. A profile's `steps` are the asset selection of
its job; which rows of a shard those steps touch is decided by `redo` and the rows' stamps.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field, field_validator

from dyna_assets.quality.registry import CHECKS, known_check
from dyna_assets.stamps import STEPS, Redo
from dyna_train.config import Config, load_config
from dyna_train.errors import ConfigError

SAFE = "ingest_online"
"""What runs when nobody names a profile: it only ever does what is missing."""


class RunProfile(Config):
    """One way to run the asset graph over a shard.

    max_failed_share and min_failed_rows: the shard is stopped when at least so many of its rows, and more
    than this share of them, were rejected or failed: then the source is broken, not an episode.
    skip_checks: names of quality checks, or patterns of them ('camera.*'), that its gates do not run. What was not
    checked is stale for a profile that runs all.
    """

    name: str
    description: str
    steps: tuple[str, ...]
    redo: Redo = "missing"
    max_failed_share: float = Field(default=0.5, ge=0, le=1)
    min_failed_rows: int = Field(default=4, ge=1)
    priority: int = 0
    skip_checks: tuple[str, ...] = ()

    @field_validator("steps")
    @classmethod
    def _known(cls, steps: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [step for step in steps if step not in STEPS]
        if unknown:
            raise ValueError(f"unknown step {', '.join(unknown)}; steps are {', '.join(STEPS)}")
        return steps

    @field_validator("skip_checks")
    @classmethod
    def _of_known_checks(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        checks_like(patterns)
        return patterns

    @property
    def is_complete(self) -> bool:
        """True if it holds every critical step, so that a run of it can settle a shard."""
        return all(step.name in self.steps for step in STEPS.values() if step.critical)


def checks_like(patterns: Iterable[str]) -> frozenset[str]:
    """The quality checks that names or patterns (as in a shell) stand for.

    Raises ValueError for one that stands for none, with the nearest name.
    """
    found: set[str] = set()
    for pattern in patterns:
        found |= {name for name in CHECKS if fnmatchcase(name, pattern)} or {known_check(pattern)}
    return frozenset(found)


def load_profiles() -> dict[str, RunProfile]:
    """The profiles by name."""
    found = [load_config(RunProfile, path) for path in sorted(Path(__file__).parent.glob("*.toml"))]
    return {profile.name: profile for profile in found}


def profile_named(name: str, *, skip_checks: Iterable[str] = ()) -> RunProfile:
    """One profile, with more checks that its gates do not run.

    Raises ConfigError naming the valid profiles, or for a check that there is not.
    """
    profiles = load_profiles()
    if name not in profiles:
        raise ConfigError(f"no run profile '{name}'; profiles are {', '.join(profiles)}")
    more = tuple(skip_checks)
    try:
        checks_like(more)
    except ValueError as error:
        raise ConfigError(f"skip_checks: {error}") from None
    return profiles[name].model_copy(update={"skip_checks": (*profiles[name].skip_checks, *more)})
