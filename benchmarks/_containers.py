"""The same episode in every container: ours, MCAP by the stock writers, HDF5 with a JPEG a frame.

The stock files hold the messages of our file, read by the stock reader, so that only their order, their chunks
and their compression differ.

Array axes: T steps, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

import foxglove
import h5py
import numpy as np
from foxglove import Channel as FoxgloveChannel
from foxglove.mcap import MCAPWriteOptions
from mcap.reader import make_reader
from mcap.records import Channel, Message, Schema
from mcap.writer import CompressionType, Writer
from numpy.typing import NDArray

from benchmarks._footage import HEIGHT, RATE_HZ, WIDTH
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import EpisodeHeader, grid_times_ns
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter
from dyna_train.video.encode import Quality, codec_params

CAMERAS = ("head", "left_wrist", "right_wrist")
NUM_STATES, DIM = 8, 14
CHUNK_BYTES = 1 << 20
_START_NS = 1_780_000_000_000_000_000

Order = Literal["topic", "arrival"]
ORDERS: tuple[Order, ...] = ("topic", "arrival")


@dataclass(frozen=True, slots=True)
class Take:
    """One episode before it has a container: packets by camera, values and capture times by state topic."""

    header: EpisodeHeader
    packets: Mapping[str, Sequence[bytes]]
    vectors: Mapping[str, tuple[NDArray[np.float32], NDArray[np.int64]]]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as a stock reader hands it out."""

    schema: Schema
    channel: Channel
    message: Message


def make_take(packets: Sequence[Sequence[bytes]]) -> Take:
    """Three cameras with these packets, and eight state topics of 14 joints in smooth, noisy motion."""
    num_steps = len(packets[0])
    names = tuple(f"joint_{number}" for number in range(DIM))
    states = tuple(
        VectorTrack(f"part_{number}", "state", names, ("rad",) * DIM) for number in range(NUM_STATES)
    )
    header = EpisodeHeader(
        episode_id=1,
        source="benchmark",
        name="minute",
        robot="two arms",
        task="none",
        success=True,
        start_ns=_START_NS,
        rate_hz=RATE_HZ,
        num_steps=num_steps,
        cameras=tuple(CameraTrack(name, WIDTH, HEIGHT) for name in CAMERAS),
        vectors=states,
        versions={"schema_version": "1", "pipeline_version": "benchmark"},
        quality={},
    )
    rng = np.random.default_rng(7)
    grid_T = grid_times_ns(_START_NS, RATE_HZ, num_steps)
    vectors = {track.topic: (_motion(rng, num_steps), _captured(rng, grid_T)) for track in states}
    return Take(header, dict(zip(CAMERAS, packets, strict=True)), vectors)


def write_ours(path: Path, take: Take, layout: EpisodeLayout, quality: Quality) -> EpisodeFile:
    """The episode file, from packets that are encoded already."""
    rng = np.random.default_rng(8)
    grid_T = grid_times_ns(_START_NS, RATE_HZ, take.header.num_steps)
    params = codec_params(layout.gop, quality)
    with EpisodeWriter.create(
        path,
        take.header,
        layout,
        quality=quality,
        vectors=take.vectors,
        copied=dict.fromkeys(take.packets, params),
    ) as writer:
        capture = {camera: _captured(rng, grid_T).tolist() for camera in take.packets}
        for step in range(take.header.num_steps):
            for camera, packets in take.packets.items():
                writer.add_packet(camera, packets[step], capture[camera][step])
        return writer.finish()


def read_messages(path: Path) -> list[StoredMessage]:
    """All messages of an MCAP file by the stock reader, in the order of grid time and channel."""
    found = []
    with path.open("rb") as stream:
        for schema, channel, message in make_reader(stream, validate_crcs=True).iter_messages():
            assert schema is not None
            found.append(StoredMessage(schema, channel, message))
    return sorted(found, key=lambda one: (one.message.log_time, one.channel.id))


def write_stock(path: Path, messages: Sequence[StoredMessage], order: Order) -> None:
    """By the stock Python writer: 1 MiB chunks, zstd.

    order: 'arrival' mixes the topics, which is what stock writers do; 'topic' writes topic after topic, each
    with chunks of its own, as the MCAP command line does with `--order topic`.
    """
    if order == "topic":
        messages = sorted(messages, key=lambda one: one.channel.id)
    with path.open("wb") as stream:
        writer = Writer(stream, chunk_size=CHUNK_BYTES, compression=CompressionType.ZSTD)
        writer.start()
        ids = _register(writer, messages)
        for _, several in groupby(messages, key=lambda one: one.channel.id if order == "topic" else 0):
            for one in several:
                _add(writer, ids, one)
            writer.flush()  # type: ignore[no-untyped-call]
        writer.finish()  # type: ignore[no-untyped-call]


