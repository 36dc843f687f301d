"""Judging everything again: other limits over the evidence that is there, without measuring anything.

One pass in SQL finds the rows that the policy judges otherwise than their newest verdict says; only these are
written. The policy becomes the active one first, so that shard runs judge by it from then on. Then come the stamps of
rows that are rejected now or no longer, the shards of those that are let through become due, and the verdicts come
last: whatever a kill leaves undone is found again by the same comparison, and done by the same command.

Nothing is locked. Each table is written onto the version that was read, under numbers drawn afterwards: rows of a
shard in which a run has written since are left out and judged once more, and a run that drew its number
before and writes later is refused, and does what is left.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.errors import ShardBusy
from dyna_assets.quality.policy import (
    DEFAULT,
    DEFAULT_TEXT,
    Gates,
    Policy,
    load_policy,
    parse_policy,
    policy_in_force,
    verdict_sql,
)
from dyna_assets.quality.regate_report import CheckCounts, LevelCounts, count_checks, count_levels
from dyna_assets.warehouse.store import PinnedTable, Warehouse
from dyna_assets.warehouse.tables import VERDICTS, VERSION_STAMPS, Table
from dyna_train.errors import ConfigError

MAX_ROUNDS = 3
"""Shards that others write to meanwhile are tried so often."""
_READS = ("version_stamps", "verdicts", "qc_evidence", "recordings")
"""In this order: a run writes stamps last, so what a stamp tells of is found in the others, looked at later."""

_ROW = "USING (episode_id, gate, evidence_seq)"
"""What makes a row of evidence one."""

Pinned = Mapping[str, PinnedTable]


@dataclass(frozen=True, slots=True)
class Regated:
    """What a policy makes of the corpus. Rows are of an episode and gate.

    num_admitted: rows that were rejected and are no longer; num_refused: the other way round. seconds: all of it.
    """

    policy: str
    num_rows: int
    num_changed: int
    num_admitted: int
    num_refused: int
    checks: tuple[CheckCounts, ...]
    levels: tuple[LevelCounts, ...]
    seconds: float


def regate(
    catalog: Catalog,
    warehouse: Warehouse,
    sources: Mapping[str, Gates],
    policy: Policy,
    *,
    text: str,
    run_id: str,
    now: datetime,
    dry_run: bool = False,
) -> Regated:
    """Make `policy` the active one and bring every current verdict and stamp in line with it.

    sources: source -> its own limits. text: the policy's TOML, which the catalog keeps. dry_run: only count.
    Raises ConfigError if the name is the built-in policy's, or if other limits were applied under the same name and
    version; ShardBusy if runs kept writing to shards that had to be changed; doing it again does what is left.
    """
    began = time.perf_counter()
    _check_signature(catalog, policy)
    if not dry_run:
        catalog.apply_policy(policy.name, policy.version, text, now=now)
    with duckdb.connect() as connection:
        pinned = _judge(connection, warehouse, sources, policy)
        counts, checks, levels = _count(connection), count_checks(connection), count_levels(connection)
        busy, late = (
            (set(), set()) if dry_run else _write(connection, warehouse, catalog, pinned, run_id, now)
        )
    for _ in range(MAX_ROUNDS):
        if not busy and not late:
            break
        with duckdb.connect() as connection:
            pinned = _judge(connection, warehouse, sources, policy, only=busy | late)
            busy, late = _write(connection, warehouse, catalog, pinned, run_id, now)
    if busy:
        raise ShardBusy(
            f"policy {policy.label} is active, but runs keep writing to {len(busy)} shards, first {min(busy)}, "
            "whose verdicts it changes. Do it again: dyna-assets regate"
        )
    return Regated(policy.label, *counts, checks, levels, time.perf_counter() - began)


def policy_text(catalog: Catalog, asked: str) -> tuple[Policy, str]:
    """The policy that a person means, and its TOML: a file, the name of one that was applied before, '' the active one.

    'default' is the built-in one, always.

    Raises ConfigError for a file that is wrong, and for a name that nobody applied.
    """
    if asked.endswith(".toml"):
        policy = load_policy(asked)
        return policy, Path(asked).read_text(encoding="utf-8")
    if asked == DEFAULT.name:
        return DEFAULT, DEFAULT_TEXT
    applied = {row.name: row for row in reversed(catalog.policies())}  # of one name, the latest
    row = applied.get(asked) if asked else catalog.active_policy()
    if row is not None:
        return policy_in_force(row), row.text
    if asked:
        known = ", ".join(sorted({*applied, DEFAULT.name}))
        raise ConfigError(f"no policy '{asked}' was applied before; there are {known}. Or name a .toml file")
    return DEFAULT, DEFAULT_TEXT


def _check_signature(catalog: Catalog, policy: Policy) -> None:
    """Refuse a policy whose name and version already signed other verdicts, or whose name is the built-in one's."""
    if policy == DEFAULT:
        return
    if policy.name == DEFAULT.name:
        raise ConfigError(
            f"policy {policy.label}: '{DEFAULT.name}' is the built-in policy, where every check keeps its own limits. "
            "Give yours another name"
        )
    known = [(f"{row.name}@{row.version}", row.text) for row in catalog.policies()]
    for label, text in known:
        if label == policy.label and parse_policy(text, where=f"policy {label}").checks != policy.checks:
            raise ConfigError(
                f"policy {policy.label}: other limits were applied under this name and version before; verdicts are "
                f"signed with it. Give it version = {policy.version + 1}"
            )


