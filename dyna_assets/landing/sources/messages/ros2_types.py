"""The fields of a ROS 2 message type, from the definition that a file carries or that ROS 2 ships."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

from dyna_assets.landing.sources.base import MOST_DIMENSIONS
from dyna_assets.landing.sources.messages.file import RawTopic
from dyna_assets.landing.sources.messages.topics import STAMP_FIELDS, Unfit, is_frame
from dyna_train.errors import MissingExtra

try:
    from rosbags.interfaces import Nodetype
    from rosbags.typesys import Stores, TypesysError, get_types_from_idl, get_types_from_msg, get_typestore
except ImportError as error:
    raise MissingExtra.of("rosbags", "assets", "Reading ROS 2 messages") from error

HEADER_TYPE = "std_msgs/msg/Header"
TIME_TYPE = "builtin_interfaces/msg/Time"
LAYOUT_TYPE = "std_msgs/msg/MultiArrayLayout"
NUMBERS: Mapping[str, str] = {
    "bool": "B", "byte": "B", "octet": "B", "char": "B", "uint8": "B", "int8": "b",
    "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "uint64": "Q", "int64": "q",
    "float32": "f", "float64": "d",
}  # fmt: skip
"""Types that are numbers, with their code of the struct module."""
_DUMMY = "structure_needs_at_least_one_member"  # the field of types that have none
_MOST_DEPTH, _MOST_LEAVES = 20, 10 * MOST_DIMENSIONS  # a type may contain itself, or lists of nothing
_IDL_HEAD = re.compile(r"^=+\nIDL: .*\n", re.MULTILINE)  # stands before each type, where there are several
_Types = Mapping[str, tuple[Any, list[tuple[str, Any]]]]


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field. name: of a number, 'string', or a message type. size: of a fixed array, else None."""

    name: str
    size: int | None = None
    is_sequence: bool = False


@dataclass(frozen=True, slots=True)
class TypeTree:
    """A message type and those it is made of. name: of the outermost."""

    name: str
    types: _Types

    def fields(self, name: str) -> list[tuple[str, FieldType]]:
        """(field, type) of a message type. Raises Unfit if nothing defines it."""
        found = self.types.get(name) or _standard_types().get(name)
        if found is None:
            raise Unfit(f"nothing says what a {name} is")
        return [(field, _field_type(described)) for field, described in found[1]]


class Leaf(NamedTuple):
    """A field that holds something itself.

    kind 'number'; 'array' and 'sequence' of numbers; 'time', the message's capture time; 'frame', the name of a
    coordinate frame; 'folding', a std_msgs/MultiArrayLayout. code: of the numbers, for the struct module; size: of
    an array.
    """

    path: str
    kind: Literal["number", "array", "sequence", "time", "frame", "folding"]
    code: str = ""
    size: int = 0


def leaves_of(types: TypeTree) -> tuple[Leaf, ...]:
    """All fields of a message in order, from nested messages too. Raises Unfit if it is not made of numbers.

    A header or a stamp that it begins with is its capture time; anywhere else times are numbers as others.
    """
    fields = types.fields(types.name)
    if [name for name, _ in fields] in ([], [_DUMMY]):
        raise Unfit("it is empty")
    leaves = _stamp_leaves(fields)
    for name, kind in fields[1:] if leaves else fields:
        _grow(types, kind, name, leaves)
    return tuple(leaves)


def is_stamped(types: TypeTree) -> bool:
    """Whether messages begin with their capture time. Raises Unfit."""
    return bool(_stamp_leaves(types.fields(types.name)))


def _stamp_leaves(fields: list[tuple[str, FieldType]]) -> list[Leaf]:
    name, kind = fields[0] if fields else ("", FieldType(""))
    if kind == FieldType(HEADER_TYPE):
        return [Leaf("stamp", "time"), Leaf("frame_id", "frame")]
    return [Leaf(name, "time")] if name in STAMP_FIELDS and kind == FieldType(TIME_TYPE) else []


def _grow(types: TypeTree, kind: FieldType, path: str, leaves: list[Leaf]) -> None:
    if path.count(".") > _MOST_DEPTH or len(leaves) > _MOST_LEAVES:
        raise Unfit(f"'{path[:80]}…' is nested too deep, or has too many fields")
    if kind.name in NUMBERS:
        form: Literal["sequence", "array", "number"]
        form = "sequence" if kind.is_sequence else "number" if kind.size is None else "array"
        leaves.append(Leaf(path, form, NUMBERS[kind.name], kind.size or 0))
    elif kind.is_sequence:
        raise Unfit(f"'{path}' is a list of {kind.name}, of any length")
    elif kind.size is not None:
        if kind.size > MOST_DIMENSIONS:
            raise Unfit(
                f"'{path}' is an array of {kind.size:,} {kind.name}, expected at most {MOST_DIMENSIONS:,}"
            )
        for number in range(kind.size):
            _grow(types, FieldType(kind.name), f"{path}.{number}", leaves)
    elif kind.name == "string":
        if not is_frame(path.rpartition(".")[2]):
            raise Unfit(f"'{path}' is text")
        leaves.append(Leaf(path, "frame"))
    elif kind.name == LAYOUT_TYPE:
        leaves.append(Leaf(path, "folding"))
    else:
        fields = types.fields(kind.name)
        if not fields:
            raise Unfit(f"'{path}' is empty")  # ROS puts a byte where there is no field
        for name, inner in fields:
            _grow(types, inner, f"{path}.{name}", leaves)


def type_name(raw: RawTopic) -> str:
    """'sensor_msgs/msg/Image'; older recorders leave out the middle part."""
    package, slash, kind = raw.schema_name.partition("/")
    return raw.schema_name if "/" in kind or not slash else f"{package}/msg/{kind}"


def type_tree(raw: RawTopic) -> TypeTree:
    """The type of a topic's messages. Raises Unfit if its definition cannot be read."""
    name = type_name(raw)
    try:
        text = raw.schema_data.decode().replace("\r\n", "\n")
        if not text.strip():
            return TypeTree(name, {})
        if "idl" in raw.schema_encoding:
            parts = [part for part in _IDL_HEAD.split(text) if part.strip()]
            return TypeTree(
                name, {key: kind for part in parts for key, kind in get_types_from_idl(part).items()}
            )
        types = get_types_from_msg(text, name)
    except (TypesysError, UnicodeDecodeError, RecursionError, ValueError) as error:
        said = " ".join(str(error).split())[:120]
        raise Unfit(f"its definition cannot be read: {said}") from None
    return TypeTree(next(iter(types)), types)  # rosbags spells the names of services another way


def _field_type(described: Any) -> FieldType:
    """rosbags' description of a field, in our words."""
    node, what = described
    if node in (Nodetype.BASE, Nodetype.NAME):
        return FieldType(what[0] if node == Nodetype.BASE else str(PurePosixPath(what)))
    inner, size = what
    return FieldType(
        _field_type(inner).name,
        size=size if node == Nodetype.ARRAY else None,
        is_sequence=node == Nodetype.SEQUENCE,
    )


@cache
def _standard_types() -> _Types:
    """What ROS 2 ships; for files without definitions, such as bags of its first years."""
    types: _Types = get_typestore(Stores.LATEST).fielddefs
    return types
