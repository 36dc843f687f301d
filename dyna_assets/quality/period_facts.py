"""Facts of the steps between a topic's messages, also where no even clock can be found in them.

Axis letters: P steps between N = P + 1 messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SILENCE = 5.0
"""A step of more mean steps is a gap, and says nothing of the others."""
LEAST_STEPS = 8


def period_facts(times_s_N: NDArray[np.float64]) -> dict[str, Any]:
    """Of capture times in seconds. None for fewer than nine messages that go forward.

    unevenness: the median distance of a step from the mean one, in mean steps: 0.1 for a clock with jitter, near 1
    where messages are stamped in batches. lost_share: of the messages that the shortest usual steps promise.
    """
    step_s_P = np.diff(times_s_N)
    step_s_P = step_s_P[step_s_P >= 0]
    if len(step_s_P) < LEAST_STEPS or not step_s_P.any():
        return {"unevenness": None, "lost_share": None}
    usual_s_P = step_s_P[step_s_P <= SILENCE * step_s_P.mean()]
    mean_s = float(usual_s_P.mean())
    return {
        "unevenness": float(np.median(np.abs(usual_s_P - mean_s)) / mean_s),
        "lost_share": _lost_share(step_s_P[step_s_P > 0]),
    }


def _lost_share(step_s_P: NDArray[np.float64]) -> float:
    """1 - messages / slots, of slots as long as the steps between which none was lost."""
    slot_s = float(np.quantile(step_s_P, 0.1))
    for _ in range(2):  # the second time with a slot that jitter does not shorten
        slots_P = np.maximum(np.rint(step_s_P / slot_s), 1)
        slot_s = float(step_s_P.sum() / slots_P.sum())
    return float(1 - len(step_s_P) / slots_P.sum())
