"""H.264 as bytes: access units into NAL units and back, slice headers, mp4's framing into Annex B (pure).

*Access unit*: the bytes of one frame. *NAL unit*: one part of it (a slice, a parameter set). *Annex B*: NAL
units behind start codes, as the episode file holds them. *AVCC*: NAL units behind their lengths, as mp4 and
Matroska hold them, with the parameter sets kept apart. Numbers in brackets are sections of ITU-T H.264.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dyna_train.video.bits import BadBitstream, BitReader, unescape

START = b"\0\0\1"
SLICE, IDR, SEI, SPS, PPS, DELIMITER = 1, 5, 6, 7, 8, 9  # nal_unit_type (table 7-1)
_SLICE_TYPES: tuple[Literal["P", "B", "I", "SP", "SI"], ...] = ("P", "B", "I", "SP", "SI")
_HEADER_BYTES = 16  # more than the fields up to frame_num take in any picture
AVCC_VERSION = 1

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Nal:
    """One NAL unit. data: its bytes from the header byte on; offset: where they start in what was split."""

    data: memoryview
    offset: int = field(default=0, compare=False)

    @property
    def type(self) -> int:
        """nal_unit_type, 0 to 31."""
        return self.data[0] & 0x1F


@dataclass(frozen=True, slots=True)
class Slice:
    """The start of a slice header (7.3.3). first_mb: 0 where a frame begins.

    is_reference: later pictures may be predicted from it.
    """

    first_mb: int
    kind: Literal["P", "B", "I", "SP", "SI"]
    pps_id: int
    is_idr: bool
    is_reference: bool


@dataclass(frozen=True, slots=True)
class AccessUnit:
    """What one message or packet holds: its NAL units and the headers of its slices, in order."""

    nals: tuple[Nal, ...]
    slices: tuple[Slice, ...]

    @property
    def num_frames(self) -> int:
        """Frames that begin in it: 1 if it is one access unit (a field counts as a frame)."""
        return sum(part.first_mb == 0 for part in self.slices)

    @property
    def is_idr(self) -> bool:
        """True if decoding can start here: every slice belongs to an IDR picture."""
        return bool(self.slices) and all(part.is_idr for part in self.slices)

    @property
    def kinds(self) -> str:
        """The types of its slices, each once: 'I', 'P', 'BP'."""
        return "".join(sorted({part.kind for part in self.slices}))

    @property
    def first_slice(self) -> Nal | None:
        """The NAL unit of its first slice; None if it has none."""
        return next((nal for nal in self.nals if nal.type in (SLICE, IDR)), None)

    def of_type(self, nal_type: int) -> list[Nal]:
        """Its NAL units of one type, in order."""
        return [nal for nal in self.nals if nal.type == nal_type]

    @property
    def has_parameter_sets(self) -> bool:
        """True if an SPS and a PPS stand in it, before its first slice."""
        types = [nal.type for nal in self.nals]
        before = types[: next((at for at, kind in enumerate(types) if kind in (SLICE, IDR)), len(types))]
        return SPS in before and PPS in before


def parse_access_unit(data: Bytes) -> AccessUnit:
    """What the Annex B bytes of one message or packet hold. Raises BadBitstream."""
    return read_access_unit(split_annexb(data))


def read_access_unit(nals: Sequence[Nal]) -> AccessUnit:
    """Parse the slice headers among `nals`. Raises BadBitstream."""
    slices = [parse_slice(nal) for nal in nals if nal.type in (SLICE, IDR)]
    return AccessUnit(tuple(nals), tuple(slices))


def split_annexb(data: Bytes) -> list[Nal]:
    """The NAL units of Annex B bytes; start codes of 3 or 4 bytes and zero bytes at the end are not in them.

    Raises BadBitstream naming the byte where no start code is, or where a unit is empty or has a bad header.
    """
    stream = bytes(data)
    start = stream.find(START)
    if start < 0 or stream[:start].strip(b"\0"):
        raise BadBitstream(
            f"byte 0: expected an Annex B start code (00 00 01), found {stream[:4].hex(' ') or 'nothing'}"
            f" in {len(stream)} bytes"
        )
    view, nals = memoryview(stream), []
    while start >= 0:
        begin, start = start + len(START), stream.find(START, start + len(START))
        nals.append(_unit(view, begin, start if start >= 0 else len(stream)))
    return nals


def join_annexb(nals: Iterable[Nal]) -> bytes:
    """Annex B bytes of one access unit. `split_annexb` gives the same units back.

    The first unit and parameter sets get the start code of four bytes, as the standard asks (B.1.2).
    Raises BadBitstream for a unit that holds a start code or ends in a zero byte.
    """
    parts: list[bytes | memoryview] = []
    for nal in nals:
        if nal.data[-1] == 0 or START in bytes(nal.data):
            raise BadBitstream(
                f"byte {nal.offset}: a NAL unit of type {nal.type} holds a start code or ends in a zero byte: "
                "its emulation prevention is missing"
            )
        parts += [START if parts and nal.type not in (SPS, PPS) else b"\0" + START, nal.data]
    return b"".join(parts)


def split_avcc(data: Bytes, length_bytes: int) -> list[Nal]:
    """The NAL units of one mp4 packet, each behind its length of length_bytes (1, 2 or 4).

    Raises BadBitstream naming the byte where a length leads beyond the end, or a unit is empty.
    """
    view, nals, at = memoryview(bytes(data)), [], 0
    while at < len(view):
        begin = at + length_bytes
        at = begin + int.from_bytes(view[begin - length_bytes : begin], "big")
        if at > len(view):
            raise BadBitstream(
                f"byte {begin - length_bytes}: a NAL unit of {at - begin} bytes, "
                f"but the packet ends at byte {len(view)}"
            )
        nals.append(_unit(view, begin, at))
    return nals


def parse_slice(nal: Nal) -> Slice:
    """The start of the slice header in a NAL unit of type 1 or 5. Raises BadBitstream."""
    return _slice(nal, _header_of(nal))


def read_frame_num(nal: Nal, num_bits: int, *, has_planes: bool) -> int:
    """`frame_num` of the picture of a NAL unit of type 1 or 5. Raises BadBitstream.

    num_bits, has_planes: what its SPS says, `Sps.frame_num_bits` and `Sps.has_separate_planes`.
    """
    raw = _header_of(nal)
    _slice(nal, raw)
    if has_planes:
        raw.bits(2)  # colour_plane_id
    return raw.bits(num_bits)


def parse_pps(unit: Bytes, what: str = "PPS") -> tuple[int, int]:
    """(its id, the id of its SPS) of the picture parameter set in a NAL unit of type 8. Raises BadBitstream."""
    raw = BitReader(unescape(unit)[1:], what)
    return raw.ue("pic_parameter_set_id", 255), raw.ue("seq_parameter_set_id", 31)


@dataclass(frozen=True, slots=True)
class Avcc:
    """The decoder configuration of an mp4 track ('avcC'): the bytes of a length, and the parameter sets."""

    length_bytes: int
    parameter_sets: tuple[Nal, ...]


def parse_avcc(extradata: Bytes) -> Avcc:
    """The configuration in a track's extradata. Raises BadBitstream naming the byte."""
    data = bytes(extradata)
    if len(data) < 7 or data[0] != AVCC_VERSION:
        raise BadBitstream(
            f"byte 0: expected an avcC record of version {AVCC_VERSION}, found "
            f"{data[:4].hex(' ') or 'nothing'} in {len(data)} bytes"
        )
    sets, at = [], 5
    for mask in (0x1F, 0xFF):  # SPS, then PPS
        if at >= len(data):
            raise BadBitstream(f"byte {at}: the avcC record ends where a count of parameter sets should be")
        count, at = data[at] & mask, at + 1
        for _ in range(count):
            begin = at + 2
            at = begin + int.from_bytes(data[begin - 2 : begin], "big")
            if begin > len(data) or at > len(data):
                raise BadBitstream(f"byte {begin - 2}: a parameter set leads beyond the {len(data)} bytes")
            sets.append(_unit(memoryview(data), begin, at))
    return Avcc((data[4] & 3) + 1, tuple(sets))


