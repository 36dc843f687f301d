"""Episode files to damage: one with everything in it, and ways to write one anew with something wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from episode_samples import CAMERAS, LAYOUT, VECTORS, camera_capture_ns, header, paint, vectors_of
from mcap.opcode import Opcode
from mcap.records import Channel, Message, Schema
from mcap.writer import CompressionType, Writer

from dyna_train.doctor.report import Report, examine
from dyna_train.doctor.survey import Chunk, Survey
from dyna_train.episode.channels import ExtraTopic
from dyna_train.episode.chunks import message_chunk
from dyna_train.episode.container import McapSink
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import grid_times_ns
from dyna_train.episode.schemas import Event
from dyna_train.episode.tracks import CameraTrack, DepthTrack, VectorTrack
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter
from dyna_train.video.encode import Quality

DEPTHS = (DepthTrack("top", 16, 12),)
EXTRA = ExtraTopic("/imu", "json", "Imu", "jsonschema", b"{}", {"from": "robot", "group": "torso"})

NO_GAPS: Mapping[str, range] = {}
NO_ATTACHMENTS: Mapping[str, bytes] = {}
NO_METADATA: Mapping[str, dict[str, str]] = {}
Gaps = Mapping[str, range]
"""By camera name the steps at which it has no frame."""


def write_rich(
    path: Path,
    num_steps: int = 50,
    *,
    cameras: tuple[CameraTrack, ...] = CAMERAS,
    vectors: tuple[VectorTrack, ...] = VECTORS,
    depths: tuple[DepthTrack, ...] = DEPTHS,
    layout: EpisodeLayout = LAYOUT,
    rate_hz: float = 30.0,
    gaps: Gaps = NO_GAPS,
    with_others: bool = True,
) -> EpisodeFile:
    """An episode with cameras, vectors, depth, events and an extra topic; left.wrist may miss steps."""
    described = replace(header(num_steps, cameras, vectors, rate_hz), depths=depths)
    grid_T = grid_times_ns(described.start_ns, rate_hz, num_steps).tolist()
    with EpisodeWriter.create(
        path,
        described,
        layout,
        quality=Quality(18),
        vectors=vectors_of(described),
        events=[Event(grid_T[0] + 5, "grasp", {"hand": "left"}), Event(grid_T[-1], "done")]
        if with_others
        else [],
        extras=[EXTRA] if with_others else [],
    ) as writer:
        for step, time_ns in enumerate(grid_T):
            for number, camera in enumerate(cameras):
                if step in gaps.get(camera.name, ()):
                    writer.skip_steps(camera.name)
                else:
                    frame = paint(step, number, camera.width, camera.height)
                    writer.add_frame(camera.name, frame, int(camera_capture_ns(described, number)[step]))
            for depth in depths:
                picture = np.full((depth.height, depth.width), step, np.uint16)
                writer.add_depth(depth.name, picture, time_ns + 7)
            if with_others and step % 7 == 0:
                writer.add_extra(EXTRA.topic, time_ns, time_ns - 3, b'{"g":9.81}', sequence=step)
        return writer.finish({"after": "pass"})


def found(path: Path) -> dict[str, list[str]]:
    """The lines of the doctor's report by check."""
    report: Report = examine(path)
    lines: dict[str, list[str]] = {}
    for fault in report.faults:
        lines.setdefault(fault.check, []).append(str(fault))
    return lines


def stock_copy(
    source: Path,
    target: Path,
    *,
    chunk_size: int = 4000,
    compression: CompressionType = CompressionType.ZSTD,
    channels: Callable[[Channel], Channel] = lambda channel: channel,
    messages: Callable[[str, Message], Message | None] = lambda topic, message: message,
    metadata: Callable[[str, dict[str, str]], dict[str, str] | None] = lambda name, values: values,
    attachments: bool = False,
    more_attachments: Mapping[str, bytes] = NO_ATTACHMENTS,
    more_metadata: Mapping[str, dict[str, str]] = NO_METADATA,
    metadata_first: bool = False,
    by_time: bool = True,
    repeats: bool = False,
    **options: Any,
) -> None:
    """What a tool makes of an episode file that copies messages in time order into chunks of one size."""
    survey = Survey.open(source)
    with target.open("wb") as stream:
        writer = Writer(stream, chunk_size=chunk_size, compression=compression, **options)
        writer.start()
        schemas: dict[int, int] = {0: 0}
        for number, schema in sorted(survey.schemas.items()):
            schemas[number] = writer.register_schema(schema.name, schema.encoding, schema.data)
        ids = {}
        for number, channel in sorted(survey.channels.items()):
            new = channels(channel)
            ids[number] = writer.register_channel(
                new.topic, new.message_encoding, schemas[new.schema_id], new.metadata
            )
        kept = {name: metadata(name, dict(values)) for name, values in survey.metadata.items()}
        records = {name: values for name, values in {**kept, **more_metadata}.items() if values is not None}
        for name, values in records.items() if metadata_first else ():
            writer.add_metadata(name, values)
        every = list(sent(survey, by_time=by_time))
        for topic, message in [*every, *every] if repeats else every:
            changed = messages(topic, message)
            if changed is not None:
                number = ids[changed.channel_id]
                writer.add_message(
                    number, changed.log_time, changed.data, changed.publish_time, changed.sequence
                )
        if attachments:
            for name, record in survey.attachments.items():
                one = record.content
                writer.add_attachment(one.create_time, one.log_time, name, one.media_type, one.data)
        for name, data in more_attachments.items():
            writer.add_attachment(0, 0, name, "text/plain", data)
        for name, values in () if metadata_first else records.items():
            writer.add_metadata(name, values)
        writer.finish()


