"""The chunks of each topic group but the state blocks, which have a file of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from mcap.data_stream import RecordBuilder
from mcap.records import Message
from numpy.typing import NDArray

from dyna_train.episode.container import ChunkRecords, finished
from dyna_train.episode.queues import CameraQueue, DepthQueue
from dyna_train.episode.schemas import encode_depth, encode_video

DEPTH_CHUNK_BYTES = 4 << 20
"""Uncompressed: a reader unpacks a whole depth chunk for one picture."""


def video_chunk(
    steps: range, gop: int, cameras: Sequence[CameraQueue], grid_ns: NDArray[np.int64]
) -> ChunkRecords:
    """The frames of all cameras at `steps`, whole GOPs, step by step, taken out of their queues."""
    messages = []
    for step in steps:
        for queue in cameras:
            packet = queue.packets.pop(step, b"")
            queue.written(packet, starts_gop=step % gop == 0)
            if packet:
                capture_ns = queue.capture_ns[step]
                data = encode_video(capture_ns, queue.track.name, packet)
                messages.append(_message(queue.channel_id, step, int(grid_ns[step]), capture_ns, data))
    return message_chunk(messages)


def depth_steps(depths: Sequence[DepthQueue]) -> int:
    """Steps of one depth chunk."""
    step_bytes = sum(2 * queue.track.width * queue.track.height for queue in depths)
    return max(1, DEPTH_CHUNK_BYTES // max(1, step_bytes))


def depth_chunk(steps: range, depths: Sequence[DepthQueue], grid_ns: NDArray[np.int64]) -> ChunkRecords:
    """The pictures of all depth cameras at `steps`, step by step, taken out of their queues."""
    messages = []
    for step in steps:
        for queue in depths:
            picture = queue.pictures.pop(step, None)
            if picture is not None:
                track, capture_ns = queue.track, queue.capture_ns[step]
                data = encode_depth(capture_ns, track.name, track.width, track.height, picture)
                messages.append(_message(queue.channel_id, step, int(grid_ns[step]), capture_ns, data))
    return message_chunk(messages)


def message_chunk(messages: Iterable[Message]) -> ChunkRecords:
    """The records of `messages` in their order."""
    builder = RecordBuilder()
    offsets: dict[int, list[tuple[int, int]]] = {}
    for message in messages:
        offsets.setdefault(message.channel_id, []).append((message.log_time, builder.count))
        message.write(builder)
    times = [time_ns for entries in offsets.values() for time_ns, _ in entries]
    return ChunkRecords(finished(builder), min(times, default=0), max(times, default=0), offsets)


def _message(channel_id: int, step: int, grid_ns: int, capture_ns: int, data: bytes) -> Message:
    return Message(channel_id=channel_id, sequence=step, log_time=grid_ns, publish_time=capture_ns, data=data)
