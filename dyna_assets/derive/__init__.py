"""Signals that nobody recorded: computed on the grid from those that were, by functions registered by name.

A source's TOML asks for one with [[derived]] (see `DerivedRole`); `DERIVED` lists what there is.
"""

from dyna_assets.derive import functions, pose  # they register themselves
from dyna_assets.derive.apply import apply_derived, check_derived, signals_of
from dyna_assets.derive.registry import DERIVED, Signal, derive_versions, derived
from dyna_assets.derive.role import DerivedRole

__all__ = [
    "DERIVED",
    "DerivedRole",
    "Signal",
    "apply_derived",
    "check_derived",
    "derive_versions",
    "derived",
    "functions",
    "pose",
    "signals_of",
]
