"""The GOP tables that travel beside a manifest, so that training never reads the end of an episode file.

`<name>.gops.arrow` beside `<name>.arrow` is an uncompressed Arrow IPC file with a row for each of the
manifest's, in its order:

    tracks     dictionary<int32, string>   what the episode offers on its grid, `Tracks.to_json`
    gop_table  large_binary                where its GOPs and state blocks lie, `GopTable.to_bytes`
    crc        uint32                      crc32 of the two, one after the other

A null table: nobody knows, the episode file is opened by its tail. An empty one: that of the row before, as
of two stretches of one episode. Batches hold BATCH_ROWS rows each (the last one fewer), far fewer than the
manifest's, since a row has some 2 KB; each begins with a table in full. Metadata names the manifest by its
hash: beside another one the file is refused.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from dyna_train.config import Config
from dyna_train.episode.index import GopTable
from dyna_train.episode.tracks import Tracks
from dyna_train.errors import BadInput, CorruptEpisode, ManifestError
from dyna_train.files import publish
from dyna_train.manifest.batches import Texts, rebatch
from dyna_train.manifest.check import damaged, open_reader
from dyna_train.manifest.schema import Totals

FORMAT = "dyna.gops/1"
HEAD_KEY = b"dyna.gops"
BATCH_ROWS = 4096
SUFFIX = ".gops.arrow"
SCHEMA = pa.schema(
    [
        pa.field("tracks", pa.dictionary(pa.int32(), pa.string())),
        pa.field("gop_table", pa.large_binary()),
        pa.field("crc", pa.uint32(), nullable=False),
    ]
)


class Gops(NamedTuple):
    """What `Episode.open_at` needs to read an episode without its tail."""

    tracks: Tracks
    table: GopTable


class GopTablesInfo(Config):
    """What the file says of itself. manifest: sha256 of the rows it belongs to."""

    manifest: str
    num_rows: int = Field(ge=0)
    batch_rows: int = Field(gt=0)


def gop_tables_path(manifest: str | Path) -> str:
    """Path or URI of the GOP tables that belong to the manifest at `manifest`."""
    return str(manifest).removesuffix(".arrow") + SUFFIX


def write_gop_tables(
    path: str | Path, batches: Iterable[pa.RecordBatch], *, totals: Totals, batch_rows: int = BATCH_ROWS
) -> None:
    """Write the tables of a manifest with these totals as they come; the file appears whole or not at all.

    batches: of any size, columns `tracks` (string) and `gop_table` (binary), both null where nobody knows.
    Memory: two batches of batch_rows. Raises ManifestError unless there is one row for each of the manifest.
    """
    info = GopTablesInfo(manifest=totals.sha256, num_rows=totals.num_rows, batch_rows=batch_rows)
    head = json.dumps({"format": FORMAT, "info": info.model_dump()}, sort_keys=True).encode()
    schema = SCHEMA.with_metadata({HEAD_KEY: head})
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    texts, num_rows = Texts(), 0
    texts.index("")  # a dictionary that begins empty, with rows that nobody knows, could not grow later
    with publish(path) as part:
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
            for batch in rebatch(batches, batch_rows):
                writer.write_batch(_encoded(batch, texts, schema))
                num_rows += batch.num_rows
        if num_rows != totals.num_rows:
            raise ManifestError(f"{path}: {num_rows:,} GOP tables for {totals.num_rows:,} manifest rows")


def _encoded(batch: pa.RecordBatch, texts: Texts, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as they are stored: texts numbered, a table that repeats left out, checksums."""
    tracks, tables = (
        batch.column("tracks").cast(pa.string()),
        batch.column("gop_table").cast(pa.large_binary()),
    )
    known = pc.and_(tracks.is_valid(), tables.is_valid())
    numbers = texts.encode(pc.if_else(known, tracks, None))
    text_crcs = [zlib.crc32(text.encode()) for text in texts.values]
    parts = _values(tables)
    crcs = [
        0 if number is None else zlib.crc32(part, text_crcs[number])
        for number, part in zip(numbers.to_pylist(), parts, strict=True)
    ]
    repeats = [
        crc == before and crc != 0 and part == part_before
        for (before, part_before), (crc, part) in pairwise(zip([0, *crcs], [b"", *parts], strict=True))
    ]
    stored = pc.if_else(pa.array(repeats), b"", tables) if any(repeats) else tables
    return pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(numbers, pa.array(texts.values, pa.string())),
            pc.if_else(known, stored, None),
            pa.array(crcs, pa.uint32()),
        ],
        schema=schema,
    )


def _values(column: pa.LargeBinaryArray) -> list[memoryview]:
    """The values of a binary column as views of it; empty where null."""
    _, ends, data = column.buffers()
    end_R = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1].tolist()
    view = memoryview(b"" if data is None else data)
    return [view[start:end] for start, end in pairwise(end_R)]


