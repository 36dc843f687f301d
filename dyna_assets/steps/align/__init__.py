"""Many clocks -> one grid (pure).

Capture times, not arrival times, decide. At each instant of the grid a topic gives its latest message captured
at or before it (causal, so that no window shows the future), its nearest one, or what lies between its
neighbours, as its role says. What is older than the source allows is missing, and never made up.
"""

from dyna_assets.steps.align.grid import TOLERANCE_NS, Steps
from dyna_assets.steps.align.plan import Alignment, Counts, Missing, align
from dyna_assets.steps.align.resample import Series, units_of

__all__ = [
    "TOLERANCE_NS",
    "Alignment",
    "Counts",
    "Missing",
    "Series",
    "Steps",
    "align",
    "units_of",
]