class AnnexBWriter:
    """Makes each access unit of one stream one that an episode file can hold.

    Keeps the parameter sets in force, from `parameter_sets` (of the container) and from the units fed, and
    puts those that an IDR unit lacks in front of it. Everything else passes unchanged.
    """

    def __init__(self, parameter_sets: Iterable[Nal] = ()) -> None:
        self._in_force: dict[tuple[int, int], Nal] = {}
        self._note(parameter_sets)

    @property
    def parameter_sets(self) -> list[Nal]:
        """Those in force: every SPS, then every PPS."""
        return [self._in_force[key] for key in sorted(self._in_force)]

    def convert(self, nals: Sequence[Nal]) -> Sequence[Nal]:
        """The units of one frame with, if it is an IDR, every parameter set in force among them.

        `nals` itself where nothing lacks. Raises BadBitstream.
        """
        types = [nal.type for nal in nals]
        present = self._note(nals) if SPS in types or PPS in types else set()
        if IDR not in types or present >= self._in_force.keys():
            return nals
        rest = [nal for nal in nals if nal.type not in (SPS, PPS)]
        num_front = 1 if rest[0].type == DELIMITER else 0
        return [*rest[:num_front], *self.parameter_sets, *rest[num_front:]]

    def _note(self, nals: Iterable[Nal]) -> set[tuple[int, int]]:
        """Take parameter sets over; returns their (type, id)."""
        keys = set()
        for nal in nals:
            if nal.type in (SPS, PPS):
                keys.add(key := (nal.type, _set_id(nal)))
                self._in_force[key] = nal
        return keys


