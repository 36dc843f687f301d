"""State blocks: the vectors of a stretch of steps, laid out so that one dtype writes and reads them.

Every record of a topic has the same length, and a block holds the records of step 0, of step 1, ... each
in header order. So a block is an array of steps, and a topic is a strided view of it.

Array axes: T steps, H asked rows, B bytes of one step, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from mcap.opcode import Opcode
from numpy.typing import NDArray

from dyna_train.episode.container import RECORD_HEAD_BYTES, ChunkRecords
from dyna_train.episode.schemas import vector_head


@cache
def vector_places(dims: tuple[int, ...]) -> VectorPlaces:
    """The places of topics of these dimensions."""
    spans, at = [], 0
    for dim in dims:
        record = _record_dtype(dim)
        start = at + record.itemsize - 4 * dim
        spans.append((start, start + 4 * dim))
        at += record.itemsize
    return VectorPlaces(at, tuple(spans))


def _step_dtype(dims: Sequence[int]) -> np.dtype[np.void]:
    """All vector records of one step, packed: field i is the MCAP message record of topic i."""
    return np.dtype([(str(i), _record_dtype(dim)) for i, dim in enumerate(dims)])


def build_block(
    first_step: int,
    grid_ns: NDArray[np.int64],
    channels: Sequence[int],
    values: Sequence[NDArray[np.float32]],
    capture_ns: Sequence[NDArray[np.int64]],
) -> ChunkRecords:
    """The chunk of steps first_step .. first_step + T.

    grid_ns: int64 [T]. For topic i: channels[i] its id, values[i] float32 [T, D], capture_ns[i] int64 [T].
    """
    num_steps = len(grid_ns)
    dtype = _step_dtype([topic_TD.shape[1] for topic_TD in values])
    block = np.zeros(num_steps, dtype)
    offsets = {}
    for i, channel in enumerate(channels):
        record = block[str(i)]
        dim = values[i].shape[1]
        record["opcode"] = Opcode.MESSAGE
        record["length"] = _record_dtype(dim).itemsize - RECORD_HEAD_BYTES
        record["channel"] = channel
        record["sequence"] = np.arange(first_step, first_step + num_steps)
        record["log_time"] = grid_ns
        record["publish_time"] = capture_ns[i]
        record["head"] = np.frombuffer(vector_head(dim), np.uint8)
        record["values"] = values[i]
        field = dtype.fields[str(i)][1] if dtype.fields else 0
        at = range(field, num_steps * dtype.itemsize, dtype.itemsize)
        offsets[channel] = list(zip(grid_ns.tolist(), at, strict=True))
    return ChunkRecords(block.tobytes(), int(grid_ns[0]), int(grid_ns[-1]), offsets)


@dataclass(frozen=True, slots=True)
class VectorPlaces:
    """Where the values of every vector topic lie within the bytes of one step; the same for all steps."""

    step_bytes: int
    spans: tuple[tuple[int, int], ...]
    """First and end byte of each topic's values, in header order."""

    def gather(
        self, steps_TB: NDArray[np.uint8], rows_H: NDArray[np.int64] | slice, topics: Sequence[int]
    ) -> NDArray[np.float32]:
        """Values of `topics` (numbers) side by side at rows of steps_TB, uint8 [T, step_bytes].

        Returns float32 [H, D], a copy.
        """
        rows_HB = steps_TB[rows_H]
        parts = [rows_HB[:, slice(*self.spans[topic])] for topic in topics]
        joined = np.concatenate(parts, axis=1) if parts else np.empty((len(rows_HB), 0), np.uint8)
        return np.ascontiguousarray(joined).view("<f4").astype(np.float32, copy=False)


def _record_dtype(dim: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("opcode", "u1"),
            ("length", "<u8"),
            ("channel", "<u2"),
            ("sequence", "<u4"),
            ("log_time", "<u8"),
            ("publish_time", "<u8"),
            ("head", "u1", (len(vector_head(dim)),)),
            ("values", "<f4", (dim,)),
        ]
    )
