"""The index attachment `dyna.index/1`: where every byte of an episode lies, in a few kilobytes.

With it a window needs no other look-up: steps to GOPs, GOPs to byte ranges, ranges to frames. On disk:
a length-prefixed JSON head that describes the arrays, then the arrays, byte planes apart, in one zstd frame.

Array axes: N cameras in header order, T steps, G GOPs, K chunks of a group.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from dyna_train.episode.container import chunk_head_bytes
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import STATE_GROUP, VIDEO_GROUP
from dyna_train.errors import CorruptEpisode, DynaError

INDEX_NAME = "dyna.index/1"
CAPTURE_NAME = "dyna.capture/1"
MEDIA_TYPE = "application/x-dyna"
_LEVEL = 12  # written once, read by every training run


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """The chunks of one group, int64 [K] each: first byte and length of the record, first step, steps."""

    offset_K: NDArray[np.int64]
    length_K: NDArray[np.int64]
    first_step_K: NDArray[np.int64]
    num_steps_K: NDArray[np.int64]


@dataclass(frozen=True)
class EpisodeIndex:
    """Where everything lies in one episode file.

    chunks: table by group. frame_bytes_NT: uint32 [N, T], H.264 bytes of each frame. head_bytes_NT:
    uint8 [N, T], bytes of its message record before them. gop_crc_NG: uint32 [N, G], crc32 of the H.264
    bytes of one camera's GOP. block_crc_K: uint32 [K], crc32 of each state block, uncompressed.
    metadata_crc: crc32 of the metadata records.
    """

    num_steps: int
    layout: EpisodeLayout
    chunks: Mapping[str, ChunkTable]
    frame_bytes_NT: NDArray[np.uint32]
    head_bytes_NT: NDArray[np.uint8]
    gop_crc_NG: NDArray[np.uint32]
    block_crc_K: NDArray[np.uint32]
    metadata_crc: int

    @property
    def num_gops(self) -> int:
        """GOPs of every camera; the last one may be short."""
        return -(-self.num_steps // self.layout.gop)

    def gop_steps(self, gop: int) -> range:
        """The steps of GOP `gop`."""
        return range(gop * self.layout.gop, min((gop + 1) * self.layout.gop, self.num_steps))

    def gop_range(self, gop: int) -> tuple[int, int]:
        """First and end byte of the records of GOP `gop`, all cameras."""
        steps = self.gop_steps(gop)
        return int(self._step_start_T[steps.start]), int(self._step_end_T[steps.stop - 1])

    def frame_ranges(self, camera: int, gop: int) -> NDArray[np.int64]:
        """First and end byte of each frame of camera number `camera` in a GOP, int64 [steps, 2]."""
        steps = self.gop_steps(gop)
        end = self._frame_end_NT[camera, steps.start : steps.stop]
        length = self.frame_bytes_NT[camera, steps.start : steps.stop].astype(np.int64)
        return np.stack([end - length, end], axis=1)

    @cached_property
    def _record_bytes_NT(self) -> NDArray[np.int64]:
        return self.frame_bytes_NT.astype(np.int64) + self.head_bytes_NT

    @cached_property
    def _step_start_T(self) -> NDArray[np.int64]:
        """First byte of the records of each step: a running sum that starts anew in each chunk."""
        bytes_T = self._record_bytes_NT.sum(axis=0)
        before_T = np.cumsum(bytes_T) - bytes_T
        table = self.chunks[VIDEO_GROUP]
        chunk_T = np.repeat(np.arange(len(table.num_steps_K)), table.num_steps_K)
        first_byte_K = table.offset_K + chunk_head_bytes("") - before_T[table.first_step_K]
        start_T: NDArray[np.int64] = first_byte_K[chunk_T] + before_T
        return start_T

    @cached_property
    def _step_end_T(self) -> NDArray[np.int64]:
        end_T: NDArray[np.int64] = self._step_start_T + self._record_bytes_NT.sum(axis=0)
        return end_T

    @cached_property
    def _frame_end_NT(self) -> NDArray[np.int64]:
        end_NT: NDArray[np.int64] = self._step_start_T + np.cumsum(self._record_bytes_NT, axis=0)
        return end_NT

    def to_bytes(self) -> bytes:
        """The attachment's data."""
        layout = self.layout
        head = {
            "num_steps": self.num_steps,
            "layout": [layout.gop, layout.gops_per_chunk, layout.steps_per_block],
            "groups": list(self.chunks),
            "metadata_crc": self.metadata_crc,
        }
        tables: dict[str, NDArray[Any]] = {
            f"chunks.{group}": np.stack(
                [table.offset_K, table.length_K, table.first_step_K, table.num_steps_K], axis=0
            )
            for group, table in self.chunks.items()
        }
        arrays: dict[str, NDArray[Any]] = {
            **tables,
            "frame_bytes": self.frame_bytes_NT,
            "head_bytes": self.head_bytes_NT,
            "gop_crc": self.gop_crc_NG,
            "block_crc": self.block_crc_K,
        }
        return pack_arrays(head, arrays)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, uri: str) -> EpisodeIndex:
        """The index from the attachment's data. Raises CorruptEpisode if it does not hold together."""
        head, arrays = unpack_arrays(data, what=f"{uri}: index attachment")
        try:
            index = cls(
                num_steps=head["num_steps"],
                layout=EpisodeLayout(*head["layout"]),
                chunks={group: ChunkTable(*arrays[f"chunks.{group}"]) for group in head["groups"]},
                frame_bytes_NT=arrays["frame_bytes"],
                head_bytes_NT=arrays["head_bytes"],
                gop_crc_NG=arrays["gop_crc"],
                block_crc_K=arrays["block_crc"],
                metadata_crc=head["metadata_crc"],
            )
        except (KeyError, TypeError, DynaError) as error:
            raise CorruptEpisode(f"{uri}: index attachment: {error!r}") from error
        _check_steps(index, uri)
        return index


