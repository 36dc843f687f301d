"""Delta tables: append exactly once, read at a pinned version.

Rows are only ever appended. An append belongs to one shard and has a number of its own; it is recorded in
the Delta log as an app transaction (app id = shard, version = a number drawn under the shard's lock),
so that a repeated append is a no-op. delta-rs refuses concurrent replays of a transaction but accepts a
later one, therefore the writer reads the last version first; the shard's lock makes that safe.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import fsspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from dyna_assets.errors import CurationError, SetupError, ShardBusy
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
        """Create the tables that do not exist yet; writers never do.

        Raises SetupError for a path with a percent sign, which delta-rs 1.6 decodes twice and then misses.
        """
        if "%" in self.root:
            raise SetupError(
                f"{self.root}: expected a path without '%', which Delta Lake's library cannot take. "
                "Choose another DYNA_HOME, or set 'lake' in settings.toml"
            )
        for table in TABLES.values():
            DeltaTable.create(
                self.uri(table.name),
                schema=table.schema,
                name=table.name,
                description=table.grain,
                partition_by=["bucket"],
                mode="ignore",
                storage_options=dict(self.storage_options),
            )

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
        app_id = f"shard/{shard}"
        last = delta.transaction_version(app_id)
        if last is not None and last > seq:
            raise ShardBusy(
                f"shard {shard}: table {table.name} holds append {last} already, this one is {seq}: another run "
                "took the shard over. Run the shard again; it does what is left"
            )
        if last == seq:
            return 0
        write_deltalake(
            delta,
            pa.Table.from_pylist(keyed, schema=table.schema),
            mode="append",
            commit_properties=CommitProperties(
                app_transactions=[Transaction(app_id, seq)], custom_metadata={"run_id": run_id}
            ),
        )
        return len(keyed)

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
        columns = ", ".join(
            f'CAST("{column.name}" AS INTEGER) AS "{column.name}"'
            if column.name == "bucket"
            else f'"{column.name}"'
            for column in schema
        )
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT {columns} "
            f"FROM read_parquet([{files}], hive_partitioning = true, union_by_name = true)"
        )

    def current(self, table: str, shard: int, *, key: str = "episode_id") -> list[dict[str, Any]]:
        """The rows of `shard` that hold now: for each `key`, those of the highest `seq`."""
        with duckdb.connect() as connection:
            self.view(connection, self.pin(table, shard=shard), "versions")
            latest = (
                f"SELECT * FROM versions WHERE shard = ? QUALIFY seq = max(seq) OVER (PARTITION BY {key})"
            )
            return fetch(connection, latest, shard)

    def _open(self, table: str) -> DeltaTable:
        try:
            return DeltaTable(self.uri(table), storage_options=dict(self.storage_options))
        except TableNotFoundError:
            raise CurationError(
                f"{self.uri(table)}: no such table; expected one of {', '.join(TABLES)} under {self.root}. "
                "Nothing was ingested yet? Run: dyna-assets worker --once"
            ) from None


def _clean(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with lone surrogates, which foreign metadata may hold and Arrow refuses, replaced."""
    return {key: _clean_text(value) for key, value in row.items()}


def _clean_text(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean_text(item) for item in value]
    return value


def fetch(connection: duckdb.DuckDBPyConnection, query: str, *values: Any) -> list[dict[str, Any]]:
    """All rows of a query as plain dicts."""
    table: Any = connection.sql(query, params=list(values)).to_arrow_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _readable(uri: str) -> str:
    """A file as DuckDB takes it: paths in a Delta log are URL-encoded, local ones may carry a scheme."""
    return urllib.parse.unquote(uri.removeprefix("file://"))
