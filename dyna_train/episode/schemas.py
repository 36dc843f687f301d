"""The two message schemas of an episode file, in protobuf, written by hand.

`foxglove.CompressedVideo` and `dyna.JointVector` are small enough that the wire format is shorter than a
dependency on a protobuf runtime. What we write, every protobuf decoder reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mcap.records import Schema

from dyna_train.errors import CorruptEpisode

VIDEO_SCHEMA = "foxglove.CompressedVideo"
VECTOR_SCHEMA = "dyna.JointVector"
VIDEO_SCHEMA_ID = 1
VECTOR_SCHEMA_ID = 2
ENCODING = "protobuf"

_SECOND_NS = 1_000_000_000
_VARINT, _BYTES = 0, 2  # wire types
_FIXED_BYTES = {1: 8, 5: 4}
# FieldDescriptorProto.Type and .Label
_FLOAT, _INT64, _INT32, _STRING, _MESSAGE, _BYTES_TYPE = 2, 3, 5, 9, 11, 12
_OPTIONAL, _REPEATED = 1, 3


@dataclass(frozen=True, slots=True)
class CompressedVideo:
    """One encoded frame; data is a view of its Annex B bytes."""

    timestamp_ns: int
    frame_id: str
    format: str
    data: memoryview


def encode_video(capture_ns: int, frame_id: str, data: bytes) -> bytes:
    """A `foxglove.CompressedVideo` of H.264; `data` comes last, so that it is one slice of the file."""
    seconds, nanos = divmod(capture_ns, _SECOND_NS)
    timestamp = _number(1, seconds) + _number(2, nanos)
    return b"".join(
        (
            _field(1, timestamp),
            _text(2, frame_id),
            _text(4, "h264"),
            _varint(3 << 3 | _BYTES),
            _varint(len(data)),
            data,
        )
    )


def parse_video(payload: bytes | memoryview) -> CompressedVideo:
    """The fields of a `foxglove.CompressedVideo`, in whatever order they stand; copies no pixels.

    Raises CorruptEpisode if the bytes are no such message.
    """
    view = memoryview(payload)
    fields = dict(_fields(view))
    timestamp = dict(_fields(_bytes_of(fields, 1)))
    return CompressedVideo(
        timestamp_ns=_int_of(timestamp, 1) * _SECOND_NS + _int_of(timestamp, 2),
        frame_id=bytes(_bytes_of(fields, 2)).decode(errors="replace"),
        format=bytes(_bytes_of(fields, 4)).decode(errors="replace"),
        data=_bytes_of(fields, 3),
    )


def vector_head(dim: int) -> bytes:
    """What stands before the `dim` little-endian floats of a `dyna.JointVector`: packed field 1."""
    return _varint(1 << 3 | _BYTES) + _varint(4 * dim)


def schemas() -> tuple[Schema, Schema]:
    """The MCAP schema records, with FileDescriptorSets that stand alone."""
    return (
        Schema(id=VIDEO_SCHEMA_ID, name=VIDEO_SCHEMA, encoding=ENCODING, data=_video_descriptors()),
        Schema(id=VECTOR_SCHEMA_ID, name=VECTOR_SCHEMA, encoding=ENCODING, data=_vector_descriptors()),
    )


def _video_descriptors() -> bytes:
    timestamp = _file(
        "google/protobuf/timestamp.proto",
        "google.protobuf",
        _message("Timestamp", _entry("seconds", 1, _INT64), _entry("nanos", 2, _INT32)),
    )
    video = _file(
        "foxglove/CompressedVideo.proto",
        "foxglove",
        _message(
            "CompressedVideo",
            _entry("timestamp", 1, _MESSAGE, type_name=".google.protobuf.Timestamp"),
            _entry("frame_id", 2, _STRING),
            _entry("data", 3, _BYTES_TYPE),
            _entry("format", 4, _STRING),
        ),
        "google/protobuf/timestamp.proto",
    )
    return timestamp + video


def _vector_descriptors() -> bytes:
    values = _entry("values", 1, _FLOAT, label=_REPEATED)
    return _file("dyna/JointVector.proto", "dyna", _message("JointVector", values))


def _file(name: str, package: str, message: bytes, *dependencies: str) -> bytes:
    """One FileDescriptorProto as an entry of a FileDescriptorSet."""
    needed = b"".join(_text(3, dependency) for dependency in dependencies)
    return _field(1, _text(1, name) + _text(2, package) + needed + _field(4, message) + _text(12, "proto3"))


def _message(name: str, *entries: bytes) -> bytes:
    return _text(1, name) + b"".join(_field(2, entry) for entry in entries)


def _entry(name: str, number: int, kind: int, *, label: int = _OPTIONAL, type_name: str = "") -> bytes:
    typed = _text(6, type_name) if type_name else b""
    return _text(1, name) + _number(3, number) + _number(4, label) + _number(5, kind) + typed


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _text(field: int, value: str) -> bytes:
    return _field(field, value.encode()) if value else b""


def _field(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int_of(fields: dict[int, int | memoryview], number: int) -> int:
    value = fields.get(number, 0)
    if not isinstance(value, int):
        raise CorruptEpisode(f"protobuf field {number} holds {len(value)} bytes, expected a number")
    return value


def _bytes_of(fields: dict[int, int | memoryview], number: int) -> memoryview:
    value = fields.get(number, memoryview(b""))
    if isinstance(value, int):
        raise CorruptEpisode(f"protobuf field {number} holds a number, expected bytes")
    return value


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at = 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(view, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            length, at = _read_varint(view, at)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise CorruptEpisode(f"protobuf wire type {kind} at byte {at}: expected 0, 1, 2 or 5")
        if at + length > len(view):
            raise CorruptEpisode(
                f"protobuf field {tag >> 3} of {length} bytes at byte {at} ends after {len(view)}"
            )
        yield tag >> 3, view[at : at + length]
        at += length


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise CorruptEpisode(f"protobuf varint does not end at byte {at} of {len(view)}")
