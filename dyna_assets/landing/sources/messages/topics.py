"""What the messages of one topic are to us: pictures, video, vectors, or kept as they came.

The modules of the encodings (`ros2_topics`, `protobuf_topics`, `json_topics`) find it out from a topic's schema and
first message; everything after them sees only a `MessageTopic`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Payload, TopicInfo
from dyna_assets.landing.sources.base import MOST_DIMENSIONS
from dyna_assets.landing.sources.messages.file import RawTopic
from dyna_assets.text import sayable

STAMP_FIELDS = ("timestamp", "stamp")
"""What a message's capture time is called, in the message itself or in its `header`."""
HEADER = "header"
JOINT_NAMES = ("name", "names", "joint_names")
"""What a message calls the list of its joints' names, beside lists of their values."""

Data = bytes | memoryview
StampNs = Callable[[Data], int]
"""The capture time that a message states, in ns since the epoch; 0 if it states none. Raises BadMessage."""


class BadMessage(ValueError):
    """Bytes that are not the message they claim to be, or that differ from their topic's first message."""


class Unfit(ValueError):
    """Why a topic is neither pictures nor vectors."""


class Shape(NamedTuple):
    """What all messages of a vector topic have in common.

    parts: (field, number of its values), None for a single number. texts: (field, text) of the coordinate frames.
    joints: their names, where a message lists them.
    """

    parts: tuple[tuple[str, int | None], ...]
    texts: tuple[tuple[str, str], ...] = ()
    joints: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """One name per value: 'pose.position.x', 'covariance.0', 'covariance.1'. Raises Unfit."""
        count = sum(1 if count is None else count for _, count in self.parts)
        if not 0 < count <= MOST_DIMENSIONS:
            raise Unfit(f"its first message has {count:,} numbers, expected 1 to {MOST_DIMENSIONS:,}")
        return tuple(sayable(name) for path, count in self.parts for name in _names(path, count))

    def check(self, found: Shape) -> None:
        """Raises BadMessage that says what differs between the first message (self) and another one."""
        if found == self:
            return
        if found.joints != self.joints:
            raise BadMessage(
                f"expected the joints {', '.join(self.joints)}, found {', '.join(found.joints) or 'none'}; "
                "publish each set of joints on a topic of its own"
            )
        for (path, expected), (other, text) in zip(self.texts, found.texts, strict=False):
            if path == other and expected != text:
                raise BadMessage(
                    f"expected {path} '{expected}' as in the first message, found '{text}'; "
                    "publish each coordinate frame on a topic of its own"
                )
        counts = dict(found.parts)
        for path, count in self.parts:
            if path in counts and counts[path] != count:
                raise BadMessage(
                    f"expected {_amount(count)} of '{path}' as in the first message, found {_amount(counts[path])}"
                )
        raise BadMessage(
            f"expected the fields {_listed(self)} as in the first message, found {_listed(found)}"
        )


def _names(path: str, count: int | None) -> list[str]:
    if count is None:
        return [path or "value"]
    return [f"{path}.{number}" if path else str(number) for number in range(count)]


def _amount(count: int | None) -> str:
    if count is None:
        return "one number"
    return "1 value" if count == 1 else f"{count} values"


def _listed(shape: Shape) -> str:
    return ", ".join([path for path, _ in (*shape.parts, *shape.texts)]) or "none"


def joint_names(
    measured: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """By part, a name for each of its `counts` values: that of its joint, made up where it has not as many joints.

    Raises Unfit where no part has a value.
    """
    if not counts:
        raise Unfit("joint states without any value")
    return {
        part: tuple(map(sayable, measured[part]))
        if len(measured[part]) == count
        else tuple(f"joint_{number}" for number in range(count))
        for part, count in counts.items()
    }


class Block(NamedTuple):
    """Some messages in a row. stamps_N: int64 as of StampNs; values: by part, float64 [N, D]."""

    stamps_N: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]


class Vectors(Protocol):
    """Messages that are vectors. names: by part, one per dimension.

    A part is what becomes a topic of its own ('position' of joint states); '' is the message's only vector.
    """

    names: Mapping[str, tuple[str, ...]]

    def block(self, messages: Sequence[bytes]) -> Block:
        """The vectors of some messages. Raises BadMessage if one of them is damaged or unlike the first."""
        ...


@dataclass(frozen=True, slots=True)
class Pictures:
    """Messages that are one picture each; width and height in pixels, 0 before the first one."""

    picture: Callable[[Data], Payload]
    width: int = 0
    height: int = 0
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class Video:
    """Messages that hold compressed video. codec: one of `frames.CODECS`; unit: a message's bytes of it."""

    codec: str
    unit: Callable[[Data], bytes]


@dataclass(frozen=True, slots=True)
class Other:
    """Messages that are nothing of the above, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class MessageTopic:
    """One topic of a file. missing: why it cannot be read although its type is known ('' if it can)."""

    raw: RawTopic
    form: Pictures | Video | Vectors | Other
    stamp_ns: StampNs
    missing: str = ""

    def infos(self) -> dict[str, TopicInfo]:
        """By part, the topics made of it, under the file's name; a picture's only part is ''."""
        name, count, form = self.raw.name, self.raw.num_messages, self.form
        if isinstance(form, Other):
            return {"": TopicInfo(name, "other", count, encoding=form.reason)}
        if isinstance(form, Pictures):
            width, height, encoding = form.width, form.height, form.encoding
            return {"": TopicInfo(name, "image", count, width=width, height=height, encoding=encoding)}
        if isinstance(form, Video):
            return {"": TopicInfo(name, "image", count, encoding=form.codec)}
        return {
            part: TopicInfo(f"{name}.{part}" if part else name, "vector", count, names, encoding="float64")
            for part, names in form.names.items()
        }


def topic_of(
    raw: RawTopic, stamp_ns: StampNs, build: Callable[[], Pictures | Video | Vectors]
) -> MessageTopic:
    """The topic as `build` finds it from its first message; kept as it came where `build` says why it is unfit.

    A first message that is not what its type says makes the topic missing, with the reason.
    """
    try:
        return MessageTopic(raw, build(), stamp_ns)
    except Unfit as why:
        return MessageTopic(raw, Other(str(why)), stamp_ns)
    except (BadMessage, RecordingError) as error:
        reason = f"its first message is no {raw.schema_name or raw.message_encoding}: {error}"
        return MessageTopic(raw, Other(reason), stamp_ns, missing=reason)


def first_of_topic(raw: RawTopic, first: bytes | None) -> bytes:
    """The first message. Raises Unfit where there is none to tell what the topic is."""
    if first is None:
        raise Unfit("there is no message to tell what its vectors are")
    return first


def is_frame(field: str) -> bool:
    """Whether a text field names a coordinate frame; a vector may stand beside it, and it has to stay as it is."""
    return field.replace("_", "").lower().endswith("frameid")


def no_stamp(data: Data) -> int:
    """For messages that state no capture time."""
    return 0
