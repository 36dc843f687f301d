"""The limits that findings are held against on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.quality.policy import Gates, Policy, limits_for
from dyna_assets.quality.registry import CHECKS, Limits

LimitsOf = Callable[[str], Mapping[str, Limits]]
"""Source -> the limits of every check."""


def limits_by(policy: Policy, gates: Gates) -> dict[str, Limits]:
    """check -> the limits that hold for a source with these gates."""
    return {name: limits_for(policy, gates, name) for name in CHECKS}


def limits_of_sources(policy: Policy, sources: Mapping[str, SourceProfile]) -> LimitsOf:
    """The limits by source; of one that is described no more, those of the policy."""
    known = {name: limits_by(policy, source.gates) for name, source in sources.items()}
    others = limits_by(policy, {})
    return lambda source: known.get(source, others)