def _judge(
    connection: duckdb.DuckDBPyConnection,
    warehouse: Warehouse,
    sources: Mapping[str, Gates],
    policy: Policy,
    *,
    only: Collection[int] = (),
) -> Pinned:
    """Fill `judged`, a row for each current row of evidence with its old and its new verdict, and `changed`.

    only: the shards to look at; without any, all.
    """
    pinned = {table: warehouse.pin(table) for table in _READS}
    for table in pinned.values():
        warehouse.view(connection, table)
    here = f"shard IN ({', '.join(map(str, sorted(only)))})" if only else "true"
    for statement in (
        "SET preserve_insertion_order = false",
        "CREATE TYPE gate AS ENUM ('before', 'after')",
        "CREATE TYPE level AS ENUM ('pass', 'warn', 'reject')",  # in this order, so that the worst is the highest
        _judged(verdict_sql(policy, sources, evidence=f"(SELECT * FROM qc_evidence WHERE {here})"), here),
        _WORTH_A_LOOK,
        _CHANGED,
    ):
        connection.execute(statement)
    return pinned


def _judged(judgement: str, here: str) -> str:
    """Every current row of evidence, its new verdict, and what its stamp and its newest verdict say.

    What there are millions of is kept narrow, and a stamped row about which nothing was ever said but 'pass' passed.
    """
    return f"""
    CREATE TEMP TABLE judged AS
    WITH stamped AS (
        SELECT episode_id, CASE step WHEN 'gate_before' THEN 'before'::gate ELSE 'after'::gate END AS gate,
               max(seq) AS stamp_seq, arg_max(coalesce(result_seq, seq), seq) AS evidence_seq,
               arg_max(status = 'rejected', seq) AS was_rejected
        FROM version_stamps WHERE step IN ('gate_before', 'gate_after') AND {here} GROUP BY ALL
    ), ever_said AS (
        SELECT episode_id, evidence_seq, gate FROM verdicts WHERE verdict <> 'pass' AND {here}
    ), said AS (
        SELECT episode_id, gate::gate AS gate, evidence_seq, max(seq) AS verdict_seq,
               arg_max(verdict::level, seq) AS last_said
        FROM verdicts SEMI JOIN ever_said {_ROW} WHERE {here} GROUP BY ALL
    ), judgement AS (
        SELECT * REPLACE (gate::gate AS gate, verdict::level AS verdict) FROM ({judgement})
    )
    SELECT *, coalesce(last_said, 'pass') AS old_verdict
    FROM judgement JOIN stamped {_ROW} LEFT JOIN said {_ROW}"""


