"""TFRecord files with tf.train.Example records, written with protobuf's own library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from recordings import still

KINDS = {"BytesList": "TYPE_BYTES", "FloatList": "TYPE_FLOAT", "Int64List": "TYPE_INT64"}


def _classes(packed: bool) -> Any:
    """The class of tf.train.Example, with lists of numbers packed as TensorFlow has them, or one by one."""
    proto = descriptor_pb2.FileDescriptorProto(name=f"example_{packed}.proto", package="t", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, kind in KINDS.items():
        value = proto.message_type.add(name=name).field.add(
            name="value", number=1, label=kinds.LABEL_REPEATED
        )
        value.type = getattr(kinds, kind)
        if kind != "TYPE_BYTES":
            value.options.packed = packed
    feature = proto.message_type.add(name="Feature")
    for number, name in enumerate(KINDS, 1):
        feature.field.add(name=name, number=number, type=kinds.TYPE_MESSAGE, type_name=f".t.{name}")
    features = proto.message_type.add(name="Features")
    features.field.add(
        name="feature",
        number=1,
        label=kinds.LABEL_REPEATED,
        type=kinds.TYPE_MESSAGE,
        type_name=".t.Features.FeatureEntry",
    )
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING)
    entry.field.add(name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=".t.Feature")
    example = proto.message_type.add(name="Example")
    example.field.add(name="features", number=1, type=kinds.TYPE_MESSAGE, type_name=".t.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


EXAMPLES = {packed: _classes(packed) for packed in (True, False)}


def example(values: Mapping[str, Sequence[Any]], *, packed: bool = True) -> bytes:
    """A serialized tf.train.Example; the kind of a list is that of its first value, none if it is empty."""
    message = EXAMPLES[packed]()
    for name, items in values.items():
        feature = message.features.feature[name]
        for item in items:
            if isinstance(item, str | bytes):
                feature.BytesList.value.append(item.encode() if isinstance(item, str) else item)
            elif isinstance(item, int):
                feature.Int64List.value.append(item)
            else:
                feature.FloatList.value.append(item)
    return bytes(message.SerializeToString())


def masked(data: bytes) -> bytes:
    """The masked crc32c of the data, as TFRecord stores it."""
    crc = google_crc32c.value(data)
    return int(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def write_records(path: Path, records: Sequence[bytes]) -> Path:
    """A TFRecord file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for data in records:
            head = len(data).to_bytes(8, "little")
            file.write(head + masked(head) + data + masked(data))
    return path


def episode(first: int, num_steps: int, **more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """The features of one episode; the numbers in it start at `first`."""
    steps = range(first, first + num_steps)
    return {
        "steps/is_first": [int(step == first) for step in steps],
        "steps/observation/top": [still(step) for step in steps],
        "steps/observation/state": [step + joint / 8 for step in steps for joint in range(3)],
        "steps/action": [float(step) + 0.5 for step in steps for _ in range(2)],
        "steps/language_instruction": ["put the cup down"] * num_steps,
        "episode_metadata/file_path": ["/data/ep"],
        **more,
    }


def declare(folder: Path, **steps: tuple[str, Sequence[int]]) -> None:
    """features.json beside the files: name -> (dtype, shape); '__' in a name is '/'. dtype may be text or image."""
    tree: dict[str, Any] = {}
    for name, (dtype, shape) in steps.items():
        *parents, last = name.split("__")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {"featuresDict": {"features": {}}})["featuresDict"]["features"]
        dimensions = {"dimensions": [str(size) for size in shape]} if shape else {}
        place[last] = {dtype: {"shape": dimensions}} if dtype in ("text", "image") else {
            "tensor": {"shape": dimensions, "dtype": dtype, "encoding": "none"}
        }  # fmt: skip
    steps_node = {"sequence": {"feature": {"featuresDict": {"features": tree}}}}
    top = {"featuresDict": {"features": {"steps": steps_node}}}
    (folder / "features.json").write_text(json.dumps(top))


def float32(values: Sequence[float]) -> list[float]:
    """The values as float32 keeps them."""
    return [float(value) for value in np.asarray(values, np.float32)]