def write_stock_groups(path: Path, messages: Sequence[StoredMessage], layout: EpisodeLayout) -> None:
    """Our order of chunks by the stock Python writer: no chunk size, a flush at every cut.

    One compression for all of them, none: the writer has no other way.
    """
    with path.open("wb") as stream:
        writer = Writer(stream, chunk_size=1 << 62, compression=CompressionType.NONE)
        writer.start()
        ids = _register(writer, messages)
        for chunk in _group_chunks(messages, layout):
            for one in chunk:
                _add(writer, ids, one)
            writer.flush()  # type: ignore[no-untyped-call]
        writer.finish()  # type: ignore[no-untyped-call]


def write_foxglove_groups(path: Path, messages: Sequence[StoredMessage], layout: EpisodeLayout) -> None:
    """Our order of chunks by foxglove-sdk: no chunk size, a flush at every cut, one compression, none.

    It stores no publish time and no sequence of ours: its `log` takes neither.
    """
    context = foxglove.Context()
    channels: dict[int, FoxgloveChannel] = {}
    for one in messages:
        if one.channel.id not in channels:
            schema = foxglove.Schema(name=one.schema.name, encoding=one.schema.encoding, data=one.schema.data)
            channels[one.channel.id] = FoxgloveChannel(
                one.channel.topic,
                schema=schema,
                message_encoding=one.channel.message_encoding,
                context=context,
                metadata=dict(one.channel.metadata),
            )
    options = MCAPWriteOptions(chunk_size=None, compression=None)
    with foxglove.open_mcap(path, context=context, writer_options=options) as writer:
        for chunk in _group_chunks(messages, layout):
            for one in chunk:
                channels[one.channel.id].log(one.message.data, log_time=one.message.log_time)
            writer.flush()


def write_hdf5(path: Path, take: Take, stills: Mapping[str, Sequence[bytes]]) -> None:
    """As ALOHA recorders keep it: per camera a row of JPEGs padded to the longest, per topic a table."""
    with h5py.File(path, "w") as file:
        for camera, pictures in stills.items():
            longest = max(map(len, pictures))
            rows = file.create_dataset(
                f"observations/images/{camera}", (len(pictures), longest), "uint8", chunks=(1, longest)
            )
            for step, picture in enumerate(pictures):
                rows[step, : len(picture)] = np.frombuffer(picture, np.uint8)
        for topic, (values_TD, _) in take.vectors.items():
            file[f"observations{topic}"] = values_TD


def _register(writer: Writer, messages: Sequence[StoredMessage]) -> dict[int, int]:
    """Schemas and channels of the messages; the new id of each channel by its old one."""
    schemas: dict[int, int] = {}
    channels: dict[int, int] = {}
    for one in messages:
        schema, channel = one.schema, one.channel
        if schema.id not in schemas:
            schemas[schema.id] = writer.register_schema(schema.name, schema.encoding, schema.data)
        if channel.id not in channels:
            channels[channel.id] = writer.register_channel(
                channel.topic, channel.message_encoding, schemas[schema.id], channel.metadata
            )
    return channels


def _add(writer: Writer, ids: Mapping[int, int], one: StoredMessage) -> None:
    message = one.message
    writer.add_message(
        ids[one.channel.id], message.log_time, message.data, message.publish_time, message.sequence
    )


def _group_chunks(messages: Sequence[StoredMessage], layout: EpisodeLayout) -> list[list[StoredMessage]]:
    """The messages cut as our writer cuts them: a state block, then the video chunks of its steps."""
    chunks: dict[tuple[int, int, int], list[StoredMessage]] = {}
    for one in messages:
        step, is_video = one.message.sequence, one.channel.id <= len(CAMERAS)
        length = layout.steps_per_chunk if is_video else layout.steps_per_block
        place = (step // layout.steps_per_block, int(is_video), step // length)
        chunks.setdefault(place, []).append(one)
    return [chunks[place] for place in sorted(chunks)]


def _motion(rng: np.random.Generator, num_steps: int) -> NDArray[np.float32]:
    """Joint angles of a slow movement and 1 mrad of sensor noise, float32 [T, DIM]."""
    time_T1 = np.arange(num_steps)[:, None] / RATE_HZ
    rate_hz_D, phase_D = rng.uniform(0.05, 0.4, DIM), rng.uniform(0, 2 * np.pi, DIM)
    smooth_TD = rng.uniform(0.2, 1.0, DIM) * np.sin(2 * np.pi * rate_hz_D * time_T1 + phase_D)
    return (smooth_TD + rng.normal(0, 1e-3, smooth_TD.shape)).astype(np.float32)


def _captured(rng: np.random.Generator, grid_T: NDArray[np.int64]) -> NDArray[np.int64]:
    """Capture times up to 4 ms around the grid, int64 [T] ns."""
    return grid_T + rng.integers(-4_000_000, 4_000_000, len(grid_T))
