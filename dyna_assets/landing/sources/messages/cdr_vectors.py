"""Vectors in CDR: where the numbers of a message lie, found once and taken from there in all messages like it.

A robot's messages of one topic nearly always have one layout: the same texts and lengths, so the same offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.sources.base import utf8
from dyna_assets.landing.sources.messages.cdr import STAMP_AT, Cdr
from dyna_assets.landing.sources.messages.ros2_types import Leaf
from dyna_assets.landing.sources.messages.topics import (
    Block,
    Data,
    Shape,
    joint_names,
)
from dyna_train.episode.profile import SECOND_NS


@dataclass(frozen=True, slots=True)
class Run:
    """Numbers in a row. code: of the struct module; offset: their first byte; part: see `Vectors`."""

    code: str
    offset: int
    count: int
    part: str = ""


@dataclass(frozen=True)
class Layout:
    """Where everything lies in a message of `size` bytes.

    pinned: what gives it this layout, the encapsulation, lengths and texts: (first byte, bytes). stamped: it
    begins with its capture time.
    """

    shape: Shape
    order: str
    size: int
    stamped: bool
    runs: tuple[Run, ...]
    pinned: tuple[tuple[int, bytes], ...]

    def take(self, messages: Sequence[bytes]) -> Block | None:
        """The stamps and vectors of the messages; None unless all of them have this layout."""
        if set(map(len, messages)) != {self.size}:
            return None
        joined = b"".join(messages)
        bytes_NB = np.frombuffer(joined, np.uint8).reshape(-1, self.size)
        if any(
            (bytes_NB[:, at : at + len(same)] != np.frombuffer(same, np.uint8)).any()
            for at, same in self.pinned
        ):
            return None
        rows_N = np.frombuffer(joined, self._dtype)
        parts: dict[str, list[NDArray[np.float64]]] = {}
        for number, run in enumerate(self.runs):
            parts.setdefault(run.part, []).append(rows_N[f"run{number}"].astype(np.float64))
        stamps_N = np.zeros(len(rows_N), np.int64)
        if self.stamped:
            stamps_N = rows_N["sec"].astype(np.int64) * SECOND_NS + rows_N["nanosec"]
        return Block(stamps_N, {part: np.concatenate(values, axis=1) for part, values in parts.items()})

    @cached_property
    def _dtype(self) -> np.dtype[np.void]:
        order = self.order
        fields = [
            (f"run{number}", (f"{order}{run.code}", (run.count,)), run.offset)
            for number, run in enumerate(self.runs)
        ]
        if self.stamped:
            fields += [("sec", f"{order}i4", STAMP_AT), ("nanosec", f"{order}u4", STAMP_AT + 4)]  # type: ignore[list-item]
        names, formats, offsets = zip(*fields, strict=True)
        return np.dtype(
            {"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": self.size}
        )


class CdrVectors:
    """The vectors of a topic. layout_of: finds the layout of one message."""

    def __init__(
        self, layout: Layout, layout_of: Callable[[Data], Layout], names: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.names = names
        self._layout, self._layout_of = layout, layout_of

    @classmethod
    def of_joints(cls, first: bytes) -> CdrVectors:
        """Of a topic of sensor_msgs/JointState, by its first message. Raises Unfit if that measures nothing."""
        layout = joint_layout(first)
        counts = {run.part: run.count for run in layout.runs}
        return cls(layout, joint_layout, joint_names(dict.fromkeys(counts, layout.shape.joints), counts))

    @classmethod
    def of_numbers(cls, leaves: Sequence[Leaf], first: bytes) -> CdrVectors:
        """Of a topic of messages with these leaves, by its first message. Raises Unfit, BadMessage."""
        layout = typed_layout(leaves, first)
        return cls(layout, lambda message: typed_layout(leaves, message), {"": layout.shape.names()})

    def block(self, messages: Sequence[bytes]) -> Block:
        """The vectors of some messages. Raises BadMessage."""
        if not messages:
            return Block(
                np.empty(0, np.int64), {part: np.empty((0, len(n))) for part, n in self.names.items()}
            )
        if (block := self._layout.take(messages)) is not None:
            return block
        blocks = [self._one(message) for message in messages]
        return Block(
            np.concatenate([block.stamps_N for block in blocks]),
            {part: np.concatenate([block.values[part] for block in blocks]) for part in self.names},
        )

    def _one(self, message: bytes) -> Block:
        """A message that may say the same with another layout: a longer name of its frame moves the numbers."""
        layout = self._layout_of(message)
        self._layout.shape.check(layout.shape)
        block = layout.take([message])
        assert block is not None, "a message has the layout that was found in it"
        return block


@dataclass(slots=True)
class _Found:
    """What a walk has come by."""

    parts: list[tuple[str, int | None]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    pinned: list[tuple[int, int]] = field(default_factory=lambda: [(0, 2)])  # (first byte, end)

    def layout(self, cdr: Cdr, data: Data, *, stamped: bool, joints: tuple[str, ...] = ()) -> Layout:
        shape = Shape(tuple(self.parts), tuple(self.texts), joints)
        runs = tuple(run for run in self.runs if run.count)
        pinned = tuple((start, bytes(data[start:end])) for start, end in self.pinned)
        return Layout(shape, cdr.order, len(data), stamped, runs, pinned)

    def length(self, cdr: Cdr) -> int:
        """A length, which is pinned."""
        start = cdr.run("I", 1)
        cdr.at = start
        self.pinned.append((start, start + 4))
        return cdr.length()

    def text(self, cdr: Cdr) -> str:
        """A text, which is pinned with its length."""
        size = self.length(cdr)
        self.pinned.append((cdr.at, cdr.at + size))
        return utf8(cdr.take(size).rstrip(b"\0"))

    def numbers(self, cdr: Cdr, path: str, code: str, count: int | None, part: str = "") -> None:
        """Numbers in a row; a count of None is a single one."""
        many = 1 if count is None else count
        self.parts.append((path, count))
        self.runs.append(Run(code, cdr.run(code, many), many, part))


def joint_layout(data: Data) -> Layout:
    """Of a sensor_msgs/JointState; a part per quantity, empty where a robot does not measure it."""
    cdr, found = Cdr(data), _Found()
    cdr.time()
    found.text(cdr)  # frame_id: of no importance to joints
    joints = tuple([found.text(cdr) for _ in range(found.length(cdr))])
    for part in ("position", "velocity", "effort"):  # in the order of the message
        found.numbers(cdr, part, "d", found.length(cdr), part)
    return found.layout(cdr, data, stamped=True, joints=joints)


def typed_layout(leaves: Sequence[Leaf], data: Data) -> Layout:
    """Of a message of any type that consists of numbers. Raises BadMessage."""
    cdr, found = Cdr(data), _Found()
    for leaf in leaves:
        if leaf.kind == "time":
            cdr.time()
        elif leaf.kind == "frame":
            found.texts.append((leaf.path, found.text(cdr)))
        elif leaf.kind == "folding":
            _pass_folding(cdr, found)
        else:
            count = found.length(cdr) if leaf.kind == "sequence" else leaf.size
            found.numbers(cdr, leaf.path, leaf.code, None if leaf.kind == "number" else count)
    return found.layout(cdr, data, stamped=leaves[0].kind == "time")


def _pass_folding(cdr: Cdr, found: _Found) -> None:
    """A std_msgs/MultiArrayLayout: how the numbers after it are to be folded, which changes none of them."""
    for _ in range(found.length(cdr)):  # dim
        found.text(cdr)
        cdr.run("I", 2)  # size, stride
    cdr.run("I", 1)  # data_offset
