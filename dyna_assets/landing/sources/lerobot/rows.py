"""One episode's rows of a LeRobot data file (parquet): vectors, times and stored stills."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.base import damage_named
from dyna_assets.landing.sources.video import GRID_TOLERANCE, MAX_S, ticks_to_ns
from dyna_assets.landing.upload import leaves_folder
from dyna_assets.names import repeated
from dyna_train.episode.profile import SECOND_NS

STILLS_AT_ONCE = 16
ROWS_AT_ONCE = 1024
DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)


class EpisodeRows:
    """The rows `start <= row < stop` of a parquet file. Columns are read when they are asked for."""

    def __init__(self, where: str, stack: ExitStack, file: Any, start: int, stop: int) -> None:
        self.where = where
        self.start, self.stop = start, stop
        self._stack, self._file = stack, file

    @classmethod
    def open(cls, folder: Folder, name: str, episode_index: int) -> EpisodeRows:
        """The episode's rows in the data file `name`. Raises RecordingError if it is cut or has none."""
        where = folder.at(name)
        with ExitStack() as stack:
            handle = stack.enter_context(folder.open(name))
            with damage_named(
                DAMAGE, lambda error: f"{where}: not readable as parquet ({error}); record or upload it again"
            ):
                file = pq.ParquetFile(handle)
                _refuse_twice(file.schema_arrow.names, where)
                start, stop = _row_range(file, episode_index, where)
            return cls(where, stack.pop_all(), file, start, stop)

    @property
    def num_rows(self) -> int:
        """Steps of the episode."""
        return self.stop - self.start

    @property
    def names(self) -> list[str]:
        """Column names."""
        return list(self._file.schema_arrow.names)

    def kind(self, name: str) -> str:
        """What a value of column `name` is, in Arrow's words."""
        return str(self._type(name))

    def num_numbers(self, name: str) -> int | None:
        """How many numbers a value of column `name` is; 0 if that may differ by row, None if it is none."""
        kind = self._type(name)
        if not pa.types.is_nested(kind):
            return 1 if _is_number(kind) else None
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        if not is_list or not _is_number(kind.value_type):
            return None
        return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 0

    def holds_texts(self, name: str) -> bool:
        """True if the values of column `name` are texts."""
        kind = self._type(name)
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def values(self, name: str) -> Iterator[Any]:
        """The values of column `name` as Python has them, row by row. Raises RecordingError."""
        for _, column in self._batches(name, ROWS_AT_ONCE):
            with self._damage_named(name):
                values = column.to_pylist()
            yield from values

    def vector(self, name: str) -> NDArray[np.float64]:
        """Column `name` as float64 [N, D]. Raises RecordingError naming a row without a value."""
        if self.num_numbers(name) is None:
            raise RecordingError(f"{self.where}: column '{name}': expected numbers, found {self.kind(name)}")
        column = self._column(name)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise RecordingError(f"{self.where}: column '{name}' has no value in row {self.start + row}")
        if not pa.types.is_nested(column.type):
            return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)[:, None]
        if not len(column):
            return np.empty((0, self.num_numbers(name) or 0))
        lengths = np.asarray(pc.list_value_length(column))
        if (lengths != lengths[0]).any():
            row = int(np.flatnonzero(lengths != lengths[0])[0])
            raise RecordingError(
                f"{self.where}: column '{name}' row {self.start + row}: expected {lengths[0]} values, "
                f"as in the first row, found {lengths[row]}"
            )
        values = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float64)
        return values.reshape(len(column), -1)

    def times_ns(self, fps: Fraction) -> NDArray[np.int64]:
        """Times [N] in ns since the episode's start; exact grid instants where the stored times mean them.

        The stored float32 seconds are off by up to half a float32 step, which must not move a row.
        """
        if "timestamp" not in self.names:
            return ticks_to_ns(np.arange(self.num_rows, dtype=np.int64), 1 / fps)
        stored_s = self.vector("timestamp")[:, 0]
        wrong = np.flatnonzero(~(np.abs(stored_s) < MAX_S))
        if len(wrong):
            raise RecordingError(
                f"{self.where}: column 'timestamp' row {self.start + wrong[0]}: expected seconds since the "
                f"episode's start, found {stored_s[wrong[0]]}"
            )
        frames = stored_s * float(fps)
        numbers = np.rint(frames).astype(np.int64)
        float32_step = np.spacing(np.abs(stored_s).max(initial=0.0).astype(np.float32)) * float(fps)
        if np.abs(frames - numbers).max(initial=0.0) < max(GRID_TOLERANCE, float(float32_step)):
            return ticks_to_ns(numbers, 1 / fps)
        return np.rint(stored_s * SECOND_NS).astype(np.int64)

    def stills(self, name: str, folder: Folder) -> Iterator[bytes]:
        """Encoded pictures of an image column, in row order."""
        for first_row, column in self._batches(name, STILLS_AT_ONCE):
            for number, value in enumerate(column, first_row):
                with self._damage_named(name):
                    found = value.as_py()
                yield self._still(found, name, number, folder)

    def close(self) -> None:
        """Release the file."""
        self._stack.close()

    def _type(self, name: str) -> Any:
        return self._file.schema_arrow.field(name).type

    def _damage_named(self, name: str) -> AbstractContextManager[None]:
        return damage_named(DAMAGE, lambda error: f"{self.where}: column '{name}' cannot be read ({error})")

    def _batches(self, name: str, at_once: int) -> Iterator[tuple[int, Any]]:
        """(row of the file, values from there on) of column `name`, in stretches of the episode's rows."""
        groups, row = _groups_of(self._file.metadata, self.start, self.stop)
        batches = self._file.iter_batches(at_once, row_groups=groups, columns=[name])
        while True:
            with self._damage_named(name):
                batch = next(batches, None)
            if batch is None:
                return
            first_row, end = max(self.start, row), min(self.stop, row + batch.num_rows)
            if first_row < end:
                yield first_row, batch.column(0).slice(first_row - row, end - first_row)
            row += batch.num_rows

    def _still(self, value: Any, name: str, row: int, folder: Folder) -> bytes:
        if isinstance(value, dict):
            path = value.get("path")
            if path and not value.get("bytes") and leaves_folder(path):
                raise RecordingError(
                    f"{self.where}: column '{name}' row {row}: its picture lies at {path!r}, outside the data set; "
                    "copy it into the data set"
                )
            value = value.get("bytes") or _file_bytes(folder, path)
        if not isinstance(value, bytes):
            raise RecordingError(
                f"{self.where}: column '{name}' row {row}: expected a stored picture, found none"
            )
        return value

    def _column(self, name: str) -> Any:
        groups, first_row = _groups_of(self._file.metadata, self.start, self.stop)
        with self._damage_named(name):
            table = self._file.read_row_groups(groups, columns=[name])
        return table.column(0).slice(self.start - first_row, self.num_rows).combine_chunks()


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _refuse_twice(names: Sequence[str], where: str) -> None:
    twice = repeated(names)
    if twice:
        raise RecordingError(f"{where}: column '{twice[0]}' stands more than once; give each its own name")


