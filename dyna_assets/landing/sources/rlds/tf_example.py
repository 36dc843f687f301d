"""tf.train.Example, the message in a TFRecord: named lists of bytes, float32 or int64, parsed in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.sources.base import utf8
from dyna_train.episode import wire
from dyna_train.errors import CorruptEpisode

MAX_FEATURES = 10_000
MAX_ITEMS = 1 << 20
"""Of one list of bytes: 14 hours of pictures at 20 Hz. Damaged bytes can promise more than memory holds."""
VARINT_BYTES = 10


@dataclass(frozen=True, slots=True)
class Feature:
    """One list. kind '': a list of nothing, whose kind is unknown. items: of bytes, views into the record.

    numbers: float32 or int64 [N], of the other kinds.
    """

    kind: Literal["bytes", "float32", "int64", ""] = ""
    items: Sequence[memoryview] = ()
    numbers: NDArray[Any] = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        """Entries of the list."""
        return len(self.items) if self.kind == "bytes" else len(self.numbers)


def parse_example(view: memoryview) -> dict[str, Feature]:
    """The features by name, sorted. Raises CorruptEpisode where the bytes are no tf.train.Example."""
    found: dict[str, Feature] = {}
    for features in _blocks(view, 1):
        for number, entry in enumerate(_blocks(features, 1)):
            if number == MAX_FEATURES:
                raise CorruptEpisode(f"more than {MAX_FEATURES:,} features in one record")
            fields = dict(wire.fields(entry))
            # names are UTF-8 in every protobuf; others stay told apart
            name = utf8(bytes(wire.bytes_of(fields, 1)))
            found[name] = _feature(wire.bytes_of(fields, 2))
    return dict(sorted(found.items()))


def _feature(view: memoryview) -> Feature:
    feature = Feature()
    for number, block in wire.fields(view):
        if isinstance(block, int):
            raise CorruptEpisode(f"protobuf field {number} of a feature holds a number, expected a list")
        if number == 1:
            feature = Feature("bytes", tuple(_limited(_blocks(block, 1))))
        elif number == 2:
            feature = Feature("float32", numbers=_floats(block))
        elif number == 3:
            feature = Feature("int64", numbers=_integers(block))
    return feature


def _floats(view: memoryview) -> NDArray[np.float32]:
    """Packed, as all writers do, or one by one, as the format allows; both are the same bytes."""
    pieces = list(_limited(_blocks(view, 1)))
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if len(data) % 4:
        raise CorruptEpisode(f"{len(data)} bytes of floats, expected a multiple of 4")
    return np.frombuffer(data, "<f4")


def _integers(view: memoryview) -> NDArray[np.int64]:
    pieces = [
        np.array([value], np.uint64) if isinstance(value, int) else _packed(value)
        for value in _limited(value for number, value in wire.fields(view) if number == 1)
    ]
    return np.concatenate(pieces or [np.empty(0, np.uint64)]).view(np.int64)


def _packed(view: memoryview) -> NDArray[np.uint64]:
    """Varints one after the other, all at once."""
    raw = np.frombuffer(view, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if len(raw) and (not len(ends) or ends[-1] != len(raw) - 1):
        raise CorruptEpisode("the last integer of a list does not end")
    starts = np.concatenate([[0], ends + 1])[: len(ends)]
    lengths = ends - starts + 1
    if lengths.max(initial=0) > VARINT_BYTES:
        raise CorruptEpisode(f"an integer of {lengths.max()} bytes, expected {VARINT_BYTES} at most")
    values = np.zeros(len(ends), np.uint64)
    for byte in range(lengths.max(initial=0)):
        has = lengths > byte
        values[has] |= (raw[starts[has] + byte].astype(np.uint64) & 0x7F) << np.uint64(7 * byte)
    return values


def _blocks(view: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, block in wire.fields(view):
        if number == wanted:
            if isinstance(block, int):
                raise CorruptEpisode(f"protobuf field {number} holds a number, expected bytes")
            yield block


def _limited(values: Iterator[Any]) -> Iterator[Any]:
    for number, value in enumerate(values):
        if number == MAX_ITEMS:
            raise CorruptEpisode(f"more than {MAX_ITEMS:,} entries in one list")
        yield value
