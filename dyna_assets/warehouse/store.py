"""Delta tables: append exactly once, read at a pinned version.

Rows are only ever appended. An append belongs to one shard and has a number of its own; it is recorded in
the Delta log as an app transaction (app id = shard, version = a number drawn under the shard's lock),
so that a repeated append is a no-op. delta-rs refuses concurrent replays of a transaction but accepts a
later one, therefore the writer reads the last version first; the shard's lock makes that safe.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from dyna_assets.errors import CurationError, SetupError, ShardBusy
from dyna_assets.text import sayable
from dyna_assets.warehouse.tables import TABLES, Table, bucket_of

_KNOWN_READER = 1
"""Delta reader version that a plain list of files satisfies: no deletion vectors, no column mapping."""


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A table at one version: what a query reads, and what a manifest notes."""

    name: str
    version: int
    files: tuple[str, ...]
    num_rows: int


@dataclass(frozen=True)
class Warehouse:
    """The Delta tables below `root` (a folder or a URL).

    storage_options: for delta-rs. fs_options: for fsspec, where DuckDB reads a remote store.
    """

    root: str
    storage_options: Mapping[str, str] = field(default_factory=dict)
    fs_options: Mapping[str, Any] = field(default_factory=dict)

    def uri(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.root}/{table}"

    def create(self) -> None:
        """Create the tables that do not exist yet, and add the columns that others lack; writers never do.

        Raises SetupError for a path with a percent sign, which delta-rs 1.6 decodes twice and then misses, and for
        a column of another type.
        """
        if "%" in self.root:
            raise SetupError(
                f"{self.root}: expected a path without '%', which Delta Lake's library cannot take. "
                "Choose another DYNA_HOME, or set 'lake' in settings.toml"
            )
        for table in TABLES.values():
            made = DeltaTable.create(
                self.uri(table.name),
                schema=table.schema,
                name=table.name,
                description=table.grain,
                partition_by=["bucket"],
                mode="ignore",
                storage_options=dict(self.storage_options),
            )
            self._evolve(made, table)

    def append(
        self, table: Table, shard: int, seq: int, rows: Iterable[Mapping[str, Any]], *, run_id: str
    ) -> int:
        """Append the rows that `shard` gained under number `seq`; returns how many were written.

        Each row lacks bucket, shard and seq; they are added here. Repeating an append writes nothing and
        returns 0. Raises ShardBusy if the table holds a later number: somebody else has worked since.
        """
        keyed = [{"bucket": bucket_of(shard), "shard": shard, "seq": seq, **_clean(row)} for row in rows]
        if not keyed:
            return 0
        delta = self._open(table.name)
        if _last_seq(delta, shard, seq) == seq:
            return 0
        try:
            _write(delta, pa.Table.from_pylist(keyed, schema=table.schema), {shard: seq}, run_id)
        except CommitFailedError:
            _last_seq(self._open(table.name), shard, seq)
            raise
        return len(keyed)

    def append_across(
        self, since: PinnedTable, rows: pa.Table, seqs: Mapping[int, int], *, run_id: str
    ) -> set[int]:
        """Append rows of many shards in one commit, but none of a shard that anybody wrote since `since`.

        rows: with bucket, shard and seq. seqs: shard -> the number of its append, drawn after `since` was pinned:
        then a run that drew its own earlier and writes later is refused. Returns the shards that were left out.
        """
        moved: set[int] = set()
        while True:
            free = {shard: seq for shard, seq in seqs.items() if shard not in moved}
            kept = rows.filter(pc.is_in(rows["shard"], pa.array(list(free), rows["shard"].type)))
            if kept.num_rows == 0:
                return moved
            try:
                # Written onto that version, so that delta-rs compares with every commit after it.
                delta = DeltaTable(
                    self.uri(since.name), version=since.version, storage_options=dict(self.storage_options)
                )
                _write(delta, kept, free, run_id)
                return moved
            except CommitFailedError:
                newest = self.pin(since.name)
                if newest.version == since.version:
                    raise  # nobody was there: something else is wrong
                moved |= self.shards_since(since)
                since = newest

    def shards_since(self, since: PinnedTable) -> set[int]:
        """Shards that rows were appended to after `since` was pinned."""
        newest = self.pin(since.name)
        return self._shards_of(newest, set(newest.files) - set(since.files))

    def compact(self, table: str, *, min_files: int) -> int:
        """Merge the table's small files if it has at least `min_files`; returns how many were merged."""
        delta = self._open(table)
        if len(delta.file_uris()) < min_files:
            return 0
        return int(delta.optimize.compact()["numFilesRemoved"])

    def pin(self, table: str, version: int | None = None, *, shard: int | None = None) -> PinnedTable:
        """The table at `version` (the newest without), or only the files that can hold rows of `shard`.

        Raises CurationError if the table uses Delta features that a list of its files does not show.
        """
        delta = self._open(table)
        if version is not None:
            delta.load_as_version(version)
        protocol = delta.protocol()
        if protocol.min_reader_version > _KNOWN_READER:
            raise CurationError(
                f"{delta.table_uri}: needs Delta reader version {protocol.min_reader_version} with features "
                f"{protocol.reader_features or []}; this reader knows version {_KNOWN_READER} "
                "(no deletion vectors, no column mapping). Rewrite the table without those features."
            )
        only = None if shard is None else f"bucket = {bucket_of(shard)}"
        files = tuple(_readable(uri) for uri in delta.file_uris(file_pruning_predicate=only))
        counts = (
            pa.table(delta.get_add_actions(flatten=True)).column("num_records") if shard is None else None
        )
        num_rows = -1 if counts is None else int(sum(counts.to_pylist()))
        return PinnedTable(table, delta.version(), files, num_rows)

    def view(
        self, connection: duckdb.DuckDBPyConnection, pinned: PinnedTable, name: str | None = None
    ) -> None:
        """Make the pinned table a view named `name` (default: the table's own name) of `connection`."""
        view = name or pinned.name
        schema = TABLES[pinned.name].schema
        if not pinned.files:
            connection.register(view, schema.empty_table())
            return
        if "://" in self.root:
            fs = fsspec.url_to_fs(self.root, **self.fs_options)[0]
            names = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
            if not set(names) & set(connection.list_filesystems()):
                connection.register_filesystem(fs)
        files = ", ".join("'" + file.replace("'", "''") + "'" for file in pinned.files)
        source = f"read_parquet([{files}], hive_partitioning = true, union_by_name = true)"
        connection.execute("SET parquet_metadata_cache = true")
        held = connection.sql(f"SELECT * FROM {source}").columns  # a file may be older than a column
        empty = connection.from_arrow(schema.empty_table())
        columns = ", ".join(
            f"CAST({_quoted(name) if name in held else 'NULL'} AS {kind}) AS {_quoted(name)}"
            for name, kind in zip(empty.columns, empty.types, strict=True)
        )
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT {columns} FROM {source}")

    def current(self, table: str, shard: int, *, key: str = "") -> list[dict[str, Any]]:
        """The rows of `shard` that hold now: for each key (by default the table's), those of the highest `seq`."""
        with duckdb.connect() as connection:
            self.view(connection, self.pin(table, shard=shard), "versions")
            each = key or TABLES[table].key
            latest = (
                f"SELECT * FROM versions WHERE shard = ? QUALIFY seq = max(seq) OVER (PARTITION BY {each})"
            )
            return fetch(connection, latest, shard)

    def appended(self, table: str, shard: int, seqs: Mapping[int, Collection[int]]) -> list[dict[str, Any]]:
        """The rows of `shard` that the last of certain appends brought: `seqs` says which count for each episode."""
        pairs = [(episode_id, seq) for episode_id, every in seqs.items() for seq in every]
        if not pairs:
            return []
        with duckdb.connect() as connection:
            self.view(connection, self.pin(table, shard=shard), "versions")
            asked = [pa.array(column, pa.int64()) for column in zip(*pairs, strict=True)]
            connection.register("asked", pa.table(asked, ["episode_id", "seq"]))
            latest = (
                "SELECT versions.* FROM versions SEMI JOIN asked USING (episode_id, seq) WHERE shard = ? "
                f"QUALIFY seq = max(seq) OVER (PARTITION BY {TABLES[table].key})"
            )
            return fetch(connection, latest, shard)

    def _evolve(self, delta: DeltaTable, table: Table) -> None:
        """Add the columns that the stored table lacks, as after an upgrade that brought new checks."""
        wanted = Schema.from_arrow(table.schema).fields
        held = {column.name: column.type for column in delta.schema().fields}
        for column in wanted:
            if held.get(column.name, column.type) != column.type:
                raise SetupError(
                    f"{self.uri(table.name)}: column '{column.name}' is {held[column.name]}, this version of dyna "
                    f"writes {column.type}. Another version made the table: use that one, or another lake"
                )
        lacking = [column for column in wanted if column.name not in held]
        if not lacking:
            return
        try:
            delta.alter.add_columns(lacking)
        except CommitFailedError:  # another process was faster
            self._evolve(self._open(table.name), table)

    def _shards_of(self, pinned: PinnedTable, files: set[str]) -> set[int]:
        """Shards that have rows in some of the table's files."""
        if not files:
            return set()
        with duckdb.connect() as connection:
            self.view(connection, replace(pinned, files=tuple(files)), "written")
            return {row["shard"] for row in fetch(connection, "SELECT DISTINCT shard FROM written")}

    def _open(self, table: str) -> DeltaTable:
        try:
            return DeltaTable(self.uri(table), storage_options=dict(self.storage_options))
        except TableNotFoundError:
            raise CurationError(
                f"{self.uri(table)}: no such table; expected one of {', '.join(TABLES)} under {self.root}. "
                "Nothing was ingested yet? Run: dyna-assets worker --once"
            ) from None


