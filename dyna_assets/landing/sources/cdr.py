"""The ROS 2 messages of robot recordings, straight from CDR bytes: headers without touching a picture.

Layout: 4 bytes of encapsulation, then fields aligned to their size counted from after those 4 bytes;
strings and sequences have a uint32 length in front.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

NS = 1_000_000_000
Vector = NDArray[np.float64]
PIXELS = {
    "rgb8": ("rgb24", 3),
    "bgr8": ("bgr24", 3),
    "mono8": ("gray", 1),
    "rgba8": ("rgba", 4),
    "bgra8": ("bgra", 4),
}
"""sensor_msgs/Image encodings that are read: (FFmpeg's name, bytes a pixel)."""


class CdrError(ValueError):
    """Bytes that are not the message they claim to be."""


class Cdr:
    """A cursor over one message."""

    def __init__(self, data: bytes) -> None:
        if len(data) < 4 or data[0] != 0 or data[1] not in (0, 1):
            raise CdrError(
                f"expected plain CDR (bytes 00 00 or 00 01 first), found {data[:4].hex(' ') or 'nothing'}"
            )
        self._data = data
        self._order = "<" if data[1] == 1 else ">"
        self._at = 4

    def number(self, code: str) -> int | float:
        """One number; code as in the struct module: 'I', 'i', 'd', 'B'."""
        size = struct.calcsize(code)
        self._align(size)
        self._need(size)
        (value,) = struct.unpack_from(self._order + code, self._data, self._at)
        self._at += size
        return value  # type: ignore[no-any-return]

    def length(self) -> int:
        """A uint32 count."""
        return int(self.number("I"))

    def string(self) -> str:
        """Text; its length counts the closing zero."""
        return self.take(self.length()).rstrip(b"\0").decode("utf-8", errors="replace")

    def take(self, size: int) -> bytes:
        """The next bytes as they are."""
        self._need(size)
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece

    def numbers(self, code: str) -> NDArray[np.float64]:
        """A sequence of numbers as float64 [N]; code 'd' or 'f'."""
        count = self.length()
        size = struct.calcsize(code)
        if count:
            self._align(size)
        raw = self.take(count * size)
        return np.frombuffer(raw, np.dtype(f"{self._order}f{size}")).astype(np.float64)

    def strings(self) -> list[str]:
        """A sequence of strings."""
        return [self.string() for _ in range(self.length())]

    def stamp_ns(self) -> int:
        """A std_msgs/Header; its stamp in ns since the epoch, 0 if it was never set."""
        seconds, ns = int(self.number("i")), int(self.number("I"))
        self.string()  # frame_id
        return seconds * NS + ns

    def _align(self, size: int) -> None:
        self._at += -(self._at - 4) % size

    def _need(self, size: int) -> None:
        if self._at + size > len(self._data):
            raise CdrError(
                f"ends at byte {len(self._data):,}, a field needs bytes {self._at:,} to {self._at + size:,}"
            )


class RawImage(NamedTuple):
    """sensor_msgs/Image; step: bytes a row, width padding included."""

    width: int
    height: int
    encoding: str
    step: int
    data: bytes

    def frame(self) -> av.VideoFrame:
        """The picture as a video frame. Raises CdrError for an encoding not in PIXELS or too few bytes."""
        if self.encoding not in PIXELS:
            raise CdrError(f"picture encoding '{self.encoding}', expected one of {', '.join(PIXELS)}")
        pixels, depth = PIXELS[self.encoding]
        row = self.width * depth
        if self.step < row or len(self.data) != self.step * self.height:
            raise CdrError(
                f"{self.width}x{self.height} {self.encoding} with rows of {self.step} bytes needs "
                f"{self.step * self.height:,} bytes, found {len(self.data):,}"
            )
        rows = np.frombuffer(self.data, np.uint8).reshape(self.height, self.step)[:, :row]
        shape = (self.height, self.width) if depth == 1 else (self.height, self.width, depth)
        return av.VideoFrame.from_ndarray(np.ascontiguousarray(rows).reshape(shape), format=pixels)


class JointState(NamedTuple):
    """sensor_msgs/JointState; the sequences are empty where a robot does not measure them."""

    names: tuple[str, ...]
    position: NDArray[np.float64]
    velocity: NDArray[np.float64]
    effort: NDArray[np.float64]


def compressed_image(data: bytes) -> tuple[str, bytes]:
    """sensor_msgs/CompressedImage: (format, picture bytes)."""
    cdr = Cdr(data)
    cdr.stamp_ns()
    return cdr.string(), cdr.take(cdr.length())


def raw_image(data: bytes) -> RawImage:
    """sensor_msgs/Image."""
    cdr = Cdr(data)
    cdr.stamp_ns()
    height, width, encoding = cdr.length(), cdr.length(), cdr.string()
    cdr.number("B")  # is_bigendian: nothing to swap in the 8-bit encodings
    step = cdr.length()
    return RawImage(width, height, encoding, step, cdr.take(cdr.length()))


def joint_state(data: bytes) -> JointState:
    """sensor_msgs/JointState."""
    cdr = Cdr(data)
    cdr.stamp_ns()
    return JointState(tuple(cdr.strings()), cdr.numbers("d"), cdr.numbers("d"), cdr.numbers("d"))


def _multi_array(code: str) -> Callable[[bytes], NDArray[np.float64]]:
    def parse(data: bytes) -> NDArray[np.float64]:
        cdr = Cdr(data)
        for _ in range(cdr.length()):  # layout.dim
            cdr.string(), cdr.length(), cdr.length()
        cdr.length()  # layout.data_offset
        return cdr.numbers(code)

    return parse


def _scalar(code: str) -> Callable[[bytes], NDArray[np.float64]]:
    return lambda data: np.array([Cdr(data).number(code)], np.float64)


def _fields(count: int, stamped: bool) -> Callable[[bytes], NDArray[np.float64]]:
    def parse(data: bytes) -> NDArray[np.float64]:
        cdr = Cdr(data)
        if stamped:
            cdr.stamp_ns()
        return np.array([cdr.number("d") for _ in range(count)], np.float64)

    return parse


@dataclass(frozen=True, slots=True)
class VectorType:
    """A message type that is one vector; names empty: as many as the message has, numbered."""

    parse: Callable[[bytes], NDArray[np.float64]]
    stamped: bool
    names: tuple[str, ...] = ()


_POSE = ("x", "y", "z", "qx", "qy", "qz", "qw")
_TWIST = ("vx", "vy", "vz", "wx", "wy", "wz")
_WRENCH = ("fx", "fy", "fz", "tx", "ty", "tz")

VECTOR_TYPES: Mapping[str, VectorType] = {
    "std_msgs/msg/Float32MultiArray": VectorType(_multi_array("f"), False),
    "std_msgs/msg/Float64MultiArray": VectorType(_multi_array("d"), False),
    "std_msgs/msg/Float32": VectorType(_scalar("f"), False),
    "std_msgs/msg/Float64": VectorType(_scalar("d"), False),
    "geometry_msgs/msg/Pose": VectorType(_fields(7, False), False, _POSE),
    "geometry_msgs/msg/PoseStamped": VectorType(_fields(7, True), True, _POSE),
    "geometry_msgs/msg/Twist": VectorType(_fields(6, False), False, _TWIST),
    "geometry_msgs/msg/TwistStamped": VectorType(_fields(6, True), True, _TWIST),
    "geometry_msgs/msg/Wrench": VectorType(_fields(6, False), False, _WRENCH),
    "geometry_msgs/msg/WrenchStamped": VectorType(_fields(6, True), True, _WRENCH),
}
