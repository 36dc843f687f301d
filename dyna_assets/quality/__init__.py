"""Quality: checks over evidence, grouped into the gate before and the gate after the transform."""

from dyna_assets.quality import after, before
from dyna_assets.quality.checks import CHECKS, Check, Verdict, check_versions, judge, rejection

__all__ = ["CHECKS", "Check", "Verdict", "after", "before", "check_versions", "judge", "rejection"]
