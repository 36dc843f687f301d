"""What a topic's times say of its clock: rate, phase, jitter, drift, gaps and restarts (pure).

Axis letters: N messages of one topic. Everything is finite and ready for JSON for any int64 times, also for none.
A clock is described by its *lattice*: the evenly spaced instants that the messages come closest to. Messages
that were lost leave slots of the lattice empty, and change neither its rate nor its phase. A clock that keeps to none,
such as a queue that is read in batches, has residuals all over the period: a jitter of about 0.37 of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

GAP_PERIODS = 3.0
"""A silence of more median periods than this is listed as a gap."""
MOST_LISTED = 20
"""So many gaps and restarts are listed; all are counted."""
WALL_CLOCK_NS = 10**18
"""September 2001: times before it count from a recording's start or a robot's, not from the epoch."""
MAD_SIGMAS = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""
NOMINAL_PPM = 1000.0
"""A clock that is so close to a whole number of Hz is taken for one that was meant to run at it."""

_FIRST_WINDOW = 32
_BLOCKS = 32
_KEEN_WINDOW, _MOST_RATES = 128, 4096  # messages and rates that are tried on each other
_PLAIN = 0.18  # periods: messages so near to a lattice, as a root mean square, surely keep to it
_AS_NEAR = 1.2  # slots that leave residuals so many times the least explain the messages as well
_OUTLYING = 5.0  # standard deviations from which a message says nothing of the lattice
_NTSC_HZ = (24.0, 30.0, 60.0, 120.0)  # rates of video that also exist at 1000/1001 of them

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lattice:
    """Evenly spaced instants offset_s + k * period_s, and how far from its own each message is.

    offset_s: since the first message. period_s: 0.0 if no two messages differ in time. slots_N: the k of each
    message (whole numbers; two messages may share one). residual_s_N: message minus instant, at most half a period.
    """

    offset_s: float
    period_s: float
    slots_N: Seconds
    residual_s_N: Seconds

    @property
    def rate_hz(self) -> float:
        """Instants per second; 0.0 without a period."""
        return 1 / self.period_s if self.period_s else 0.0

    @property
    def jitter_s(self) -> float:
        """1.4826 times the median absolute deviation of the residuals: a normal one's standard deviation."""
        return _spread_s(self.residual_s_N)

    @property
    def jitter_p99_s(self) -> float:
        """99 of 100 residuals are at most so large."""
        return float(np.quantile(np.abs(self.residual_s_N), 0.99)) if len(self.residual_s_N) else 0.0


def clock_facts(times_N: NDArray[np.int64], start_ns: int) -> dict[str, Any]:
    """The facts of one topic's capture times, int64 [N] ns in file order; seconds count from start_ns.

    num_messages; rate_hz: of the median period; mean_rate_hz: messages over time; first_s, last_s.
    lattice_hz, phase_s (of the lattice against start_ns, 0 to one period), jitter_s (as a standard deviation, from
    the median) and jitter_p99_s: of the lattice of the longest stretch without a step back.
    nominal_hz, drift_ppm: the whole number of Hz (or 23.976, 29.97, 59.94, 119.88) within 1000 ppm of lattice_hz, and
    how much faster than it the clock runs; lattice_hz itself and 0.0 where there is none. drop_share: share of the
    lattice's slots without a message.
    max_gap_s, num_gaps, gaps: [start_s, end_s] of silences over 3 median periods, the 20 longest in order of time.
    num_backwards, restarts: [message number, time before, time after in s] of the first 20 steps back.
    num_equal: messages with the time of the one before.
    """
    times_N = np.asarray(times_N, np.int64)
    since_s_N = difference_s(times_N, np.int64(start_ns))
    period_s = difference_s(times_N[1:], times_N[:-1])
    forward_s = period_s[period_s > 0]
    median_s = float(np.median(forward_s)) if len(forward_s) else 0.0
    run = _longest_rising(period_s, len(times_N))
    lattice = fit_lattice(times_N[run])
    nominal_hz, drift_ppm = _against_nominal(lattice.rate_hz)
    back = np.flatnonzero(period_s < 0) + 1
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
        "first_s": float(since_s_N[0]) if len(times_N) else 0.0,
        "last_s": float(since_s_N[-1]) if len(times_N) else 0.0,
        "max_gap_s": float(period_s.max()) if len(period_s) else 0.0,
        **_gaps(since_s_N, period_s, GAP_PERIODS * median_s),
        "num_backwards": len(back),
        "restarts": [
            [int(n), float(since_s_N[n - 1]), float(since_s_N[n])] for n in back[:MOST_LISTED].tolist()
        ],
        "num_equal": int((period_s == 0).sum()),
        "drop_share": _drop_share(lattice),
    }


