"""One GOP as it lies in a file: the records of all cameras, step by step."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Mapping

import av

from dyna_train.episode.container import message_payloads
from dyna_train.episode.source import ReadCounters
from dyna_train.errors import CorruptEpisode
from dyna_train.video.decode import decode_gop

_STEP = struct.Struct("<I")

Packets = Mapping[int, memoryview]
"""H.264 bytes by step."""


def split_gop(
    data: memoryview, steps: range, heads: Mapping[int, int], *, what: str
) -> dict[int, dict[int, memoryview]]:
    """The packets by channel and step. heads: bytes of a message before its H.264 bytes, by a camera's channel.

    Raises CorruptEpisode that starts with `what` if a record is of no camera or no step of this GOP.
    """
    cameras: dict[int, dict[int, memoryview]] = {channel: {} for channel in heads}
    for message in message_payloads(data, what=what):
        channel, step = message.channel, message.sequence
        if channel not in heads or step not in steps:
            raise CorruptEpisode(
                f"{what}: a record of channel {channel}, step {step}, expected channels {list(heads)} and steps "
                f"{steps.start}-{steps.stop - 1}; fetch the file again"
            )
        cameras[channel][step] = message.payload[heads[channel] :]
    return cameras


def frame_crc(step: int, packet: bytes | memoryview, crc: int) -> int:
    """The crc32 of a GOP of one camera after its frame of `step`; 0 before its first.

    Over step (uint32) and H.264 bytes, so that a frame cannot change its place.
    """
    return zlib.crc32(packet, zlib.crc32(_STEP.pack(step), crc))


class GopFrames:
    """The frames of one camera in one GOP, decoded as far as somebody asked, each once.

    Only frames of steps in `keep` stay; to ask for another one that was passed by decodes the GOP again.
    """

    def __init__(self, packets: Packets, keep: Container[int], counters: ReadCounters, what: str) -> None:
        self._packets = packets
        self._steps = list(packets)
        self._keep = keep
        self._what = what
        self._counters = counters
        self._kept: dict[int, av.VideoFrame] = {}
        self._decoding = decode_gop(list(packets.values()), what=what)
        self._num_decoded = 0
        self._damage: CorruptEpisode | None = None

    @classmethod
    def checked(
        cls, packets: Packets, crc: int, keep: Container[int], counters: ReadCounters, what: str
    ) -> GopFrames:
        """After a look at the checksum. Raises CorruptEpisode that starts with `what` if it differs."""
        found = 0
        for step, packet in packets.items():
            found = frame_crc(step, packet, found)
        if found != crc:
            raise CorruptEpisode(f"{what}: crc32 {found:08x}, expected {crc:08x}; fetch the file again")
        return cls(packets, keep, counters, what)

    def frame(self, step: int) -> av.VideoFrame | None:
        """The frame of `step`; None where the camera has none. Raises CorruptEpisode, each time it is asked."""
        if step in self._kept or step not in self._packets:
            return self._kept.get(step)
        if self._damage is not None:
            raise self._damage
        if step in self._steps[: self._num_decoded]:  # passed by, and not kept
            self._decoding = decode_gop(list(self._packets.values()), what=self._what)
            self._num_decoded = 0
        try:
            return self._decode_to(step)
        except CorruptEpisode as error:
            self._damage = error
            raise

    def _decode_to(self, step: int) -> av.VideoFrame | None:
        for frame in self._decoding:
            here = self._steps[self._num_decoded]
            self._num_decoded += 1
            self._counters.decoded += 1
            if here in self._keep:
                self._kept[here] = frame
            if here == step:
                return frame
        return None
