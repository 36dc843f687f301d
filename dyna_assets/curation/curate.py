"""Curation: one query over pinned tables -> one manifest, with the GOP tables of its episodes beside it."""

from __future__ import annotations

import difflib
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from dyna_assets.curation.valid_steps import SPANS, statistics
from dyna_assets.errors import CurationError
from dyna_assets.names import Name
from dyna_assets.quality import CHECKS
from dyna_assets.settings import Settings
from dyna_assets.stamps import STEPS
from dyna_assets.warehouse.store import PinnedTable, Warehouse, batches, fetch
from dyna_train.config import Config
from dyna_train.files import put_file
from dyna_train.manifest import (
    Camera,
    Features,
    Manifest,
    ManifestInfo,
    Totals,
    gop_tables_path,
    write_manifest,
)

_CRITICAL = tuple(step.name for step in STEPS.values() if step.critical)
_STAMPED = """
    SELECT episode_id, step, status, fingerprint, reads, input_hash, seq, coalesce(result_seq, seq) AS result_seq
    FROM version_stamps QUALIFY seq = max(seq) OVER (PARTITION BY episode_id, step)
"""
CURRENT_VERDICTS = f"""
    SELECT verdicts.* FROM verdicts JOIN ({_STAMPED}) AS stamped
    ON stamped.episode_id = verdicts.episode_id AND stamped.step = 'gate_' || verdicts.gate
        AND stamped.result_seq = verdicts.evidence_seq
    QUALIFY verdicts.seq = max(verdicts.seq) OVER (PARTITION BY verdicts.episode_id, verdicts.gate)
"""
"""The newest verdict about the evidence that a gate's current stamp is about, one for each episode and gate."""
CORPUS = f"""
WITH stamped AS ({_STAMPED}), chain AS (
    SELECT episode_id,
           count(*) FILTER (status = 'ok') = {len(_CRITICAL)} AND count(DISTINCT input_hash) = 1 AS is_whole,
           max(reads) FILTER (step = 'gate_before')
                   = 'recordings=' || max(fingerprint) FILTER (step = 'recordings')
               AND max(reads) FILTER (step = 'gate_after')
                   = 'episodes=' || max(fingerprint) FILTER (step = 'episodes') AS is_judged,
           max(result_seq) FILTER (step = 'episodes') AS made_seq,
           max(input_hash) FILTER (step = 'episodes') AS input_hash
    FROM stamped WHERE step IN {_CRITICAL} GROUP BY episode_id
), latest AS (
    SELECT * FROM episodes QUALIFY seq = max(seq) OVER (PARTITION BY episode_id)
), said AS ({CURRENT_VERDICTS}), quality AS (
    SELECT episode_id, flatten(list(rejected ORDER BY gate DESC)) AS rejections,
           flatten(list(warned ORDER BY gate DESC)) AS warnings, sum(num_checked)::INTEGER AS num_checked
    FROM said GROUP BY episode_id
), labelled AS (
    SELECT labels.* FROM labels
    JOIN stamped ON stamped.episode_id = labels.episode_id AND stamped.step = 'labels'
        AND stamped.status = 'ok' AND stamped.result_seq = labels.seq
    JOIN chain ON chain.episode_id = labels.episode_id AND chain.input_hash = stamped.input_hash
)
SELECT latest.* EXCLUDE (task), coalesce(labelled.task, latest.task) AS task, labelled.success,
       len(quality.rejections) AS num_rejects, len(quality.warnings) AS num_warnings,
       quality.rejections, quality.warnings,
       coalesce(quality.num_checked, 0) AS num_checked, {len(CHECKS)} AS num_checks,
       coalesce(chain.is_whole AND chain.is_judged AND chain.made_seq = latest.seq
                AND len(quality.rejections) = 0, false) AS passed
FROM latest
LEFT JOIN chain USING (episode_id)
LEFT JOIN quality USING (episode_id)
LEFT JOIN labelled USING (episode_id)
"""
"""One row per episode: its newest file, verdicts and labels. What `where` is asked of.

`passed`: every critical step is ok for one and the same input, and both gates judged what is there now, not
what was there before. `num_checked` of `num_checks`: quality checks that measured something, of all there are.
"""

READS = ("episodes", "gop_tables", "verdicts", "labels", "version_stamps")
_STRETCH_ROWS = 16_384
"""Rows whose GOP tables are looked up at once: some 40 MB, whatever the size of the manifest."""


