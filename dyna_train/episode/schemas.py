"""The message schemas of an episode file, written by hand.

The protobuf ones are small enough that the wire format is shorter than a dependency on a protobuf runtime.
What we write, every protobuf decoder reads. Whatever stands before the payload of a message has a length
that depends on its topic alone, so that payloads are found by arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcap.records import Schema

from dyna_train.episode import wire
from dyna_train.episode.profile import SECOND_NS
from dyna_train.episode.values import is_text
from dyna_train.errors import BadInput, CorruptEpisode

VIDEO_SCHEMA = "foxglove.CompressedVideo"
VECTOR_SCHEMA = "dyna.JointVector"
DEPTH_SCHEMA = "foxglove.RawImage"
EVENT_SCHEMA = "dyna.Event"
VIDEO_SCHEMA_ID, VECTOR_SCHEMA_ID, DEPTH_SCHEMA_ID, EVENT_SCHEMA_ID = 1, 2, 3, 4
FIRST_EXTRA_SCHEMA_ID = 5
PROTOBUF, JSON = "protobuf", "json"
DEPTH_ENCODING = "16UC1"

_SECONDS_BYTES = _NANOS_BYTES = 5  # as varints: 34 billion seconds, and any count of nanoseconds
_LENGTH_BYTES = 4  # as varint: a frame of up to 256 MiB
_TIMESTAMP_BYTES = 2 + 1 + _SECONDS_BYTES + 1 + _NANOS_BYTES
_MAX_FRAME_BYTES = 1 << 7 * _LENGTH_BYTES
# FieldDescriptorProto.Type and .Label
_FLOAT, _INT64, _INT32, _FIXED32, _STRING, _MESSAGE, _BYTES = 2, 3, 5, 7, 9, 11, 12
_OPTIONAL, _REPEATED = 1, 3


@dataclass(frozen=True, slots=True)
class CompressedVideo:
    """One encoded frame; data is a view of its Annex B bytes."""

    timestamp_ns: int
    frame_id: str
    format: str
    data: memoryview


@dataclass(frozen=True, slots=True)
class RawImage:
    """One picture; data is a view of its rows, `step` bytes each."""

    timestamp_ns: int
    frame_id: str
    width: int
    height: int
    encoding: str
    step: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at an instant: a name, and whatever else there is to say, as JSON.

    time_ns: on the clock of the grid. capture_ns: by the clock of the robot, None where that says the same.
    """

    time_ns: int
    name: str
    data: Mapping[str, Any] = field(default_factory=dict)
    capture_ns: int | None = None


def encode_video(capture_ns: int, frame_id: str, data: bytes) -> bytes:
    """A `foxglove.CompressedVideo` of H.264: `video_head_bytes(frame_id)` bytes, then `data`.

    Raises BadInput for a frame of 256 MiB or more.
    """
    if len(data) >= _MAX_FRAME_BYTES:
        raise BadInput(f"camera {frame_id}: a frame of {len(data):,} bytes, expected fewer than 256 MiB")
    head = _timestamp(capture_ns) + wire.text(2, frame_id) + wire.text(4, "h264")
    return head + wire.block_head(3, len(data), _LENGTH_BYTES) + data


def video_head_bytes(frame_id: str) -> int:
    """Bytes before the data of every video message of one camera."""
    return _TIMESTAMP_BYTES + len(wire.text(2, frame_id)) + len(wire.text(4, "h264")) + 1 + _LENGTH_BYTES


def parse_video(payload: bytes | memoryview) -> CompressedVideo:
    """The fields of a `foxglove.CompressedVideo`, in whatever order they stand; copies no pixels.

    Raises CorruptEpisode if the bytes are no such message.
    """
    fields = dict(wire.fields(memoryview(payload)))
    return CompressedVideo(
        timestamp_ns=_timestamp_of(fields),
        frame_id=_text_of(fields, 2),
        format=_text_of(fields, 4),
        data=wire.bytes_of(fields, 3),
    )


def encode_depth(capture_ns: int, frame_id: str, width: int, height: int, data: bytes) -> bytes:
    """A `foxglove.RawImage` of little-endian uint16; `data` comes last."""
    return b"".join(
        (
            _timestamp(capture_ns),
            wire.text(7, frame_id),
            wire.fixed32(2, width),
            wire.fixed32(3, height),
            wire.text(4, DEPTH_ENCODING),
            wire.fixed32(5, 2 * width),
            wire.block(6, data),
        )
    )


def depth_bytes(frame_id: str, width: int, height: int) -> int:
    """Bytes of every message of one depth camera."""
    rows_bytes = 2 * width * height
    return len(encode_depth(0, frame_id, width, height, b"")) - 1 + len(wire.varint(rows_bytes)) + rows_bytes


def parse_depth(payload: bytes | memoryview) -> RawImage:
    """The fields of a `foxglove.RawImage`; copies no pixels. Raises CorruptEpisode if it is none."""
    fields = dict(wire.fields(memoryview(payload)))
    return RawImage(
        timestamp_ns=_timestamp_of(fields),
        frame_id=_text_of(fields, 7),
        width=wire.fixed32_of(fields, 2),
        height=wire.fixed32_of(fields, 3),
        encoding=_text_of(fields, 4),
        step=wire.fixed32_of(fields, 5),
        data=wire.bytes_of(fields, 6),
    )


