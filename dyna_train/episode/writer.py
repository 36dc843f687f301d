"""Write one episode file: frames in, topic-group chunks out, published by rename.

Order of the file: header, schemas, channels; then per state block the block itself and the video chunks of
its steps, so that who streams the file always has the state of the frames it shows; then capture times,
metadata, index, summary. Chunks of the two groups alternate and never mix.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import TracebackType

import av
import numpy as np
from mcap.data_stream import RecordBuilder
from mcap.records import Channel
from numpy.typing import NDArray

from dyna_train.episode.blocks import build_block
from dyna_train.episode.camera_queue import CameraQueue
from dyna_train.episode.container import ChunkRecords, McapSink, Place, finished
from dyna_train.episode.index import (
    CAPTURE_NAME,
    INDEX_NAME,
    MEDIA_TYPE,
    ChunkTable,
    EpisodeIndex,
    crc_of,
    pack_arrays,
)
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import (
    PROFILE,
    RECORD_SYNC,
    STATE_GROUP,
    VIDEO_GROUP,
    CameraTrack,
    EpisodeHeader,
    camera_metadata,
    episode_records,
    grid_times_ns,
    vector_metadata,
)
from dyna_train.episode.schemas import (
    ENCODING,
    VECTOR_SCHEMA_ID,
    VIDEO_SCHEMA_ID,
    schemas,
)
from dyna_train.errors import BadInput
from dyna_train.files import publish
from dyna_train.video.encode import CameraEncoder, Quality, codec_params

Vector = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Values float32 [T, D] and capture times int64 [T] ns of one vector topic."""


@dataclass(frozen=True, slots=True)
class EpisodeFile:
    """A published episode file; video_bytes: H.264 bytes by camera name."""

    path: Path
    size_bytes: int
    sha256: str
    num_steps: int
    video_bytes: Mapping[str, int]