def _last_seq(delta: DeltaTable, shard: int, seq: int) -> int | None:
    """Number of the shard's last append to the table. Raises ShardBusy if it is later than `seq`."""
    last = delta.transaction_version(f"shard/{shard}")
    if last is not None and last > seq:
        raise ShardBusy(
            f"shard {shard}: table {delta.table_uri.rstrip('/').rpartition('/')[2]} holds append {last} already, this "
            f"one is {seq}: another run took the shard over. Run the shard again; it does what is left"
        )
    return last


def _write(delta: DeltaTable, rows: pa.Table, seqs: Mapping[int, int], run_id: str) -> None:
    """One commit that appends `rows` and notes for each shard the number of its append."""
    for column in delta.schema().fields:
        if column.name not in rows.column_names:  # of a version that had more columns
            rows = rows.append_column(column.name, pa.nulls(rows.num_rows))
    write_deltalake(
        delta,
        rows,
        mode="append",
        commit_properties=CommitProperties(
            app_transactions=[Transaction(f"shard/{shard}", seq) for shard, seq in seqs.items()],
            custom_metadata={"run_id": run_id},
        ),
    )


def _clean(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with lone surrogates, which foreign metadata may hold and Arrow refuses, written out."""
    return {key: _clean_text(value) for key, value in row.items()}


def _clean_text(value: Any) -> Any:
    if isinstance(value, str):
        return sayable(value)
    if isinstance(value, list):
        return [_clean_text(item) for item in value]
    return value


def batches(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.RecordBatch]:
    """The result of a query in record batches, streamed."""
    yield from cast(pa.RecordBatchReader, connection.sql(query).to_arrow_reader(65_536))


def fetch(connection: duckdb.DuckDBPyConnection, query: str, *values: Any) -> list[dict[str, Any]]:
    """All rows of a query as plain dicts."""
    table: Any = connection.sql(query, params=list(values)).to_arrow_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _quoted(name: str) -> str:
    return f'"{name}"'


def _readable(uri: str) -> str:
    """A file as DuckDB takes it: paths in a Delta log are URL-encoded, local ones may carry a scheme."""
    return urllib.parse.unquote(uri.removeprefix("file://"))
