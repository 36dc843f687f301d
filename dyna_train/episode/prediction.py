"""What reading windows of a pattern from a layout will cost, before a file exists.

A model file is laid out as the writer does it, every frame and block of its mean size; then the ranges of the
windows of every phase of the anchor are merged as the reader does it. Depth, events and topics that no
pattern reads are not in the model.

Array axes: K pieces of a group, E first and end byte, P phases of the anchor in its state block, W offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.container import RECORD_HEAD_BYTES, chunk_head_bytes
from dyna_train.episode.index import Pieces
from dyna_train.episode.layout import REMOTE_STORE, EpisodeLayout, ReadPattern, StoreCosts
from dyna_train.episode.planning import decoded_per_camera, touched_gops
from dyna_train.episode.sizes import SizeModel
from dyna_train.episode.source import Range, merge_ranges

_INDEX_HEAD_BYTES = RECORD_HEAD_BYTES + 2 + 4  # of a MessageIndex: channel, length of its entries
_INDEX_ENTRY_BYTES = 8 + 8  # log_time, offset

# Sizes are known within 5 %. A gap that in the mean is just too wide to be read along may be narrow enough, so
# the model file is laid out at several scales.
_SCALES = (0.95, 0.975, 1.0, 1.025, 1.05)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one window costs, mean over all phases of its anchor, index held, frames of all cameras.

    requests, read_bytes: ranges after merging, and their bytes. needed_bytes: of the frames that must be
    decoded and the state rows alone. decoded_frames: of all cameras. video_chunks, state_chunks: what a
    reader fetches that knows only whole chunks. latency_s: the requests one after the other, without
    decoding. file_mb_per_minute: the file, in 1e6 bytes, without the few kilobytes of its end.
    """

    requests: float
    read_bytes: float
    needed_bytes: float
    decoded_frames: float
    video_chunks: float
    state_chunks: float
    latency_s: float
    file_mb_per_minute: float