def _header_of(nal: Nal) -> BitReader:
    return BitReader(unescape(nal.data[1:_HEADER_BYTES]), f"slice at byte {nal.offset}")


def _slice(nal: Nal, raw: BitReader) -> Slice:
    first_mb = raw.ue("first_mb_in_slice")
    kind = _SLICE_TYPES[raw.ue("slice_type", 9) % 5]
    pps_id = raw.ue("pic_parameter_set_id", 255)
    return Slice(first_mb, kind, pps_id, nal.type == IDR, is_reference=nal.data[0] & 0x60 != 0)


def _set_id(nal: Nal) -> int:
    what = f"parameter set at byte {nal.offset}"
    if nal.type == PPS:
        return parse_pps(nal.data, what)[0]
    raw = BitReader(unescape(nal.data)[1:], what)
    raw.bits(24)  # profile, constraints, level
    return raw.ue("seq_parameter_set_id", 31)


def _unit(view: memoryview, begin: int, end: int) -> Nal:
    while end > begin and view[end - 1] == 0:  # trailing_zero_8bits (B.1.1), or padding of a muxer
        end -= 1
    if end == begin:
        raise BadBitstream(f"byte {begin}: expected a NAL unit, found none before byte {len(view)}")
    if view[begin] & 0x80:
        raise BadBitstream(f"byte {begin}: 0x{view[begin]:02x} is no NAL header, its first bit is set")
    return Nal(view[begin:end], begin)


__all__ = [
    "DELIMITER", "IDR", "PPS", "SEI", "SLICE", "SPS", "AccessUnit", "AnnexBWriter", "Avcc",
    "BadBitstream", "Nal", "Slice", "join_annexb", "parse_access_unit", "parse_avcc", "parse_pps", "parse_slice",
    "read_access_unit", "read_frame_num", "split_annexb", "split_avcc", "unescape",
]  # fmt: skip
