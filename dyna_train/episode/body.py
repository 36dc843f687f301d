"""The body of an episode file: what is ready goes into chunks, in file order, and its places are remembered.

Order: per state block the block itself, then the video and depth chunks of its steps and the events of its
time; extra topics when there is a chunk full of them; then capture times, metadata, index, summary.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from mcap.records import Message
from numpy.typing import NDArray

from dyna_train.episode.arrays import pack_arrays
from dyna_train.episode.blocks import build_block
from dyna_train.episode.channels import ChannelPlan
from dyna_train.episode.chunks import depth_chunk, depth_steps, message_chunk, video_chunk
from dyna_train.episode.container import MESSAGE_HEAD_BYTES, ChunkRecords, McapSink, Place
from dyna_train.episode.index import CAPTURE_NAME, INDEX_NAME, MEDIA_TYPE, ChunkTable, EpisodeIndex
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import (
    DEPTH_GROUP,
    EVENT_GROUP,
    EXTRA_GROUP,
    RECORD_SYNC,
    STATE_GROUP,
    VIDEO_GROUP,
    EpisodeHeader,
    episode_records,
    grid_times_ns,
)
from dyna_train.episode.queues import CameraQueue, DepthQueue
from dyna_train.episode.schemas import video_head_bytes
from dyna_train.episode.sync import sync_record

Vector = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Values float32 [T, D] and capture times int64 [T] ns of one vector topic."""

EXTRA_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class EpisodeFile:
    """A published episode file.

    video_bytes: H.264 bytes by camera name. gop_table: `GopTable.to_bytes`, to travel beside a manifest.
    """

    path: Path
    size_bytes: int
    sha256: str
    num_steps: int
    video_bytes: Mapping[str, int]
    gop_table: bytes