def fit_lattice(times_N: NDArray[np.int64]) -> Lattice:
    """The lattice of ascending times, by least squares over the slots that the messages fall into.

    Which message has which slot is tried in several ways: one each, as if none were lost, and the nearest slot for
    two guesses of the period. The one whose messages are nearest to their instants, in periods, is taken.
    """
    if not len(times_N):
        return Lattice(0.0, 0.0, np.empty(0), np.empty(0))
    since_s_N = difference_s(times_N, times_N[0])
    if not since_s_N[-1]:
        return Lattice(0.0, 0.0, np.zeros(len(times_N)), np.zeros(len(times_N)))
    slots, offset_s, period_s = _best_line(since_s_N)
    ordinary = _ordinary(since_s_N - offset_s - slots * period_s)
    offset_s, period_s = _line(slots[ordinary], since_s_N[ordinary], offset_s, period_s)
    slots_N = np.rint((since_s_N - offset_s) / period_s)
    return Lattice(offset_s, period_s, slots_N, since_s_N - offset_s - slots_N * period_s)


def drift_against(times_N: NDArray[np.int64], arrivals_N: NDArray[np.int64]) -> dict[str, float]:
    """A capture clock against the recorder's: int64 [N] ns each, of the same messages.

    latency_s: median of arrival minus capture. drift_ppm: how much faster the capture clock runs than the
    recorder's, the median slope between the least latencies of 32 equal stretches: queues only ever add to a
    latency, so the least ones show the clocks. 0.0 where fewer than two stretches hold messages.
    """
    late_s_N = difference_s(np.asarray(arrivals_N, np.int64), np.asarray(times_N, np.int64))
    if not len(late_s_N):
        return {"latency_s": 0.0, "drift_ppm": 0.0}
    since_s_N = difference_s(times_N, times_N[0])
    blocks = [block for block in np.array_split(np.arange(len(late_s_N)), _BLOCKS) if len(block)]
    least = np.array([block[np.argmin(late_s_N[block])] for block in blocks])
    at_s, late_s = since_s_N[least], late_s_N[least]
    first, second = np.triu_indices(len(least), 1)
    apart_s = at_s[second] - at_s[first]
    slopes = (late_s[second] - late_s[first])[apart_s > 0] / apart_s[apart_s > 0]
    drift_ppm = -1e6 * float(np.median(slopes)) if len(slopes) else 0.0
    return {"latency_s": float(np.median(late_s_N)), "drift_ppm": drift_ppm}


def robust_sigma(values: Seconds) -> Seconds:
    """Standard deviation along the last axis, which is not empty, from the median absolute deviation."""
    apart = np.abs(values - np.median(values, axis=-1, keepdims=True))
    return np.asarray(MAD_SIGMAS * np.median(apart, axis=-1))


def difference_s(later: NDArray[np.int64], earlier: NDArray[np.int64] | np.int64) -> Seconds:
    """`later` - `earlier` in seconds, also where int64 cannot hold the nanoseconds."""
    later, earlier = np.broadcast_arrays(later, earlier)
    forward = later >= earlier
    high, low = np.where(forward, later, earlier), np.where(forward, earlier, later)
    apart = high.astype(np.uint64) - low.astype(np.uint64)  # modulo 2**64, so exact
    return np.asarray(np.where(forward, 1.0, -1.0) * (apart / 1e9))


def _longest_rising(period_s: Seconds, num_messages: int) -> slice:
    """The longest stretch of messages without a step back."""
    cuts = np.concatenate([[0], np.flatnonzero(period_s < 0) + 1, [num_messages]])
    longest = int(np.argmax(np.diff(cuts)))
    return slice(int(cuts[longest]), int(cuts[longest + 1]))


def _best_line(since_s_N: Seconds) -> tuple[Seconds, float, float]:
    """(slots, offset, period) of the lattice that the messages keep to best; see `fit_lattice`."""
    index = np.arange(len(since_s_N), dtype=np.float64)
    mean_s = float(since_s_N[-1]) / (len(since_s_N) - 1)
    guesses_s = (_typical_period_s(np.diff(since_s_N)), _keenest_period_s(since_s_N))
    found = [
        (index, *_line(index, since_s_N, 0.0, mean_s)),
        *(_nearest_slots(since_s_N, guess_s) for guess_s in guesses_s),
    ]
    away = [
        float(np.sqrt(np.mean((since_s_N - offset_s - slots * period_s) ** 2))) / period_s
        for slots, offset_s, period_s in found
    ]
    # Wrong slots leave residuals of all sizes, 0.29 periods; jitter of nearly half a period is hardly better. A queue
    # that is read in batches comes somewhat near to several lattices: only a plain one tells that messages were lost.
    least = min(away) if away[-1] <= _PLAIN else min(away[:-1])
    return next(line for line, far in zip(found, away, strict=True) if far <= _AS_NEAR * least)


