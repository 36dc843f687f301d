"""Coded frames out of messages: where one begins, when it is shown, however the stream was cut and framed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

import av
import numpy as np
import pytest
from av.video.codeccontext import VideoCodecContext
from h264_samples import closed, encode, frame_of
from hypothesis import given
from hypothesis import strategies as st

from dyna_train.video.access_units import AccessUnits, CodedFrame, FrameParser, Syntax
from dyna_train.video.frames_h264 import H264, next_msb
from dyna_train.video.frames_h265 import H265
from dyna_train.video.framing import MAX_UNITS, StartCodes, framing_of
from dyna_train.video.nal import PPS, SPS, BadBitstream, join_annexb, split_annexb
from dyna_train.video.sps import parse_sps
from dyna_train.video.temporal_units import Av1, TemporalUnits, UnitFacts, read_vp9

H264_IDR, H264_P, H264_B_UNUSED = (
    0x65,
    0x41,
    0x01,
)  # header bytes: an IDR, a reference, and a disposable slice


class Bits:
    """Writes fields from the highest bit on."""

    def __init__(self) -> None:
        self.text = ""

    def u(self, num_bits: int, value: int) -> Bits:
        self.text += f"{value:0{num_bits}b}" if num_bits else ""
        return self

    def ue(self, *values: int) -> Bits:
        for value in values:
            code = f"{value + 1:b}"
            self.text += "0" * (len(code) - 1) + code
        return self

    def se(self, value: int) -> Bits:
        return self.ue(2 * value - 1 if value > 0 else -2 * value)

    def unit(self, *header: int) -> bytes:
        """The NAL unit with these bits, its trailing bits, and a start code in front."""
        text = self.text + "1"
        text += "0" * (-len(text) % 8)
        raw = int(text, 2).to_bytes(len(text) // 8, "big")
        return b"\0\0\0\1" + bytes(header) + re.sub(rb"\0\0(?=[\0-\3])", lambda _: b"\0\0\3", raw)


def sps(order: Bits, *, frame_num_bits: int = 4) -> bytes:
    """A Baseline SPS of 64x48 with these fields of picture order."""
    bits = Bits().u(8, 66).u(8, 0).u(8, 30).ue(0).ue(frame_num_bits - 4)
    bits.text += order.text
    return bits.ue(1).u(1, 0).ue(3, 2).u(1, 1).u(1, 1).u(1, 0).u(1, 0).unit(0x67)


def pps(*, bottom: int = 0, redundant: int = 0, groups: int = 0) -> bytes:
    bits = Bits().ue(0, 0).u(1, 0).u(1, bottom).ue(groups, 0, 0).u(3, 0).se(0).se(0).se(0)
    return bits.u(2, 0).u(1, redundant).unit(0x68)


def slice_of(header: int, frame_num: int, order: Bits | None = None, *, first_mb: int = 0) -> bytes:
    bits = Bits().ue(first_mb, 5, 0).u(4, frame_num % 16)
    if header & 0x1F == 5:
        bits.ue(0)
    bits.text += order.text if order else ""
    return bits.u(40, 0x5A5A5A5A5A).unit(header)


def frames_of(messages: Sequence[bytes], syntax: Syntax | None = None) -> list[CodedFrame]:
    """Every frame of a stream of H.264, unless another syntax is given."""
    syntax = syntax or H264()
    return parsed(AccessUnits(syntax, framing_of(messages, syntax)), messages)


def parsed(parser: FrameParser, messages: Iterable[bytes]) -> list[CodedFrame]:
    found = [frame for number, data in enumerate(messages) for frame in parser.feed(number, data)]
    return found + list(parser.finish())


def h265(num_frames: int, params: str, *, size: tuple[int, int] = (64, 64)) -> tuple[list[int], list[bytes]]:
    """(pts, packets) of x265."""
    quiet = {"x265-params": f"log-level=none:repeat-headers=1:pools=1:frame-threads=1:{params}"}
    stream = encode(num_frames, "", codec="libx265", size=size, options=quiet)
    return stream.pts, stream.packets


def other(codec: str, num_frames: int, options: dict[str, str]) -> list[bytes]:
    """Packets of another encoder, in order."""
    context = av.CodecContext.create(codec, "w")
    assert isinstance(context, VideoCodecContext)
    context.width, context.height, context.pix_fmt = 64, 64, "yuv420p"
    context.framerate, context.time_base, context.options = Fraction(30), Fraction(1, 30), options
    packets = [p for number in range(num_frames) for p in context.encode(frame_of(number, 64, 64, "yuv420p"))]
    return [bytes(packet) for packet in packets + context.encode(None)]


ZERO = Bits().ue(0, 0)  # order by 4 low bits


@pytest.mark.parametrize(
    "params",
    [
        "bframes=0",
        "bframes=3:b-pyramid=normal",
        "bframes=2:b-pyramid=none:keyint=7:min-keyint=7",
        "ref=1:bframes=1",
    ],
)
def test_h264_frames_are_shown_in_the_order_that_the_encoder_was_given(params: str) -> None:
    stream = encode(24, f"repeat-headers=1:{params}")
    frames = frames_of(stream.packets)
    shown = sorted(range(24), key=lambda at: (frames[at].sequence, frames[at].picture.order))
    assert [stream.pts[at] for at in shown] == list(range(24))
    assert [frame.picture.is_start for frame in frames] == stream.keyframes
    assert all(frame.is_decodable and not frame.picture.fault for frame in frames)


@pytest.mark.parametrize("params", ["bframes=0", "bframes=3:b-adapt=0:keyint=8:min-keyint=8:open-gop=1"])
def test_h265_frames_are_shown_in_the_order_that_the_encoder_was_given(params: str) -> None:
    pts, packets = h265(24, params)
    frames = frames_of(packets, H265())
    shown = sorted(range(24), key=lambda at: (frames[at].sequence, frames[at].picture.order))
    assert [pts[at] for at in shown] == list(range(24))
    assert {frame.sequence for frame in frames} == {1}  # an open GOP does not restart the order
    assert all(frame.is_decodable and not frame.picture.fault for frame in frames)


def test_leading_frames_of_an_open_gop_are_left_out_where_decoding_starts_there() -> None:
    pts, packets = h265(24, "bframes=3:b-adapt=0:keyint=8:min-keyint=8:open-gop=1")
    start = next(at for at, frame in enumerate(frames_of(packets, H265())) if at and frame.picture.is_start)
    frames = frames_of(packets[start:], H265())
    left_out = [pts[start + at] for at, frame in enumerate(frames) if not frame.is_decodable]
    assert left_out == [number for number in pts[start:] if number < pts[start]] != []
    ended = frames_of([*packets[:start], b"\0\0\1\x48\1", *packets[start:]], H265())  # end of sequence
    assert [frame.is_decodable for frame in ended[start:]] == [frame.is_decodable for frame in frames]
    assert ended[-1].sequence == 2


@given(
    true_orders=st.lists(st.integers(-7, 8), min_size=1, max_size=40).map(np.cumsum),
    lsb_bits=st.integers(4, 16),
)
def test_low_bits_give_the_whole_count_if_it_moves_by_less_than_half_their_range(
    true_orders: np.ndarray[tuple[int], np.dtype[np.int64]], lsb_bits: int
) -> None:
    msb = lsb = 0
    for order in map(int, true_orders):
        msb, lsb = next_msb(msb, lsb, order % (1 << lsb_bits), lsb_bits), order % (1 << lsb_bits)
        assert msb + lsb == order


def test_pictures_counted_by_a_cycle_follow_the_closed_form() -> None:
    # References 4 apart, each followed by one that is no reference, shown 2 before it: I0 P4 b2 P8 b6 ...
    cycle = Bits().ue(1).u(1, 1).se(-2).se(0).ue(1).se(4)
    stream = [sps(cycle) + pps() + slice_of(H264_IDR, 0)]
    for number in range(1, 20):  # beyond the 16 values of frame_num
        stream += [slice_of(H264_P, number), slice_of(H264_B_UNUSED, number + 1)]
    orders = [frame.picture.order for frame in frames_of(stream)]
    assert orders == [0, *(order for k in range(1, 20) for order in (4 * k, 4 * k - 2))]


def test_pictures_counted_by_their_number_are_shown_as_they_are_coded() -> None:
    stream = [sps(Bits().ue(2)) + pps() + slice_of(H264_IDR, 0)]
    stream += [slice_of(H264_P, number) for number in range(1, 40)]
    assert [frame.picture.order for frame in frames_of(stream)] == list(range(0, 80, 2))


def test_deltas_of_a_slice_move_its_picture() -> None:
    cycle = Bits().ue(1).u(1, 0).se(0).se(0).ue(1).se(4)
    head = sps(cycle) + pps(bottom=1)
    stream = [head + slice_of(H264_IDR, 0, Bits().se(0).se(0)), slice_of(H264_P, 1, Bits().se(3).se(-5))]
    assert [frame.picture.order for frame in frames_of(stream)] == [0, 2]  # the earlier one of the two fields
    lows = [sps(ZERO) + pps(bottom=1) + slice_of(H264_IDR, 0, Bits().u(4, 0).se(-1))]
    assert frames_of(lows)[0].picture.order == -1


def test_slices_are_joined_by_what_their_headers_have_equal() -> None:
    stream = encode(6, closed(3, "repeat-headers=1:slices=4"))
    units = [join_annexb([nal]) for packet in stream.packets for nal in split_annexb(packet)]
    frames = frames_of(units)
    assert [frame.data() for frame in frames] == [join_annexb(split_annexb(p)) for p in stream.packets]


def test_a_frame_without_its_first_slice_is_told_from_the_one_before() -> None:
    stream = encode(4, closed(4, "repeat-headers=1:slices=4"))
    units = [split_annexb(packet) for packet in stream.packets]
    frames = frames_of([join_annexb(unit) for unit in (units[0], units[1], units[2][1:], units[3])])
    assert len(frames) == 4
    assert frames[2].picture.fault == "its first slice is missing, it begins at macroblock 6"


def test_a_redundant_slice_belongs_to_its_picture() -> None:
    head = sps(ZERO) + pps(redundant=1)
    first, again = (slice_of(H264_IDR, 0, Bits().u(4, 0).ue(number)) for number in (0, 1))
    assert len(frames_of([head + first + again, slice_of(H264_P, 1, Bits().u(4, 2).ue(0))])) == 2


def test_two_keyframes_in_a_row_are_two_frames_even_if_their_headers_are_equal() -> None:
    head = sps(ZERO) + pps()
    key = slice_of(H264_IDR, 0, Bits().u(4, 0))
    assert [frame.piece for frame in frames_of([head + key, key, key])] == [0, 1, 2]


def test_what_stands_before_a_slice_goes_with_it_and_the_end_mark_with_the_frame_before() -> None:
    head, key = sps(ZERO) + pps(), slice_of(H264_IDR, 0, Bits().u(4, 0))
    mark, note, end = b"\0\0\1\x09\xf0", b"\0\0\1\x06\x05\x01\x01\x80", b"\0\0\1\x0a"
    frames = frames_of([mark, head, key, end + mark, note, b"", key])
    assert [[nal.type for nal in frame.nals] for frame in frames] == [[9, 7, 8, 5, 10], [9, 6, 5]]
    assert [frame.piece for frame in frames] == [2, 6]


def test_frames_before_a_keyframe_with_its_parameter_sets_are_not_decodable() -> None:
    head, key = sps(ZERO) + pps(), slice_of(H264_IDR, 0, Bits().u(4, 0))
    later = slice_of(H264_P, 1, Bits().u(4, 2))
    frames = frames_of([key, later, head + later, key, later])
    assert [frame.is_decodable for frame in frames] == [False, False, False, True, True]
    assert frames[0].picture.lacks_sets
    assert [nal.type for nal in frames[3].sets] == [SPS, PPS]


def test_a_lost_picture_is_a_fault_of_the_next_one() -> None:
    stream = encode(6, closed(6, "repeat-headers=1"))
    frames = frames_of(stream.packets[:2] + stream.packets[3:])
    assert frames[2].picture.fault.startswith("frame_num 3, expected 2")


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (b"\0\0\1\x42\x80\x80", "type 2: streams with data partitions are not supported"),
        (b"\0\0\1\x74\x80\x80", "type 20: streams with layers or views are not supported"),
        (pps(groups=1), "slice groups"),
        (b"\0\0\1\xe5\x80", "0xe5 behind a start code is no NAL header"),
        (b"\0\0\1\x65", "slice header: byte 0: first_mb_in_slice is no Exp-Golomb number, or cut"),
    ],
)
def test_h264_that_nobody_here_decodes_is_refused(unit: bytes, message: str) -> None:
    with pytest.raises(BadBitstream, match=message):
        frames_of([sps(ZERO) + pps() + slice_of(H264_IDR, 0, Bits().u(4, 0)), unit + b"\0\0\1\x09\xf0"])


def test_fields_of_interlaced_video_are_refused() -> None:
    fields = Bits().u(8, 66).u(8, 0).u(8, 30).ue(0, 0, 0, 0, 1).u(1, 0).ue(3, 1)
    interlaced = fields.u(1, 0).u(1, 0).u(1, 1).u(1, 0).u(1, 0).unit(0x67)
    with pytest.raises(BadBitstream, match="one field of an interlaced frame; publish whole frames"):
        frames_of([interlaced + pps() + slice_of(H264_IDR, 0, Bits().u(1, 1))])


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (b"\0\0\1\x02\x09\x80\x80", "layer 1: streams with layers or views are not supported"),
        (b"\0\0\1\x16\x01\x80\x80", "a slice of type 11, which is reserved"),
        (b"\0\0\1\x02", "a NAL unit of 1 bytes, its header has 2"),
    ],
)
def test_h265_that_nobody_here_decodes_is_refused(unit: bytes, message: str) -> None:
    with pytest.raises(BadBitstream, match=message):
        frames_of([h265(1, "")[1][0], unit, b"\0\0\1"], H265())


@given(data=st.data())
def test_a_stream_cut_at_any_byte_gives_the_same_units(data: st.DataObject) -> None:
    stream = b"".join(encoded_once())
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=30)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    codes = StartCodes(H264())
    units = [unit for number, piece in enumerate(pieces) for unit in codes.feed(number, piece)]
    units += codes.finish()
    whole = split_annexb(stream)
    assert [bytes(unit.nal.data) for unit in units] == [bytes(nal.data) for nal in whole]
    ends = np.cumsum([len(piece) for piece in pieces])
    assert [unit.piece for unit in units] == [
        int(np.searchsorted(ends, nal.offset, "right")) for nal in whole
    ]


def encoded_once(cache: list[list[bytes]] = []) -> list[bytes]:  # noqa: B006
    if not cache:
        cache.append(encode(3, closed(3, "repeat-headers=1:aud=1:slices=2")).packets)
    return cache[0]


@pytest.mark.parametrize("length_bytes", [1, 2, 4])
def test_lengths_of_every_size_are_recognised(length_bytes: int) -> None:
    nals = [
        bytes(nal.data) for nal in split_annexb(sps(ZERO) + pps() + slice_of(H264_IDR, 0, Bits().u(4, 0)))
    ]
    message = b"".join(len(nal).to_bytes(length_bytes, "big") + nal for nal in nals)
    (frame,) = frames_of([b"", message])
    assert [bytes(nal.data) for nal in frame.nals] == nals


def test_a_length_that_looks_like_a_start_code_is_told_by_the_next_message() -> None:
    # A slice of 256 + 0x41 bytes: 00 00 01 41 may be its length, or a start code and the header of a P slice.
    short = slice_of(H264_P, 1, Bits().u(4, 2))[4:]
    nal = short + b"\x55" * (256 + 0x41 - len(short))
    framed = [len(part).to_bytes(4, "big") + part for part in (nal, nal[:200])]
    assert type(framing_of(framed[:1], H264())) is StartCodes
    assert type(framing_of(framed, H264())) is not StartCodes


@pytest.mark.parametrize("start_codes_first", [True, False])
def test_a_mix_of_framings_is_refused(start_codes_first: bool) -> None:
    codes = sps(ZERO) + pps() + slice_of(H264_IDR, 0, Bits().u(4, 0))
    lengths = b"".join(len(nal.data).to_bytes(4, "big") + bytes(nal.data) for nal in split_annexb(codes))
    with pytest.raises(BadBitstream, match="a mix of"):
        frames_of([codes, lengths] if start_codes_first else [lengths, codes])


def test_a_message_of_countless_units_is_refused_before_it_fills_memory() -> None:
    with pytest.raises(BadBitstream, match=f"more than {MAX_UNITS:,} NAL units without a frame"):
        frames_of([b"\0\0\1\x09\xf0" * (MAX_UNITS + 2)])
    with pytest.raises(BadBitstream, match=r"no H\.264: expected a start code"):
        frames_of([b"\1\x09" * (MAX_UNITS + 2)])
    with pytest.raises(BadBitstream, match=f"more than {MAX_UNITS:,} OBUs in one message"):
        Av1().read(b"\x12\0" * (MAX_UNITS + 2))


def test_av1_units_show_one_frame_each_whatever_they_hide() -> None:
    options = {"preset": "12", "crf": "50", "g": "8", "svtav1-params": "lp=1"}
    packets = other("libsvtav1", 16, options)
    read = Av1().read
    facts = [read(packet) for packet in packets]
    assert [fact.num_shown for fact in facts] == [1] * 16
    assert sum(fact.num_hidden for fact in facts) > 0
    assert [at for at, fact in enumerate(facts) if fact.is_key] == [0, 8]
    frames = parsed(TemporalUnits(Av1().read), packets[3:])
    assert [frame.is_decodable for frame in frames] == [False] * 5 + [True] * 8


def test_vp9_superframes_count_what_they_show() -> None:
    key, second, third = other("libvpx-vp9", 3, {"cpu-used": "8", "lag-in-frames": "0", "b": "50k"})
    assert read_vp9(key) == UnitFacts(1, 0, True)
    assert read_vp9(second) == UnitFacts(1, 0, False)
    assert read_vp9(superframe(second, third)) == UnitFacts(2, 0, False)
    hidden = bytes([second[0] & ~2]) + second[1:]  # show_frame off
    assert read_vp9(superframe(hidden, third)) == UnitFacts(1, 1, False)
    with pytest.raises(BadBitstream, match="1 frames, none of which is shown: a temporal unit was cut"):
        parsed(TemporalUnits(read_vp9), [hidden])


def superframe(*frames: bytes) -> bytes:
    marker = bytes([0xC0 | 1 << 3 | len(frames) - 1])
    return b"".join(frames) + marker + b"".join(len(f).to_bytes(2, "little") for f in frames) + marker


@pytest.mark.parametrize(
    ("read", "unit", "message"),
    [
        (Av1().read, b"\x80\0", "0x80 is no OBU header of AV1"),
        (Av1().read, b"\x0a\x80", "the OBU ends inside its size"),
        (Av1().read, b"\x0a\x05abc", "an OBU of 5 bytes, but the unit ends at byte 5"),
        (read_vp9, b"\x00\0", "0x00 is no header of a VP9 frame"),
        (read_vp9, b"\x82ab\xc1\x02\x09\xc1", "frame 1 of a superframe leads beyond byte 3"),
    ],
)
def test_units_of_other_formats_are_refused(read: object, unit: bytes, message: str) -> None:
    assert callable(read)
    with pytest.raises(BadBitstream, match=message):
        read(unit)


def test_picture_order_rules_are_read_behind_scaling_lists() -> None:
    stream = encode(1, "cqm=jvt:bframes=0")
    unit = next(nal for nal in split_annexb(stream.packets[0]) if nal.type == SPS)
    assert parse_sps(unit.data).order.kind == 2