def vector_head(dim: int) -> bytes:
    """What stands before the `dim` little-endian floats of a `dyna.JointVector`: packed field 1."""
    return wire.varint(1 << 3 | 2) + wire.varint(4 * dim)


def encode_event(event: Event) -> bytes:
    """A `dyna.Event`. Raises BadInput for a name that is no text, and for data that JSON cannot say."""
    what = f"event {event.name!r} at {event.time_ns} ns"
    if not is_text(event.name):
        raise BadInput(f"{what}: expected a name that UTF-8 can say")
    try:
        return json.dumps(
            {"name": event.name, "data": dict(event.data)}, ensure_ascii=False, allow_nan=False
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{what}: {error}; expected plain JSON") from error


def parse_event(log_ns: int, publish_ns: int, payload: bytes | memoryview) -> Event:
    """The event of a message with these times. Raises CorruptEpisode if it is none."""
    try:
        found = json.loads(bytes(payload))
        name, data = found["name"], found["data"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptEpisode(f"the event at {log_ns} ns is not readable: {error!r}") from error
    return Event(log_ns, name, data, None if publish_ns == log_ns else publish_ns)


def schemas() -> tuple[Schema, ...]:
    """The MCAP schema records; the protobuf ones hold FileDescriptorSets that stand alone."""
    return (
        Schema(id=VIDEO_SCHEMA_ID, name=VIDEO_SCHEMA, encoding=PROTOBUF, data=_video_descriptors()),
        Schema(id=VECTOR_SCHEMA_ID, name=VECTOR_SCHEMA, encoding=PROTOBUF, data=_vector_descriptors()),
        Schema(id=DEPTH_SCHEMA_ID, name=DEPTH_SCHEMA, encoding=PROTOBUF, data=_depth_descriptors()),
        Schema(id=EVENT_SCHEMA_ID, name=EVENT_SCHEMA, encoding="jsonschema", data=_event_schema()),
    )


def _timestamp(time_ns: int) -> bytes:
    """Field 1 of every foxglove message, always of one length."""
    seconds, nanos = divmod(time_ns, SECOND_NS)
    parts = wire.padded_number(1, seconds, _SECONDS_BYTES) + wire.padded_number(2, nanos, _NANOS_BYTES)
    return wire.block(1, parts)


def _timestamp_of(fields: dict[int, int | memoryview]) -> int:
    timestamp = dict(wire.fields(wire.bytes_of(fields, 1)))
    return wire.int_of(timestamp, 1) * SECOND_NS + wire.int_of(timestamp, 2)


def _text_of(fields: dict[int, int | memoryview], number: int) -> str:
    return bytes(wire.bytes_of(fields, number)).decode(errors="replace")


def _video_descriptors() -> bytes:
    return _foxglove(
        "CompressedVideo",
        _entry("frame_id", 2, _STRING),
        _entry("data", 3, _BYTES),
        _entry("format", 4, _STRING),
    )


def _depth_descriptors() -> bytes:
    return _foxglove(
        "RawImage",
        _entry("frame_id", 7, _STRING),
        _entry("width", 2, _FIXED32),
        _entry("height", 3, _FIXED32),
        _entry("encoding", 4, _STRING),
        _entry("step", 5, _FIXED32),
        _entry("data", 6, _BYTES),
    )


def _foxglove(name: str, *entries: bytes) -> bytes:
    """A message of Foxglove's, which begin with a timestamp, and the file it needs."""
    timestamp = _entry("timestamp", 1, _MESSAGE, type_name=".google.protobuf.Timestamp")
    message = _message(name, timestamp, *entries)
    return _timestamp_file() + _file(
        f"foxglove/{name}.proto", "foxglove", message, "google/protobuf/timestamp.proto"
    )


def _timestamp_file() -> bytes:
    return _file(
        "google/protobuf/timestamp.proto",
        "google.protobuf",
        _message("Timestamp", _entry("seconds", 1, _INT64), _entry("nanos", 2, _INT32)),
    )


def _vector_descriptors() -> bytes:
    values = _entry("values", 1, _FLOAT, label=_REPEATED)
    return _file("dyna/JointVector.proto", "dyna", _message("JointVector", values))


def _event_schema() -> bytes:
    properties = {"name": {"type": "string"}, "data": {"type": "object"}}
    return json.dumps({"title": EVENT_SCHEMA, "type": "object", "properties": properties}).encode()


def _file(name: str, package: str, message: bytes, *dependencies: str) -> bytes:
    """One FileDescriptorProto as an entry of a FileDescriptorSet."""
    needed = b"".join(wire.text(3, dependency) for dependency in dependencies)
    described = wire.text(1, name) + wire.text(2, package) + needed + wire.block(4, message)
    return wire.block(1, described + wire.text(12, "proto3"))


def _message(name: str, *entries: bytes) -> bytes:
    return wire.text(1, name) + b"".join(wire.block(2, entry) for entry in entries)


def _entry(name: str, number: int, kind: int, *, label: int = _OPTIONAL, type_name: str = "") -> bytes:
    described = wire.text(1, name) + wire.number(3, number) + wire.number(4, label) + wire.number(5, kind)
    return described + wire.text(6, type_name)
