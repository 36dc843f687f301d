"""What the warehouse holds, in the few numbers a person asks for first."""

from __future__ import annotations

import re
from dataclasses import dataclass

import duckdb

from dyna_assets.curation.curate import CORPUS, CURRENT_VERDICTS, READS
from dyna_assets.quality import CHECKS, measured_of
from dyna_assets.quality.policy import with_notes
from dyna_assets.stamps import OF_ITS_UPLOAD, STEPS
from dyna_assets.warehouse.store import Warehouse


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """One source. MB are 10^6 bytes; raw is what landed, of the same episodes.

    num_checked of num_checks: quality checks that measured something, over all episodes, of all there are.
    """

    source: str
    num_episodes: int
    num_passed: int
    num_warned: int
    num_checked: int
    num_checks: int
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

    @property
    def is_of_upload(self) -> bool:
        """Whether nobody looked at the recording, because its upload is quarantined."""
        return self.reason.startswith(OF_ITS_UPLOAD)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What it was rejected for, one by one, without its own name: a gate may have found several things."""
        said = self.reason.replace(f"{self.source}: {self.name}: ", "", 1)
        if not self.step.startswith("gate_"):
            return (said,)
        checks = "|".join(map(re.escape, CHECKS))
        return tuple(re.split(rf"; (?=(?:{checks}): )", said))


def summarize(warehouse: Warehouse) -> list[SourceSummary]:
    """One line per source, over the current rows."""
    with _open(warehouse) as connection:
        rows = connection.execute(
            f"""
            SELECT source, count(*), count(*) FILTER (passed), count(*) FILTER (passed AND num_warnings > 0),
                   sum(num_checked)::BIGINT, sum(num_checks)::BIGINT,
                   sum(duration_s) / 3600, sum(duration_s * len(cameras)) / 60,
                   sum(raw_bytes) / 1e6, sum(size_bytes) / 1e6
            FROM ({CORPUS}) GROUP BY source ORDER BY source
            """
        ).fetchall()
    return [SourceSummary(*row) for row in rows]


def rejections(warehouse: Warehouse, *, shard: int | None = None) -> list[Rejection]:
    """Rows whose current stamp of some step is not ok, by episode, each in the order of the steps.

    What a policy rejected afterwards comes with what its checks had found. shard: read only the files that can hold
    its rows, which may hold others too.
    """
    with _open(warehouse, shard) as connection:
        rows = connection.execute(
            f"""
            WITH current AS (
                SELECT * FROM version_stamps QUALIFY seq = max(seq) OVER (PARTITION BY episode_id, step)
            ), found AS (
                SELECT verdicts.episode_id, 'gate_' || verdicts.gate AS step, qc_evidence.details
                FROM ({CURRENT_VERDICTS}) AS verdicts JOIN qc_evidence
                ON verdicts.episode_id = qc_evidence.episode_id AND verdicts.gate = qc_evidence.gate
                    AND verdicts.evidence_seq = qc_evidence.seq
                WHERE verdicts.seq <> verdicts.evidence_seq AND verdicts.verdict = 'reject'
            )
            SELECT episode_id, source, name, step, status, run_id, reason, details
            FROM current LEFT JOIN found USING (episode_id, step) WHERE status <> 'ok'
            """
        ).fetchall()
    order = {step: number for number, step in enumerate(STEPS)}
    found = [
        Rejection(episode_id, source, name, step, status, _with_notes(*said), run_id)
        for episode_id, source, name, step, status, run_id, *said in rows
    ]
    return sorted(found, key=lambda one: (one.episode_id, order.get(one.step, len(order))))


def _with_notes(reason: str, details: str | None) -> str:
    """A reason that was written without reading notes, if there are `details` to read, with them."""
    return with_notes(reason, lambda check: _note(check, details)) if details else reason


def warnings(warehouse: Warehouse, source: str) -> list[tuple[str, int, str]]:
    """(check, episodes, what one of them showed) of a source's current warnings, most frequent first."""
    with _open(warehouse) as connection:
        rows = connection.execute(
            f"""
            WITH warned AS (
                SELECT episode_id, evidence_seq, gate, unnest(warned) AS name
                FROM ({CURRENT_VERDICTS}) WHERE source = ?
            )
            SELECT name, count(*) AS num, min(episode_id), arg_min(evidence_seq, episode_id), any_value(gate)
            FROM warned GROUP BY name ORDER BY num DESC, name
            """,
            [source],
        ).fetchall()
        return [(name, num, _shown(connection, name, *example)) for name, num, *example in rows]


def _shown(
    connection: duckdb.DuckDBPyConnection, check: str, episode_id: int, evidence_seq: int, gate: str
) -> str:
    """What the check's worst subject showed in an episode."""
    (found,) = connection.execute(
        "SELECT details FROM qc_evidence WHERE episode_id = ? AND seq = ? AND gate = ?",
        [episode_id, evidence_seq, gate],
    ).fetchall()
    return _note(check, found[0])


def _note(check: str, details: str) -> str:
    """What the check's worst subject showed; '' if it said nothing, or if there is no such check any more."""
    worst = CHECKS[check].worst(measured_of(details).get(check, ())) if check in CHECKS else None
    return worst.note if worst else ""


def _open(warehouse: Warehouse, shard: int | None = None) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for table in (*READS, "qc_evidence"):
        warehouse.view(connection, warehouse.pin(table, shard=shard))
    return connection
