"""Quality: checks over evidence, grouped into the gate before and the gate after the transform."""

from dyna_assets.quality import after, before
from dyna_assets.quality.checks import CHECKS, Check, Verdict, judge, rejection

__all__ = ["CHECKS", "Check", "Verdict", "after", "before", "judge", "rejection"]