class CurationSpec(Config):
    """Which episodes an experiment uses (TOML).

    where: an SQL condition over the corpus' columns. passed: only episodes that both gates let through.
    min_duration_s: the shortest valid stretch of an episode that is taken.
    """

    name: Name
    where: str = Field(default="true", min_length=1)
    passed: bool = True
    min_duration_s: float = 0.0

    @field_validator("name")
    @classmethod
    def _leaves_room_for_gop_tables(cls, name: str) -> str:
        if name.endswith(".gops"):
            raise ValueError(
                "'<name>.gops.arrow' is what lies beside a manifest; choose a name without '.gops'"
            )
        return name

    @property
    def query(self) -> str:
        """The whole question as SQL: a row for each valid stretch of an episode.

        Gates and lengths are asked first, `where` only of what is left.
        """
        passing = "passed AND " if self.passed else ""
        eligible = f"SELECT * FROM ({CORPUS}) WHERE {passing}duration_s >= {self.min_duration_s}"
        chosen = f"SELECT * FROM ({eligible})\nWHERE {self.where}"
        long_enough = f"span[2] > span[1] AND (span[2] - span[1]) / rate_hz >= {self.min_duration_s}"
        spans = f"list_filter({SPANS}, lambda span: {long_enough})"
        return (
            "SELECT * EXCLUDE (spans, span), span[1] AS start_step, span[2] - span[1] AS num_valid\nFROM (\n"
            "SELECT *, unnest(spans) AS span, unnest(range(len(spans))) AS stretch\n"
            f"FROM (SELECT *, {spans} AS spans FROM ({chosen}\n))\n)\n"
            "ORDER BY source, shard, episode_id, start_step"
        )


@dataclass(frozen=True, slots=True)
class Curated:
    """A manifest that was built: where it lies, what is in it, and how long the query and the writing took.

    num_without_gops: rows whose episode file is older than the table `gop_tables`; training opens them by
    reading their tails. `reprocess` makes them anew.
    """

    uri: str
    info: ManifestInfo
    totals: Totals
    num_without_gops: int
    hours: float
    seconds: float


def curate_into_lake(
    spec: CurationSpec, warehouse: Warehouse, connection: duckdb.DuckDBPyConnection, settings: Settings
) -> Curated:
    """Build the manifest as `<lake>/manifests/<name>.arrow`, whole or not at all, GOP tables beside it."""
    uri = f"{settings.lake}/manifests/{spec.name}.arrow"
    if "://" not in uri:
        return curate(spec, warehouse, connection, Path(uri), lake=settings.lake)
    with tempfile.TemporaryDirectory(prefix="dyna-manifest-") as scratch:
        local = Path(scratch) / "manifest.arrow"
        made = curate(spec, warehouse, connection, local, lake=settings.lake)
        for path, target in ((gop_tables_path(local), gop_tables_path(uri)), (local, uri)):
            put_file(path, target, **settings.storage_options(target))
    return replace(made, uri=uri)


def curate(
    spec: CurationSpec, warehouse: Warehouse, connection: duckdb.DuckDBPyConnection, path: Path, *, lake: str
) -> Curated:
    """Build the manifest at `path` from the newest version of each table.

    Raises CurationError if nothing is selected, the condition is not SQL over the corpus, the selected episodes
    do not share cameras, dimensions and rate, which one batch must, or some hold values that are no numbers.
    """
    began = time.perf_counter()
    pinned = open_confined(warehouse, connection, READS)
    select(connection, spec)
    features = _features(connection, spec)
    info = ManifestInfo(
        name=spec.name,
        root=lake,
        features=features,
        statistics=statistics(connection, spec.name),
        query=spec.query,
        table_versions={table.name: table.version for table in pinned},
    )
    totals = write_manifest(path, _rows(connection), info=info, gop_tables=_gop_tables(connection))
    tables = Manifest.open(path).gop_tables
    num_without_gops = totals.num_rows - (tables.num_known if tables else 0)
    hours = totals.num_steps / features.rate_hz / 3600
    return Curated(str(path), info, totals, num_without_gops, hours, time.perf_counter() - began)


