"""Unpacking HDF5 chunks within bounds: HDF5's own gzip filter goes on as long as there is something to unpack."""

from __future__ import annotations

import zlib
from typing import Any

from dyna_assets.errors import RecordingError

_MOST_RATIO = 1032
"""Bytes that deflate can make of one."""
_SAFE_BYTES = 1 << 28
_PIECE_BYTES = 1 << 20


def refuse_bombs(dataset: Any, start: int, stop: int, *, where: str) -> None:
    """Raise RecordingError if a gzip chunk of rows start to stop unpacks to more than a chunk of this dataset holds.

    Chunks that are too small to hurt are not looked at.
    """
    if dataset.compression != "gzip":
        return
    num_bytes = dataset.dtype.itemsize
    for size in dataset.chunks:
        num_bytes *= int(size)
    for part in dataset.iter_chunks((slice(start, stop), *(slice(0, size) for size in dataset.shape[1:]))):
        corner = tuple(one.start // size * size for one, size in zip(part, dataset.chunks, strict=True))
        stored = dataset.id.get_chunk_info_by_coord(corner).size
        place = f"{where}: the chunk at row {corner[0]:,}"
        if stored > 2 * num_bytes + _PIECE_BYTES:
            raise RecordingError(
                f"{place} takes {stored:,} bytes packed, and holds {num_bytes:,}: it is damaged"
            )
        if stored * _MOST_RATIO > _SAFE_BYTES and _unpacks_beyond(
            dataset.id.read_direct_chunk(corner)[1], num_bytes
        ):
            raise RecordingError(
                f"{place} unpacks to more than the {num_bytes:,} bytes it holds: it is damaged, or made to fill memory"
            )


def _unpacks_beyond(packed: bytes, num_bytes: int) -> bool:
    """True if the zlib stream holds more than num_bytes; damage is left to who reads it for good."""
    stream, total = zlib.decompressobj(), 0
    try:
        while packed and total <= num_bytes:
            total += len(stream.decompress(packed, _PIECE_BYTES))
            packed = stream.unconsumed_tail
    except zlib.error:
        return False
    return total > num_bytes
