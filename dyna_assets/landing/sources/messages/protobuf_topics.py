"""What a topic of protobuf messages is to us: Foxglove's pictures, video and joints, or numbers in any nesting.

The schema of such a topic is a FileDescriptorSet, from which the protobuf library makes its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple

from dyna_assets.landing.sources.base import JOINT_PARTS
from dyna_assets.landing.sources.messages.file import RawTopic
from dyna_assets.landing.sources.messages.flat_vectors import Flat, FlatVectors, joint_lists, joint_rows
from dyna_assets.landing.sources.messages.pictures import (
    CodedPicture,
    RawPicture,
    coded_pictures,
    raw_pictures,
)
from dyna_assets.landing.sources.messages.topics import (
    HEADER,
    JOINT_NAMES,
    STAMP_FIELDS,
    BadMessage,
    Data,
    MessageTopic,
    Other,
    Unfit,
    first_of_topic,
    is_frame,
    no_stamp,
    topic_of,
)
from dyna_train.episode.profile import SECOND_NS
from dyna_train.errors import MissingExtra

try:
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        message_factory,
        timestamp_pb2,
        wrappers_pb2,
    )
    from google.protobuf.descriptor import FieldDescriptor as Field
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise MissingExtra.of("protobuf", "assets", "Reading protobuf messages") from error

_WELL_KNOWN = {
    module.DESCRIPTOR.name: module.DESCRIPTOR for module in (timestamp_pb2, duration_pb2, wrappers_pb2)
}
_CODED = {"format": Field.TYPE_STRING, "data": Field.TYPE_BYTES}
_SIZES = dict.fromkeys(("width", "height", "step"), Field.TYPE_FIXED32)
_FOXGLOVE: Mapping[str, Mapping[str, object]] = {
    "foxglove.CompressedImage": _CODED,
    "foxglove.CompressedVideo": _CODED,
    "foxglove.RawImage": {"encoding": Field.TYPE_STRING, "data": Field.TYPE_BYTES, **_SIZES},
    "foxglove.JointStates": {"joints": {"name": Field.TYPE_STRING}},
}
"""The fields that are read of Foxglove's messages, with their types."""
_TIME = {"seconds": Field.TYPE_INT64, "nanos": Field.TYPE_INT32}
# what the library raises on a descriptor set that is damaged, contradicts itself or lacks a file
_BAD_SCHEMA = (DecodeError, TypeError, KeyError, ValueError, RecursionError)


def protobuf_topic(raw: RawTopic, first: bytes | None) -> MessageTopic:
    """The topic by its schema and its first message, None if it has none."""
    try:
        kind = _message_class(raw)
    except _BAD_SCHEMA as error:
        said = " ".join(str(error).split())[:120]
        return MessageTopic(raw, Other(f"{raw.schema_name}: its schema cannot be read: {said}"), no_stamp)
    messages = _Messages(kind)
    where = f"topic '{raw.name}' message 0"
    laid_out = _is_laid_out(kind.DESCRIPTOR, _FOXGLOVE.get(raw.schema_name, {}))
    if laid_out and raw.schema_name in ("foxglove.CompressedImage", "foxglove.CompressedVideo"):
        return topic_of(raw, messages.stamp_ns, lambda: coded_pictures(messages.coded, first, where))
    if laid_out and raw.schema_name == "foxglove.RawImage":
        return topic_of(raw, messages.stamp_ns, lambda: raw_pictures(messages.raw, first))
    read = messages.joints if laid_out and raw.schema_name == "foxglove.JointStates" else messages.flat
    return topic_of(raw, messages.stamp_ns, lambda: _vectors(raw, read, first_of_topic(raw, first)))


def _is_laid_out(kind: Any, expected: Mapping[str, object]) -> bool:
    """Whether a type has fields of the expected types; anybody can call theirs 'foxglove.RawImage'."""
    for name, form in expected.items():
        field = kind.fields_by_name.get(name)
        if field is None:
            return False
        if isinstance(form, dict):
            if not (_is_repeated(field) and field.message_type and _is_laid_out(field.message_type, form)):
                return False
        elif field.type != form or _is_repeated(field):
            return False
    return True


def _vectors(raw: RawTopic, read: Callable[[bytes], Flat], first: bytes) -> FlatVectors:
    try:
        return FlatVectors.of(read, first)
    except Unfit as why:
        raise Unfit(f"{raw.schema_name}: {why}") from None


def _message_class(raw: RawTopic) -> Any:
    """The class of a topic's messages. Raises one of _BAD_SCHEMA."""
    described = descriptor_pb2.FileDescriptorSet.FromString(raw.schema_data).file
    files = {file.name: file for file in described}
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for name in files:
        _add(pool, name, files, added)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(raw.schema_name))


def _add(pool: Any, name: str, files: dict[str, Any], added: set[str]) -> None:
    """Add a file after those it needs; a set may hold them in any order, and leave out the well-known ones."""
    if name in added:
        return
    added.add(name)
    if name not in files:
        pool.AddSerializedFile(_WELL_KNOWN[name].serialized_pb)
        return
    for needed in files[name].dependency:
        _add(pool, needed, files, added)
    pool.AddSerializedFile(files[name].SerializeToString())