def _nearest_slots(since_s_N: Seconds, period_s: float) -> tuple[Seconds, float, float]:
    """(slots, offset, period) where each message has the slot nearest to it, starting from a guess of the period."""
    # Window by window, so that the slots are right before an error of the period grows to half of one; from the
    # middle, because sensors are at their oddest when they start.
    middle, half = len(since_s_N) // 2, _FIRST_WINDOW // 2
    offset_s, is_whole = float(since_s_N[middle]), False
    while not is_whole:
        window = slice(max(0, middle - half), middle + half)
        is_whole, half = half > middle, 2 * half
        offset_s = _anchor_s(since_s_N[window], offset_s, period_s)
        slots = np.rint((since_s_N[window] - offset_s) / period_s)
        offset_s, period_s = _line(slots, since_s_N[window], offset_s, period_s)
    return slots, offset_s, period_s


def _anchor_s(since_s: Seconds, offset_s: float, period_s: float) -> float:
    """`offset_s` moved to the middle of the messages, as on a circle of one period: no single one decides."""
    turns = np.exp(2j * np.pi * ((since_s - offset_s) / period_s))
    return offset_s + float(np.angle(turns.sum())) / (2 * np.pi) * period_s


def _typical_period_s(period_s: Seconds) -> float:
    """The mean of the periods around the median: exact where stamps are rounded, blind to a few lost messages."""
    forward_s = period_s[period_s > 0]
    median_s = float(np.quantile(forward_s, 0.5, method="lower"))  # one of them, so that some lie around it
    return float(forward_s[(forward_s > median_s / 2) & (forward_s < 1.5 * median_s)].mean())


def _keenest_period_s(since_s_N: Seconds) -> float:
    """The period on whose circle the middle messages lie closest together: also where most of them were lost."""
    middle, half = len(since_s_N) // 2, _KEEN_WINDOW // 2
    window_s = since_s_N[max(0, middle - half) : middle + half]
    window_s = window_s if window_s[-1] > window_s[0] else since_s_N
    forward_s = np.diff(window_s)[np.diff(window_s) > 0]
    short_s, median_s = np.quantile(forward_s, [0.1, 0.5])  # one of the short ones is a single period
    span_s = window_s[-1] - window_s[0]
    # Losses only ever lower the mean rate; below it are the rates of a queue's reads.
    lowest_hz = max(0.7 / median_s, 0.97 * len(forward_s) / span_s)
    num_rates = np.clip((1.3 / short_s - lowest_hz) * 4 * span_s, 1, _MOST_RATES)
    rates_hz = lowest_hz + np.arange(int(num_rates)) / (4 * span_s)
    together = np.abs(np.exp(2j * np.pi * np.outer(rates_hz, window_s - window_s[0])).sum(axis=1))
    return float(1 / rates_hz[np.argmax(together)])


def _spread_s(residual_s: Seconds) -> float:
    return float(robust_sigma(residual_s)) if len(residual_s) else 0.0


def _ordinary(residual_s: Seconds) -> NDArray[np.bool_]:
    """Messages that keep to the lattice; a camera's first frame often comes at a time of its own."""
    far_s = np.abs(residual_s - np.median(residual_s))
    return np.asarray(far_s <= _OUTLYING * _spread_s(residual_s))


def _line(slots: Seconds, since_s: Seconds, offset_s: float, period_s: float) -> tuple[float, float]:
    """(offset, period) of the least squares line; as they were if all messages share a slot."""
    mean_slot, mean_s = float(slots.mean()), float(since_s.mean())
    spread = slots - mean_slot
    along = float(spread @ spread)
    slope_s = float(spread @ (since_s - mean_s)) / along if along else 0.0
    return (mean_s - slope_s * mean_slot, slope_s) if slope_s > 0 else (offset_s, period_s)


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


def _gaps(since_s_N: Seconds, period_s: Seconds, longer_than_s: float) -> dict[str, Any]:
    found = np.flatnonzero(period_s > longer_than_s) if longer_than_s else np.empty(0, np.int64)
    listed = np.sort(found[np.argsort(-period_s[found], kind="stable")[:MOST_LISTED]])
    return {
        "num_gaps": len(found),
        "gaps": [[float(since_s_N[n]), float(since_s_N[n + 1])] for n in listed.tolist()],
    }


def _drop_share(lattice: Lattice) -> float:
    if not lattice.period_s:
        return 0.0
    num_slots = float(lattice.slots_N[-1] - lattice.slots_N[0]) + 1
    return max(0.0, 1 - len(lattice.slots_N) / num_slots)
