"""MCAP files with messages in every encoding, and types made up for a test."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import foxglove.messages as foxglove
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from mcap.writer import Writer
from recordings import HEIGHT, T0_NS, WIDTH, painted

from dyna_assets.landing.recording import Folder, RecordingRef
from dyna_assets.landing.sources import reader_named
from dyna_assets.landing.sources.messages.encodings import message_topic
from dyna_assets.landing.sources.messages.file import RawTopic
from dyna_assets.landing.sources.messages.recording import MessageRecording
from dyna_assets.landing.sources.messages.topics import MessageTopic, Other


@dataclass(frozen=True)
class Kind:
    """How messages of a topic are encoded, and what the file says of them."""

    encoding: str
    schema_name: str = ""
    schema_encoding: str = ""
    schema_data: bytes = b""


@dataclass(frozen=True)
class Sample:
    """One message of a file."""

    topic: str
    kind: Kind
    data: bytes
    publish_ns: int = T0_NS
    log_ns: int = T0_NS


JSON = Kind("json")


def write_samples(path: Path, samples: Sequence[Sample], **flags: Any) -> Path:
    """The samples in an MCAP file; a kind without a name has no schema. flags: of mcap's writer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        writer = Writer(file, **flags)
        writer.start("", "test")
        channels: dict[tuple[str, Kind], int] = {}
        for sample in samples:
            key, kind = (sample.topic, sample.kind), sample.kind
            if key not in channels:
                schema = (
                    writer.register_schema(kind.schema_name, kind.schema_encoding, kind.schema_data)
                    if kind.schema_name
                    else 0
                )
                channels[key] = writer.register_channel(sample.topic, kind.encoding, schema)
            writer.add_message(channels[key], sample.log_ns, sample.data, sample.publish_ns)
        writer.finish()
    return path


def opened(path: Path) -> MessageRecording:
    """The file by the reader 'mcap'."""
    recording = reader_named("mcap").open(Folder.of(path.parent), RecordingRef(path.stem, (path.name,)))
    assert isinstance(recording, MessageRecording)
    return recording


def foxglove_kind(message: Any) -> Kind:
    """The kind of one of foxglove-sdk's messages."""
    schema = type(message).get_schema()
    return Kind("protobuf", schema.name, schema.encoding, schema.data)


def foxglove_time(time_ns: int) -> foxglove.Timestamp:
    """A time as foxglove-sdk has it."""
    return foxglove.Timestamp(time_ns // 10**9, time_ns % 10**9)


def foxglove_sample(topic: str, message: Any, **times: int) -> Sample:
    """One of foxglove-sdk's messages as a sample."""
    return Sample(topic, foxglove_kind(message), message.encode(), **times)


def json_sample(topic: str, message: Any, schema_name: str = "", **times: int) -> Sample:
    """Any value as a JSON message; bytes in it become base64."""
    kind = Kind("json", schema_name, "jsonschema", b"{}") if schema_name else JSON
    data = json.dumps(message, default=lambda value: base64.b64encode(value).decode()).encode()
    return Sample(topic, kind, data, **times)


def json_time(time_ns: int) -> dict[str, int]:
    """A time as Foxglove's JSON has it."""
    return {"sec": time_ns // 10**9, "nsec": time_ns % 10**9}


def of(kind: Kind, data: bytes) -> MessageTopic:
    """What a topic of one message is."""
    raw = RawTopic("/t", kind.schema_name, kind.schema_encoding, kind.schema_data, kind.encoding, 1)
    return message_topic(raw, data)


def reason_of(kind: Kind, data: bytes) -> str:
    """Why a topic of one message is neither pictures nor vectors."""
    topic = of(kind, data)
    assert isinstance(topic.form, Other)
    return topic.form.reason


def vector_of(topic: MessageTopic, *messages: bytes) -> tuple[tuple[str, ...], list[list[float]]]:
    """(names, values of the messages) of a topic that is one vector."""
    assert not isinstance(topic.form, Other), topic.form.reason
    names = topic.form.names[""]  # type: ignore[union-attr]
    return names, topic.form.block(messages).values[""].tolist()  # type: ignore[union-attr]


Fields = Mapping[str, Any]
"""A made-up protobuf type: field -> 'double', '*int32' (repeated), '?float' (optional), its own Fields, or [Fields]."""


def protobuf_type(fields: Fields, name: str = "robot.State") -> tuple[Kind, Any]:
    """(kind, message class) of a made-up type, whose schema holds the files in an order that needs sorting."""
    package, _, short = name.rpartition(".")
    file = descriptor_pb2.FileDescriptorProto(name="made_up.proto", package=package, syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    _describe(file.message_type.add(name=short), fields)
    pool = descriptor_pool.DescriptorPool()
    stamp = descriptor_pb2.FileDescriptorProto()
    descriptor_pool.Default().FindFileByName("google/protobuf/timestamp.proto").CopyToProto(stamp)
    for one in (stamp, file):
        pool.AddSerializedFile(one.SerializeToString())
    schema = descriptor_pb2.FileDescriptorSet(file=[file, stamp]).SerializeToString()
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return Kind("protobuf", name, "protobuf", schema), kind


def _describe(message: Any, fields: Fields) -> None:
    for number, (name, kind) in enumerate(fields.items(), 1):
        field = message.field.add(name=name, number=number, label=1)
        if isinstance(kind, Mapping | list):
            nested = f"T{number}"
            _describe(message.nested_type.add(name=nested), kind[0] if isinstance(kind, list) else kind)
            field.type, field.type_name, field.label = 11, nested, 3 if isinstance(kind, list) else 1
            continue
        word = kind.lstrip("*?")
        if kind.startswith("*"):
            field.label = 3
        if kind.startswith("?"):
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        if word == "Timestamp":
            field.type, field.type_name = 11, ".google.protobuf.Timestamp"
        else:
            field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{word.upper()}")


def h264_units(numbers: Sequence[int]) -> list[bytes]:
    """Annex B access units, one per painted number, no frame reordering, parameter sets before each keyframe."""
    codec = av.CodecContext.create("libx264", "w")
    codec.width, codec.height, codec.pix_fmt = WIDTH, HEIGHT, "yuv420p"
    codec.time_base, codec.framerate = Fraction(1, 30), Fraction(30)
    codec.options = {"crf": "10", "g": "4", "bf": "0", "preset": "veryfast", "tune": "zerolatency"}
    packets = []
    for step, number in enumerate(numbers):
        frame = av.VideoFrame.from_ndarray(painted(number), format="rgb24")
        frame.pts = step
        packets += codec.encode(frame)
    return [bytes(packet) for packet in (*packets, *codec.encode(None))]