def _row_range(file: Any, episode_index: int, where: str) -> tuple[int, int]:
    """Rows of the episode; files of one episode may have no episode_index column."""
    if "episode_index" not in file.schema_arrow.names:
        return 0, file.metadata.num_rows
    column = np.asarray(file.read(columns=["episode_index"]).column(0)).reshape(-1)
    rows = np.flatnonzero(column == episode_index)
    if not len(rows):
        raise RecordingError(
            f"{where}: holds no row of episode {episode_index}; its {len(column):,} rows belong to "
            f"{len(np.unique(column))} other episodes",
            check="recording.complete",
        )
    if rows[-1] - rows[0] + 1 != len(rows):
        raise RecordingError(f"{where}: rows of episode {episode_index} are not one stretch of the file")
    return int(rows[0]), int(rows[-1]) + 1


def _groups_of(metadata: Any, start: int, stop: int) -> tuple[list[int], int]:
    """(row groups that overlap the rows, first row of the first of them)."""
    groups: list[int] = []
    first_row = row = 0
    for group in range(metadata.num_row_groups):
        end = row + metadata.row_group(group).num_rows
        if row < stop and end > start:
            first_row = first_row if groups else row
            groups.append(group)
        row = end
    return groups, first_row


def _file_bytes(folder: Folder, path: str | None) -> bytes | None:
    if not path or not folder.exists(path):
        return None
    with folder.open(path) as file:
        return file.read()
