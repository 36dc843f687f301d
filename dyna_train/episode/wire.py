"""The protobuf wire format: what our messages need of it, and no more."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from dyna_train.errors import CorruptEpisode

_VARINT, _BYTES, _FIXED32 = 0, 2, 5  # wire types
_FIXED_BYTES = {1: 8, _FIXED32: 4}


def number(field: int, value: int) -> bytes:
    """A varint field; nothing for 0, which is every field's default."""
    return varint(field << 3 | _VARINT) + varint(value) if value else b""


def padded_number(field: int, value: int, width: int) -> bytes:
    """A varint field whose value takes `width` bytes, zero or not."""
    return varint(field << 3 | _VARINT) + padded_varint(value, width)


def fixed32(field: int, value: int) -> bytes:
    """A fixed32 field."""
    return varint(field << 3 | _FIXED32) + struct.pack("<I", value)


def text(field: int, value: str) -> bytes:
    """A string field; nothing for the empty one."""
    return block(field, value.encode()) if value else b""


def block(field: int, data: bytes) -> bytes:
    """A field of bytes, a string or a message."""
    return varint(field << 3 | _BYTES) + varint(len(data)) + data


def block_head(field: int, length: int, width: int) -> bytes:
    """What stands before the `length` bytes of a block; the length takes `width` bytes."""
    return varint(field << 3 | _BYTES) + padded_varint(length, width)


def padded_varint(value: int, width: int) -> bytes:
    """A varint in exactly `width` bytes: the format lets a number end in groups of zeros.

    Raises ValueError for a value that needs more.
    """
    if value >> 7 * width:
        raise ValueError(f"{value} does not fit a varint of {width} bytes")
    groups = [value >> 7 * k & 0x7F for k in range(width)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def varint(value: int) -> bytes:
    """A number of 0 or more in groups of seven bits."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def int_of(fields: dict[int, int | memoryview], number: int) -> int:
    """The number in field `number`, 0 if it is absent. Raises CorruptEpisode if it holds bytes."""
    value = fields.get(number, 0)
    if not isinstance(value, int):
        raise CorruptEpisode(f"protobuf field {number} holds {len(value)} bytes, expected a number")
    return value


def bytes_of(fields: dict[int, int | memoryview], number: int) -> memoryview:
    """The bytes in field `number`, none if it is absent. Raises CorruptEpisode if it holds a number."""
    value = fields.get(number, memoryview(b""))
    if isinstance(value, int):
        raise CorruptEpisode(f"protobuf field {number} holds a number, expected bytes")
    return value


def fixed32_of(fields: dict[int, int | memoryview], number: int) -> int:
    """The fixed32 in field `number`, 0 if it is absent. Raises CorruptEpisode if it holds anything else."""
    value = fields.get(number, b"\0\0\0\0")
    if isinstance(value, int) or len(value) != 4:
        raise CorruptEpisode(f"protobuf field {number} is no fixed32")
    return int.from_bytes(value, "little")


def fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Every field of a message in file order: its number, and its value or bytes.

    Raises CorruptEpisode naming the byte where the message stops making sense.
    """
    at = 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(view, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            length, at = _read_varint(view, at)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise CorruptEpisode(f"protobuf wire type {kind} at byte {at}: expected 0, 1, 2 or 5")
        if at + length > len(view):
            raise CorruptEpisode(
                f"protobuf field {tag >> 3} of {length} bytes at byte {at} ends after {len(view)}"
            )
        yield tag >> 3, view[at : at + length]
        at += length


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise CorruptEpisode(f"protobuf varint does not end at byte {at} of {len(view)}")
