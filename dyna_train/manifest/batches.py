"""Streams of record batches: cut anew, and texts as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


class Texts:
    """The distinct texts of a column in order of first appearance, and the index of each."""

    def __init__(self) -> None:
        self._index_of: dict[str, int] = {}

    @property
    def values(self) -> list[str]:
        """The texts by index."""
        return list(self._index_of)

    def index(self, text: str) -> int:
        """The index of one text, a new one if it is new."""
        return self._index_of.setdefault(text, len(self._index_of))

    def encode(self, column: pa.Array) -> pa.Array:
        """int32 indices of a string column; null stays null."""
        local = column.dictionary_encode()
        new = [self.index(text) for text in local.dictionary.to_pylist()]
        return pa.array(new, pa.int32()).take(local.indices)


def rebatch(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of `batch_rows`, the last one fewer."""
    held: list[pa.RecordBatch] = []
    num_held = 0
    for batch in batches:
        held.append(batch)
        num_held += batch.num_rows
        if num_held >= batch_rows:
            *whole, rest = _split(held, batch_rows)
            yield from whole
            held, num_held = [rest], rest.num_rows
    yield from (batch for batch in _split(held, batch_rows) if batch.num_rows)


def _split(held: list[pa.RecordBatch], batch_rows: int) -> list[pa.RecordBatch]:
    """Batches of `batch_rows` and one, perhaps empty, of what is left."""
    if not held:
        return []
    joined = pa.concat_batches(held)
    starts = range(0, joined.num_rows + 1, batch_rows)
    return [joined.slice(start, batch_rows) for start in starts]