def predict(
    pattern: ReadPattern,
    layout: EpisodeLayout,
    rate_hz: float,
    *,
    sizes: SizeModel,
    store: StoreCosts = REMOTE_STORE,
) -> Prediction:
    """The costs of windows of `pattern` at `rate_hz` in a file of `layout`, read from `store`."""
    window = _Window(pattern.frame_offsets(rate_hz), pattern.horizon_steps(rate_hz))
    anchors = range(window.back_steps(layout), window.back_steps(layout) + layout.steps_per_block)
    num_blocks = -(-(anchors.stop + window.ahead) // layout.steps_per_block)
    reads = []
    for scale in _SCALES:
        model = _ModelFile(layout, sizes.scaled(scale))
        video, state = model.video(num_blocks), model.state(num_blocks)
        reads += [merge_ranges(window.ranges(video, state, anchor), store.gap_bytes) for anchor in anchors]
    requests = fmean(len(read) for read in reads)
    read_bytes = fmean(sum(end - start for start, end in read) for read in reads)
    return Prediction(
        requests=requests,
        read_bytes=read_bytes,
        needed_bytes=_needed_bytes(window, layout, sizes),
        decoded_frames=len(sizes.cameras) * decoded_per_camera(window.frames, layout.gop),
        video_chunks=_touched(anchors, window.frames, layout.steps_per_chunk) if sizes.cameras else 0,
        state_chunks=_touched(anchors, window.rows, layout.steps_per_block) if sizes.state.num_topics else 0,
        latency_s=store.seconds(requests, read_bytes),
        file_mb_per_minute=_ModelFile(layout, sizes).block_bytes
        * 60
        * rate_hz
        / layout.steps_per_block
        / 1e6,
    )


@dataclass(frozen=True, slots=True)
class _Window:
    """Offsets of the wanted frames, and the number of state rows from the anchor on."""

    frames: tuple[int, ...]
    num_rows: int

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(range(self.num_rows))

    @property
    def ahead(self) -> int:
        """Steps after the anchor that a window may touch."""
        return max(self.frames[-1], self.num_rows)

    def back_steps(self, layout: EpisodeLayout) -> int:
        """Steps before the first anchor: whole blocks, so that no window begins before the file does."""
        return -(min(self.frames[0], 0) // layout.steps_per_block) * layout.steps_per_block

    def ranges(self, video: Pieces, state: Pieces, anchor: int) -> list[Range]:
        """Whole GOPs of all cameras, whole state blocks: what the reader asks for."""
        wanted = ((video, self.frames), (state, self.rows))
        return [
            pieces.range(piece)
            for pieces, offsets in wanted
            if len(pieces.range_K2) and offsets
            for piece in pieces.of_steps(anchor + np.array(offsets))
        ]


@dataclass(frozen=True, slots=True)
class _ModelFile:
    """The writer's order with mean sizes: a state block, the video chunks of its steps, and so on.

    Message indexes stand behind every chunk.
    """

    layout: EpisodeLayout
    sizes: SizeModel

    @property
    def block_bytes(self) -> float:
        """From one state block to the next."""
        chunks_per_block = self.layout.steps_per_block // self.layout.steps_per_chunk
        return self._state_bytes + chunks_per_block * self._chunk_bytes

    def state(self, num_blocks: int) -> Pieces:
        """The state blocks, compressed, without their record heads."""
        if not self.sizes.state.num_topics:
            return _pieces(self.layout.steps_per_block, np.empty(0), 0)
        start_K = np.arange(num_blocks) * self.block_bytes + chunk_head_bytes("zstd")
        return _pieces(self.layout.steps_per_block, start_K, self._rows_bytes)

    def video(self, num_blocks: int) -> Pieces:
        """The GOPs of all cameras."""
        layout = self.layout
        if not self.sizes.cameras:
            return _pieces(layout.gop, np.empty(0), 0)
        gop_bytes = layout.gop * self.sizes.video_step_bytes(layout.gop)
        chunk_B1, gop_1G = np.divmod(np.arange(layout.steps_per_block // layout.gop), layout.gops_per_chunk)
        within = self._state_bytes + chunk_B1 * self._chunk_bytes + chunk_head_bytes("") + gop_1G * gop_bytes
        start_K = (np.arange(num_blocks)[:, None] * self.block_bytes + within).ravel()
        return _pieces(layout.gop, start_K, gop_bytes)

    @property
    def _rows_bytes(self) -> float:
        return self.layout.steps_per_block * self.sizes.state.step_bytes

    @property
    def _state_bytes(self) -> float:
        num_topics = self.sizes.state.num_topics
        if not num_topics:
            return 0.0
        indexes = _message_indexes(num_topics, self.layout.steps_per_block)
        return chunk_head_bytes("zstd") + self._rows_bytes + indexes

    @property
    def _chunk_bytes(self) -> float:
        num_cameras, steps = len(self.sizes.cameras), self.layout.steps_per_chunk
        if not num_cameras:
            return 0.0
        video = steps * self.sizes.video_step_bytes(self.layout.gop)
        return chunk_head_bytes("") + video + _message_indexes(num_cameras, steps)


def _message_indexes(num_topics: int, num_steps: int) -> int:
    return num_topics * (_INDEX_HEAD_BYTES + num_steps * _INDEX_ENTRY_BYTES)


def _pieces(steps: int, start_K: NDArray[np.floating[Any]], num_bytes: float) -> Pieces:
    range_KE = np.round(np.stack([start_K, start_K + num_bytes], axis=1)).astype(np.int64)
    return Pieces(steps, range_KE, np.zeros((1, len(start_K)), np.uint32))


def _needed_bytes(window: _Window, layout: EpisodeLayout, sizes: SizeModel) -> float:
    """Keyframes of the touched GOPs, the frames from there to the last wanted ones, and the state rows."""
    num_keys = touched_gops(window.frames, layout.gop)
    num_others = decoded_per_camera(window.frames, layout.gop) - num_keys
    video = sum(
        num_keys * camera.keyframe_bytes + num_others * camera.other_bytes for camera in sizes.cameras
    )
    return video + window.num_rows * sizes.state.step_bytes


def _touched(anchors: Sequence[int], offsets: Sequence[int], steps_per_chunk: int) -> float:
    """Mean number of chunks between the first and the last wanted step, as a look-up by time gives them."""
    if not offsets:
        return 0.0
    first_P, last_P = np.array(anchors) + min(offsets), np.array(anchors) + max(offsets)
    return float((last_P // steps_per_chunk - first_P // steps_per_chunk + 1).mean())