def _check_steps(index: EpisodeIndex, uri: str) -> None:
    """Every group with chunks covers every step once."""
    for group in (VIDEO_GROUP, STATE_GROUP):
        table = index.chunks.get(group)
        if table is not None and int(table.num_steps_K.sum()) != index.num_steps:
            found = int(table.num_steps_K.sum())
            raise CorruptEpisode(
                f"{uri}: index attachment: chunks of group {group} hold {found} steps, "
                f"expected {index.num_steps}"
            )


def crc_of(packets: Sequence[bytes | memoryview]) -> int:
    """crc32 of the packets one after the other."""
    crc = 0
    for packet in packets:
        crc = zlib.crc32(packet, crc)
    return crc


def pack_arrays(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """JSON head and little-endian arrays as one blob; equal input gives equal bytes."""
    described = {
        name: [array.dtype.newbyteorder("<").str, list(array.shape)] for name, array in arrays.items()
    }
    text = json.dumps({**head, "arrays": described}, separators=(",", ":")).encode()
    planes = b"".join(_byte_planes(array) for array in arrays.values())
    packed: bytes = zstandard.ZstdCompressor(level=_LEVEL).compress(planes)
    return struct.pack("<I", len(text)) + text + packed


def unpack_arrays(data: bytes | memoryview, *, what: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Head and arrays of `pack_arrays`. Raises CorruptEpisode that starts with `what`."""
    try:
        (length,) = struct.unpack_from("<I", data)
        head: dict[str, Any] = json.loads(bytes(data[4 : 4 + length]))
        shapes = {name: (np.dtype(code), tuple(shape)) for name, (code, shape) in head.pop("arrays").items()}
        sizes = [dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in shapes.values()]
        planes = zstandard.ZstdDecompressor().decompress(
            bytes(data[4 + length :]), max_output_size=sum(sizes)
        )
        arrays, at = {}, 0
        for (name, (dtype, shape)), size in zip(shapes.items(), sizes, strict=True):
            arrays[name] = _from_planes(planes[at : at + size], dtype, shape)
            at += size
    except (struct.error, ValueError, KeyError, TypeError, zstandard.ZstdError) as error:
        raise CorruptEpisode(f"{what}: not readable as arrays: {error!r}") from error
    return head, arrays


def _byte_planes(array: NDArray[Any]) -> bytes:
    """All lowest bytes, then all next ones: the high planes of small numbers compress to nothing."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.reshape(-1, 1).view(np.uint8).T.tobytes() if little.size else b""


def _from_planes(planes: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    bytes_2d = np.frombuffer(planes, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(bytes_2d.T).view(dtype).reshape(shape)
