"""The evenly spaced instants that a clock's messages come closest to.

Axis letters: N messages of one topic, R rates that are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.clocks.times import Seconds, difference_s
from dyna_assets.robust import robust_sigma

OUTLYING = 5.0
"""A message so many standard deviations away says nothing of the lattice; a camera's first frame often is."""
PLAIN = 0.25
"""Periods, as a root mean square, that messages are at most away from instants they keep to; by chance it is 0.29."""
LEAST_STEP = 0.88
"""A step over lost messages is as long as its slots; the median one at least so much of it, or none was lost."""
SURELY = 12.0
"""Nats by which a line has to tell the messages more shortly than the one that was to be expected."""
NEAR = 0.02
"""A clock that is believed to run at a rate does so but for this share of it."""

_FINEST_S = 1e-6  # what agrees better tells no lattice from another
_WINDOW, _MOST_RATES = 128, 4096  # messages and rates that are tried on each other
_RATES_A_TURN = 4  # from one rate to the one so many further, the window's ends are a period further apart


@dataclass(frozen=True, slots=True)
class Line:
    """Instants offset_s + k * period_s in seconds since the first message, and the k of each message."""

    slots_N: Seconds
    offset_s: float
    period_s: float

    def away_s(self, since_s_N: Seconds) -> Seconds:
        """How far each message is from its instant."""
        return since_s_N - self.offset_s - self.slots_N * self.period_s

    def fitted(self, since_s_N: Seconds) -> Line:
        """The same slots with the least squares line; as it is if all messages share a slot."""
        mean_slot, mean_s = float(self.slots_N.mean()), float(since_s_N.mean())
        spread_N = self.slots_N - mean_slot
        along = float(spread_N @ spread_N)
        period_s = float(spread_N @ (since_s_N - mean_s)) / along if along else 0.0
        return Line(self.slots_N, mean_s - period_s * mean_slot, period_s) if period_s > 0 else self

    def nearest(self, since_s_N: Seconds) -> Line:
        """The same instants with the slot that is nearest to each message."""
        return Line(np.rint((since_s_N - self.offset_s) / self.period_s), self.offset_s, self.period_s)


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
    def rate_error(self) -> float:
        """Standard error of the rate, as a share of it."""
        if not self.period_s:
            return 0.0
        along = float(np.std(self.slots_N)) * len(self.slots_N) ** 0.5
        return self.jitter_s / (self.period_s * along) if along else float("inf")

    @property
    def jitter_s(self) -> float:
        """1.4826 times the median absolute deviation of the residuals: a normal one's standard deviation."""
        return float(robust_sigma(self.residual_s_N)) if len(self.residual_s_N) else 0.0

    @property
    def jitter_p99_s(self) -> float:
        """99 of 100 residuals are at most so large."""
        return float(np.quantile(np.abs(self.residual_s_N), 0.99)) if len(self.residual_s_N) else 0.0

    @property
    def num_slots(self) -> int:
        """From the first message's to the last one's, and no less than there are messages."""
        span = int(self.slots_N[-1] - self.slots_N[0]) + 1 if len(self.slots_N) else 0
        return max(span, len(self.slots_N))


def fit_lattice(times_N: NDArray[np.int64], believed_hz: float = 0.0) -> Lattice:
    """The lattice of ascending times, int64 [N] ns, by least squares over the slots that the messages fall into.

    Which message has which slot is tried in two ways: one each, as if none were lost, and the nearest one of the rate
    that suits them best. believed_hz: a rate that the clock is thought to run at, within 2 %; tried first. Of these
    the one is taken that tells in the fewest bits when all messages came: how far each is from its instant, which
    slots are empty, and which are shared. What was tried first is taken unless another does surely better.
    """
    if not len(times_N):
        return Lattice(0.0, 0.0, np.empty(0), np.empty(0))
    since_s_N = difference_s(times_N, times_N[0])
    if not since_s_N[-1]:
        return Lattice(0.0, 0.0, np.zeros(len(times_N)), np.zeros(len(times_N)))
    found = _best_line(since_s_N, believed_hz)
    away_s_N = found.away_s(since_s_N)
    ordinary = np.abs(away_s_N - np.median(away_s_N)) <= OUTLYING * robust_sigma(away_s_N)
    kept = Line(found.slots_N[ordinary], found.offset_s, found.period_s).fitted(since_s_N[ordinary])
    line = kept.nearest(since_s_N)
    return Lattice(line.offset_s, line.period_s, line.slots_N, line.away_s(since_s_N))


def _best_line(since_s_N: Seconds, believed_hz: float) -> Line:
    num = len(since_s_N)
    one_each = Line(np.arange(num, dtype=np.float64), 0.0, float(since_s_N[-1]) / (num - 1)).fitted(since_s_N)
    believed = (1 - NEAR) * believed_hz, (1 + NEAR) * believed_hz
    lines = [_keenest(since_s_N, *believed) if believed_hz else one_each, one_each]
    searched = _keenest(since_s_N, *_likely_hz(_middle(since_s_N)))
    lines += [searched] if _is_plain(searched, since_s_N) else []
    costs = [_cost_of(line, since_s_N) + (SURELY / num if line is not lines[0] else 0.0) for line in lines]
    return lines[int(np.argmin(costs))]