class EpisodeBody:
    """Writes the chunks and the end of one file; the queues are filled by the writer that owns it."""

    def __init__(
        self,
        sink: McapSink,
        header: EpisodeHeader,
        layout: EpisodeLayout,
        channels: ChannelPlan,
        cameras: Mapping[str, CameraQueue],
        depths: Mapping[str, DepthQueue],
        vectors: Mapping[str, Vector],
        events: Sequence[Message],
    ) -> None:
        """cameras, depths: by name, in header order. events: in order of log time."""
        self.header = header
        self.layout = layout
        self.channels = channels
        self.cameras = cameras
        self.depths = depths
        self._sink = sink
        self._queues: list[CameraQueue | DepthQueue] = [*cameras.values(), *depths.values()]
        self._vectors = vectors
        self._events = events
        self._extras: list[Message] = []
        self._extra_bytes = 0
        self._grid_ns = grid_times_ns(header.start_ns, header.rate_hz, header.num_steps)
        self._depth_steps = depth_steps(list(depths.values()))
        self._num_written = self._num_depth_written = 0
        self._chunks: dict[str, list[tuple[Place, range]]] = {}
        self._crcs: dict[str, list[int]] = {}

    def write_ready(self) -> None:
        """Write every chunk whose steps all cameras and depth cameras have, and the state block before it."""
        last = self.header.num_steps
        ready = min((queue.num_ready for queue in self._queues), default=last)
        while self._num_written < last:
            steps = range(self._num_written, min(self._num_written + self.layout.steps_per_chunk, last))
            if steps.stop > ready:
                break
            if steps.start % self.layout.steps_per_block == 0:
                self._start_block(range(steps.start, min(steps.start + self.layout.steps_per_block, last)))
            if self.cameras:
                self._put(
                    VIDEO_GROUP,
                    video_chunk(steps, self.layout.gop, list(self.cameras.values()), self._grid_ns),
                    steps,
                )
            self._num_written = steps.stop
            self._write_depth()

    def add_extra(self, message: Message) -> None:
        """One message of an extra topic."""
        self._extras.append(message)
        self._extra_bytes += len(message.data)
        if self._extra_bytes >= EXTRA_CHUNK_BYTES:
            self._write_extras()

    def end(self, path: Path, quality: Mapping[str, str]) -> EpisodeFile:
        """Everything after the last step. path: where the file will stand; quality: verdicts to add to the header's."""
        self._write_extras()
        header = replace(self.header, quality={**self.header.quality, **quality})
        sink, capture_ns = self._sink, self._capture_ns()
        skew = {topic: capture_T - self._grid_ns for topic, capture_T in capture_ns.items()}
        sink.add_attachment(CAPTURE_NAME, MEDIA_TYPE, pack_arrays({}, skew), header.start_ns)
        sync = sync_record(header.tracks, capture_ns, self._grid_ns)
        crc = 0
        for name, values in {**episode_records(header, self.layout), RECORD_SYNC: sync}.items():
            crc = zlib.crc32(sink.add_metadata(name, values), crc)
        index = self._index(crc)
        sink.add_attachment(INDEX_NAME, MEDIA_TYPE, index.to_bytes(), header.start_ns)
        sink.end()
        return EpisodeFile(
            path=path,
            size_bytes=sink.size_bytes,
            sha256=sink.sha256,
            num_steps=header.num_steps,
            video_bytes={name: sum(queue.frame_bytes) for name, queue in self.cameras.items()},
            gop_table=index.gop_table.to_bytes(),
        )

    def _start_block(self, steps: range) -> None:
        """The state of these steps, and the events until the step after them."""
        if self._vectors:
            self._put(STATE_GROUP, self._state_block(steps), steps)
        num_due = len(self._events)
        if steps.stop < self.header.num_steps:
            end_ns = int(self._grid_ns[steps.stop])
            num_due = bisect_left(self._events, end_ns, key=lambda event: event.log_time)
        if num_due:
            self._put(EVENT_GROUP, message_chunk(self._events[:num_due]), range(0))
        self._events = self._events[num_due:]

    def _state_block(self, steps: range) -> ChunkRecords:
        rows = slice(steps.start, steps.stop)
        topics = [track.topic for track in self.header.vectors]
        return build_block(
            steps.start,
            self._grid_ns[rows],
            channels=[self.channels.ids[topic] for topic in topics],
            values=[self._vectors[topic][0][rows] for topic in topics],
            capture_ns=[self._vectors[topic][1][rows] for topic in topics],
        )

    def _write_depth(self) -> None:
        """Depth chunks of the steps that were written; they have a length of their own."""
        last = self.header.num_steps
        while self.depths and self._num_depth_written < self._num_written:
            steps = range(self._num_depth_written, min(self._num_depth_written + self._depth_steps, last))
            if steps.stop > self._num_written:
                return
            self._put(DEPTH_GROUP, depth_chunk(steps, list(self.depths.values()), self._grid_ns), steps)
            self._num_depth_written = steps.stop

    def _write_extras(self) -> None:
        if self._extras:
            self._put(EXTRA_GROUP, message_chunk(self._extras), range(0))
        self._extras, self._extra_bytes = [], 0

    def _put(self, group: str, records: ChunkRecords, steps: range) -> None:
        place = self._sink.add_chunk(records, "" if group == VIDEO_GROUP else "zstd")
        self._chunks.setdefault(group, []).append((place, steps))
        self._crcs.setdefault(group, []).append(zlib.crc32(records.data))

    def _capture_ns(self) -> dict[str, NDArray[np.int64]]:
        """Capture times by topic in file order, int64 [T] ns, MISSING_NS in a gap."""
        capture_ns = {queue.track.topic: np.array(queue.capture_ns, np.int64) for queue in self._queues}
        capture_ns |= {track.topic: self._vectors[track.topic][1] for track in self.header.vectors}
        return {topic: capture_ns[topic] for topic in self.header.topics}

    def _index(self, metadata_crc: int) -> EpisodeIndex:
        num_steps, num_cameras = self.header.num_steps, len(self.cameras)
        num_gops = -(-num_steps // self.layout.gop)
        frame_bytes = np.array([queue.frame_bytes for queue in self.cameras.values()], np.uint32)
        gop_crcs = np.array([queue.gop_crcs for queue in self.cameras.values()], np.uint32)
        return EpisodeIndex(
            num_steps=num_steps,
            layout=self.layout,
            chunks={group: _table(chunks) for group, chunks in self._chunks.items()},
            frame_bytes_NT=frame_bytes.reshape(num_cameras, num_steps),
            head_bytes_N=tuple(MESSAGE_HEAD_BYTES + video_head_bytes(name) for name in self.cameras),
            gop_crc_NG=gop_crcs.reshape(num_cameras, num_gops),
            block_crc_K=np.array(self._crcs.get(STATE_GROUP, []), np.uint32),
            depth_crc_K=np.array(self._crcs.get(DEPTH_GROUP, []), np.uint32),
            metadata_crc=metadata_crc,
        )


def _table(chunks: Sequence[tuple[Place, range]]) -> ChunkTable:
    rows = [(place.offset, place.length, steps.start, len(steps)) for place, steps in chunks]
    return ChunkTable(*np.array(rows, np.int64).T.copy())
