"""What a topic's times say of its clock: rate, phase, jitter, losses, drift, gaps and restarts.

Axis letters: N messages of one topic, P steps between two of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.clocks.lattice import Lattice, fit_lattice
from dyna_assets.clocks.times import Seconds, difference_s

GAP_PERIODS = 3.0
"""A silence of more median periods than this is listed as a gap."""
MOST_LISTED = 20
"""So many gaps and restarts are listed; all are counted."""
NOMINAL_PPM = 1000.0
"""A clock that is so close to a whole number of Hz is taken for one that was meant to run at it."""
LEAST_STEPS = 8
"""Fewer steps tell neither how even they are nor whether messages are missing."""
SILENCE = 5.0
"""A step of more mean steps is a gap, and says nothing of the others."""

_NTSC_HZ = (24.0, 30.0, 60.0, 120.0)  # rates of video that also exist at 1000/1001 of them


def clock_facts(times_N: NDArray[np.int64], start_ns: int) -> dict[str, Any]:
    """The facts of one topic's capture times, int64 [N] ns in file order; seconds count from start_ns.

    num_messages; rate_hz: of the median period; mean_rate_hz: messages over time; first_s, last_s.
    lattice_hz, phase_s (of the lattice against start_ns, 0 to one period), jitter_s (as a standard deviation, from
    the median), jitter_p99_s and lost_share (of the lattice's slots, those without a message): of the longest stretch
    without a step back. nominal_hz, drift_ppm: the whole number of Hz (or 23.976, 29.97, 59.94, 119.88) within 1000 ppm
    of lattice_hz, and how much faster than it the clock runs; lattice_hz itself and 0.0 where there is none.
    unevenness: the median distance of a step from the mean one, in mean steps: 0.1 for a clock with jitter, near 1
    where messages are stamped in batches.
    max_gap_s, num_gaps, gaps: [start_s, end_s] of silences over 3 median periods, the 20 longest in order of time.
    num_backwards, restarts: [message number, time before, time after in s] of the first 20 steps back.
    num_equal: messages with the time of the one before.
    lost_share and unevenness are None for fewer than eight steps forward. All is finite and ready for JSON.
    """
    times_N = np.asarray(times_N, np.int64)
    since_s_N = difference_s(times_N, np.int64(start_ns))
    step_s_P = difference_s(times_N[1:], times_N[:-1])
    forward_s = step_s_P[step_s_P > 0]
    median_s = float(np.median(forward_s)) if len(forward_s) else 0.0
    run = _longest_rising(step_s_P, len(times_N))
    lattice = fit_lattice(times_N[run])
    nominal_hz, drift_ppm = _against_nominal(lattice.rate_hz)
    back = np.flatnonzero(step_s_P < 0) + 1
    return {
        "num_messages": len(times_N),
        "rate_hz": 1 / median_s if median_s else 0.0,
        "mean_rate_hz": _mean_rate_hz(times_N),
        "lattice_hz": lattice.rate_hz,
        "nominal_hz": nominal_hz,
        "drift_ppm": drift_ppm,
        "phase_s": _phase_s(lattice, float(since_s_N[run.start]) if len(times_N) else 0.0),
        "jitter_s": lattice.jitter_s,
        "jitter_p99_s": lattice.jitter_p99_s,
        "lost_share": _lost_share(lattice),
        "unevenness": _unevenness(step_s_P, lattice.period_s),
        "first_s": float(since_s_N[0]) if len(times_N) else 0.0,
        "last_s": float(since_s_N[-1]) if len(times_N) else 0.0,
        "max_gap_s": float(step_s_P.max()) if len(step_s_P) else 0.0,
        **_gaps(since_s_N, step_s_P, GAP_PERIODS * median_s),
        "num_backwards": len(back),
        "restarts": [
            [int(n), float(since_s_N[n - 1]), float(since_s_N[n])] for n in back[:MOST_LISTED].tolist()
        ],
        "num_equal": int((step_s_P == 0).sum()),
    }


def _longest_rising(step_s_P: Seconds, num_messages: int) -> slice:
    """The longest stretch of messages without a step back."""
    cuts = np.concatenate([[0], np.flatnonzero(step_s_P < 0) + 1, [num_messages]])
    longest = int(np.argmax(np.diff(cuts)))
    return slice(int(cuts[longest]), int(cuts[longest + 1]))


def _mean_rate_hz(times_N: NDArray[np.int64]) -> float:
    if len(times_N) < 2:
        return 0.0
    span_s = float(difference_s(times_N.max(), times_N.min()))
    return (len(times_N) - 1) / span_s if span_s else 0.0


def _against_nominal(rate_hz: float) -> tuple[float, float]:
    """(the rate that was meant, how much faster the clock is in ppm)."""
    whole = float(round(rate_hz))
    broadcast = [hz * 1000 / 1001 for hz in _NTSC_HZ]
    meant = min((whole, *broadcast), key=lambda hz: abs(rate_hz - hz))
    if not meant or abs(rate_hz / meant - 1) > NOMINAL_PPM * 1e-6:
        return rate_hz, 0.0
    return meant, 1e6 * (rate_hz / meant - 1)


def _phase_s(lattice: Lattice, first_s: float) -> float:
    return float((first_s + lattice.offset_s) % lattice.period_s) if lattice.period_s else 0.0


def _lost_share(lattice: Lattice) -> float | None:
    num = len(lattice.slots_N)
    return 1 - num / lattice.num_slots if num > LEAST_STEPS and lattice.period_s else None


def _unevenness(step_s_P: Seconds, period_s: float) -> float | None:
    step_s_P = step_s_P[step_s_P >= 0]
    if len(step_s_P) < LEAST_STEPS or not period_s:
        return None
    usual_s_P = step_s_P[step_s_P <= SILENCE * step_s_P.mean()]
    mean_s = max(float(usual_s_P.mean()), period_s)  # between large batches is as long as a gap
    return float(np.median(np.abs(usual_s_P - mean_s)) / mean_s)


def _gaps(since_s_N: Seconds, step_s_P: Seconds, longer_than_s: float) -> dict[str, Any]:
    found = np.flatnonzero(step_s_P > longer_than_s) if longer_than_s else np.empty(0, np.int64)
    listed = np.sort(found[np.argsort(-step_s_P[found], kind="stable")[:MOST_LISTED]])
    return {
        "num_gaps": len(found),
        "gaps": [[float(since_s_N[n]), float(since_s_N[n + 1])] for n in listed.tolist()],
    }
