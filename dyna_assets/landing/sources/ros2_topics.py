"""What a ROS 2 topic is to us: pictures, one vector, several vectors (joint states), or nothing readable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Payload, TopicInfo
from dyna_assets.landing.sources import cdr
from dyna_assets.landing.sources.base import JOINT_PARTS
from dyna_assets.landing.stills import still_info

COMPRESSED = "sensor_msgs/msg/CompressedImage"
IMAGE = "sensor_msgs/msg/Image"
JOINTS = "sensor_msgs/msg/JointState"

Decode = Callable[[bytes], Mapping[str, Payload]]
"""The bytes of one message -> payload by topic; raises CdrError."""


@dataclass(frozen=True, slots=True)
class RosTopic:
    """One topic of the file. infos: the topics made of it; stamped: its messages start with a header.

    missing: why it cannot be read although its type is known ('' if it can).
    """

    name: str
    infos: Mapping[str, TopicInfo]
    stamped: bool = False
    decode: Decode | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


def ros_topic(name: str, schema: str, encoding: str, num_messages: int, first: bytes | None) -> RosTopic:
    """The topic by its message type ('sensor_msgs/msg/Image') and its first message, None if it has none.

    Only CDR is read. A first message that is not what its type says makes the topic missing, with the reason.
    """
    if encoding != "cdr":
        return _other(name, num_messages, f"message encoding '{encoding}', this reader knows 'cdr'")
    if not schema:
        return _other(name, num_messages, "without a schema")
    build = {COMPRESSED: _compressed, IMAGE: _raw, JOINTS: _joints}.get(schema)
    if build is None and schema not in cdr.VECTOR_TYPES:
        return _other(name, num_messages, schema)
    try:
        if build is None:
            return _vector(name, cdr.VECTOR_TYPES[schema], num_messages, first)
        return build(name, num_messages, first)
    except (cdr.CdrError, RecordingError) as error:
        return RosTopic(name, {}, missing={name: f"its first message is no {schema}: {error}"})


def _other(name: str, num_messages: int, what: str) -> RosTopic:
    return RosTopic(name, {name: TopicInfo(name, "other", num_messages, encoding=what)})


def _compressed(name: str, num_messages: int, first: bytes | None) -> RosTopic:
    if first is None:
        return RosTopic(name, {name: TopicInfo(name, "image", num_messages)}, True, lambda data: {})
    form, payload = cdr.compressed_image(first)
    # compressedDepth puts a header of its own before a PNG of 16-bit depths; video formats are no stills
    if "compressedDepth" in form or not any(word in form.lower() for word in ("jpeg", "jpg", "png")):
        return _other(name, num_messages, f"compressed format '{form}'")
    still = still_info(payload, where=f"topic '{name}' message 0")
    info = TopicInfo(
        name, "image", num_messages, width=still.width, height=still.height, encoding=still.encoding
    )
    return RosTopic(name, {name: info}, True, lambda data: {name: cdr.compressed_image(data)[1]})


def _raw(name: str, num_messages: int, first: bytes | None) -> RosTopic:
    if first is None:
        return RosTopic(name, {name: TopicInfo(name, "image", num_messages)}, True, lambda data: {})
    image = cdr.raw_image(first)
    if image.encoding not in cdr.PIXELS:
        return _other(name, num_messages, f"picture encoding '{image.encoding}'")
    info = TopicInfo(
        name, "image", num_messages, width=image.width, height=image.height, encoding=image.encoding
    )
    return RosTopic(name, {name: info}, True, lambda data: {name: cdr.raw_image(data).frame()})


def _joints(name: str, num_messages: int, first: bytes | None) -> RosTopic:
    if first is None:
        return _other(name, num_messages, f"{JOINTS} without a message")
    state = cdr.joint_state(first)
    infos = {}
    for part in JOINT_PARTS:
        count = len(getattr(state, part))
        if count:
            names = state.names if len(state.names) == count else tuple(f"joint_{k}" for k in range(count))
            infos[f"{name}.{part}"] = TopicInfo(
                f"{name}.{part}", "vector", num_messages, names, encoding="float64"
            )
    if not infos:
        return _other(name, num_messages, f"{JOINTS} without any value")

    def decode(data: bytes) -> Mapping[str, Payload]:
        found = cdr.joint_state(data)
        if found.names != state.names:
            raise cdr.CdrError(
                f"expected the joints {', '.join(state.names)}, found {', '.join(found.names)}; "
                "publish each set of joints on a topic of its own"
            )
        return {
            topic: _sized(getattr(found, topic.rpartition(".")[2]), info) for topic, info in infos.items()
        }

    return RosTopic(name, infos, True, decode)


def _vector(name: str, kind: cdr.VectorType, num_messages: int, first: bytes | None) -> RosTopic:
    count = len(kind.names or (kind.parse(first) if first is not None else ()))
    names = kind.names or tuple(f"value_{k}" for k in range(count))
    info = TopicInfo(name, "vector", num_messages, names, encoding="float64")
    return RosTopic(name, {name: info}, kind.stamped, lambda data: {name: _sized(kind.parse(data), info)})


def _sized(values: cdr.Vector, info: TopicInfo) -> cdr.Vector:
    if len(values) != len(info.names):
        raise cdr.CdrError(
            f"'{info.name}': expected {len(info.names)} values as in the first message, found {len(values)}"
        )
    return values