class SentMessage(NamedTuple):
    """One message, without what says where it lies; step: its sequence."""

    topic: str
    step: int
    log_ns: int
    publish_ns: int
    data: bytes


def contents(survey: Survey, chunks: Sequence[Chunk] | None = None) -> set[SentMessage]:
    """All messages of a file, or of some of its chunks."""
    return {
        SentMessage(survey.channels[channel].topic, step, log_ns, publish_ns, bytes(data[at : at + size]))
        for chunk, data, batch in survey.batches()
        if chunks is None or (chunk is not None and chunk.number in {one.number for one in chunks})
        for at, size, channel, step, log_ns, publish_ns in batch.tolist()
    }


def sent(survey: Survey, *, by_time: bool) -> Iterator[tuple[str, Message]]:
    """Every message with its topic, in time order or in file order."""
    every = [
        (
            survey.channels[channel].topic,
            Message(channel, log_ns, bytes(data[at : at + size]), publish_ns, sequence),
        )
        for _, data, batch in survey.batches()
        for at, size, channel, sequence, log_ns, publish_ns in batch.tolist()
    ]
    yield from sorted(every, key=lambda pair: pair[1].log_time) if by_time else every


def remade(
    source: Path,
    target: Path,
    *,
    messages: Callable[[str, Message], Message | list[Message] | None] = lambda topic, message: message,
    channels: Callable[[Channel], Channel | None] = lambda channel: channel,
    schemas: Callable[[Schema], Schema | None] = lambda schema: schema,
    metadata: Callable[[str, dict[str, str]], dict[str, str] | None] = lambda name, values: values,
    attachments: Callable[[str, bytes], bytes | None] = lambda name, data: data,
    compression: Callable[[str], str] = lambda stored: stored,
) -> None:
    """The file record by record through our own container, with right checksums and MCAP indexes, changed."""
    survey = Survey.open(source)
    chunks = {chunk.record.at: chunk for chunk in survey.chunks}
    described = [(number, channels(one)) for number, one in sorted(survey.channels.items())]
    ids = {number: one.id for number, one in described if one is not None}
    with target.open("wb") as stream:
        sink = McapSink(stream)
        sink.begin(
            "",
            survey.records[0].content.library,
            [new for _, one in sorted(survey.schemas.items()) if (new := schemas(one))],
            [one for _, one in described if one is not None],
        )
        for record in survey.records:
            if record.at >= survey.summary_at:
                break
            if record.opcode == Opcode.CHUNK:
                chunk = chunks[record.at]
                batch = [(None, chunk.records(), chunk.messages)]
                kept = [new for topic, one in _of(survey, batch) for new in _several(messages(topic, one))]
                kept = [replace(one, channel_id=ids[one.channel_id]) for one in kept]
                sink.add_chunk(message_chunk(kept), compression(chunk.raw.compression))  # type: ignore[arg-type]
            elif record.opcode == Opcode.METADATA:
                values = metadata(record.content.name, dict(record.content.metadata))
                if values is not None:
                    sink.add_metadata(record.content.name, values)
            elif record.opcode == Opcode.ATTACHMENT:
                one = record.content
                data = attachments(one.name, one.data)
                if data is not None:
                    sink.add_attachment(one.name, one.media_type, data, one.log_time)
        sink.end()


def _of(survey: Survey, batches: Any) -> Iterator[tuple[str, Message]]:
    for _, data, batch in batches:
        for at, size, channel, sequence, log_ns, publish_ns in batch.tolist():
            message = Message(channel, log_ns, bytes(data[at : at + size]), publish_ns, sequence)
            yield survey.channels[channel].topic, message


def _several(messages: Message | list[Message] | None) -> list[Message]:
    if messages is None:
        return []
    return messages if isinstance(messages, list) else [messages]
