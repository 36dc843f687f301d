"""Judging millions of rows anew: a lake of made-up evidence, and what `regate` needs for it.

The lake has every column that the pipeline writes, one file per bucket as after compaction, and rows whose values lie
within all limits. Two policies reject 1 % and 20 % of them; the default admits them again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import write_deltalake
from sqlalchemy import create_engine, text

from benchmarks.harness import Figure, Report, Run, main, measure
from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.server import ensure_server, stop_server
from dyna_assets.home import Home
from dyna_assets.quality.policy import DEFAULT, DEFAULT_TEXT, parse_policy
from dyna_assets.quality.regate import Regated, regate
from dyna_assets.quality.registry import CHECKS, Check, Gate
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import SHARDS_PER_BUCKET, TABLES, Table

NUM_ROWS = 5_000_000
"""Of evidence: one for each of an episode's two gates."""
EPISODES_A_SHARD = 500
NUM_SOURCES = 12
BAR_S = 10.0
_MOVED: dict[Gate, str] = {"before": "time.gap", "after": "camera.repeats"}
"""The check of each gate whose limit the policies move; the bigger its value, the worse."""


def build(num_rows: int = NUM_ROWS) -> Report:
    """Fill a lake with evidence, and judge it by policies that change 1 % and 20 % of the verdicts."""
    with tempfile.TemporaryDirectory(prefix="dyna-bench-") as folder:
        home = Home.at(Path(folder, "home")).prepare()
        url = ensure_server(home)
        try:
            with Catalog.open(url) as catalog:
                warehouse = Warehouse(f"{folder}/lake")
                fill(warehouse, catalog, url, num_rows)
                return Report(
                    "regate", tuple(_figures(warehouse, catalog)), (f"{num_rows:,} rows of evidence",)
                )
        finally:
            stop_server(home)


def _figures(warehouse: Warehouse, catalog: Catalog) -> Iterator[Figure]:
    for share, title in ((0.01, "reject_1_percent"), (0.2, "reject_20_percent"), (0.0, "admit_20_percent")):
        took, found = timed_regate(warehouse, catalog, share)
        assert found.num_rows, "the lake is empty"
        yield Figure(f"regate_{title}_s", took.wall_s, "s", bar=BAR_S if share == 0.01 else None)
        yield Figure(f"regate_{title}_cpu_s", took.cpu_s, "s")
        yield Figure(f"regate_{title}_changed", found.num_changed / found.num_rows, "share")


def timed_regate(warehouse: Warehouse, catalog: Catalog, share: float) -> tuple[Run, Regated]:
    """Regate by the policy that rejects this share of the rows; 0: the default."""
    policy_text = policy_for(share) if share else DEFAULT_TEXT
    policy = parse_policy(policy_text, where="the benchmark") if share else DEFAULT
    found: list[Regated] = []

    def run() -> None:
        now = datetime.now(UTC)
        found.append(regate(catalog, warehouse, {}, policy, text=policy_text, run_id="bench", now=now))

    timing = measure(run, runs=1, warmup=0)
    return timing.runs[0], found[0]


def policy_for(share: float) -> str:
    """TOML of a policy that rejects this share of the lake's rows."""
    limits = "".join(
        f'[checks."{name}"]\nreject = {_scale(CHECKS[name]) * (1 - share)}\n' for name in _MOVED.values()
    )
    return f'name = "share"\nversion = {round(share * 1000)}\n{limits}'