class _FieldPlan(NamedTuple):
    """How a field is laid flat. has_presence: a message may be without it."""

    name: str
    path: str
    form: Literal["number", "numbers", "message", "frame"]
    has_presence: bool

    @classmethod
    def of(cls, field: Any, prefix: str) -> _FieldPlan:
        """Raises Unfit for a field that is neither numbers, nor a message, nor the name of a coordinate frame."""
        name, path = field.name, prefix + field.name
        if field.cpp_type == Field.CPPTYPE_STRING:
            if field.type == Field.TYPE_BYTES or _is_repeated(field) or not is_frame(name):
                raise Unfit(f"'{path}' is {'bytes' if field.type == Field.TYPE_BYTES else 'text'}")
            return cls(name, path, "frame", field.has_presence)
        if _is_repeated(field):
            if field.message_type:
                raise Unfit(f"'{path}' is a list of messages, of any length")
            return cls(name, path, "numbers", has_presence=False)
        return cls(name, path, "message" if field.message_type else "number", field.has_presence)


class _Messages:
    """Reads the messages of one type."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._stamped_by = _stamp_path(kind.DESCRIPTOR)
        self._joint_list = _joint_list(kind.DESCRIPTOR)
        self._plans: dict[tuple[str, str], list[_FieldPlan]] = {}

    def parse(self, data: Data) -> Any:
        """The message. Raises BadMessage."""
        try:
            return self._kind.FromString(bytes(data))
        except DecodeError as error:
            raise BadMessage(f"not readable as protobuf: {error}") from None

    def stamp_ns(self, data: Data) -> int:
        """Its capture time, see `StampNs`."""
        return self._stamp_of(self.parse(data))

    def coded(self, data: Data) -> CodedPicture:
        """A foxglove.CompressedImage or CompressedVideo."""
        message = self.parse(data)
        return CodedPicture(message.format, message.data)

    def raw(self, data: Data) -> RawPicture:
        """A foxglove.RawImage."""
        message = self.parse(data)
        return RawPicture(message.width, message.height, message.encoding, message.step, message.data)

    def joints(self, data: bytes) -> Flat:
        """A foxglove.JointStates."""
        message = self.parse(data)
        rows = [
            (joint.name, {field.name: getattr(joint, field.name) for field in _quantities(joint)})
            for joint in message.joints
        ]
        return joint_rows(self._stamp_of(message), rows)

    def flat(self, data: bytes) -> Flat:
        """A message of any type of numbers. Raises Unfit for another type."""
        message = self.parse(data)
        if self._joint_list:
            lists = {name: getattr(message, name) for name in self._quantities}
            return joint_lists(self._stamp_of(message), getattr(message, self._joint_list), lists)
        flat = Flat(self._stamp_of(message))
        self._lay(message, "", flat)
        return flat

    @cached_property
    def _quantities(self) -> list[str]:
        """The lists of numbers beside the names of joints. Raises Unfit for anything else that stands there."""
        besides = {self._joint_list, HEADER, self._stamped_by}
        fields = [field for field in self._kind.DESCRIPTOR.fields if field.name not in besides]
        plans = [_FieldPlan.of(field, "") for field in fields]
        for plan in plans:
            if plan.form not in ("numbers", "frame"):
                raise Unfit(f"'{plan.path}' is a {plan.form}, beside the names of joints")
        return [plan.name for plan in plans if plan.form == "numbers"]

    def _lay(self, message: Any, prefix: str, flat: Flat) -> None:
        kind = message.DESCRIPTOR
        plan = self._plans.get((kind.full_name, prefix))
        if plan is None:
            fields = [
                _FieldPlan.of(field, prefix)
                for field in kind.fields
                if prefix + field.name != self._stamped_by
            ]
            plan = self._plans[kind.full_name, prefix] = fields
        for field in plan:
            value = getattr(message, field.name)
            if field.has_presence and not message.HasField(field.name):
                continue
            if field.form == "number":
                flat.number(field.path, value)
            elif field.form == "numbers":
                flat.numbers(field.path, value)
            elif field.form == "message":
                self._lay(value, f"{field.path}.", flat)
            else:
                flat.texts.append((field.path, value))

    def _stamp_of(self, message: Any) -> int:
        if not self._stamped_by:
            return 0
        for name in self._stamped_by.split("."):
            message = getattr(message, name)
        return int(message.seconds) * SECOND_NS + int(message.nanos)


def _stamp_path(kind: Any) -> str:
    """Where messages of a type state their capture time, '' if they do not."""
    header = kind.fields_by_name.get(HEADER)
    holders = [
        (kind, ""),
        (header.message_type if header and not _is_repeated(header) else None, f"{HEADER}."),
    ]
    for holder, prefix in holders:
        for name in STAMP_FIELDS if holder else ():
            field = holder.fields_by_name.get(name)
            if field and not _is_repeated(field) and _is_time(field.message_type):
                return str(prefix + name)
    return ""


def _joint_list(kind: Any) -> str:
    """The field that lists the names of the joints whose values messages list; '' where they do not."""
    lists = {field.name: field for field in kind.fields if _is_repeated(field)}
    if not any(part in lists and not lists[part].message_type for part in JOINT_PARTS):
        return ""
    return next((name for name in JOINT_NAMES if name in lists and lists[name].type == Field.TYPE_STRING), "")


def _is_time(kind: Any) -> bool:
    """Whether a type (None: a number's) is protobuf's Timestamp, and has its fields."""
    return kind is not None and kind.full_name == "google.protobuf.Timestamp" and _is_laid_out(kind, _TIME)


def _quantities(joint: Any) -> Iterator[Any]:
    """The fields of a foxglove.JointState that it measures."""
    for field in joint.DESCRIPTOR.fields:
        is_double = field.type == Field.TYPE_DOUBLE and not _is_repeated(field)
        is_set = not field.has_presence or joint.HasField(field.name)
        if field.name in JOINT_PARTS and is_double and is_set:
            yield field


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)