def open_confined(
    warehouse: Warehouse, connection: duckdb.DuckDBPyConnection, names: Iterable[str]
) -> list[PinnedTable]:
    """Views of the newest version of these tables; a person's SQL reaches nothing else of this machine or network."""
    pinned = [warehouse.pin(name) for name in names]
    for table in pinned:
        warehouse.view(connection, table)
    connection.execute("SET allowed_paths = ?", [[file for table in pinned for file in table.files]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return pinned


def select(connection: duckdb.DuckDBPyConnection, spec: CurationSpec) -> None:
    """Run the one query into the temporary table `selected`. Raises CurationError for a condition that is none."""
    try:
        if len(duckdb.extract_statements(spec.query)) != 1:
            raise CurationError(
                f"curation '{spec.name}': expected one SQL condition, found more than one statement: {spec.where!r}"
            )
        connection.execute(f"CREATE OR REPLACE TEMP TABLE selected AS {spec.query}")
    except duckdb.BinderException as error:
        columns = [row[0] for row in connection.execute(f"DESCRIBE ({CORPUS})").fetchall()]
        unknown = re.search(r'[Cc]olumn "?([A-Za-z0-9_.]+)"?', str(error))
        near = difflib.get_close_matches(unknown.group(1), columns, n=1) if unknown else []
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise CurationError(
            f"curation '{spec.name}': {str(error).splitlines()[0]}; {hint}columns are {', '.join(sorted(columns))}"
        ) from None
    except duckdb.Error as error:
        raise CurationError(
            f"curation '{spec.name}': the condition cannot be evaluated: {spec.where!r}: {str(error).splitlines()[0]}"
        ) from None
    if _one(connection, "SELECT count(*) FROM selected") == 0:
        num_rows, num_passed = connection.execute(
            f"SELECT count(*), count(*) FILTER (passed) FROM ({CORPUS})"
        ).fetchall()[0]
        raise CurationError(
            f"curation '{spec.name}' selects 0 of {num_rows} episodes ({num_passed} of them passed the gates). "
            f"Condition: {spec.where}. Why rows were rejected: dyna-assets verdicts"
        )


def _features(connection: duckdb.DuckDBPyConnection, spec: CurationSpec) -> Features:
    """Cameras, dimensions and rate that all selected episodes share."""
    keys = "cameras, camera_heights, camera_widths, state_names, action_names, rate_hz"
    kinds = fetch(
        connection,
        f"SELECT {keys}, count(*) FILTER (stretch = 0) AS num, list(DISTINCT source ORDER BY source) AS sources "
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


def _rows(connection: duckdb.DuckDBPyConnection) -> Iterator[pa.RecordBatch]:
    return batches(
        connection,
        "SELECT source AS dataset, shard, episode_id, ('0x' || left(content_hash, 16))::UBIGINT AS content_hash, "
        "start_step, num_valid AS num_steps, coalesce(task, '') AS task FROM selected",
    )


def _gop_tables(connection: duckdb.DuckDBPyConnection) -> Iterator[pa.RecordBatch]:
    """Tracks and GOP table of each selected row, in order; nulls where the warehouse has none.

    Stretch by stretch: one join over everything would sort all tables at once to bring them into order. A
    table is a fact about the bytes of a file, so it is found by their hash, and of equal ones any will do.
    """
    for start in range(0, _one(connection, "SELECT count(*) FROM selected"), _STRETCH_ROWS):
        asked = f"FROM selected WHERE rowid >= {start} AND rowid < {start + _STRETCH_ROWS}"
        # Named, so that the files of other buckets are not even opened.
        buckets = ", ".join(
            str(row["bucket"]) for row in fetch(connection, f"SELECT DISTINCT bucket {asked}")
        )
        last = -1
        for batch in batches(
            connection,
            f"""
            WITH asked AS MATERIALIZED (SELECT rowid AS place, shard, episode_id, content_hash {asked}),
                 held AS (SELECT * FROM gop_tables WHERE bucket IN ({buckets}))
            SELECT tracks, gop_table, place
            FROM asked LEFT JOIN held USING (shard, episode_id, content_hash) ORDER BY place
            """,
        ):
            place_R = batch.column("place").to_numpy()
            yield batch.filter(pa.array(np.diff(place_R, prepend=last) != 0)).select(["tracks", "gop_table"])
            last = place_R[-1]


def _one(connection: duckdb.DuckDBPyConnection, query: str) -> Any:
    return connection.execute(query).fetchall()[0][0]