def fill(warehouse: Warehouse, catalog: Catalog, url: str, num_rows: int) -> None:
    """Write the lake, a bucket at a time, and its shards into the catalog."""
    warehouse.create()
    num_episodes = num_rows // 2
    num_shards = -(-num_episodes // EPISODES_A_SHARD)
    catalog.add_source("bench", landing_uri="/nowhere", reader="mcap", now=datetime.now(UTC))
    with create_engine(url).begin() as session:
        session.execute(
            text(
                "INSERT INTO catalog.shards SELECT n, 'shard-' || lpad(n::text, 6, '0'), 1, 'closed', '', :size, 0, "
                "9, 0, 0, 0, now(), now(), NULL FROM generate_series(0, :last) AS n"
            ),
            {"size": EPISODES_A_SHARD, "last": num_shards - 1},
        )
    a_bucket = SHARDS_PER_BUCKET * EPISODES_A_SHARD
    for first in range(0, num_episodes, a_bucket):
        with duckdb.connect() as connection:
            episodes = f"range({first}, {min(first + a_bucket, num_episodes)}) AS made(e)"
            for name, query in _QUERIES.items():
                rows = connection.sql(_with_keys(TABLES[name], query, episodes)).to_arrow_table()
                _append(warehouse, TABLES[name], rows)


def _append(warehouse: Warehouse, table: Table, rows: pa.Table) -> None:
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in table.schema
    ]
    whole = pa.table(
        [column.cast(field.type) for column, field in zip(columns, table.schema, strict=True)], table.schema
    )
    write_deltalake(warehouse.uri(table.name), whole, mode="append")


def _with_keys(table: Table, query: str, episodes: str) -> str:
    keys = (
        f"(e // {EPISODES_A_SHARD * SHARDS_PER_BUCKET})::INTEGER AS bucket, "
        f"(e // {EPISODES_A_SHARD})::INTEGER AS shard, e AS episode_id, 'source_' || e % {NUM_SOURCES} AS source"
    )
    return f"SELECT {keys}, {query} FROM {episodes}" + (_TIMES.get(table.name, ""))


def _scale(rule: Check) -> float:
    """The edge of what a check's own limits let through."""
    limit = rule.limits.warn if rule.limits.warn is not None else rule.limits.reject
    return limit or 0.0


def _millionths(rule: Check, number: int) -> str:
    """A value within the check's limits in millionths, spread evenly from the best to the limit."""
    spread = f"(e * {7919 + 2 * number}) % {max(1, round(1e6 * _scale(rule)))}"
    return spread if rule.worse == "above" else f"{round(1e6 * _scale(rule)) + 1} + {spread}"


def _evidence() -> str:
    """Columns of `qc_evidence`; of the details, which nobody reads here, only a word."""
    columns = [
        f"CASE WHEN gate = '{rule.gate}' THEN ({_millionths(rule, number)}) / 1e6 END AS {rule.column}"
        for number, rule in enumerate(CHECKS.values())
    ]
    return f"seq, gate, 'details of ' || e AS details, {', '.join(columns)}"


_QUERIES = {
    "qc_evidence": _evidence(),
    "verdicts": "seq, seq AS evidence_seq, gate, 'default@1' AS policy, 'pass' AS verdict, []::VARCHAR[] AS warned, "
    "[]::VARCHAR[] AS rejected, 20 AS num_checked, 20 AS num_checks, '' AS reason",
    "version_stamps": "seq, seq AS result_seq, 'upload/recording_' || e AS name, step, 'part:1' AS step_version, "
    "'0123456789abcdef' AS fingerprint, 'recordings=0123456789abcdef' AS reads, md5(e::VARCHAR) AS input_hash, "
    "'ok' AS status, '' AS reason, 1 AS schema_version, '0.1.0' AS pipeline_version, '1.2' AS robot_software_version, "
    "'ingest_online' AS profile, 'run_' || e // 500 AS run_id, 1700000000000000000 + e AS processed_ns",
    "recordings": "1 AS seq, 20 + e % 60 AS duration_s",
}
_GATES = ", (VALUES ('before', 2), ('after', 4)) AS gates(gate, seq)"
_STEPS = (
    ", (VALUES ('recordings', 1), ('gate_before', 2), ('episodes', 3), ('gate_after', 4), ('labels', 5), "
    "('media', 6)) AS steps(step, seq)"
)
_TIMES = {"qc_evidence": _GATES, "verdicts": _GATES, "version_stamps": _STEPS}
"""What a table has several rows an episode for."""


if __name__ == "__main__":
    main(build)
