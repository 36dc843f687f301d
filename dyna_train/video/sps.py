"""The sequence parameter set of H.264 (7.3.2.1.1, Annex E): what the pictures of a stream look like."""

from __future__ import annotations

from dataclasses import dataclass

from dyna_train.video.bits import BadBitstream, BitReader, unescape

UNSPECIFIED = 2  # colour codes of ITU-T H.273
HIGH_PROFILES = frozenset({44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244})
CHROMA_NAMES = {0: "4:0:0", 1: "4:2:0", 2: "4:2:2", 3: "4:4:4"}
MAX_MACROBLOCKS = 1 << 10  # a side of 16384 pixels; level 6.2 allows less
_CHROMA_UNITS = {0: (1, 1), 1: (2, 2), 2: (2, 1), 3: (1, 1)}  # pixels across and down for one chroma sample
_EXTENDED_ASPECT = 255


@dataclass(frozen=True, slots=True)
class Vui:
    """What the video usability information says of colour; the defaults hold where a stream says nothing."""

    full_range: bool = False
    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED
    matrix: int = UNSPECIFIED


@dataclass(frozen=True, slots=True)
class PictureOrder:
    """How an SPS counts pictures as they are shown (7.4.2.1.1). kind: pic_order_cnt_type."""

    kind: int
    lsb_bits: int = 0
    has_deltas: bool = False
    non_reference: int = 0
    bottom: int = 0
    cycle: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sps:
    """One sequence parameter set.

    profile_idc, level_idc: as the standard numbers them (High = 100, level 4.1 = 41). chroma_format_idc: 0
    grey, 1 4:2:0, 2 4:2:2, 3 4:4:4. width, height: pixels that are shown, after cropping; coded_width,
    coded_height: before it, multiples of 16. crop: pixels cut off left, right, top, bottom. frame_num_bits: of
    the number of a picture in its slice headers. has_separate_planes: 4:4:4 whose colours are coded apart.
    """

    set_id: int
    profile_idc: int
    level_idc: int
    chroma_format_idc: int
    bit_depth_luma: int
    bit_depth_chroma: int
    frame_mbs_only: bool
    coded_width: int
    coded_height: int
    crop: tuple[int, int, int, int]
    vui: Vui
    frame_num_bits: int
    has_separate_planes: bool
    order: PictureOrder

    @property
    def width(self) -> int:
        """Pixels across, as shown."""
        return self.coded_width - self.crop[0] - self.crop[1]

    @property
    def height(self) -> int:
        """Pixels down, as shown."""
        return self.coded_height - self.crop[2] - self.crop[3]

    @property
    def chroma(self) -> str:
        """The chroma format as people write it, '4:2:0'."""
        return CHROMA_NAMES[self.chroma_format_idc]

    @property
    def pictures(self) -> str:
        """What its pictures look like, in the words of `plain_pictures`."""
        depth = max(self.bit_depth_luma, self.bit_depth_chroma)
        span = "full range" if self.vui.full_range else "limited range"
        lines = "whole frames" if self.frame_mbs_only else "fields"
        return f"{self.width}x{self.height}, {self.chroma}, {depth} bit, {span}, {lines}"


def plain_pictures(width: int, height: int) -> str:
    """Pictures of a camera of this size as every reader shows them; 4:2:0 has no odd sizes."""
    return f"{width + width % 2}x{height + height % 2}, 4:2:0, 8 bit, limited range, whole frames"


