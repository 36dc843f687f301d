"""Vectors of messages that name their fields (protobuf, JSON): laid flat one by one, and held against the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dyna_assets.landing.sources.base import JOINT_PARTS
from dyna_assets.landing.sources.messages.topics import BadMessage, Block, Shape, Unfit, joint_names


@dataclass(slots=True)
class Flat:
    """One message laid flat. values: its numbers by part, see `Vectors`; parts, texts and joints: see `Shape`.

    measured: by part, the joints that its values are of; empty where the message does not list joints.
    """

    stamp_ns: int = 0
    parts: list[tuple[str, int | None]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    joints: tuple[str, ...] = ()
    values: dict[str, list[float]] = field(default_factory=lambda: {"": []})
    measured: dict[str, Sequence[str]] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """What it has to have in common with the topic's other messages."""
        return Shape(tuple(self.parts), tuple(self.texts), self.joints)

    def names(self) -> dict[str, tuple[str, ...]]:
        """By part, a name for each value. Raises Unfit where there are none, or too many."""
        if "" in self.values:
            return {"": self.shape.names()}
        return joint_names(self.measured, {part: len(values) for part, values in self.values.items()})

    def number(self, path: str, value: float) -> None:
        """A single number."""
        self.parts.append((path, None))
        self.values[""].append(value)

    def numbers(self, path: str, values: Sequence[float]) -> None:
        """A list of numbers."""
        self.parts.append((path, len(values)))
        self.values[""].extend(values)


class FlatVectors:
    """The vectors of a topic. read: lays a message flat, raises BadMessage."""

    def __init__(
        self, read: Callable[[bytes], Flat], first: Flat, names: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.names = names
        self._read, self._shape = read, first.shape

    @classmethod
    def of(cls, read: Callable[[bytes], Flat], first: bytes) -> FlatVectors:
        """By the topic's first message. Raises Unfit where it is no vector, BadMessage."""
        flat = read(first)
        return cls(read, flat, flat.names())

    def block(self, messages: Sequence[bytes]) -> Block:
        """The vectors of some messages. Raises BadMessage."""
        try:
            flats = [self._read(message) for message in messages]
        except Unfit as why:
            raise BadMessage(f"expected numbers only, as in the first message: {why}") from None
        for flat in flats:
            self._shape.check(flat.shape)
        try:
            stamps_N = np.array([flat.stamp_ns for flat in flats], np.int64)
            values = {part: [flat.values[part] for flat in flats] for part in self.names}
            return Block(stamps_N, {part: np.array(rows, np.float64) for part, rows in values.items()})
        except OverflowError as error:
            raise BadMessage(f"a number that a float64 or a time that an int64 cannot say: {error}") from None


def joint_rows(stamp_ns: int, rows: Sequence[tuple[str, Mapping[str, float]]]) -> Flat:
    """A message of joints, each with its name and values; a part per quantity that one of them has."""
    flat = Flat(stamp_ns, joints=tuple(name for name, _ in rows), values={})
    for quantity in JOINT_PARTS:
        having = [(name, values[quantity]) for name, values in rows if quantity in values]
        if having:
            flat.parts += [(f"{quantity} of {name}", None) for name, _ in having]
            flat.values[quantity] = [value for _, value in having]
            flat.measured[quantity] = [name for name, _ in having]
    return flat


def joint_lists(stamp_ns: int, joints: Sequence[str], lists: Mapping[str, Sequence[float]]) -> Flat:
    """A message of the joints' names and a list of values for each quantity, which is a part if there are any."""
    flat = Flat(stamp_ns, joints=tuple(joints), values={})
    for quantity, values in lists.items():
        if len(values):
            flat.parts.append((quantity, len(values)))
            flat.values[quantity] = list(values)
            flat.measured[quantity] = joints
    return flat
