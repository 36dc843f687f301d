"""Temporal units of AV1 and VP9: how many frames one shows, and whether decoding can start with it (pure).

A message holds one temporal unit: one frame that is shown, and frames that are not, from which it is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from dyna_train.video.access_units import CodedFrame, Picture
from dyna_train.video.bits import BadBitstream, BitReader
from dyna_train.video.framing import MAX_UNIT_BYTES, MAX_UNITS
from dyna_train.video.nal import Nal

_SEQUENCE_HEADER, _FRAME_HEADER, _FRAME = 1, 3, 6  # obu_type of AV1 (5.3.2)


class UnitFacts(NamedTuple):
    """Of one unit. num_shown: frames that it shows; num_hidden: that it holds besides."""

    num_shown: int
    num_hidden: int
    is_key: bool


@dataclass(slots=True)
class TemporalUnits:
    """The frame parser of a format whose messages hold temporal units.

    A message without a frame (headers that come before the first one) goes with the next.
    """

    read: Callable[[bytes], UnitFacts]
    _before: bytes = b""
    _started: bool = False
    _num_keys: int = 0
    _number: int = 0

    def feed(self, piece: int, data: bytes) -> Iterator[CodedFrame]:
        """The frame of this message; one for each, if it shows several."""
        if not data:
            return iter(())
        facts = self.read(data)
        if not facts.num_shown and facts.num_hidden:
            raise BadBitstream(
                f"{facts.num_hidden} frames, none of which is shown: a temporal unit was cut into several messages"
            )
        whole, self._before = self._before + data, b""
        if len(whole) > MAX_UNIT_BYTES:
            raise BadBitstream(f"more than {MAX_UNIT_BYTES >> 20} MiB without a frame")
        if not facts.num_shown:
            self._before = whole
            return iter(())
        self._started = self._started or facts.is_key
        self._num_keys += facts.is_key
        self._number += 1
        picture = Picture(self._number, is_start=facts.is_key, restarts=facts.is_key)
        frame = CodedFrame(
            piece, (Nal(memoryview(whole)),), picture, self._started, self._num_keys, is_annexb=False
        )
        return repeat(frame, facts.num_shown)

    def finish(self) -> Iterator[CodedFrame]:
        """Nothing: every message is whole."""
        return iter(())


class Av1:
    """Reads temporal units of AV1 (5.3, 5.9)."""

    def __init__(self) -> None:
        self._is_still: bool | None = None
        """reduced_still_picture_header of the last sequence header; None: there was none."""

    def read(self, unit: bytes) -> UnitFacts:
        """What one unit holds. Raises BadBitstream naming the byte."""
        num_shown = num_hidden = num_units = at = 0
        is_key = False
        while at < len(unit):
            kind, begin, at = _obu(unit, at)
            raw = BitReader(unit[begin : min(at, begin + 4)], f"OBU of type {kind} at byte {begin}")
            if kind == _SEQUENCE_HEADER:
                raw.bits(4)  # seq_profile, still_picture
                self._is_still = raw.flag()
            elif kind in (_FRAME_HEADER, _FRAME):
                is_shown, starts = self._frame(raw)
                is_key = is_key or (starts and not num_shown and not num_hidden)
                num_shown, num_hidden = num_shown + is_shown, num_hidden + (not is_shown)
            num_units += 1
            if num_units > MAX_UNITS:
                raise BadBitstream(f"more than {MAX_UNITS:,} OBUs in one message")
        return UnitFacts(num_shown, num_hidden, is_key)

    def _frame(self, raw: BitReader) -> tuple[bool, bool]:
        """(it is shown, decoding can start with it)."""
        if self._is_still:
            return True, True
        if raw.flag():  # show_existing_frame
            return True, False
        is_key, is_shown = raw.bits(2) == 0, raw.flag()
        return is_shown, is_key and is_shown and self._is_still is not None


def _obu(unit: bytes, at: int) -> tuple[int, int, int]:
    """(type, first byte of its content, end) of the OBU at byte `at`."""
    header, begin = unit[at], at + 1
    if header & 0x80:
        raise BadBitstream(f"byte {at}: 0x{header:02x} is no OBU header of AV1, its first bit is set")
    begin += header >> 2 & 1  # extension
    if not header & 2:
        return header >> 3 & 15, begin, len(unit)
    size = shift = 0
    while True:  # leb128
        if begin >= len(unit) or shift > 49:
            raise BadBitstream(f"byte {at}: the OBU ends inside its size")
        size |= (unit[begin] & 0x7F) << shift
        begin, shift = begin + 1, shift + 7
        if not unit[begin - 1] & 0x80:
            break
    if begin + size > len(unit):
        raise BadBitstream(f"byte {at}: an OBU of {size} bytes, but the unit ends at byte {len(unit)}")
    return header >> 3 & 15, begin, begin + size


def read_vp9(unit: bytes) -> UnitFacts:
    """What one unit of VP9 holds: a frame, or a superframe of several (6.2, annex B). Raises BadBitstream."""
    frames = [_vp9_frame(unit[begin:end], begin) for begin, end in _vp9_frames(unit) if end > begin]
    num_shown = sum(is_shown for is_shown, _ in frames)
    return UnitFacts(num_shown, len(frames) - num_shown, bool(frames) and frames[0][1])


def _vp9_frame(frame: bytes, at: int) -> tuple[bool, bool]:
    """(it is shown, it is a keyframe)."""
    raw = BitReader(frame[:2], f"VP9 frame at byte {at}")
    if raw.bits(2) != 2:
        raise BadBitstream(f"byte {at}: 0x{frame[0]:02x} is no header of a VP9 frame")
    if raw.bits(2) == 3:
        raw.flag()
    if raw.flag():  # show_existing_frame
        return True, False
    is_key = not raw.flag()
    return raw.flag(), is_key


def _vp9_frames(unit: bytes) -> list[tuple[int, int]]:
    """(begin, end) of the frames in a unit, by the index at its end."""
    marker = unit[-1]
    num_frames, size_bytes = (marker & 7) + 1, (marker >> 3 & 3) + 1
    begin_of_index = len(unit) - 2 - num_frames * size_bytes
    if marker & 0xE0 != 0xC0 or begin_of_index < 0 or unit[begin_of_index] != marker:
        return [(0, len(unit))]
    found, at = [], 0
    for number in range(num_frames):
        begin = begin_of_index + 1 + number * size_bytes
        size = int.from_bytes(unit[begin : begin + size_bytes], "little")
        if at + size > begin_of_index:
            raise BadBitstream(f"frame {number} of a superframe leads beyond byte {begin_of_index}")
        found.append((at, at + size))
        at += size
    return found
