"""Checks after the transform, over what reading the episode file back measured.

Evidence: {"num_steps", "moves", "cameras": {name: {num_frames, level, spread, repeat_share, num_pairs}}}.
`level` and `spread` are of the green channel, 0 to 255.
"""

from __future__ import annotations

from collections.abc import Iterator

from dyna_assets.landing.profile import Gates
from dyna_assets.quality.checks import Evidence, Finding, check


@check("camera.dark", "after", severity="reject")
def camera_dark(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """A camera shows a picture: dark and without contrast together, since a dim scene is not a black one."""
    for name, facts in evidence["cameras"].items():
        dark = facts["level"] <= gates.dark_max_level and facts["spread"] <= gates.dark_max_spread
        yield Finding(
            name,
            dark,
            facts["level"],
            gates.dark_max_level,
            "levels",
            f"camera '{name}' is black: mean level {facts['level']:.1f} of 255 (limit {gates.dark_max_level:g}) and "
            f"spread {facts['spread']:.1f} (limit {gates.dark_max_spread:g})",
        )


@check("camera.frozen", "after", severity="reject")
def camera_frozen(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """A camera's picture changes while the robot moves; where it stands still, a still picture proves nothing."""
    for name, facts in evidence["cameras"].items():
        frozen = (
            facts["repeat_share"] >= gates.frozen_repeat_share
            and facts["num_pairs"] > 0
            and evidence["moves"]
        )
        yield Finding(
            name,
            frozen,
            facts["repeat_share"],
            gates.frozen_repeat_share,
            "share",
            f"camera '{name}' is frozen: {facts['repeat_share']:.0%} of the frames looked at repeat the one before",
        )


@check("camera.repeats", "after", severity="warn")
def camera_repeats(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Few frames repeat the one before; good recordings have up to a third, so this only warns."""
    for name, facts in evidence["cameras"].items():
        yield Finding(
            name,
            facts["repeat_share"] > gates.repeat_warn_share,
            facts["repeat_share"],
            gates.repeat_warn_share,
            "share",
            f"camera '{name}': {facts['repeat_share']:.0%} of the frames looked at repeat the one before",
        )
