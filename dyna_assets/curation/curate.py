"""Curation: one query over pinned tables -> one manifest."""

from __future__ import annotations

import difflib
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
from pydantic import Field

from dyna_assets.errors import CurationError
from dyna_assets.settings import Settings
from dyna_assets.warehouse.store import Warehouse, fetch
from dyna_train.config import Config
from dyna_train.files import put_file
from dyna_train.manifest import (
    Camera,
    Features,
    ManifestInfo,
    Statistics,
    Totals,
    VectorStatistics,
    write_manifest,
)

CORPUS = """
WITH latest AS (
    SELECT * FROM episodes QUALIFY seq = max(seq) OVER (PARTITION BY episode_id)
), judged AS (
    SELECT * FROM qc_verdicts QUALIFY seq = max(seq) OVER (PARTITION BY episode_id, gate)
), quality AS (
    SELECT episode_id,
           count(*) FILTER (verdict = 'reject') AS num_rejects,
           count(*) FILTER (verdict = 'warn') AS num_warnings,
           list(DISTINCT "check") FILTER (verdict = 'warn') AS warnings,
           bool_or(gate = 'after') AS checked_after
    FROM judged GROUP BY episode_id
), labelled AS (
    SELECT * FROM labels QUALIFY seq = max(seq) OVER (PARTITION BY episode_id)
), stamped AS (
    SELECT episode_id, step, status FROM version_stamps
    QUALIFY seq = max(seq) OVER (PARTITION BY episode_id, step)
), refused AS (
    SELECT DISTINCT episode_id FROM stamped WHERE status = 'rejected'
)
SELECT latest.* EXCLUDE (task), coalesce(labelled.task, latest.task) AS task, labelled.success,
       quality.num_rejects, quality.num_warnings, quality.warnings,
       coalesce(quality.checked_after, false) AND quality.num_rejects = 0 AND refused.episode_id IS NULL AS passed
FROM latest
LEFT JOIN quality USING (episode_id)
LEFT JOIN labelled USING (episode_id)
LEFT JOIN refused ON refused.episode_id = latest.episode_id
"""
"""One row per episode: its current file, verdicts and labels. What `where` is asked of."""

READS = ("episodes", "qc_verdicts", "labels", "version_stamps")


