"""Reading a manifest: a memory-mapped file, numpy views over it, slices of it, anchors located in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dyna_train.episode.address import episode_path, shard_key
from dyna_train.errors import ManifestError
from dyna_train.manifest.check import check_file
from dyna_train.manifest.gop_tables import Gops, GopTables, gop_tables_path
from dyna_train.manifest.schema import SCHEMA, ManifestInfo, RowHash, Totals, plain


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One row, its texts looked up. task_index: into `Manifest.tasks`; stop_anchor: exclusive."""

    index: int
    dataset: str
    shard: int
    episode_id: int
    content_hash: int
    start_step: int
    num_steps: int
    task: str
    task_index: int
    stop_anchor: int


Columns = Mapping[str, tuple[NDArray[Any], ...]]
"""Per column, one array for each record batch: views of the mapped file. Texts are int32 indices."""


class Manifest:
    """An open, memory-mapped manifest; `open` makes one. Pickles as its path."""

    def __init__(self, path: str, info: ManifestInfo, totals: Totals, batches: list[pa.RecordBatch]) -> None:
        self.path = path
        self.info = info
        self.totals = totals
        self._batches = batches

    @classmethod
    def open(cls, path: str | Path) -> Manifest:
        """Map the file and check its structure, schema and totals; no row is read or copied.

        Raises ManifestError: no such file, not an Arrow file, cut, damaged, not a manifest, of a newer
        schema. Bytes of the rows themselves are checked by `verify`.
        """
        whole = check_file(str(path))
        return cls(str(path), whole.info, whole.totals, whole.batches)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, never the views: a worker maps the same file again."""
        return _reopen, (self.path, self.totals.sha256)

    def __repr__(self) -> str:
        return f"Manifest({self.path}: {self.num_rows:,} rows, {self.num_steps:,} steps, {self.sha256[:12]})"

    @property
    def num_rows(self) -> int:
        """Stretches of episodes."""
        return self.totals.num_rows

    @property
    def num_steps(self) -> int:
        """Steps of all rows, which is the number of anchors."""
        return self.totals.num_steps

    @property
    def sha256(self) -> str:
        """Hash of the rows; equal for equal rows in equal order, whatever the query that chose them."""
        return self.totals.sha256

    @cached_property
    def views(self) -> Columns:
        """Zero-copy numpy views per column, one array for each record batch."""
        return _views(self._batches)

    @cached_property
    def gop_tables(self) -> GopTables | None:
        """The GOP tables that lie beside the file; None if it stands alone.

        Raises ManifestError if they are damaged or belong to another manifest.
        """
        return GopTables.open(gop_tables_path(self.path), totals=self.totals)

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        """Texts that `views['dataset']` points into."""
        return self._texts("dataset")

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Texts that `views['task']` points into."""
        return self._texts("task")

    def row(self, index: int) -> ManifestRow:
        """Row `index`. Raises IndexError outside 0..num_rows-1."""
        self._check_row(index)
        batch, place = divmod(index, self.totals.batch_rows)
        dataset, shard, episode_id, content_hash, start_step, num_steps, task, stop_anchor = (
            int(self.views[name][batch][place]) for name in SCHEMA.names
        )
        return ManifestRow(
            index=index,
            dataset=self.datasets[dataset],
            shard=shard,
            episode_id=episode_id,
            content_hash=content_hash,
            start_step=start_step,
            num_steps=num_steps,
            task=self.tasks[task],
            task_index=task,
            stop_anchor=stop_anchor,
        )

    def gops(self, index: int) -> Gops | None:
        """Tracks and GOP table of the episode of row `index`, for `Episode.open_at`; None if nobody knows.

        Raises IndexError outside 0..num_rows-1, CorruptEpisode for a damaged table.
        """
        self._check_row(index)
        return None if self.gop_tables is None else self.gop_tables.get(index)

    def rows(self) -> Iterator[ManifestRow]:
        """All rows in order; for tools, not for training on millions."""
        return (self.row(index) for index in range(self.num_rows))

    def episode_uri(self, index: int, root: str | None = None) -> str:
        """URI of the episode file of row `index`, below `root` or the manifest's own."""
        row = self.row(index)
        base = (root if root is not None else self.info.root).rstrip("/")
        return f"{base}/{episode_path(shard_key(row.shard), row.episode_id, f'{row.content_hash:016x}')}"

    def locate(self, anchors: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and episode step of each anchor: two int64 arrays. Raises IndexError outside 0..num_steps-1."""
        asked = np.asarray(anchors, dtype=np.int64)
        if asked.size and not (asked.min() >= 0 and asked.max() < self.num_steps):
            raise IndexError(
                f"anchors {asked.min()} to {asked.max()} leave the {self.num_steps} of {self.path}"
            )
        rows, steps = np.empty_like(asked), np.empty_like(asked)
        batch_of = np.searchsorted(self._batch_stops, asked, side="right")
        for batch in np.unique(batch_of):
            here = batch_of == batch
            cum, num, start = (self.views[name][batch] for name in ("cum_steps", "num_steps", "start_step"))
            place = np.searchsorted(cum, asked[here], side="right")
            rows[here] = place + batch * self.totals.batch_rows
            steps[here] = start[place] + (asked[here] - (cum[place] - num[place]))
        return rows, steps

    def slice(self, rank: int, world: int) -> ManifestSlice:
        """The contiguous rows of `rank` out of `world`, balanced by steps to within one row; no copy.

        The slices of all ranks are disjoint and cover every row; one is empty where rows are fewer or
        longer than the shares. Raises ValueError for a rank outside the world.
        """
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} is outside a world of {world}; expected 0 <= rank < world")
        start, stop = (self._cut(self.num_steps * part // world) for part in (rank, rank + 1))
        return ManifestSlice(self, start, stop)

    def table(self) -> pa.Table:
        """All rows as an Arrow table over the mapped file; no copy."""
        return pa.Table.from_batches(self._batches, schema=SCHEMA)

    def verify(self) -> None:
        """Read every row and compare the content hash, then the GOP tables if there are any.

        Raises ManifestError if one byte of the rows differs, CorruptEpisode for one of the tables.
        """
        digest = RowHash()
        for batch in self._batches:
            digest.add(batch)
        found = digest.close({"dataset": self.datasets, "task": self.tasks})
        if found != self.sha256:
            raise ManifestError(
                f"{self.path}: the rows have sha256 {found}, expected {self.sha256}: bytes changed after the "
                "manifest was written. Copy it again from its source, or curate it again"
            )
        if self.gop_tables is not None:
            self.gop_tables.verify()

    @cached_property
    def _batch_stops(self) -> NDArray[np.int64]:
        """Anchor at which each batch ends."""
        return np.array([cum[-1] for cum in self.views["cum_steps"]], dtype=np.int64)

    def _check_row(self, index: int) -> None:
        if not 0 <= index < self.num_rows:
            raise IndexError(f"row {index} is outside the {self.num_rows} rows of {self.path}")

    def _cut(self, anchor: int) -> int:
        """First row that begins at `anchor` or after it."""
        if anchor == 0:
            return 0
        row, _ = self.locate(np.array([anchor - 1], dtype=np.int64))
        return int(row[0]) + 1

    def _texts(self, column: str) -> tuple[str, ...]:
        if not self._batches:
            return ()
        return tuple(self._batches[0].column(column).dictionary.to_pylist())


@dataclass(frozen=True, slots=True)
class ManifestSlice:
    """Rows [start_row, stop_row) of a manifest."""

    manifest: Manifest
    start_row: int
    stop_row: int

    @property
    def num_rows(self) -> int:
        """Rows of the slice."""
        return self.stop_row - self.start_row

    @property
    def start_anchor(self) -> int:
        """First anchor of the slice."""
        return self.manifest.row(self.start_row - 1).stop_anchor if self.start_row else 0

    @property
    def stop_anchor(self) -> int:
        """Anchor after the last of the slice."""
        return self.manifest.row(self.stop_row - 1).stop_anchor if self.stop_row else 0

    @property
    def num_steps(self) -> int:
        """Steps of the slice."""
        return self.stop_anchor - self.start_anchor

    @property
    def views(self) -> Columns:
        """Zero-copy numpy views per column, one array for each record batch the slice touches."""
        return _views(self.table().to_batches())

    def table(self) -> pa.Table:
        """The rows as an Arrow table over the mapped file; no copy."""
        return self.manifest.table().slice(self.start_row, self.num_rows)


def _reopen(path: str, sha256: str) -> Manifest:
    """The manifest that was pickled, refused if another one has taken its path since."""
    manifest = Manifest.open(path)
    if manifest.sha256 != sha256:
        raise ManifestError(
            f"{path}: holds manifest {manifest.sha256[:12]}, expected {sha256[:12]}: it was replaced while "
            "in use. Give every manifest a path of its own"
        )
    return manifest


def _views(batches: list[pa.RecordBatch]) -> Columns:
    return {
        name: tuple(plain(batch.column(name)).to_numpy(zero_copy_only=True) for batch in batches)
        for name in SCHEMA.names
    }