def _cost_of(line: Line, since_s_N: Seconds) -> float:
    away_s = np.sqrt(np.mean(line.away_s(since_s_N) ** 2))
    return float(_cost(np.asarray(max(away_s, _FINEST_S)), line.slots_N))


def _cost(away_s: Seconds, slots_N: Seconds) -> Seconds:
    """Nats a message: of normal residuals as large as away_s, of the empty slots, and of the shared ones.

    slots_N: [..., N], ascending.
    """
    num = slots_N.shape[-1]
    num_used = 1 + (np.diff(slots_N, axis=-1) > 0).sum(axis=-1)
    num_slots = slots_N[..., -1] - slots_N[..., 0] + 1
    empty, shared = num_slots / num * _entropy(num_used / num_slots), _entropy(num_used / num)
    return np.asarray(np.log(away_s) + empty + shared)


def _entropy(share: Seconds) -> Seconds:
    """Of a choice of two, in nats."""
    both = np.stack([share, 1 - share])
    return np.asarray(-(both * np.log(np.where(both > 0, both, 1.0))).sum(axis=0))


def _is_plain(line: Line, since_s_N: Seconds) -> bool:
    """Whether the messages keep to it.

    Clocks that wander, and queues that are read in batches, come somewhat near to several lattices, and seem to have
    lost messages where steps are hardly longer than others.
    """
    slots_P = np.diff(line.slots_N)
    over = slots_P > 1
    lengths = np.diff(since_s_N)[over] / (slots_P[over] * line.period_s)
    away = float(np.sqrt(np.mean(line.away_s(since_s_N) ** 2))) / line.period_s
    return away <= PLAIN and (not len(lengths) or float(np.median(lengths)) >= LEAST_STEP)


def _grown(since_s_N: Seconds, period_s: float) -> Line:
    """The line with the slot nearest to each message, starting from a guess of the period."""
    # Window by window, so that the slots are right before an error of the period grows to half of one; from the
    # middle, because sensors are at their oddest when they start.
    middle, half, is_whole = len(since_s_N) // 2, _WINDOW // 2, False
    offset_s = float(since_s_N[middle])
    while not is_whole:
        window_s = since_s_N[max(0, middle - half) : middle + half]
        is_whole, half = half > middle, 2 * half
        offset_s += period_s * float(_turns((window_s - offset_s) / period_s))
        line = Line(window_s, offset_s, period_s).nearest(window_s).fitted(window_s)
        offset_s, period_s = line.offset_s, line.period_s
    return line


def _turns(at_N: Seconds) -> Seconds:
    """The mean of [..., N] as on a circle, -1/2 to 1/2: no single one decides."""
    return np.asarray(np.angle(np.exp(2j * np.pi * at_N).sum(axis=-1)) / (2 * np.pi))


def _middle(since_s_N: Seconds) -> Seconds:
    """Enough messages to tell the rate, since the first of them; from all over if the middle ones are of one time."""
    middle, half = len(since_s_N) // 2, _WINDOW // 2
    window_s = since_s_N[max(0, middle - half) : middle + half]
    if window_s[-1] > window_s[0]:
        return np.asarray(window_s - window_s[0])
    spread = np.linspace(0, len(since_s_N) - 1, min(len(since_s_N), _WINDOW)).astype(np.int64)
    return since_s_N[spread]


def _likely_hz(window_s: Seconds) -> tuple[float, float]:
    """The lowest and the highest rate that a clock with these messages may have."""
    # Losses only ever lower the mean rate; below it are the rates of a queue's reads. One of the short steps is
    # a single period: what has none, as video of two or three periods a frame, was meant so.
    step_s = np.diff(window_s)[np.diff(window_s) > 0]
    return 0.97 * len(step_s) / float(window_s[-1]), 1.3 / float(np.quantile(step_s, 0.05, method="lower"))


def _keenest(since_s_N: Seconds, lowest_hz: float, highest_hz: float) -> Line:
    """The line of a rate between these, the one that costs the middle messages least."""
    window_s = _middle(since_s_N)
    apart_hz = 1 / (_RATES_A_TURN * float(window_s[-1]))
    num_rates = int(np.clip(np.ceil((highest_hz - lowest_hz) / apart_hz), 0, _MOST_RATES)) + 1
    rates_R = lowest_hz + apart_hz * np.arange(num_rates)
    at_RN = np.outer(rates_R, window_s)
    slots_RN = np.rint(at_RN - _turns(at_RN)[:, None])
    spread_RN, spread_s_N = slots_RN - slots_RN.mean(axis=1, keepdims=True), window_s - window_s.mean()
    along_R = np.maximum((spread_RN**2).sum(axis=1), 1e-9)
    away_s_RN = spread_s_N - (spread_RN @ spread_s_N / along_R)[:, None] * spread_RN
    away_s_R = np.maximum(np.sqrt(np.mean(away_s_RN**2, axis=1)), _FINEST_S)
    return _grown(since_s_N, float(1 / rates_R[np.argmin(_cost(away_s_R, slots_RN))]))
