"""Where every byte of an episode lies, in a few kilobytes.

Two forms. The *index* (attachment `dyna.index/1`) locates every single frame, for tools that meet a file cold.
The *GOP table* is what training needs of it: where each GOP and each state block lies, and their checksums. It
is small enough to travel beside a manifest, so that nobody reads the end of a file to read its middle.

Array axes: N cameras in header order, T steps, G GOPs, K pieces or chunks of a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.arrays import pack_arrays, unpack_arrays
from dyna_train.episode.container import Compression, chunk_head_bytes
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import DEPTH_GROUP, GRID_GROUPS, STATE_GROUP, VIDEO_GROUP
from dyna_train.errors import CorruptEpisode, DynaError

INDEX_NAME = "dyna.index/1"
CAPTURE_NAME = "dyna.capture/1"
MEDIA_TYPE = "application/x-dyna"


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """The chunks of one group, int64 [K] each: first byte and length of the record, first step, steps.

    Chunks of groups that are not on the grid have no steps.
    """

    offset_K: NDArray[np.int64]
    length_K: NDArray[np.int64]
    first_step_K: NDArray[np.int64]
    num_steps_K: NDArray[np.int64]

    def data_ranges(self, compression: Compression) -> NDArray[np.int64]:
        """First and end byte of the (compressed) records of each chunk, int64 [K, 2]."""
        return np.stack(
            [self.offset_K + chunk_head_bytes(compression), self.offset_K + self.length_K], axis=1
        )


@dataclass(frozen=True, slots=True)
class Pieces:
    """What of one group can be read by itself: piece k holds the steps [k * steps, (k + 1) * steps).

    range_K2: int64 [K, 2], first and end byte. crc_NK: uint32 [N, K], crc32 of what is inside; for video one
    row per camera, over its H.264 bytes; else one row, over the uncompressed records.
    """

    steps: int
    range_K2: NDArray[np.int64]
    crc_NK: NDArray[np.uint32]

    def range(self, piece: int) -> tuple[int, int]:
        """First and end byte of piece number `piece`."""
        start, end = self.range_K2[piece].tolist()
        return start, end

    def of_steps(self, steps: NDArray[np.int64]) -> list[int]:
        """The pieces that hold these steps, ascending, each once."""
        pieces: list[int] = np.unique(steps // self.steps).tolist()
        return pieces


@dataclass(frozen=True, slots=True)
class GopTable:
    """Where the GOPs of all cameras, the state blocks and the depth pieces of an episode lie."""

    num_steps: int
    layout: EpisodeLayout
    groups: Mapping[str, Pieces]
    """By group; one that the episode does not have is absent."""

    def steps_of(self, group: str, piece: int) -> range:
        """The steps of a piece; the last one may be short."""
        steps = self.groups[group].steps
        return range(piece * steps, min((piece + 1) * steps, self.num_steps))

    def to_bytes(self) -> bytes:
        """About 1.5 KB for a minute of three cameras at GOP 30."""
        layout = self.layout
        head = {
            "num_steps": self.num_steps,
            "layout": [layout.gop, layout.gops_per_chunk, layout.steps_per_block],
            "steps": {group: pieces.steps for group, pieces in self.groups.items()},
        }
        arrays: dict[str, NDArray[Any]] = {}
        for group, pieces in self.groups.items():
            arrays[f"{group}.start"] = pieces.range_K2[:, 0]
            arrays[f"{group}.bytes"] = (pieces.range_K2[:, 1] - pieces.range_K2[:, 0]).astype(np.uint32)
            arrays[f"{group}.crc"] = pieces.crc_NK
        return pack_arrays(head, arrays)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, *, uri: str) -> GopTable:
        """The table from `to_bytes`. Raises CorruptEpisode naming `uri` if it does not hold together."""
        head, arrays = unpack_arrays(data, what=f"{uri}: GOP table")
        try:
            groups = {}
            for group, steps in head["steps"].items():
                start_K = arrays[f"{group}.start"]
                end_K = start_K + arrays[f"{group}.bytes"]
                groups[group] = Pieces(steps, np.stack([start_K, end_K], axis=1), arrays[f"{group}.crc"])
            table = cls(int(head["num_steps"]), EpisodeLayout(*head["layout"]), groups)
        except (KeyError, TypeError, ValueError, DynaError) as error:
            raise CorruptEpisode(f"{uri}: GOP table: {error!r}") from error
        for group, pieces in groups.items():
            found = len(pieces.range_K2) * pieces.steps
            _check_count(f"{uri}: GOP table", group, found, table.num_steps, pieces.steps)
        return table


@dataclass(frozen=True)
class EpisodeIndex:
    """Where everything lies in one episode file.

    chunks: table by group. frame_bytes_NT: uint32 [N, T], H.264 bytes of each frame, 0 where a camera has none.
    head_bytes_N: bytes of each message record of a camera before them. gop_crc_NG: uint32 [N, G], crc32 of the
    H.264 bytes of one camera's GOP. block_crc_K and depth_crc_K: uint32 [K], crc32 of each state block and each
    depth chunk, uncompressed. metadata_crc: crc32 of the metadata records at the file's end.
    """

    num_steps: int
    layout: EpisodeLayout
    chunks: Mapping[str, ChunkTable]
    frame_bytes_NT: NDArray[np.uint32]
    head_bytes_N: tuple[int, ...]
    gop_crc_NG: NDArray[np.uint32]
    block_crc_K: NDArray[np.uint32]
    depth_crc_K: NDArray[np.uint32]
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
    def gop_table(self) -> GopTable:
        """What training needs of the index."""
        groups = {}
        if VIDEO_GROUP in self.chunks:
            ranges = np.array([self.gop_range(gop) for gop in range(self.num_gops)], np.int64)
            groups[VIDEO_GROUP] = Pieces(self.layout.gop, ranges.reshape(-1, 2), self.gop_crc_NG)
        if STATE_GROUP in self.chunks:
            ranges = self.chunks[STATE_GROUP].data_ranges("zstd")
            groups[STATE_GROUP] = Pieces(self.layout.steps_per_block, ranges, self.block_crc_K[None])
        if DEPTH_GROUP in self.chunks:
            table = self.chunks[DEPTH_GROUP]
            steps = int(table.num_steps_K.max())
            groups[DEPTH_GROUP] = Pieces(steps, table.data_ranges("zstd"), self.depth_crc_K[None])
        return GopTable(self.num_steps, self.layout, groups)

    @cached_property
    def _record_bytes_NT(self) -> NDArray[np.int64]:
        head_N1 = np.array(self.head_bytes_N, np.int64).reshape(-1, 1)
        return np.where(self.frame_bytes_NT > 0, self.frame_bytes_NT.astype(np.int64) + head_N1, 0)

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
            "head_bytes": list(self.head_bytes_N),
            "groups": list(self.chunks),
            "metadata_crc": self.metadata_crc,
        }
        arrays: dict[str, NDArray[Any]] = {
            f"chunks.{group}": np.stack(
                [table.offset_K, table.length_K, table.first_step_K, table.num_steps_K], axis=0
            )
            for group, table in self.chunks.items()
        }
        arrays |= {
            "frame_bytes": self.frame_bytes_NT,
            "gop_crc": self.gop_crc_NG,
            "block_crc": self.block_crc_K,
            "depth_crc": self.depth_crc_K,
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
                head_bytes_N=tuple(head["head_bytes"]),
                gop_crc_NG=arrays["gop_crc"],
                block_crc_K=arrays["block_crc"],
                depth_crc_K=arrays["depth_crc"],
                metadata_crc=head["metadata_crc"],
            )
        except (KeyError, TypeError, DynaError) as error:
            raise CorruptEpisode(f"{uri}: index attachment: {error!r}") from error
        for group in GRID_GROUPS:
            if group in index.chunks:
                found = int(index.chunks[group].num_steps_K.sum())
                _check_count(f"{uri}: index attachment", group, found, index.num_steps, 1)
        return index


def _check_count(what: str, group: str, found: int, num_steps: int, slack: int) -> None:
    """Every group on the grid covers every step once; the last piece may be short of `slack` - 1 steps."""
    if not num_steps <= found < num_steps + slack:
        raise CorruptEpisode(f"{what}: group {group} holds {found} steps, expected {num_steps}")
