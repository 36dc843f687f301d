"""Writing a manifest: rows stream in, one file appears."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dyna_train.errors import ManifestError
from dyna_train.files import publish
from dyna_train.manifest.batches import Texts, rebatch
from dyna_train.manifest.gop_tables import gop_tables_path, write_gop_tables
from dyna_train.manifest.schema import (
    BATCH_ROWS,
    FORMAT,
    HEAD_KEY,
    INPUT_SCHEMA,
    SCHEMA,
    TAIL_KEY,
    TEXT_COLUMNS,
    ManifestInfo,
    RowHash,
    Totals,
)


def write_manifest(
    path: str | Path,
    batches: Iterable[pa.RecordBatch],
    *,
    info: ManifestInfo,
    gop_tables: Iterable[pa.RecordBatch] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Totals:
    """Write rows as they come; the file appears whole or not at all. Memory: two batches and the texts.

    batches: of any size, with the columns of INPUT_SCHEMA by name (plain strings and other integer types
    are cast when no value changes; other columns are refused); `cum_steps` is added here.
    gop_tables: what `write_gop_tables` takes, for the same rows in the same order. They are asked for when
    the rows are written, and appear beside the manifest before it does; without them nothing stays there.
    Raises ManifestError for a column that is missing, unknown, null or out of range, naming it.
    """
    info_json = json.dumps({"format": FORMAT, "info": info.model_dump(mode="json")}, sort_keys=True).encode()
    beside = gop_tables_path(path)
    with publish(path) as part:
        with pa.OSFile(str(part), "wb") as sink:
            rows = _Rows(str(path), info_json, sink)
            for whole in rebatch((rows.conform(given) for given in batches), batch_rows):
                rows.write(whole)
            totals = rows.close(batch_rows)
        if gop_tables is None:
            Path(beside).unlink(missing_ok=True)  # of the manifest that stood here before
        else:
            write_gop_tables(beside, gop_tables, totals=totals)
    return totals


class _Rows:
    """One manifest on its way into `sink`."""

    def __init__(self, path: str, info_json: bytes, sink: pa.NativeFile) -> None:
        self._path = path
        self._info_json = info_json
        self._schema = SCHEMA.with_metadata({HEAD_KEY: info_json})
        # Texts are found while rows stream past; dictionary deltas let the file format grow with them.
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        self._writer = pa.ipc.new_file(sink, self._schema, options=options)
        self._texts = {name: Texts() for name in TEXT_COLUMNS}
        self._digest = RowHash()
        self._num_rows = 0
        self._num_steps = 0

    def conform(self, given: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of INPUT_SCHEMA in their types, texts as strings."""
        missing = [name for name in INPUT_SCHEMA.names if name not in given.schema.names]
        unknown = [name for name in given.schema.names if name not in INPUT_SCHEMA.names]
        if missing or unknown:
            raise ManifestError(
                f"{self._path}: rows have the columns {', '.join(given.schema.names)}; missing: "
                f"{', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}. A manifest takes "
                f"{', '.join(INPUT_SCHEMA.names)}"
            )
        columns = {field.name: self._column(field, given.column(field.name)) for field in INPUT_SCHEMA}
        return pa.RecordBatch.from_pydict(columns)

    def _column(self, field: pa.Field, column: pa.Array) -> pa.Array:
        text = field.name in self._texts
        try:
            column = column.cast(pa.string() if text else field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ManifestError(
                f"{self._path}: column '{field.name}' is {column.type}, expected {field.type}: {error}"
            ) from None
        if column.null_count:
            raise ManifestError(
                f"{self._path}: column '{field.name}' has {column.null_count} nulls; every row needs a value"
            )
        least = {"num_steps": 1, "start_step": 0, "shard": 0}.get(field.name)
        if least is not None and len(column) and pc.min(column).as_py() < least:
            raise ManifestError(
                f"{self._path}: column '{field.name}' holds {pc.min(column)}, expected at least {least}"
            )
        return column

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the running total, turn texts into indices, and write."""
        lengths = batch.column("num_steps").to_numpy(zero_copy_only=True)
        cum_steps = self._num_steps + np.cumsum(lengths, dtype=np.int64)
        columns = [
            # Through numpy, as a slice of an array and an array are not written as the same bytes.
            self._texts[name].encode(column) if name in self._texts else pa.array(column.to_numpy())
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        whole = self._batch([*columns, pa.array(cum_steps)])
        self._digest.add(whole)
        self._writer.write_batch(whole)
        self._num_rows += whole.num_rows
        self._num_steps = int(cum_steps[-1])

    def close(self, batch_rows: int) -> Totals:
        """Write the closing batch with the totals, then the footer."""
        totals = Totals(
            num_rows=self._num_rows,
            num_steps=self._num_steps,
            batch_rows=batch_rows,
            sha256=self._digest.close({name: texts.values for name, texts in self._texts.items()}),
            info_sha256=hashlib.sha256(self._info_json).hexdigest(),
        )
        nothing = [pa.array([], pa.int32() if field.name in self._texts else field.type) for field in SCHEMA]
        metadata = {TAIL_KEY: totals.model_dump_json().encode()}
        self._writer.write_batch(self._batch(nothing), custom_metadata=metadata)
        self._writer.close()
        return totals

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        whole = [
            pa.DictionaryArray.from_arrays(column, pa.array(self._texts[name].values, pa.string()))
            if name in self._texts
            else column
            for name, column in zip(SCHEMA.names, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(whole, schema=self._schema)
