"""Named arrays as one blob: what our attachments and the GOP table are made of.

On disk: the length of the JSON head and a crc32 of what follows, the head, which describes the arrays, then the
arrays, byte planes apart, in one zstd frame. Equal input gives equal bytes.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from dyna_train.episode.container import unpacked
from dyna_train.errors import BadInput, CorruptEpisode

_HEAD = struct.Struct("<II")  # length of the JSON, crc32 of all that follows
_LEVEL = 12  # written once, read by every training run
MOST_BYTES = 1 << 29
"""The most that the arrays of one blob take: the capture times of a day at 60 Hz of a dozen topics."""


def pack_arrays(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """JSON head and little-endian arrays as one blob. Raises BadInput for more than MOST_BYTES of them."""
    described = {
        name: [array.dtype.newbyteorder("<").str, list(array.shape)] for name, array in arrays.items()
    }
    text = json.dumps({**head, "arrays": described}, separators=(",", ":")).encode()
    size = sum(array.nbytes for array in arrays.values())
    if size > MOST_BYTES:
        raise BadInput(
            f"arrays of {size:,} bytes, expected at most {MOST_BYTES:,}; cut the episode into shorter ones"
        )
    planes = b"".join(_byte_planes(array) for array in arrays.values())
    packed: bytes = zstandard.ZstdCompressor(level=_LEVEL).compress(planes)
    body = text + packed
    return _HEAD.pack(len(text), zlib.crc32(body)) + body


def unpack_arrays(data: bytes | memoryview, *, what: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Head and arrays of `pack_arrays`. Raises CorruptEpisode that starts with `what`."""
    try:
        length, crc = _HEAD.unpack_from(data)
        body = memoryview(data)[_HEAD.size :]
        if zlib.crc32(body) != crc:
            raise ValueError(f"crc32 {zlib.crc32(body):08x}, expected {crc:08x}")
        head: dict[str, Any] = json.loads(bytes(body[:length]))
        shapes = {name: (np.dtype(code), tuple(shape)) for name, (code, shape) in head.pop("arrays").items()}
        sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in shapes.values()]
        planes = unpacked(body[length:], min(sum(sizes), MOST_BYTES))
        arrays, at = {}, 0
        for (name, (dtype, shape)), size in zip(shapes.items(), sizes, strict=True):
            arrays[name] = _from_planes(planes[at : at + size], dtype, shape)
            at += size
    except (
        struct.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        zstandard.ZstdError,
    ) as error:
        raise CorruptEpisode(f"{what}: not readable as arrays: {error!r}") from error
    return head, arrays


def _byte_planes(array: NDArray[Any]) -> bytes:
    """All lowest bytes, then all next ones: the high planes of small numbers compress to nothing."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.reshape(-1, 1).view(np.uint8).T.tobytes() if little.size else b""


def _from_planes(planes: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    bytes_2d = np.frombuffer(planes, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(bytes_2d.T).view(dtype).reshape(shape)
