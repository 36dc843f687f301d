"""When the simulated sensors look, and when what they saw reaches the recorder.

Every sensor runs on a clock of its own: a phase, a rate that is slightly wrong, jitter, samples that are
lost, and a latency until the message is logged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RATE_ERROR = 200e-6  # of cheap quartz, one standard deviation


@dataclass(frozen=True, slots=True)
class Clock:
    """rate_hz as written on the sensor; jitter_s: standard deviation; latency_s: least, and mean above it."""

    rate_hz: float
    jitter_s: float
    drop_share: float
    latency_s: tuple[float, float]


CAMERA = Clock(30.0, 2e-3, 5e-3, (0.018, 0.008))
LEFT_ARM = Clock(100.0, 4e-4, 1e-3, (0.0, 4e-4))
RIGHT_ARM = Clock(125.0, 4e-4, 1e-3, (0.0, 4e-4))
LEADER = Clock(50.0, 1e-3, 2e-3, (0.0, 4e-4))


@dataclass(frozen=True, slots=True)
class Ticks:
    """N samples: capture_ns_N since the episode's start, arrival_ns_N at the recorder; both strictly rise."""

    capture_ns_N: NDArray[np.int64]
    arrival_ns_N: NDArray[np.int64]

    @property
    def capture_s_N(self) -> NDArray[np.float64]:
        """Capture times in seconds since the episode's start."""
        return self.capture_ns_N / 1e9


def run_clock(clock: Clock, rng: np.random.Generator, end_s: float) -> Ticks:
    """The samples of a sensor on `clock` between 0 and `end_s`; at least one is never lost."""
    rate_hz = clock.rate_hz * (1 + rng.normal(0, RATE_ERROR))
    phase_s = rng.uniform(0, 1 / clock.rate_hz)
    steady_s = phase_s + np.arange(max(1, int((end_s - phase_s) * rate_hz) + 1)) / rate_hz
    shaken_s = np.clip(steady_s + rng.normal(0, clock.jitter_s, steady_s.size), 0, end_s)
    kept = rng.random(steady_s.size) >= clock.drop_share
    kept[0] = True
    capture_ns = _rising(np.sort(np.rint(shaken_s * 1e9).astype(np.int64)))[kept]
    least_s, mean_s = clock.latency_s
    latency_s = least_s + rng.gamma(2, mean_s / 2, capture_ns.size)
    # A driver hands messages over in order, so a slow one holds up those behind it.
    arrival_ns = _rising(capture_ns + np.rint(latency_s * 1e9).astype(np.int64))
    return Ticks(capture_ns, arrival_ns)


def _rising(times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The least strictly rising times that are not before `times_ns`."""
    place = np.arange(times_ns.size)
    return np.asarray(np.maximum.accumulate(times_ns - place) + place, np.int64)
