"""What the warehouse holds, in the few numbers a person asks for first."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from dyna_assets.curation.curate import CORPUS, READS
from dyna_assets.warehouse.store import Warehouse


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """One source. MB are 10^6 bytes; raw is what landed, of the same episodes."""

    source: str
    num_episodes: int
    num_passed: int
    num_warned: int
    hours: float
    camera_minutes: float
    raw_mb: float
    episode_mb: float


@dataclass(frozen=True, slots=True)
class Rejection:
    """One row that a step or a gate rejected, or that failed."""

    episode_id: int
    source: str
    name: str
    step: str
    status: str
    reason: str
    run_id: str


def summarize(warehouse: Warehouse) -> list[SourceSummary]:
    """One line per source, over the current rows."""
    with _open(warehouse) as connection:
        rows = connection.execute(
            f"""
            SELECT source, count(*), count(*) FILTER (passed), count(*) FILTER (passed AND num_warnings > 0),
                   sum(duration_s) / 3600, sum(duration_s * len(cameras)) / 60,
                   sum(raw_bytes) / 1e6, sum(size_bytes) / 1e6
            FROM ({CORPUS}) GROUP BY source ORDER BY source
            """
        ).fetchall()
    return [SourceSummary(*row) for row in rows]


def rejections(warehouse: Warehouse) -> list[Rejection]:
    """Rows whose current stamp of some step is not ok, by episode."""
    with _open(warehouse) as connection:
        rows = connection.execute(
            """
            WITH current AS (
                SELECT * FROM version_stamps QUALIFY seq = max(seq) OVER (PARTITION BY episode_id, step)
            )
            SELECT episode_id, source, name, step, status, reason, run_id
            FROM current WHERE status <> 'ok' ORDER BY episode_id, step
            """
        ).fetchall()
    return [Rejection(*row) for row in rows]


def warnings(warehouse: Warehouse, source: str) -> list[tuple[str, int, str]]:
    """(check, episodes, an example of its reason) of a source's current warnings, most frequent first."""
    with _open(warehouse) as connection:
        return connection.execute(
            """
            WITH current AS (
                SELECT * FROM qc_verdicts QUALIFY seq = max(seq) OVER (PARTITION BY episode_id, gate)
            )
            SELECT "check", count(DISTINCT episode_id) AS num, min(reason)
            FROM current
            WHERE verdict = 'warn' AND episode_id IN (SELECT episode_id FROM recordings WHERE source = ?)
            GROUP BY "check" ORDER BY num DESC
            """,
            [source],
        ).fetchall()


def _open(warehouse: Warehouse) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for table in (*READS, "recordings"):
        warehouse.view(connection, warehouse.pin(table))
    return connection
