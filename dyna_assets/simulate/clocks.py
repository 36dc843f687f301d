"""When the simulated sensors look, and when what they saw reaches the recorder.

Every sensor runs on a clock of its own: a phase, a rate that is slightly wrong, jitter, samples that are
lost, and a latency until the message is logged. `head_clocks` has the timing of real glasses (Pupil Labs Neon),
which is stranger: a queue that is read in batches, holes while a model starts, sensors that wake up one by one.
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

    def __len__(self) -> int:
        return len(self.capture_ns_N)

    def only(self, kept_N: NDArray[np.bool_]) -> Ticks:
        """These samples only."""
        return Ticks(self.capture_ns_N[kept_N], self.arrival_ns_N[kept_N])


def run_clock(clock: Clock, rng: np.random.Generator, end_s: float) -> Ticks:
    """The samples of a sensor on `clock` between 0 and `end_s`; at least one is never lost."""
    rate_hz = clock.rate_hz * (1 + rng.normal(0, RATE_ERROR))
    phase_s = rng.uniform(0, 1 / clock.rate_hz)
    steady_s = phase_s + np.arange(max(1, int((end_s - phase_s) * rate_hz) + 1)) / rate_hz
    shaken_s = np.clip(steady_s + rng.normal(0, clock.jitter_s, steady_s.size), 0, end_s)
    kept = rng.random(steady_s.size) >= clock.drop_share
    kept[0] = True
    return _logged(_stamps(np.sort(shaken_s))[kept], clock.latency_s, rng)


# The rest was measured on four recordings of 4 to 18 s; see `head_clocks`.
SCENE = Clock(30.0, 5e-7, 0.0, (0.0195, 0.0015))
EYE = Clock(200.0, 2.5e-5, 5e-4, (0.0037, 0.0016))
_FIRST_FRAME_LATE_S = 0.02
_IMU_HZ, _IMU_READ_S, _IMU_LOST = 104.0, 0.032, 0.003
_IMU_WAKES_S, _EYE_WAKES_S = (0.30, 0.42), (0.70, 0.78)
_HOLES, _HOLES_WITHIN_S = (2, 13), (0.2, 0.5)


def head_clocks(rng: np.random.Generator, end_s: float) -> dict[str, Ticks]:
    """Head-worn glasses: 'scene', 'eye', 'gaze' and 'imu', of at least a second; the scene camera starts first.

    Scene: 30 Hz within 1 us, but the first frame 20 ms late. Eye: 200 Hz. Gaze: the eye's times, less two holes of 10
    to 65 ms while its model starts. IMU: 104 Hz through a queue that is read every 32 ms, its samples spread evenly
    over the time since the last read, so that three at 10.67 ms follow four at 8.
    """
    scene, eye = run_clock(SCENE, rng, end_s), run_clock(EYE, rng, end_s)
    first_s = scene.capture_s_N[0]
    late_s = np.where(np.arange(len(scene)) == 0, _FIRST_FRAME_LATE_S, 0.0)
    scene = _logged(_stamps(scene.capture_s_N + late_s), SCENE.latency_s, rng)
    eye = eye.only(eye.capture_s_N >= first_s + rng.uniform(*_EYE_WAKES_S))
    gaze = eye.only(_without_holes(eye.capture_s_N, rng))
    imu_s = _batches_s(first_s + rng.uniform(*_IMU_WAKES_S), end_s, rng)
    imu = _logged(_stamps(imu_s[rng.random(imu_s.size) >= _IMU_LOST]), (0.0, 5e-4), rng)
    return {"scene": scene, "eye": eye, "gaze": gaze, "imu": imu}


def _without_holes(times_s: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which of the eye's samples get a gaze."""
    kept = np.ones(times_s.size, np.bool_)
    for start_s in times_s[0] + np.sort(rng.uniform(*_HOLES_WITHIN_S, 2)):
        first = int(np.searchsorted(times_s, start_s))
        kept[first : first + int(rng.integers(*_HOLES)) - 1] = False
    return kept


def _batches_s(start_s: float, end_s: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Stamps of a queue that is read at regular times: each batch lies evenly since the read before."""
    rate_hz = _IMU_HZ * (1 + rng.normal(0, RATE_ERROR))
    reads_s = np.arange(start_s, end_s, _IMU_READ_S)
    num_by_read = np.floor((reads_s - start_s) * rate_hz)
    read = np.searchsorted(
        num_by_read, np.arange(num_by_read[-1]), side="right"
    )  # the one that gives a sample
    size, place = num_by_read[read] - num_by_read[read - 1], np.arange(len(read)) - num_by_read[read - 1]
    return np.asarray(reads_s[read - 1] + _IMU_READ_S * (place + 1) / size)


def _logged(capture_ns: NDArray[np.int64], latency_s: tuple[float, float], rng: np.random.Generator) -> Ticks:
    """Samples, and when their messages arrive. latency_s: least, and mean above it."""
    least_s, mean_s = latency_s
    late_s = least_s + rng.gamma(2, mean_s / 2, capture_ns.size)
    # A driver hands messages over in order, so a slow one holds up those behind it.
    return Ticks(capture_ns, _rising(capture_ns + np.rint(late_s * 1e9).astype(np.int64)))


def _stamps(times_s: NDArray[np.float64]) -> NDArray[np.int64]:
    return _rising(np.rint(times_s * 1e9).astype(np.int64))


def _rising(times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The least strictly rising times that are not before `times_ns`."""
    place = np.arange(times_ns.size)
    return np.asarray(np.maximum.accumulate(times_ns - place) + place, np.int64)
