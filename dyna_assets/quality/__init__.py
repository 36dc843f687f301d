"""Quality: checks that measure, evidence that is kept, and policies that judge it."""

from dyna_assets.quality import after, before, before_vectors
from dyna_assets.quality.evidence import evidence_row, measure, measured_of
from dyna_assets.quality.registry import CHECKS, Check, Facts, Gate, Limits, Measured, check_versions

__all__ = [
    "CHECKS",
    "Check",
    "Facts",
    "Gate",
    "Limits",
    "Measured",
    "after",
    "before",
    "before_vectors",
    "check_versions",
    "evidence_row",
    "measure",
    "measured_of",
]