class CurationSpec(Config):
    """Which episodes an experiment uses (TOML).

    where: an SQL condition over the corpus' columns. passed: only episodes that both gates let through.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)
    where: str = "true"
    passed: bool = True
    min_duration_s: float = 0.0

    @property
    def condition(self) -> str:
        """The whole condition as SQL."""
        parts = [f"({self.where})", f"duration_s >= {self.min_duration_s}"]
        return " AND ".join([*parts, "passed"] if self.passed else parts)


@dataclass(frozen=True, slots=True)
class Curated:
    """A manifest that was built: where it lies, what is in it, and how long the query and the writing took."""

    uri: str
    info: ManifestInfo
    totals: Totals
    hours: float
    seconds: float


def curate_into_lake(
    spec: CurationSpec, warehouse: Warehouse, connection: duckdb.DuckDBPyConnection, settings: Settings
) -> Curated:
    """Build the manifest as `<lake>/manifests/<name>.arrow`, whole or not at all."""
    uri = f"{settings.lake}/manifests/{spec.name}.arrow"
    if "://" not in uri:
        return curate(spec, warehouse, connection, Path(uri), lake=settings.lake)
    with tempfile.TemporaryDirectory(prefix="dyna-manifest-") as scratch:
        local = Path(scratch) / "manifest.arrow"
        made = curate(spec, warehouse, connection, local, lake=settings.lake)
        put_file(local, uri, **settings.storage_options(uri))
    return replace(made, uri=uri)


def curate(
    spec: CurationSpec, warehouse: Warehouse, connection: duckdb.DuckDBPyConnection, path: Path, *, lake: str
) -> Curated:
    """Build the manifest at `path` from the newest version of each table.

    Raises CurationError if nothing is selected, the condition is not SQL over the corpus, or the selected
    episodes do not share cameras, dimensions and rate, which one batch must.
    """
    began = time.perf_counter()
    pinned = [warehouse.pin(table) for table in READS]
    for table in pinned:
        warehouse.view(connection, table)
    query = f"SELECT * FROM ({CORPUS}) WHERE {spec.condition} ORDER BY source, shard, episode_id"
    _select(connection, query, spec)
    features = _features(connection, spec)
    info = ManifestInfo(
        name=spec.name,
        root=lake,
        features=features,
        statistics=Statistics(
            state=_statistics(connection, "state"), action=_statistics(connection, "action")
        ),
        query=" ".join(query.split()),
        table_versions={table.name: table.version for table in pinned},
    )
    totals = write_manifest(path, _rows(connection), info=info)
    hours = totals.num_steps / features.rate_hz / 3600
    return Curated(str(path), info, totals, hours, time.perf_counter() - began)


def _select(connection: duckdb.DuckDBPyConnection, query: str, spec: CurationSpec) -> None:
    """Run the one query into the temporary table `selected`."""
    try:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE selected AS {query}")
    except duckdb.BinderException as error:
        columns = [row[0] for row in connection.execute(f"DESCRIBE ({CORPUS})").fetchall()]
        unknown = re.search(r'[Cc]olumn "?([A-Za-z0-9_.]+)"?', str(error))
        near = difflib.get_close_matches(unknown.group(1), columns, n=1) if unknown else []
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise CurationError(
            f"curation '{spec.name}': {str(error).splitlines()[0]}; {hint}columns are {', '.join(sorted(columns))}"
        ) from None
    except (duckdb.ParserException, duckdb.ConversionException) as error:
        raise CurationError(
            f"curation '{spec.name}': the condition is not valid SQL: {spec.where!r}: {str(error).splitlines()[0]}"
        ) from None
    if _one(connection, "SELECT count(*) FROM selected") == 0:
        num_rows, num_passed = connection.execute(
            f"SELECT count(*), count(*) FILTER (passed) FROM ({CORPUS})"
        ).fetchall()[0]
        raise CurationError(
            f"curation '{spec.name}' selects 0 of {num_rows} episodes ({num_passed} of them passed the gates). "
            f"Condition: {spec.condition}. Why rows were rejected: dyna-assets verdicts"
        )


def _features(connection: duckdb.DuckDBPyConnection, spec: CurationSpec) -> Features:
    """Cameras, dimensions and rate that all selected episodes share."""
    keys = "cameras, camera_heights, camera_widths, state_names, action_names, rate_hz"
    kinds = fetch(
        connection,
        f"SELECT {keys}, count(*) AS num, list(DISTINCT source ORDER BY source) AS sources "
        f"FROM selected GROUP BY {keys} ORDER BY num DESC",
    )
    first = kinds[0]
    if len(kinds) > 1:
        lines = [
            f"  {kind['num']} of {', '.join(kind['sources'])}: cameras {kind['cameras']} "
            f"{kind['camera_heights']} x {kind['camera_widths']}, {len(kind['state_names'])} state and "
            f"{len(kind['action_names'])} action dimensions, {kind['rate_hz']:g} Hz"
            for kind in kinds
        ]
        raise CurationError(
            f"curation '{spec.name}': the selected episodes do not fit in one batch:\n"
            + "\n".join(lines)
            + "\n"
            "Select one kind, for example with where = \"source = '...'\""
        )
    sizes = zip(first["cameras"], first["camera_heights"], first["camera_widths"], strict=True)
    return Features(
        cameras={name: Camera(height=height, width=width) for name, height, width in sizes},
        state=tuple(first["state_names"]),
        action=tuple(first["action_names"]),
        rate_hz=first["rate_hz"],
    )


def _statistics(connection: duckdb.DuckDBPyConnection, vector: str) -> VectorStatistics:
    """Statistics over all steps of the selected episodes, from their own moments.

    Means and squared distances are combined as in Chan, Golub and LeVeque (1979), which, unlike sums of
    squares, does not cancel where the mean is large against the spread.
    """
    num = 0
    mean_D = m2_D = low_D = high_D = np.empty(0)
    query = f"SELECT num_steps, {vector}_mean, {vector}_m2, {vector}_min, {vector}_max FROM selected"
    for batch in _batches(connection, query):
        n_E, *moments = (np.array(batch.column(k).to_pylist(), dtype=np.float64) for k in range(5))
        mean_ED, m2_ED, low_ED, high_ED = moments
        total = num + n_E.sum()
        if num == 0:
            mean_D, m2_D = np.zeros(mean_ED.shape[1]), np.zeros(mean_ED.shape[1])
            low_D, high_D = np.full_like(mean_D, np.inf), np.full_like(mean_D, -np.inf)
        combined_D = (num * mean_D + n_E @ mean_ED) / total
        m2_D = m2_D + m2_ED.sum(0) + num * (mean_D - combined_D) ** 2 + n_E @ (mean_ED - combined_D) ** 2
        mean_D, num = combined_D, total
        low_D, high_D = np.minimum(low_D, low_ED.min(0)), np.maximum(high_D, high_ED.max(0))
    std_D = np.sqrt(m2_D / max(num, 1))
    return VectorStatistics(
        mean=tuple(mean_D.tolist()),
        std=tuple(std_D.tolist()),
        min=tuple(low_D.tolist()),
        max=tuple(high_D.tolist()),
    )


def _rows(connection: duckdb.DuckDBPyConnection) -> Iterator[pa.RecordBatch]:
    return _batches(
        connection,
        "SELECT source AS dataset, shard, episode_id, ('0x' || left(content_hash, 16))::UBIGINT AS content_hash, "
        "0 AS start_step, num_steps, coalesce(task, '') AS task FROM selected",
    )


def _batches(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.RecordBatch]:
    """The result of a query in record batches, streamed."""
    yield from cast(pa.RecordBatchReader, connection.sql(query).to_arrow_reader(65_536))


def _one(connection: duckdb.DuckDBPyConnection, query: str) -> Any:
    return connection.execute(query).fetchall()[0][0]
