"""What a topic of JSON messages is to us: Foxglove's pictures, video and joints, or numbers in any nesting.

Foxglove's JSON holds bytes as base64 and times as {"sec": …, "nsec": …}.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Mapping
from typing import Any

from dyna_assets.landing.rfc3339 import parse_rfc3339_ns
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
    Unfit,
    first_of_topic,
    is_frame,
    topic_of,
)
from dyna_train.episode.profile import SECOND_NS

_SECONDS = ("sec", "secs", "seconds")
_NANOSECONDS = ("nsec", "nsecs", "nanosec", "nanos", "nanoseconds")


def json_topic(raw: RawTopic, first: bytes | None) -> MessageTopic:
    """The topic by its schema's name and its first message, None if it has none."""
    where = f"topic '{raw.name}' message 0"
    if raw.schema_name in ("foxglove.CompressedImage", "foxglove.CompressedVideo"):
        return topic_of(raw, _stamp_ns, lambda: coded_pictures(_coded, first, where))
    if raw.schema_name == "foxglove.RawImage":
        return topic_of(raw, _stamp_ns, lambda: raw_pictures(_raw, first))
    read = _joints if raw.schema_name == "foxglove.JointStates" else _flat
    return topic_of(raw, _stamp_ns, lambda: FlatVectors.of(read, first_of_topic(raw, first)))


def _parsed(data: Data) -> Any:
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"not readable as JSON: {error}") from None


def _object(data: Data) -> dict[str, Any]:
    found = _parsed(data)
    if not isinstance(found, dict):
        raise BadMessage(f"expected a JSON object, found {_kind(found)}")
    return found


def _stamp_ns(data: Data) -> int:
    return _capture(_parsed(data))[0]


def _capture(message: Any) -> tuple[int, str]:
    """(capture time in ns since the epoch, the field it stands in); (0, '') where a message states none."""
    for holder, prefix in ((message, ""), (_entry(message, HEADER), f"{HEADER}.")):
        for name in STAMP_FIELDS:
            if (time_ns := _time_ns(_entry(holder, name))) is not None:
                return time_ns, prefix + name
    return 0, ""


def _entry(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else None


def _time_ns(value: Any) -> int | None:
    """A time as Foxglove and ROS ({'sec', 'nsec'}) or protobuf (RFC 3339 text) write it in JSON, else None."""
    if isinstance(value, dict):
        seconds = next((value[name] for name in _SECONDS if name in value), None)
        nanoseconds = next((value[name] for name in _NANOSECONDS if name in value), 0)
        if type(seconds) is int and type(nanoseconds) is int:
            return seconds * SECOND_NS + nanoseconds
    if isinstance(value, str):
        try:
            return parse_rfc3339_ns(value)
        except ValueError:  # some other text
            return None
    return None


def _coded(data: Data) -> CodedPicture:
    message = _object(data)
    return CodedPicture(_text(message, "format"), _bytes(message, "data"))


def _raw(data: Data) -> RawPicture:
    message = _object(data)
    width, height, step = (_count(message, name) for name in ("width", "height", "step"))
    return RawPicture(width, height, _text(message, "encoding"), step, _bytes(message, "data"))


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise BadMessage(f"expected text in '{name}', found {_kind(value)}")
    return value


def _count(message: Mapping[str, Any], name: str) -> int:
    value = message.get(name)
    if type(value) is not int or value < 0:
        raise BadMessage(f"expected a whole number in '{name}', found {_kind(value)}")
    return value


def _bytes(message: Mapping[str, Any], name: str) -> bytes:
    text = _text(message, name)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadMessage(f"'{name}' is no base64: {error}") from None


def _joints(data: bytes) -> Flat:
    message = _object(data)
    joints = message.get("joints")
    if not isinstance(joints, list) or not all(isinstance(joint, dict) for joint in joints):
        raise BadMessage(f"expected a list of objects in 'joints', found {_kind(joints)}")
    rows = []
    for joint in joints:
        values = {name: joint[name] for name in JOINT_PARTS if joint.get(name) is not None}
        if bad := next((name for name, value in values.items() if not _is_number(value)), ""):
            raise BadMessage(f"expected a number in '{bad}' of a joint, found {_kind(values[bad])}")
        rows.append((_text(joint, "name"), values))
    return joint_rows(_capture(message)[0], rows)


def _flat(data: bytes) -> Flat:
    message = _parsed(data)
    stamp_ns, stamped_by = _capture(message)
    if names := _joint_list(message):
        return joint_lists(stamp_ns, message[names], _lists(message, {names, HEADER, stamped_by}))
    flat = Flat(stamp_ns)
    try:
        _lay(message, "", stamped_by, flat)
    except RecursionError:
        raise BadMessage("nested too deep") from None
    return flat


def _joint_list(message: Any) -> str:
    """The field that lists the names of the joints whose values the message lists; '' where it does not."""
    if not any(isinstance(_entry(message, part), list) for part in JOINT_PARTS):
        return ""
    return next((name for name in JOINT_NAMES if _is_texts(_entry(message, name))), "")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _lists(message: Mapping[str, Any], besides: Collection[str]) -> dict[str, list[float]]:
    """The lists of numbers that stand beside the names of joints; coordinate frames are of no importance to joints."""
    found = {name: value for name, value in message.items() if name not in besides and not is_frame(name)}
    for name, value in found.items():
        if not isinstance(value, list) or not all(map(_is_number, value)):
            raise Unfit(f"'{name}' is {_kind(value)}, beside the names of joints")
    return found


def _lay(value: Any, path: str, stamped_by: str, flat: Flat) -> None:
    if stamped_by and path == stamped_by:
        return
    if _is_number(value):
        flat.number(path, value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            _lay(inner, f"{path}.{name}" if path else name, stamped_by, flat)
    elif isinstance(value, list) and all(map(_is_number, value)):
        flat.numbers(path, value)
    elif isinstance(value, list) and all(isinstance(inner, list) for inner in value):
        for number, inner in enumerate(value):
            _lay(inner, f"{path}.{number}" if path else str(number), stamped_by, flat)
    elif isinstance(value, str) and is_frame(path.rpartition(".")[2]):
        flat.texts.append((path, value))
    else:
        raise Unfit(f"'{path}' is {_kind(value)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _kind(value: Any) -> str:
    names = {type(None): "nothing", str: "text", list: "a list", dict: "an object", bool: "true or false"}
    return names.get(type(value), "a number")
