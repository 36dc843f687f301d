"""Sessions whose lag or offset is not what their robot's always was.

A session is what one robot recorded on one day (without a wall clock: in one upload). One episode never raises an
alarm: it is the median over a session's episodes that is held against the robot's other sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import duckdb
import numpy as np
from numpy.typing import NDArray

from dyna_assets.clocks import WALL_CLOCK_NS
from dyna_assets.labels.registry import CURRENT_ANNOTATIONS
from dyna_assets.robust import MAD_SIGMAS, robust_sigma
from dyna_assets.warehouse.store import Warehouse

MIN_EPISODES = 5
"""A session of fewer says nothing, neither of itself nor as part of a baseline."""
MIN_SESSIONS = 4
"""Other sessions that a baseline needs."""
ALARM_Z = 5.0
SMALLEST = {"ms": 20.0, "rad": 0.02, "deg": 1.0, "m": 0.002, "mm": 2.0}
"""By unit: a smaller change of a session's median is nobody's business; a quarter of it is always in the spread."""
SMALLEST_UNKNOWN = 0.02
"""Of a unit that is not named: most are radians, or shares of a travel."""
MEDIAN_SIGMAS = 1.2533
"""The error of a median in those of a mean."""


@dataclass(frozen=True, slots=True)
class Session:
    """What one robot's camera or joint showed on one day.

    key: 'lag' or 'offset'. value: median over num_episodes; spread: their median absolute deviation; both in `unit`.
    """

    robot: str
    subject: str
    key: str
    unit: str
    session: str
    value: float
    spread: float
    num_episodes: int


@dataclass(frozen=True, slots=True)
class Compared:
    """A session beside its robot's others: their median, and how many standard deviations it lies from it."""

    session: Session
    baseline: float
    z: float
    is_alarm: bool

    @property
    def says(self) -> str:
        """How the session differs, for a person."""
        one = self.session
        value = f"{one.value:.3g} {one.unit}".rstrip()
        return (
            f"{one.robot}, {one.session}: {one.key} of {one.subject} is {value} over {one.num_episodes} episodes, "
            f"{self.baseline:.3g} in its other sessions ({self.z:+.1f} sigma)"
        )


def find_alarms(sessions: Sequence[Session]) -> list[Compared]:
    """The sessions that differ from their robot's others, farthest first (pure)."""
    return sorted((one for one in compare(sessions) if one.is_alarm), key=lambda one: -abs(one.z))


def compare(sessions: Sequence[Session]) -> list[Compared]:
    """Every session that has a baseline (pure): MIN_EPISODES of its own and MIN_SESSIONS others with as many."""

    def series(one: Session) -> tuple[str, str, str]:
        return one.robot, one.subject, one.key

    able = sorted((one for one in sessions if one.num_episodes >= MIN_EPISODES), key=series)
    return [one for _, of_one in groupby(able, key=series) for one in _compare_one_series(list(of_one))]


def read_sessions(warehouse: Warehouse, robot: str | None = None) -> list[Session]:
    """The sessions of all robots, or of one, by the newest labels of every episode.

    Raises CurationError if the tables cannot be read.
    """
    with duckdb.connect() as connection:
        for table in ("annotations", "recordings"):
            warehouse.view(connection, warehouse.pin(table))
        rows = connection.execute(_SESSIONS, [WALL_CLOCK_NS, robot, robot]).fetchall()
    return [Session(*row) for row in rows]


_SESSIONS = f"""
WITH measured AS (
    SELECT episode_id, subject, key, unit, value FROM ({CURRENT_ANNOTATIONS})
    WHERE labeller = 'lag' AND key IN ('lag', 'offset')
),
known AS (
    SELECT episode_id, coalesce(nullif(robot, ''), source) AS robot,
           CASE WHEN start_ns >= ? THEN strftime(make_timestamp(start_ns // 1000), '%Y-%m-%d')
                ELSE 'upload ' || upload END AS session
    FROM recordings QUALIFY seq = max(seq) OVER (PARTITION BY episode_id)
)
SELECT robot, subject, key, unit, session, median(value), mad(value), count(*)
FROM measured JOIN known USING (episode_id)
WHERE ? IS NULL OR robot = ?
GROUP BY ALL ORDER BY ALL
"""


def _compare_one_series(sessions: Sequence[Session]) -> Iterator[Compared]:
    """Sessions of one robot, subject and key, each against all others."""
    num_sessions = len(sessions)
    if num_sessions <= MIN_SESSIONS:
        return
    values_S = np.array([one.value for one in sessions])
    others_SO = np.broadcast_to(values_S, (num_sessions, num_sessions))[~np.eye(num_sessions, dtype=bool)]
    others_SO = others_SO.reshape(num_sessions, num_sessions - 1)
    baseline_S = np.median(others_SO, axis=1)
    between_S = robust_sigma(others_SO)
    smallest = SMALLEST.get(sessions[0].unit, SMALLEST_UNKNOWN)
    z_S = (values_S - baseline_S) / np.sqrt(between_S**2 + _errors(sessions) ** 2 + (smallest / 4) ** 2)
    for one, baseline, z in zip(sessions, baseline_S.tolist(), z_S.tolist(), strict=True):
        yield Compared(one, baseline, z, abs(z) > ALARM_Z and abs(one.value - baseline) > smallest)


def _errors(sessions: Sequence[Session]) -> NDArray[np.float64]:
    """Standard error of each session's median, from the spread of its own episodes."""
    spread_S = np.array([one.spread for one in sessions])
    num_S = np.array([one.num_episodes for one in sessions])
    errors_S: NDArray[np.float64] = MEDIAN_SIGMAS * MAD_SIGMAS * spread_S / np.sqrt(num_S)
    return errors_S