@dataclass(frozen=True, slots=True)
class _Batch:
    """A record batch as views of the mapped file that no damage in it can lead astray.

    known: bit r is set where row r has a table; None if all have. index_R: int32 [R], into texts. end_R: int64
    [R + 1], table r is data[end_R[r] : end_R[r + 1]]. crc_R: uint32 [R].
    """

    num_known: int
    known: memoryview | None
    index_R: NDArray[np.int32]
    texts: pa.Array
    end_R: NDArray[np.int64]
    data: memoryview
    crc_R: NDArray[np.uint32]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> _Batch:
        """The columns as arrays. Raises ValueError or pa.ArrowException for what cannot be."""
        batch.validate()
        rows = len(batch)
        tracks, tables, crcs = batch.columns
        tracks.dictionary.validate(full=True)
        known, ends, data = tables.buffers()
        return cls(
            num_known=len(tables) - tables.null_count,
            known=None if known is None else memoryview(known),
            index_R=np.frombuffer(tracks.indices.buffers()[1], np.int32, rows),
            texts=tracks.dictionary,
            end_R=np.frombuffer(ends, np.int64, rows + 1),
            data=memoryview(b"" if data is None else data),
            crc_R=np.frombuffer(crcs.buffers()[1], np.uint32, rows),
        )

    def is_known(self, place: int) -> bool:
        """True if row `place` has a table."""
        return self.known is None or bool(self.known[place // 8] >> place % 8 & 1)

    def table(self, place: int) -> memoryview:
        """The table of row `place`, that of a row before it if it repeats; damaged ends give other bytes."""
        data = self._stored(place)
        while not data and place:
            place -= 1
            data = self._stored(place)
        return data

    def tracks(self, place: int) -> str:
        """The tracks of row `place` as text; none where the file is damaged."""
        index = int(self.index_R[place])
        return str(self.texts[index].as_py()) if 0 <= index < len(self.texts) else ""

    def _stored(self, place: int) -> memoryview:
        start, end = self.end_R[place : place + 2].tolist()
        return self.data[start:end]


class GopTables:
    """The open, memory-mapped tables of a manifest; `open` makes one."""

    def __init__(self, path: str, info: GopTablesInfo, reader: pa.ipc.RecordBatchFileReader) -> None:
        self.path = path
        self.info = info
        self._reader = reader
        self._batches: dict[int, _Batch] = {}
        self._tracks: dict[str, Tracks] = {}

    @classmethod
    def open(cls, path: str | Path, *, totals: Totals) -> GopTables | None:
        """Map the file at `path` that belongs to a manifest of `totals`; None if there is none.

        Reads no row. Raises ManifestError for a damaged file and for that of another manifest.
        """
        if not Path(path).exists():
            return None
        reader = open_reader(str(path))
        info = _info(str(path), reader)
        if (info.manifest, info.num_rows) != (totals.sha256, totals.num_rows):
            raise ManifestError(
                f"{path}: GOP tables of manifest {info.manifest[:12]} with {info.num_rows:,} rows, beside "
                f"manifest {totals.sha256[:12]} with {totals.num_rows:,}. Copy both files again from one "
                "source, or curate again; without this file episodes are opened by reading their ends"
            )
        if reader.num_record_batches != -(-info.num_rows // info.batch_rows):
            raise damaged(str(path), "footer", f"{reader.num_record_batches} batches of {info.num_rows} rows")
        return cls(str(path), info, reader)

    def get(self, row: int) -> Gops | None:
        """What is known of the episode of manifest row `row`; None if nothing is.

        Raises CorruptEpisode naming file and row if its bytes are not the ones that were written.
        """
        where = f"{self.path}: row {row}"
        number, place = divmod(row, self.info.batch_rows)
        batch = self._batch(number)
        if not batch.is_known(place):
            return None
        tracks, table = batch.tracks(place), batch.table(place)
        found, expected = zlib.crc32(table, zlib.crc32(tracks.encode())), int(batch.crc_R[place])
        if found != expected:
            raise CorruptEpisode(
                f"{where}: its GOP table has crc32 {found:08x}, expected {expected:08x}. Copy the file again "
                "from its source, or curate again; without this file episodes are opened by reading their ends"
            )
        return Gops(self._parsed(tracks, where), GopTable.from_bytes(table, uri=where))

    @property
    def num_known(self) -> int:
        """Rows that have a table."""
        batches = range(self._reader.num_record_batches)
        return sum(self._batch(number).num_known for number in batches)

    def verify(self) -> None:
        """Read every row. Raises CorruptEpisode if one byte differs."""
        for row in range(self.info.num_rows):
            self.get(row)

    def _batch(self, number: int) -> _Batch:
        """Batch `number`, which stays: a few views of the mapped file."""
        if number not in self._batches:
            try:
                batch = self._reader.get_batch(number)
                self._batches[number] = _Batch.of(batch)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise damaged(self.path, f"batch {number}", error) from error
            rows = self.info.batch_rows
            expected = min(rows, self.info.num_rows - number * rows)
            if batch.num_rows != expected:
                raise damaged(self.path, f"batch {number}", f"{batch.num_rows} rows, expected {expected}")
        return self._batches[number]

    def _parsed(self, tracks: str, where: str) -> Tracks:
        if tracks not in self._tracks:
            try:
                self._tracks[tracks] = Tracks.from_json(tracks)
            except BadInput as error:
                raise CorruptEpisode(f"{where}: {error}") from error
        return self._tracks[tracks]


def _info(path: str, reader: pa.ipc.RecordBatchFileReader) -> GopTablesInfo:
    """What the file says of itself, after a look at format and columns."""
    head = (reader.schema.metadata or {}).get(HEAD_KEY)
    try:
        parsed = json.loads(head or b"")
        found, info = parsed["format"], GopTablesInfo.model_validate(parsed["info"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise damaged(path, "schema metadata", error) from error
    if found != FORMAT:
        raise ManifestError(
            f"{path}: written as '{found}'; this version of dyna reads '{FORMAT}'. Upgrade dyna here, curate "
            "again, or delete the file"
        )
    if not reader.schema.equals(SCHEMA, check_metadata=False):
        raise damaged(path, "schema", f"expected the columns {', '.join(SCHEMA.names)}")
    return info
