"""Is this file a whole manifest? Everything that can be known without reading its rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import pyarrow as pa
from pydantic import ValidationError

from dyna_train.errors import ManifestError
from dyna_train.manifest.schema import FORMAT, HEAD_KEY, SCHEMA, TAIL_KEY, TEXT_COLUMNS, ManifestInfo, Totals

_MAGIC = b"ARROW1"


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The parts of a manifest file that passed its checks; batches are views of the mapped file."""

    info: ManifestInfo
    totals: Totals
    batches: list[pa.RecordBatch]


def check_file(path: str) -> ManifestFile:
    """Map the file at `path` and check structure, schema and totals. Raises ManifestError."""
    reader = open_reader(path)
    info_json = _head(path, reader.schema)
    totals = _tail(path, reader, info_json)
    return ManifestFile(_parse_info(path, info_json), totals, _data_batches(path, reader, totals))


def open_reader(path: str) -> pa.ipc.RecordBatchFileReader:
    """The Arrow reader over the mapped file, after a look at both ends of it."""
    try:
        with open(path, "rb") as file:
            head = file.read(len(_MAGIC))
            size = file.seek(0, 2)
            file.seek(max(0, size - len(_MAGIC)))
            tail = file.read()
    except FileNotFoundError:
        raise ManifestError(f"{path}: no such file; expected a manifest that curation wrote") from None
    except IsADirectoryError:
        raise ManifestError(f"{path}: is a folder; expected a manifest file (.arrow)") from None
    if head != _MAGIC:
        raise ManifestError(
            f"{path}: not an Arrow file: it begins with {head!r}, expected {_MAGIC!r} ({size:,} bytes)"
        )
    if tail != _MAGIC:
        raise ManifestError(
            f"{path}: ends at byte {size:,} without the Arrow footer: the file was cut. Copy it again from "
            "its source, or curate it again"
        )
    try:
        return pa.ipc.open_file(pa.memory_map(path, "r"))
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, "footer", error) from error


def _head(path: str, schema: pa.Schema) -> bytes:
    """The JSON of the schema metadata, after a look at the format and the columns."""
    info_json: bytes | None = (schema.metadata or {}).get(HEAD_KEY)
    if info_json is None:
        raise ManifestError(
            f"{path}: an Arrow file, but not a manifest: its schema metadata lacks '{HEAD_KEY.decode()}'"
        )
    try:
        found = json.loads(info_json)["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, "schema metadata", error) from error
    if found != FORMAT:
        raise ManifestError(
            f"{path}: written as '{found}'; this version of dyna reads '{FORMAT}'. Upgrade dyna here, or "
            " curate the manifest with the version that trains on it"
        )
    if not schema.equals(SCHEMA, check_metadata=False):
        raise ManifestError(
            f"{path}: its columns are [{_columns(path, schema)}]; expected [{_columns(path, SCHEMA)}]. Curate it again"
        )
    return info_json


def _columns(path: str, schema: pa.Schema) -> str:
    try:
        return ", ".join(f"{field.name}: {field.type}" for field in schema)
    except UnicodeDecodeError as error:
        raise damaged(path, "schema", error) from error


def _parse_info(path: str, info_json: bytes) -> ManifestInfo:
    try:
        return ManifestInfo.model_validate(json.loads(info_json)["info"])
    except (KeyError, ValidationError) as error:
        raise damaged(path, "schema metadata", error) from error


def _tail(path: str, reader: pa.ipc.RecordBatchFileReader, info_json: bytes) -> Totals:
    """Totals from the closing batch."""
    try:
        closing, metadata = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
        totals = Totals.model_validate_json((metadata or {})[TAIL_KEY])
    except (pa.ArrowException, OSError, KeyError, IndexError, ValueError) as error:
        raise damaged(path, "closing batch", error) from error
    found = hashlib.sha256(info_json).hexdigest()
    if closing.num_rows or found != totals.info_sha256:
        raise damaged(path, "schema metadata", f"sha256 {found}, expected {totals.info_sha256}")
    return totals


def _data_batches(path: str, reader: pa.ipc.RecordBatchFileReader, totals: Totals) -> list[pa.RecordBatch]:
    """All batches with rows, if their sizes and their last running total are those of `totals`."""
    try:
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches - 1)]
        for batch in batches:
            batch.validate()  # lengths and offsets; the rows themselves are for `Manifest.verify`
        for name in TEXT_COLUMNS if batches else ():  # all batches share one dictionary, which is small
            batches[0].column(name).dictionary.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, "data", error) from error
    sizes = [batch.num_rows for batch in batches]
    whole, rest = divmod(totals.num_rows, totals.batch_rows)
    expected = [totals.batch_rows] * whole + ([rest] if rest else [])
    num_steps = batches[-1].column("cum_steps")[-1].as_py() if sizes and sizes[-1] else 0
    if sizes != expected or num_steps != totals.num_steps:
        raise ManifestError(
            f"{path}: holds {sum(sizes):,} rows in {len(sizes)} batches and {num_steps:,} steps; its totals "
            f"say {totals.num_rows:,} rows in {len(expected)} and {totals.num_steps:,} steps. Curate it again"
        )
    return batches


def damaged(path: str, part: str, cause: object) -> ManifestError:
    """The error for a part of a file that cannot be what was written."""
    return ManifestError(
        f"{path}: its {part} is damaged ({cause}). Copy the file again from its source, or curate it again"
    )
