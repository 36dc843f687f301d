"""Checks after the transform, over what reading the episode file back measured.

Evidence: {"num_steps", "moves", "cameras": {name: {num_frames, level, spread, repeat_share, num_pairs}}}.
`level` (mean) and `spread` (1st to 99th percentile) are of the green channel, 0 to 255.
"""

from __future__ import annotations

from collections.abc import Iterator

from dyna_assets.landing.profile import Gates
from dyna_assets.quality.checks import Evidence, Finding, above, check


@check("camera.dark", "after", severity="reject")
def camera_dark(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """A camera shows a picture: dark and without contrast together, since a dim scene is not a black one."""
    for name, facts in evidence["cameras"].items():
        level, spread = facts["level"], facts["spread"]
        dark = level <= gates.dark_max_level and spread <= gates.dark_max_spread
        reason = (
            f"camera '{name}' is black: mean level {level:.1f} of 255 (limit {gates.dark_max_level:g}) and "
            f"spread {spread:.1f} (limit {gates.dark_max_spread:g})"
        )
        yield Finding(name, dark, level, gates.dark_max_level, "levels", reason)


@check("camera.frozen", "after", severity="reject")
def camera_frozen(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """A camera's picture changes while the robot moves; where it stands still, a still picture proves nothing."""
    for name, facts in evidence["cameras"].items():
        share, limit = facts["repeat_share"], gates.frozen_repeat_share
        frozen = share >= limit and facts["num_pairs"] > 0 and evidence["moves"]
        reason = f"camera '{name}' is frozen: {share:.0%} of the frames looked at repeat the one before"
        yield Finding(name, frozen, share, limit, "share", reason)


@check("camera.repeats", "after", severity="warn")
def camera_repeats(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Few frames repeat the one before; good recordings have up to a third, so this only warns."""
    for name, facts in evidence["cameras"].items():
        share = facts["repeat_share"]
        reason = f"camera '{name}': {share:.0%} of the frames looked at repeat the one before"
        yield above(name, share, gates.repeat_warn_share, "share", reason)
