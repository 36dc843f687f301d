"""One GOP as it lies in a file: the records of all cameras, step by step."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence

import av
from mcap.opcode import Opcode

from dyna_train.episode.container import MESSAGE_HEAD_BYTES, RECORD_HEAD_BYTES
from dyna_train.episode.source import ReadCounters
from dyna_train.errors import CorruptEpisode
from dyna_train.video.decode import decode_gop

_RECORD = struct.Struct("<BQHI")  # opcode, length, channel, sequence

Packets = Mapping[int, memoryview]
"""H.264 bytes by step."""


def message_payloads(data: memoryview, *, what: str) -> Iterator[tuple[int, int, memoryview]]:
    """Channel, sequence and payload of every message record in `data`, front to back.

    Raises CorruptEpisode that starts with `what` if the bytes are not message records.
    """
    at, end = 0, len(data)
    while at < end:
        opcode, length, channel, sequence = (
            _RECORD.unpack_from(data, at) if at + _RECORD.size <= end else (0, 0, 0, 0)
        )
        stop = at + RECORD_HEAD_BYTES + length
        if opcode != Opcode.MESSAGE or stop > end or at + MESSAGE_HEAD_BYTES > stop:
            raise CorruptEpisode(f"{what}: no message record at byte {at:,} of it; fetch the file again")
        yield channel, sequence, data[at + MESSAGE_HEAD_BYTES : stop]
        at = stop


def split_gop(
    data: memoryview, steps: range, heads: Sequence[int], *, what: str
) -> list[dict[int, memoryview]]:
    """The packets of every camera by step. heads: by camera, bytes of a message before its H.264 bytes.

    Raises CorruptEpisode that starts with `what` if a record is of no camera or no step of this GOP.
    """
    cameras: list[dict[int, memoryview]] = [{} for _ in heads]
    for channel, step, payload in message_payloads(data, what=what):
        if not 1 <= channel <= len(heads) or step not in steps:
            raise CorruptEpisode(
                f"{what}: a record of channel {channel}, step {step}, expected cameras 1-{len(heads)} and steps "
                f"{steps.start}-{steps.stop - 1}; fetch the file again"
            )
        cameras[channel - 1][step] = payload[heads[channel - 1] :]
    return cameras


class GopFrames:
    """The frames of one camera in one GOP, decoded as far as somebody asked, each once."""

    def __init__(self, packets: Packets, counters: ReadCounters, what: str) -> None:
        self._steps = list(packets)
        self._decoded: dict[int, av.VideoFrame] = {}
        self._counters = counters
        self._decoding = decode_gop(list(packets.values()), what=what)
        self._damage: CorruptEpisode | None = None

    @classmethod
    def checked(cls, packets: Packets, crc: int, counters: ReadCounters, what: str) -> GopFrames:
        """After a look at the checksum. Raises CorruptEpisode that starts with `what` if it differs."""
        found = 0
        for packet in packets.values():
            found = zlib.crc32(packet, found)
        if found != crc:
            raise CorruptEpisode(f"{what}: crc32 {found:08x}, expected {crc:08x}; fetch the file again")
        return cls(packets, counters, what)

    def frame(self, step: int) -> av.VideoFrame | None:
        """The frame of `step`; None where the camera has none. Raises CorruptEpisode, each time it is asked."""
        if step not in self._decoded and step in self._steps:
            try:
                self._decode_to(step)
            except CorruptEpisode as error:
                self._damage = error
                raise
        return self._decoded.get(step)

    def _decode_to(self, step: int) -> None:
        if self._damage is not None:
            raise self._damage
        for frame in self._decoding:
            here = self._steps[len(self._decoded)]
            self._decoded[here] = frame
            self._counters.decoded += 1
            if here == step:
                return