def parse_sps(unit: bytes | memoryview, what: str = "SPS") -> Sps:
    """The parameter set in a NAL unit of type 7 (header byte included). Raises BadBitstream."""
    raw = BitReader(unescape(unit)[1:], what)
    profile_idc = raw.bits(8)
    raw.bits(8)  # constraint flags
    level_idc = raw.bits(8)
    set_id = raw.ue("seq_parameter_set_id", 31)
    chroma, planes, luma_depth, chroma_depth = 1, False, 8, 8
    if profile_idc in HIGH_PROFILES:
        chroma, planes, luma_depth, chroma_depth = _chroma(raw)
    frame_num_bits = 4 + raw.ue("log2_max_frame_num_minus4", 12)
    order = _picture_order(raw)
    raw.ue("max_num_ref_frames", 16)
    raw.flag()  # gaps_in_frame_num_value_allowed
    columns = raw.ue("pic_width_in_mbs_minus1", MAX_MACROBLOCKS - 1) + 1
    rows = raw.ue("pic_height_in_map_units_minus1", MAX_MACROBLOCKS - 1) + 1
    frame_mbs_only = raw.flag()
    if not frame_mbs_only:
        raw.flag()  # mb_adaptive_frame_field
    raw.flag()  # direct_8x8_inference
    width, height = 16 * columns, 16 * rows * (1 if frame_mbs_only else 2)
    across, down = (1, 1) if planes else _CHROMA_UNITS[chroma]
    crop = _crop(raw, across, down if frame_mbs_only else 2 * down)
    if crop[0] + crop[1] >= width or crop[2] + crop[3] >= height:
        raise raw.fault(f"cropping {crop} leaves nothing of {width} x {height} pixels")
    vui = _vui(raw) if raw.flag() else Vui()
    return Sps(
        set_id, profile_idc, level_idc, chroma, luma_depth, chroma_depth,
        frame_mbs_only, width, height, crop, vui, frame_num_bits, planes, order,
    )  # fmt: skip


def _chroma(raw: BitReader) -> tuple[int, bool, int, int]:
    """(chroma_format_idc, separate_colour_plane, bit depths) of the high profiles."""
    chroma = raw.ue("chroma_format_idc", 3)
    planes = raw.flag() if chroma == 3 else False
    luma_depth = 8 + raw.ue("bit_depth_luma_minus8", 6)
    chroma_depth = 8 + raw.ue("bit_depth_chroma_minus8", 6)
    raw.flag()  # qpprime_y_zero_transform_bypass
    if raw.flag():
        for number in range(12 if chroma == 3 else 8):
            if raw.flag():
                _skip_scaling_list(raw, 16 if number < 6 else 64)
    return chroma, planes, luma_depth, chroma_depth


def _skip_scaling_list(raw: BitReader, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + raw.se("delta_scale")) % 256
        last = following or last


def _picture_order(raw: BitReader) -> PictureOrder:
    kind = raw.ue("pic_order_cnt_type", 2)
    if kind == 0:
        return PictureOrder(0, lsb_bits=4 + raw.ue("log2_max_pic_order_cnt_lsb_minus4", 12))
    if kind == 2:
        return PictureOrder(2)
    has_deltas = not raw.flag()
    non_reference, bottom = raw.se("offset_for_non_ref_pic"), raw.se("offset_for_top_to_bottom_field")
    num_cycle = raw.ue("num_ref_frames_in_pic_order_cnt_cycle", 255)
    cycle = tuple(raw.se("offset_for_ref_frame") for _ in range(num_cycle))
    return PictureOrder(1, 0, has_deltas, non_reference, bottom, cycle)


def _crop(raw: BitReader, across: int, down: int) -> tuple[int, int, int, int]:
    if not raw.flag():
        return 0, 0, 0, 0
    left, right, top, bottom = (raw.ue(f"frame_crop_{side}") for side in ("left", "right", "top", "bottom"))
    return left * across, right * across, top * down, bottom * down


def _vui(raw: BitReader) -> Vui:
    if raw.flag() and raw.bits(8) == _EXTENDED_ASPECT:
        raw.bits(32)  # sample aspect ratio
    if raw.flag():
        raw.flag()  # overscan_appropriate
    full_range, colours = False, (UNSPECIFIED,) * 3
    if raw.flag():
        raw.bits(3)  # video_format
        full_range = raw.flag()
        if raw.flag():
            colours = raw.bits(8), raw.bits(8), raw.bits(8)
    return Vui(full_range, *colours)  # what follows is about time and buffers


__all__ = ["CHROMA_NAMES", "UNSPECIFIED", "BadBitstream", "Sps", "Vui", "parse_sps", "plain_pictures"]
