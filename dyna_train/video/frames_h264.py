"""Frames of H.264: which slices make one (7.4.1.2.4), and in which order they are shown (8.2.1) (pure).

Numbers in brackets are sections of ITU-T H.264.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dyna_train.video.access_units import Head, Picture, Role
from dyna_train.video.bits import BadBitstream, BitReader, unescape
from dyna_train.video.frame_numbers import FrameNumbers
from dyna_train.video.nal import (
    AVCC_VERSION,
    DELIMITER,
    IDR,
    PPS,
    SEI,
    SLICE,
    SPS,
    Avcc,
    Nal,
    parse_avcc,
    read_access_unit,
)
from dyna_train.video.sps import PictureOrder, Sps, parse_sps

_PREFIX = 14  # before a slice of a stream with layers in time
_LAYERS = frozenset({15, 20, 21})  # scalable and multi-view pictures
_PARTITIONS = frozenset({2, 3, 4})
_RESERVED_BEFORE = frozenset({16, 17, 18})  # they end a frame (7.4.1.2.3)
_REFERENCE_NEVER = frozenset({SEI, DELIMITER, 10, 11, 12})
_REFERENCE_ALWAYS = frozenset({IDR, SPS, PPS, 15})
_HEADER_BYTES = 64  # more than the fields up to redundant_pic_cnt take
_BY_DECODING = PictureOrder(2)  # until its parameter sets are known: shown in the order of decoding


@dataclass(frozen=True, slots=True)
class _Pps:
    sps_id: int
    has_bottom_order: bool
    has_redundant: bool


@dataclass(frozen=True, slots=True)
class _SliceHeader:
    """The fields that tell pictures apart; deltas: delta_pic_order_cnt of the top and the bottom field."""

    first_mb: int
    is_idr: bool
    is_reference: bool
    pps_id: int
    sps: Sps | None = None
    order: PictureOrder = _BY_DECODING
    plane: int = 0
    frame_num: int = 0
    idr_id: int = 0
    lsb: int = 0
    deltas: tuple[int, int] = (0, 0)
    num_redundant: int = 0

    @property
    def key(self) -> tuple[int, ...]:
        """What differs between pictures (7.4.1.2.4)."""
        flags = (self.is_idr, self.is_reference, self.idr_id, self.lsb, *self.deltas)
        return (self.pps_id, self.frame_num, *flags)

    @property
    def is_first(self) -> bool:
        """True if it holds the upper left corner of a picture, for the first time."""
        return self.first_mb == 0 and self.num_redundant == 0 and self.plane == 0


class H264:
    """The syntax of H.264."""

    name = "H.264"

    def __init__(self) -> None:
        self._nals: dict[tuple[int, int], Nal] = {}
        self._sps: dict[int, Sps] = {}
        self._pps: dict[int, _Pps] = {}
        self._numbers = FrameNumbers()
        self._orders = _Orders()

    def is_plausible(self, nal: Nal) -> bool:
        """True if nal_unit_type is one in use, and nal_ref_idc one that it may have (7.4.1)."""
        is_reference = nal.data[0] & 0x60 != 0
        wrong = _REFERENCE_NEVER if is_reference else _REFERENCE_ALWAYS
        return nal.data[0] & 0x80 == 0 and 1 <= nal.type <= 21 and nal.type not in wrong

    def configuration(self, data: bytes) -> Avcc | None:
        """The avcC record that `data` is."""
        if len(data) < 7 or data[0] != AVCC_VERSION or data[4] & 0xFC != 0xFC or data[5] & 0xE0 != 0xE0:
            return None
        try:
            record = parse_avcc(data)
        except BadBitstream:
            return None
        types = {nal.type for nal in record.parameter_sets}
        return record if types == {SPS, PPS} and record.length_bytes != 3 else None

    def role(self, nal: Nal) -> Role:
        """Where the unit belongs."""
        kind = nal.type
        if kind in (SLICE, IDR):
            return "slice"
        if kind in (SPS, PPS):
            return "set"
        if kind in _PARTITIONS or kind in _LAYERS:
            what = "data partitions" if kind in _PARTITIONS else "layers or views"
            raise BadBitstream(f"a NAL unit of type {kind}: streams with {what} are not supported")
        if kind == _PREFIX:
            return "either"
        return "before" if kind in (SEI, DELIMITER) or kind in _RESERVED_BEFORE else "after"

    def take(self, nal: Nal) -> None:
        """Take over an SPS or PPS."""
        if nal.type == SPS:
            sps = parse_sps(nal.data)
            self._sps[sps.set_id] = sps
            self._nals[SPS, sps.set_id] = nal
        else:
            pps_id, pps = _parse_pps(nal.data)
            self._pps[pps_id] = pps
            self._nals[PPS, pps_id] = nal

    def sets(self) -> tuple[Nal, ...]:
        """Every SPS, then every PPS."""
        return tuple(self._nals[key] for key in sorted(self._nals))

    def head(self, nal: Nal) -> Head:
        """Of a slice."""
        header = self._header(nal)
        return Head(header.is_first, header.key)

    def open(self, before: Sequence[Nal], nal: Nal) -> Picture:
        """The frame that begins with the slice `nal`."""
        header, numbers = self._header(nal), self._numbers.fault(read_access_unit([*before, nal]))
        if header.sps is None:
            fault = f"it needs PPS {header.pps_id} and its SPS, which did not come before it"
            return Picture(0, lacks_sets=header.is_idr, fault=fault)
        fault = (
            numbers
            if header.is_first
            else f"its first slice is missing, it begins at macroblock {header.first_mb}"
        )
        is_start = header.is_idr and header.is_first
        return Picture(self._orders.next(header), is_start=is_start, restarts=header.is_idr, fault=fault)

    def _header(self, nal: Nal) -> _SliceHeader:
        """Up to redundant_pic_cnt (7.3.3); without its parameter sets up to the id of its PPS."""
        raw = BitReader(unescape(nal.data[1:_HEADER_BYTES]), "slice header")
        first_mb = raw.ue("first_mb_in_slice")
        raw.ue("slice_type", 9)
        pps_id = raw.ue("pic_parameter_set_id", 255)
        is_idr, is_reference = nal.type == IDR, nal.data[0] & 0x60 != 0
        pps = self._pps.get(pps_id)
        if pps is None or pps.sps_id not in self._sps:
            return _SliceHeader(first_mb, is_idr, is_reference, pps_id)
        sps = self._sps[pps.sps_id]
        order = sps.order
        plane = raw.bits(2) if sps.has_separate_planes else 0
        frame_num = raw.bits(sps.frame_num_bits)
        if not sps.frame_mbs_only and raw.flag():
            raise BadBitstream("a picture that is one field of an interlaced frame; publish whole frames")
        idr_id = raw.ue("idr_pic_id", 65535) if is_idr else 0
        lsb, deltas = _order_fields(raw, order, pps)
        redundant = raw.ue("redundant_pic_cnt", 127) if pps.has_redundant else 0
        return _SliceHeader(
            first_mb,
            is_idr,
            is_reference,
            pps_id,
            sps,
            order,
            plane,
            frame_num,
            idr_id,
            lsb,
            deltas,
            redundant,
        )


def _order_fields(raw: BitReader, order: PictureOrder, pps: _Pps) -> tuple[int, tuple[int, int]]:
    """(pic_order_cnt_lsb, the deltas of top and bottom field)."""
    if order.kind == 0:
        lsb = raw.bits(order.lsb_bits)
        return lsb, (0, raw.se("delta_pic_order_cnt_bottom") if pps.has_bottom_order else 0)
    if order.kind == 1 and order.has_deltas:
        top = raw.se("delta_pic_order_cnt[0]")
        return 0, (top, raw.se("delta_pic_order_cnt[1]") if pps.has_bottom_order else 0)
    return 0, (0, 0)


class _Orders:
    """PicOrderCnt of pictures in decoding order (8.2.1).

    memory_management_control_operation 5, which makes a picture count anew without an IDR, is not read: such
    frames come out in another order than this says, and whoever decodes them sees it.
    """

    def __init__(self) -> None:
        self._msb = self._lsb = 0  # of the last reference picture
        self._offset = self._frame_num = 0  # of the last picture

    def next(self, header: _SliceHeader) -> int:
        if header.order.kind == 0:
            return self._by_lsb(header)
        return self._by_number(header)

    def _by_lsb(self, header: _SliceHeader) -> int:
        """8.2.1.1."""
        if header.is_idr:
            self._msb = self._lsb = 0
        msb = next_msb(self._msb, self._lsb, header.lsb, header.order.lsb_bits)
        if header.is_reference:
            self._msb, self._lsb = msb, header.lsb
        return msb + header.lsb + min(0, header.deltas[1])

    def _by_number(self, header: _SliceHeader) -> int:
        """8.2.1.2 and 8.2.1.3."""
        assert header.sps is not None
        wrapped = not header.is_idr and self._frame_num > header.frame_num
        self._offset = 0 if header.is_idr else self._offset + (wrapped << header.sps.frame_num_bits)
        self._frame_num = header.frame_num
        number, order = self._offset + header.frame_num, header.order
        if order.kind == 2:
            return 2 * number - (not header.is_reference)
        if not order.cycle:
            number = 0
        elif not header.is_reference and number > 0:
            number -= 1
        whole, part = divmod(number - 1, len(order.cycle)) if number > 0 else (0, -1)
        expected = whole * sum(order.cycle) + sum(order.cycle[: part + 1])
        top = expected + (0 if header.is_reference else order.non_reference) + header.deltas[0]
        return min(top, top + order.bottom + header.deltas[1])


def next_msb(msb: int, lsb: int, next_lsb: int, lsb_bits: int) -> int:
    """The high part of a picture's count, from that of the picture before and the low parts (8.2.1.1)."""
    most = 1 << lsb_bits
    if next_lsb < lsb and lsb - next_lsb >= most // 2:
        return msb + most
    if next_lsb > lsb and next_lsb - lsb > most // 2:
        return msb - most
    return msb


def _parse_pps(unit: bytes | memoryview) -> tuple[int, _Pps]:
    """(its id, what slice headers depend on) (7.3.2.2)."""
    raw = BitReader(unescape(unit)[1:], "PPS")
    pps_id, sps_id = raw.ue("pic_parameter_set_id", 255), raw.ue("seq_parameter_set_id", 31)
    raw.flag()  # entropy_coding_mode
    has_bottom_order = raw.flag()
    if raw.ue("num_slice_groups_minus1", 7):
        raise BadBitstream("PPS: slice groups (flexible macroblock ordering), which no decoder here knows")
    raw.ue("num_ref_idx_l0_default_active_minus1", 31)
    raw.ue("num_ref_idx_l1_default_active_minus1", 31)
    raw.bits(3)  # weighted_pred, weighted_bipred
    for name in ("pic_init_qp_minus26", "pic_init_qs_minus26", "chroma_qp_index_offset"):
        raw.se(name)
    raw.bits(2)  # deblocking_filter_control_present, constrained_intra_pred
    return pps_id, _Pps(sps_id, has_bottom_order, has_redundant=raw.flag())