class EpisodeWriter:
    """Writes one episode file; use as a context manager and call `finish` before leaving it.

    Until `finish` returns nothing stands under the final path, whatever happens to the process.
    """

    def __init__(
        self,
        path: Path,
        header: EpisodeHeader,
        layout: EpisodeLayout,
        cameras: Sequence[CameraQueue],
        vectors: Mapping[str, Vector],
        sink: McapSink,
        resources: ExitStack,
    ) -> None:
        self._path = path
        self._header = header
        self._layout = layout
        self._cameras = cameras
        self._vectors = vectors
        self._sink = sink
        self._resources = resources
        self._grid_ns = grid_times_ns(header.start_ns, header.rate_hz, header.num_steps)
        self._num_written = 0
        self._chunks: dict[str, list[tuple[Place, range]]] = {}
        self._block_crcs: list[int] = []
        self._finished = False

    @classmethod
    def create(
        cls,
        path: str | Path,
        header: EpisodeHeader,
        layout: EpisodeLayout,
        *,
        quality: Quality,
        vectors: Mapping[str, Vector],
    ) -> EpisodeWriter:
        """Start a file that will appear under the local `path`.

        quality: one of `QUALITIES`, or your own. vectors: for every vector topic of the header its values
        float32 [T, D] and capture times int64 [T] ns, T = num_steps. Raises BadInput naming the topic.
        """
        _check_vectors(header, vectors)
        cameras = [
            CameraQueue(track, channel_id, _encoder(track, header.rate_hz, layout.gop, quality))
            for channel_id, track in enumerate(header.cameras, start=1)
        ]
        with ExitStack() as resources:
            part = resources.enter_context(publish(path))
            sink = McapSink(resources.enter_context(part.open("wb")))
            sink.begin("", PROFILE, schemas(), _channels(header, layout, quality))
            return cls(Path(path), header, layout, cameras, vectors, sink, resources.pop_all())

    def add_frame(self, camera: str, frame: av.VideoFrame, capture_ns: int) -> None:
        """The next frame of camera `camera` (a name): its n-th call is step n.

        frame: any pixel format, of the camera's width x height; left as it was. capture_ns: when it was
        taken, ns since the epoch. Cameras may run ahead of each other: encoded packets wait in memory.
        Raises BadInput naming camera and step.
        """
        queue = self._camera(camera)
        step, track = len(queue.capture_ns), queue.track
        if step == self._header.num_steps:
            raise BadInput(
                f"{self._path}: camera {camera}: frame for step {step}, expected {step} frames in all"
            )
        if (frame.width, frame.height) != (track.width, track.height):
            raise BadInput(
                f"{self._path}: camera {camera}, step {step}: frame of {frame.width}x{frame.height}, "
                f"expected {track.width}x{track.height}; resize it or correct the header"
            )
        if capture_ns < 0:
            raise BadInput(
                f"{self._path}: camera {camera}, step {step}: capture time {capture_ns} ns is negative"
            )
        queue.capture_ns.append(int(capture_ns))
        queue.put(queue.encoder.encode(frame, step))
        self._write_whole_chunks()

    def finish(self, quality: Mapping[str, str] | None = None) -> EpisodeFile:
        """Write what is left, publish the file and describe it. quality: verdicts to add to the header's.

        Raises BadInput naming the camera and step if a camera has fewer frames than the header's steps.
        """
        for queue in self._cameras:
            if len(queue.capture_ns) < self._header.num_steps:
                raise BadInput(
                    f"{self._path}: camera {queue.track.name} ends before step {len(queue.capture_ns)}; "
                    f"expected {self._header.num_steps} frames. No file was written"
                )
            queue.put(queue.encoder.flush())
        self._write_whole_chunks()
        header = replace(self._header, quality={**self._header.quality, **(quality or {})})
        self._write_end(header)
        self._finished = True
        self._resources.close()
        return EpisodeFile(
            path=self._path,
            size_bytes=self._sink.size_bytes,
            sha256=self._sink.sha256,
            num_steps=header.num_steps,
            video_bytes={queue.track.name: sum(queue.frame_bytes) for queue in self._cameras},
        )

    def __enter__(self) -> EpisodeWriter:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Discard the file unless it is finished. Raises RuntimeError if it was left without `finish`."""
        if self._finished:
            return
        if error is None:
            error = RuntimeError(
                f"{self._path}: EpisodeWriter was left without finish(); no file was written"
            )
            self._resources.__exit__(type(error), error, None)
            raise error
        self._resources.__exit__(kind, error, trace)

    def _camera(self, name: str) -> CameraQueue:
        self._header.camera(name)
        return next(queue for queue in self._cameras if queue.track.name == name)

    def _write_whole_chunks(self) -> None:
        """Write every chunk whose steps all cameras have encoded, and the state block before it."""
        last = self._header.num_steps
        ready = min((queue.num_packets for queue in self._cameras), default=last)
        while self._num_written < last:
            steps = range(self._num_written, min(self._num_written + self._layout.steps_per_chunk, last))
            if steps.stop > ready:
                return
            if steps.start % self._layout.steps_per_block == 0 and self._vectors:
                self._write_block(range(steps.start, min(steps.start + self._layout.steps_per_block, last)))
            if self._cameras:
                self._write_video(steps)
            self._num_written = steps.stop

    def _write_block(self, steps: range) -> None:
        rows = slice(steps.start, steps.stop)
        topics = [track.topic for track in self._header.vectors]
        records = build_block(
            steps.start,
            self._grid_ns[rows],
            channels=list(range(len(self._cameras) + 1, len(self._cameras) + 1 + len(topics))),
            values=[self._vectors[topic][0][rows] for topic in topics],
            capture_ns=[self._vectors[topic][1][rows] for topic in topics],
        )
        self._block_crcs.append(zlib.crc32(records.data))
        self._put_chunk(STATE_GROUP, records, steps)

    def _write_video(self, steps: range) -> None:
        builder = RecordBuilder()
        offsets: dict[int, list[tuple[int, int]]] = {queue.channel_id: [] for queue in self._cameras}
        for row, step in enumerate(steps):
            for queue in self._cameras:
                offset = builder.count
                message = queue.message(step, queue.packets[row], int(self._grid_ns[step]))
                message.write(builder)
                offsets[queue.channel_id].append((message.log_time, offset))
                queue.frame_bytes.append(len(queue.packets[row]))
                queue.head_bytes.append(builder.count - offset - len(queue.packets[row]))
        for queue in self._cameras:
            packets, queue.packets = queue.packets[: len(steps)], queue.packets[len(steps) :]
            gops = [packets[at : at + self._layout.gop] for at in range(0, len(steps), self._layout.gop)]
            queue.gop_crcs.extend(crc_of(gop) for gop in gops)
        start_ns, end_ns = int(self._grid_ns[steps.start]), int(self._grid_ns[steps.stop - 1])
        self._put_chunk(VIDEO_GROUP, ChunkRecords(finished(builder), start_ns, end_ns, offsets), steps)

    def _put_chunk(self, group: str, records: ChunkRecords, steps: range) -> None:
        place = self._sink.add_chunk(records, "" if group == VIDEO_GROUP else "zstd")
        self._chunks.setdefault(group, []).append((place, steps))

    def _write_end(self, header: EpisodeHeader) -> None:
        sink = self._sink
        capture = {queue.track.topic: np.array(queue.capture_ns, np.int64) for queue in self._cameras}
        capture |= {track.topic: self._vectors[track.topic][1] for track in header.vectors}
        skew = {topic: times - self._grid_ns for topic, times in capture.items()}
        sink.add_attachment(CAPTURE_NAME, MEDIA_TYPE, pack_arrays({}, skew), header.start_ns)
        for name, values in episode_records(header).items():
            sink.add_metadata(name, values)
        sink.add_metadata(RECORD_SYNC, _sync(skew))
        sink.add_attachment(INDEX_NAME, MEDIA_TYPE, self._index().to_bytes(), header.start_ns)
        sink.end()

    def _index(self) -> EpisodeIndex:
        num_steps, num_cameras = self._header.num_steps, len(self._cameras)
        num_gops = -(-num_steps // self._layout.gop)
        shape = (num_cameras, num_steps)
        return EpisodeIndex(
            num_steps=num_steps,
            layout=self._layout,
            chunks={group: _table(chunks) for group, chunks in self._chunks.items()},
            frame_bytes_NT=np.array([q.frame_bytes for q in self._cameras], np.uint32).reshape(shape),
            head_bytes_NT=np.array([q.head_bytes for q in self._cameras], np.uint8).reshape(shape),
            gop_crc_NG=np.array([q.gop_crcs for q in self._cameras], np.uint32).reshape(
                num_cameras, num_gops
            ),
            block_crc_K=np.array(self._block_crcs, np.uint32),
            metadata_crc=self._sink.metadata_crc,
        )


def _encoder(track: CameraTrack, rate_hz: float, gop: int, quality: Quality) -> CameraEncoder:
    return CameraEncoder(track.name, track.width, track.height, rate_hz=rate_hz, gop=gop, quality=quality)


def _channels(header: EpisodeHeader, layout: EpisodeLayout, quality: Quality) -> list[Channel]:
    params = codec_params(layout.gop, quality)
    described = [
        (track.topic, VIDEO_SCHEMA_ID, camera_metadata(track, header.rate_hz, layout.gop, params))
        for track in header.cameras
    ]
    described += [
        (track.topic, VECTOR_SCHEMA_ID, vector_metadata(track, header.rate_hz)) for track in header.vectors
    ]
    numbers = count(1)
    return [
        Channel(id=next(numbers), topic=topic, message_encoding=ENCODING, schema_id=schema, metadata=metadata)
        for topic, schema, metadata in described
    ]


def _check_vectors(header: EpisodeHeader, vectors: Mapping[str, Vector]) -> None:
    expected = {track.topic: track for track in header.vectors}
    if set(vectors) != set(expected):
        raise BadInput(
            f"episode {header.episode_id}: vectors for {sorted(vectors)}, the header has {sorted(expected)}"
        )
    for topic, (values_TD, capture_T) in vectors.items():
        shape = (header.num_steps, expected[topic].dim)
        if values_TD.shape != shape or values_TD.dtype != np.float32:
            raise BadInput(
                f"episode {header.episode_id}, {topic}: values are {values_TD.dtype} "
                f"{list(values_TD.shape)}, expected float32 {list(shape)}"
            )
        if capture_T.shape != shape[:1] or capture_T.dtype != np.int64 or (capture_T < 0).any():
            raise BadInput(
                f"episode {header.episode_id}, {topic}: capture times are {capture_T.dtype} "
                f"{list(capture_T.shape)}, expected int64 [{header.num_steps}] of ns, none negative"
            )


def _sync(skew: Mapping[str, NDArray[np.int64]]) -> dict[str, str]:
    """Largest and mean distance of capture from grid time, ns, by topic."""
    record = {}
    for topic, skew_T in skew.items():
        record[f"{topic}.max_abs_ns"] = str(int(np.abs(skew_T).max()))
        record[f"{topic}.mean_abs_ns"] = str(round(float(np.abs(skew_T).mean())))
    return record


def _table(chunks: Sequence[tuple[Place, range]]) -> ChunkTable:
    rows = [(place.offset, place.length, steps.start, len(steps)) for place, steps in chunks]
    return ChunkTable(*np.array(rows, np.int64).T.copy())
