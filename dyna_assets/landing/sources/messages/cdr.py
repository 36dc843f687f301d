"""The ROS 2 messages of pictures and joints, straight from CDR bytes: headers without touching a picture.

Layout: 4 bytes of encapsulation, then fields aligned to their size counted from after those 4 bytes;
strings and sequences have a uint32 length in front.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from dyna_assets.landing.sources.base import utf8
from dyna_assets.landing.sources.messages.pictures import CodedPicture, RawPicture
from dyna_assets.landing.sources.messages.topics import BadMessage, Data
from dyna_train.episode.profile import SECOND_NS

HEAD_BYTES = 4
STAMP_AT = HEAD_BYTES
"""Where the stamp lies in a message that begins with a header or a time."""
_STAMP_END = STAMP_AT + 8
_ORDERS = {0: ">", 1: "<"}
_STAMPS = {code: struct.Struct(f"{order}iI") for code, order in _ORDERS.items()}


class Cdr:
    """A cursor over one message. order: '<' or '>'; at: the next byte."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self.order = _ORDERS[_representation(data)]
        self.at = HEAD_BYTES

    def number(self, code: str) -> int | float:
        """One number; code as in the struct module: 'I', 'i', 'd', 'B'."""
        start = self.run(code, 1)
        (value,) = struct.unpack_from(self.order + code, self._data, start)
        return value  # type: ignore[no-any-return]

    def run(self, code: str, count: int) -> int:
        """Pass `count` numbers in a row; returns where they begin."""
        size = struct.calcsize(f"={code}")
        if count:
            self.at += -(self.at - HEAD_BYTES) % size
        self._need(count * size)
        start = self.at
        self.at += count * size
        return start

    def length(self) -> int:
        """A uint32 count."""
        return int(self.number("I"))

    def string(self) -> str:
        """Text; its length counts the closing zero."""
        return utf8(self.take(self.length()).rstrip(b"\0"))

    def take(self, size: int) -> bytes:
        """The next bytes as they are."""
        self._need(size)
        piece = bytes(self._data[self.at : self.at + size])
        self.at += size
        return piece

    def header(self) -> None:
        """Pass a std_msgs/Header."""
        self.time()
        self.string()  # frame_id

    def time(self) -> None:
        """Pass a builtin_interfaces/Time."""
        self.run("i", 1), self.run("I", 1)

    def _need(self, size: int) -> None:
        if self.at + size > len(self._data):
            raise BadMessage(
                f"ends at byte {len(self._data):,}, a field needs bytes {self.at:,} to {self.at + size:,}"
            )


def _representation(data: Data) -> int:
    if len(data) < HEAD_BYTES or data[0] != 0 or data[1] not in _ORDERS:
        found = bytes(data[:HEAD_BYTES]).hex(" ") or "nothing"
        raise BadMessage(f"expected plain CDR (bytes 00 00 or 00 01 first), found {found}")
    return int(data[1])


def stamp_ns(data: Data) -> int:
    """The stamp of a message that begins with a header or a time, in ns since the epoch; 0 if it was never set."""
    if len(data) < _STAMP_END or data[0] or data[1] not in _STAMPS:
        _representation(data)
        raise BadMessage(f"ends at byte {len(data):,}, its stamp needs bytes {STAMP_AT} to {_STAMP_END}")
    seconds, nanoseconds = _STAMPS[data[1]].unpack_from(data, STAMP_AT)
    return int(seconds * SECOND_NS + nanoseconds)


def compressed_image(data: Data) -> CodedPicture:
    """sensor_msgs/CompressedImage."""
    cdr = Cdr(data)
    cdr.header()
    return CodedPicture(cdr.string(), cdr.take(cdr.length()))


def foxglove_coded(data: Data) -> CodedPicture:
    """foxglove_msgs/CompressedImage and CompressedVideo."""
    cdr = Cdr(data)
    cdr.time()
    cdr.string()  # frame_id
    payload = cdr.take(cdr.length())
    return CodedPicture(cdr.string(), payload)


def ffmpeg_packet(data: Data) -> CodedPicture:
    """ffmpeg_image_transport_msgs/FFMPEGPacket."""
    cdr = Cdr(data)
    cdr.header()
    cdr.length(), cdr.length()  # width, height
    encoding = cdr.string()
    cdr.run("Q", 1), cdr.run("B", 2)  # pts, flags, is_bigendian
    return CodedPicture(encoding, cdr.take(cdr.length()))


def raw_image(data: Data) -> RawPicture:
    """sensor_msgs/Image."""
    cdr = Cdr(data)
    cdr.header()
    height, width, encoding = cdr.length(), cdr.length(), cdr.string()
    cdr.run("B", 1)  # is_bigendian: nothing to swap in the 8-bit encodings
    step = cdr.length()
    return RawPicture(width, height, encoding, step, cdr.take(cdr.length()))


def foxglove_raw_image(data: Data) -> RawPicture:
    """foxglove_msgs/RawImage."""
    cdr = Cdr(data)
    cdr.time()
    cdr.string()  # frame_id
    width, height, encoding, step = cdr.length(), cdr.length(), cdr.string(), cdr.length()
    return RawPicture(width, height, encoding, step, cdr.take(cdr.length()))


CODED_PICTURES: dict[str, Callable[[Data], CodedPicture]] = {
    "sensor_msgs/msg/CompressedImage": compressed_image,
    "foxglove_msgs/msg/CompressedImage": foxglove_coded,
    "foxglove_msgs/msg/CompressedVideo": foxglove_coded,
    "ffmpeg_image_transport_msgs/msg/FFMPEGPacket": ffmpeg_packet,
}
RAW_PICTURES: dict[str, Callable[[Data], RawPicture]] = {
    "sensor_msgs/msg/Image": raw_image,
    "foxglove_msgs/msg/RawImage": foxglove_raw_image,
}