_WORTH_A_LOOK = """
CREATE TEMP TABLE worth_a_look AS
SELECT judged.*, coalesce(old.warned, []) AS old_warned, coalesce(old.rejected, []) AS old_rejected
FROM judged LEFT JOIN (
    SELECT episode_id, gate::gate AS gate, evidence_seq, seq AS verdict_seq, warned, rejected
    FROM verdicts WHERE verdict <> 'pass'
) AS old USING (episode_id, gate, evidence_seq, verdict_seq)
WHERE verdict <> 'pass' OR old_verdict <> 'pass' OR was_rejected"""
_CHANGED = """
CREATE TEMP TABLE changed AS SELECT * FROM worth_a_look
WHERE verdict <> old_verdict OR warned <> old_warned OR rejected <> old_rejected
   OR (verdict = 'reject') <> was_rejected"""
_ADMITTED = "verdict <> 'reject' AND (was_rejected OR old_verdict = 'reject')"
"""Also rows that a killed command let through: their stamps say so already, their verdicts do not yet."""


def _count(connection: duckdb.DuckDBPyConnection) -> tuple[int, int, int, int]:
    """Rows that were judged, changed, admitted, refused."""
    (found,) = connection.execute(
        f"""
        SELECT (SELECT count(*) FROM judged), count(*), count(*) FILTER ({_ADMITTED}),
               count(*) FILTER (NOT was_rejected AND verdict = 'reject')
        FROM changed
        """
    ).fetchall()
    return found


def _write(
    connection: duckdb.DuckDBPyConnection,
    warehouse: Warehouse,
    catalog: Catalog,
    pinned: Pinned,
    run_id: str,
    now: datetime,
) -> tuple[set[int], set[int]]:
    """Append what changed. Returns two sets of shards to judge once more: those left out since runs wrote to them,
    and others that runs wrote to since they were judged.
    """
    shards = _shards(connection, "true")
    seqs = catalog.next_seqs(shards)
    drawn = {"shard": pa.array(seqs, pa.int32()), "new_seq": pa.array(seqs.values(), pa.int64())}
    connection.register("drawn", pa.table(drawn))
    stamps = _rows(connection, VERSION_STAMPS, _STAMPS, run_id, int(now.timestamp() * 1e9))
    busy = warehouse.append_across(pinned["version_stamps"], stamps, seqs, run_id=run_id)
    catalog.mark_all_due(_shards(connection, _ADMITTED) - busy)
    free = {shard: seq for shard, seq in seqs.items() if shard not in busy}
    verdicts = _rows(connection, VERDICTS, "SELECT *, new_seq AS seq FROM changed JOIN drawn USING (shard)")
    busy |= warehouse.append_across(pinned["verdicts"], verdicts, free, run_id=run_id)
    return busy, warehouse.shards_since(pinned["version_stamps"]) - shards


_STAMPS = """
SELECT stamps.* REPLACE (
    new_seq AS seq, evidence_seq AS result_seq, changed.reason AS reason, 'regate' AS profile,
    CASE verdict WHEN 'reject' THEN 'rejected' ELSE 'ok' END AS status, ? AS run_id, ? AS processed_ns
)
FROM (SELECT * FROM version_stamps WHERE step IN ('gate_before', 'gate_after')) AS stamps
JOIN changed ON stamps.episode_id = changed.episode_id AND stamps.seq = stamp_seq AND step = 'gate_' || gate
JOIN drawn ON changed.shard = drawn.shard
WHERE verdict = 'reject' OR was_rejected"""
"""The stamps of rows whose rejection begins, ends or has other reasons, as they stood but for what the policy says."""


def _rows(connection: duckdb.DuckDBPyConnection, table: Table, query: str, *values: object) -> pa.Table:
    found: pa.Table = connection.sql(query, params=list(values)).to_arrow_table()
    return found.select(table.schema.names).cast(table.schema)


def _shards(connection: duckdb.DuckDBPyConnection, condition: str) -> set[int]:
    query = f"SELECT DISTINCT shard FROM changed WHERE {condition}"
    return {shard for (shard,) in connection.execute(query).fetchall()}
