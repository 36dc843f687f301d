"""Frames of H.265: where one begins, in which order they are shown, which ones a decoder leaves out (pure).

Numbers in brackets are sections of ITU-T H.265. *IRAP*: a picture where decoding may start (IDR, CRA, BLA). *RASL*:
one that is shown before its IRAP and predicted from pictures before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dyna_train.video.access_units import Head, Picture, Role
from dyna_train.video.bits import BadBitstream, BitReader, unescape
from dyna_train.video.frames_h264 import next_msb
from dyna_train.video.nal import AVCC_VERSION, Avcc, Nal

VPS, SPS, PPS, END_OF_SEQUENCE = 32, 33, 34, 36  # nal_unit_type (table 7-1)
CRA = 21
_IDR = frozenset({19, 20})
_IRAP = frozenset(range(16, 22))
_RASL, _RADL = frozenset({8, 9}), frozenset({6, 7})
_PICTURES = frozenset(range(10)) | _IRAP
_NOT_REFERENCE = frozenset(range(0, 16, 2))  # of its own layer in time
_SETS = frozenset({VPS, SPS, PPS})
_BEFORE = frozenset({35, 39, *range(41, 45), *range(48, 56)})  # with the sets: they end a frame (7.4.2.4.4)
_HEADER_BYTES = 64  # more than the fields up to slice_pic_order_cnt_lsb take
_RECORD_BYTES = 23  # of hvcC before its parameter sets


@dataclass(frozen=True, slots=True)
class _Sps:
    has_planes: bool
    lsb_bits: int


@dataclass(frozen=True, slots=True)
class _Pps:
    sps_id: int
    has_output_flag: bool
    num_extra_bits: int


class H265:
    """The syntax of H.265."""

    name = "H.265"

    def __init__(self) -> None:
        self._nals: dict[tuple[int, int], Nal] = {}
        self._sps: dict[int, _Sps] = {}
        self._pps: dict[int, _Pps] = {}
        self._ended = True  # so that the first IRAP starts a sequence, whatever its kind
        self._skips_rasl = True
        self._msb = self._lsb = 0

    def is_plausible(self, nal: Nal) -> bool:
        """True if the header is one of the base layer, of a type in use."""
        if len(nal.data) < 2 or nal.data[0] & 0x80 or _layer(nal) or nal.data[1] & 7 == 0:
            return False
        kind = kind_of(nal)
        is_key_later = (
            kind in _IRAP and nal.data[1] & 7 != 1
        )  # an IRAP is of the lowest layer in time (7.4.2.2)
        return (kind in _PICTURES or VPS <= kind <= 40) and not is_key_later

    def configuration(self, data: bytes) -> Avcc | None:
        """The hvcC record that `data` is."""
        reserved = ((13, 0xF0), (15, 0xFC), (16, 0xFC), (17, 0xF8), (18, 0xF8))
        if len(data) < _RECORD_BYTES or data[0] != AVCC_VERSION:
            return None
        if any(data[at] & mask != mask for at, mask in reserved):
            return None
        nals, at = [], _RECORD_BYTES
        for _ in range(data[22]):
            kind, count = data[at : at + 1], int.from_bytes(data[at + 1 : at + 3], "big")
            at += 3
            for _ in range(count):
                begin = at + 2
                at = begin + int.from_bytes(data[at:begin], "big")
                nal = Nal(memoryview(data)[begin:at], begin)
                if at > len(data) or not kind or not self.is_plausible(nal) or kind_of(nal) != kind[0] & 0x3F:
                    return None
                nals.append(nal)
        length_bytes = (data[21] & 3) + 1
        return Avcc(length_bytes, tuple(nals)) if at == len(data) and length_bytes != 3 else None

    def role(self, nal: Nal) -> Role:
        """Where the unit belongs."""
        if len(nal.data) < 2:
            raise BadBitstream(f"a NAL unit of {len(nal.data)} bytes, its header has 2")
        kind = kind_of(nal)
        if _layer(nal):
            raise BadBitstream(
                f"a NAL unit of layer {_layer(nal)}: streams with layers or views are not supported"
            )
        if kind in _PICTURES:
            return "slice"
        if kind < VPS:
            raise BadBitstream(f"a slice of type {kind}, which is reserved")
        if kind in _SETS:
            return "set"
        if kind == END_OF_SEQUENCE:
            self._ended = True
        return "before" if kind in _BEFORE else "after"

    def take(self, nal: Nal) -> None:
        """Take over a VPS, SPS or PPS."""
        kind, raw = kind_of(nal), BitReader(unescape(nal.data)[2:], "parameter set")
        if kind == VPS:
            set_id = raw.bits(4)
        elif kind == SPS:
            set_id, self._sps[set_id] = _parse_sps(raw)
        else:
            set_id, self._pps[set_id] = _parse_pps(raw)
        self._nals[kind, set_id] = nal

    def sets(self) -> tuple[Nal, ...]:
        """Every VPS, then every SPS, then every PPS."""
        return tuple(self._nals[key] for key in sorted(self._nals))

    def head(self, nal: Nal) -> Head:
        """Of a slice; only the first one tells what it belongs to."""
        return Head(len(nal.data) > 2 and nal.data[2] & 0x80 != 0, ())

    def open(self, before: Sequence[Nal], nal: Nal) -> Picture:
        """The frame that begins with the slice `nal`."""
        kind = kind_of(nal)
        raw = BitReader(unescape(nal.data[2:_HEADER_BYTES]), "slice header")
        if not raw.flag():  # first_slice_segment_in_pic_flag
            return Picture(0, fault="its first slice is missing")
        if kind in _IRAP:
            raw.flag()  # no_output_of_prior_pics
        pps_id = raw.ue("slice_pic_parameter_set_id", 63)
        pps = self._pps.get(pps_id)
        sps = self._sps.get(pps.sps_id) if pps else None
        if pps is None or sps is None:
            fault = f"it needs PPS {pps_id} and its SPS, which did not come before it"
            return Picture(0, lacks_sets=kind in _IRAP, fault=fault)
        raw.bits(pps.num_extra_bits)
        raw.ue("slice_type", 2)
        if pps.has_output_flag and not raw.flag():
            raise BadBitstream("a picture that is not to be shown (pic_output_flag)")
        if sps.has_planes:
            raw.bits(2)
        return self._placed(nal, 0 if kind in _IDR else raw.bits(sps.lsb_bits), sps.lsb_bits)

    def _placed(self, nal: Nal, lsb: int, lsb_bits: int) -> Picture:
        """Its place among the frames shown (8.3.1), and whether it is left out (8.1.3)."""
        kind = kind_of(nal)
        restarts = kind in _IRAP and (kind != CRA or self._ended)
        if kind in _IRAP:
            self._skips_rasl, self._ended = restarts, False
        msb = 0 if restarts else next_msb(self._msb, self._lsb, lsb, lsb_bits)
        is_lowest = nal.data[1] & 7 == 1
        if is_lowest and kind not in _RASL | _RADL and not (kind in _NOT_REFERENCE and kind < min(_IRAP)):
            self._msb, self._lsb = msb, lsb
        is_skipped = kind in _RASL and self._skips_rasl
        return Picture(msb + lsb, is_start=kind in _IRAP, restarts=restarts, is_skipped=is_skipped)


def kind_of(nal: Nal) -> int:
    """nal_unit_type, 0 to 63."""
    return nal.data[0] >> 1 & 0x3F


def _layer(nal: Nal) -> int:
    return (nal.data[0] & 1) << 5 | nal.data[1] >> 3


def _parse_sps(raw: BitReader) -> tuple[int, _Sps]:
    """(its id, what slice headers depend on) (7.3.2.2)."""
    raw.bits(4)  # video parameter set
    num_sub_layers = raw.bits(3)
    raw.flag()  # temporal_id_nesting
    _skip_profile(raw, num_sub_layers)
    set_id = raw.ue("sps_seq_parameter_set_id", 15)
    has_planes = raw.ue("chroma_format_idc", 3) == 3 and raw.flag()
    raw.ue("pic_width_in_luma_samples")
    raw.ue("pic_height_in_luma_samples")
    if raw.flag():  # conformance_window
        for side in ("left", "right", "top", "bottom"):
            raw.ue(f"conf_win_{side}_offset")
    raw.ue("bit_depth_luma_minus8", 8)
    raw.ue("bit_depth_chroma_minus8", 8)
    return set_id, _Sps(has_planes, 4 + raw.ue("log2_max_pic_order_cnt_lsb_minus4", 12))


def _skip_profile(raw: BitReader, num_sub_layers: int) -> None:
    """profile_tier_level (7.3.3)."""
    raw.bits(96)
    present = [(raw.flag(), raw.flag()) for _ in range(num_sub_layers)]
    if num_sub_layers:
        raw.bits(2 * (8 - num_sub_layers))
    for has_profile, has_level in present:
        raw.bits(88 * has_profile + 8 * has_level)


def _parse_pps(raw: BitReader) -> tuple[int, _Pps]:
    """(its id, what slice headers depend on) (7.3.2.3)."""
    pps_id, sps_id = raw.ue("pps_pic_parameter_set_id", 63), raw.ue("pps_seq_parameter_set_id", 15)
    raw.flag()  # dependent_slice_segments_enabled
    return pps_id, _Pps(sps_id, raw.flag(), raw.bits(3))
