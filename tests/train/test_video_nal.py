from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import av
import pytest
from h264_samples import HEIGHT, WIDTH, Stream, closed, encode, write_mp4
from hypothesis import given
from hypothesis import strategies as st

from dyna_train.video.bits import BitReader, unescape
from dyna_train.video.nal import (
    DELIMITER,
    IDR,
    PPS,
    SEI,
    SLICE,
    SPS,
    AccessUnit,
    AnnexBWriter,
    BadBitstream,
    Nal,
    join_annexb,
    parse_access_unit,
    parse_avcc,
    parse_pps,
    read_access_unit,
    split_annexb,
    split_avcc,
)
from dyna_train.video.sps import Sps, parse_sps

LEGAL = st.binary(min_size=1, max_size=60).filter(
    lambda data: data[0] < 0x80 and data[-1] != 0 and b"\0\0\0" not in data and b"\0\0\1" not in data
)


def units_of(stream: Stream) -> list[AccessUnit]:
    return [parse_access_unit(packet) for packet in stream.packets]


def sps_of(stream: Stream) -> Sps:
    return parse_sps(units_of(stream)[0].of_type(SPS)[0].data)


def bytes_of(nal: Nal) -> bytes:
    return bytes(nal.data)


def kinds(stream: Stream) -> str:
    """One letter a frame, in decoding order; K for an IDR."""
    return "".join("K" if unit.is_idr else unit.slices[0].kind for unit in units_of(stream))


@given(st.lists(LEGAL, min_size=1, max_size=6))
def test_splitting_what_was_joined_gives_the_same_units(payloads: list[bytes]) -> None:
    nals = [Nal(memoryview(data)) for data in payloads]
    assert split_annexb(join_annexb(nals)) == nals


@given(st.lists(st.tuples(LEGAL, st.booleans(), st.integers(0, 3)), min_size=1, max_size=6))
def test_start_codes_of_either_length_and_zero_bytes_at_the_end_are_not_in_the_units(
    parts: list[tuple[bytes, bool, int]],
) -> None:
    data = b"".join(
        (b"\0\0\0\1" if long else b"\0\0\1") + payload + bytes(zeros) for payload, long, zeros in parts
    )
    nals = split_annexb(data)
    assert [bytes(nal.data) for nal in nals] == [payload for payload, _, _ in parts]
    assert all(data[nal.offset : nal.offset + len(nal.data)] == nal.data for nal in nals)


@given(st.lists(LEGAL, min_size=1, max_size=6), st.sampled_from([1, 2, 4]))
def test_length_prefixed_units_come_out_whole(payloads: list[bytes], length_bytes: int) -> None:
    data = b"".join(len(payload).to_bytes(length_bytes, "big") + payload for payload in payloads)
    assert [bytes(nal.data) for nal in split_avcc(data, length_bytes)] == payloads


@given(st.binary(max_size=80))
def test_arbitrary_bytes_split_or_raise_the_one_typed_error(data: bytes) -> None:
    for attempt in (
        lambda: units_of(Stream([data], [0], [True], b"")),
        lambda: split_avcc(data, 4),
        lambda: parse_avcc(data),
        lambda: parse_sps(data or b"g"),
        lambda: parse_pps(data),
    ):
        try:
            attempt()
        except BadBitstream as error:
            assert "byte" in str(error)


@given(st.binary(max_size=80))
def test_emulation_prevention_is_undone(raw: bytes) -> None:
    escaped, zeros = bytearray(), 0
    for value in raw:
        if zeros >= 2 and value <= 3:
            escaped.append(3)
            zeros = 0
        escaped.append(value)
        zeros = zeros + 1 if value == 0 else 0
    assert b"\0\0\1" not in escaped
    assert unescape(escaped) == raw


@given(st.lists(st.integers(0, 2**32 - 2), min_size=1, max_size=8))
def test_exp_golomb_numbers_read_back(values: list[int]) -> None:
    codes = [bin(value + 1)[2:] for value in values]
    bits = "".join("0" * (len(code) - 1) + code for code in codes)
    bits += "0" * (-len(bits) % 8)
    raw = BitReader(int(bits, 2).to_bytes(len(bits) // 8, "big"), "numbers")
    assert [raw.ue("value") for _ in values] == values


@given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=8))
def test_signed_exp_golomb_numbers_read_back(values: list[int]) -> None:
    codes = [bin((2 * value - 1 if value > 0 else -2 * value) + 1)[2:] for value in values]
    bits = "".join("0" * (len(code) - 1) + code for code in codes)
    bits += "0" * (-len(bits) % 8)
    raw = BitReader(int(bits, 2).to_bytes(len(bits) // 8, "big"), "numbers")
    assert [raw.se("value") for _ in values] == values


def test_a_closed_gop_stream_reads_as_keyframes_and_p_frames() -> None:
    stream = encode(12, closed(5, "repeat-headers=1:annexb=1"))
    assert kinds(stream) == "KPPPPKPPPPKP"
    units = units_of(stream)
    assert [unit.num_frames for unit in units] == [1] * 12
    assert [unit.has_parameter_sets for unit in units] == [True, *[False] * 4] * 2 + [True, False]
    assert [nal.type for nal in units[0].nals] == [SPS, PPS, SEI, IDR]
    assert [nal.type for nal in units[1].nals] == [SLICE]
    assert parse_pps(units[0].of_type(PPS)[0].data) == (0, 0)


def test_b_frames_show_in_the_slice_types() -> None:
    stream = encode(9, "keyint=30:bframes=2:b-adapt=0:scenecut=0:threads=1")
    assert "B" in kinds(stream)
    assert {unit.kinds for unit in units_of(stream)} == {"I", "P", "B"}


def test_keyframes_of_an_open_gop_are_no_idr() -> None:
    stream = encode(24, "keyint=6:min-keyint=6:bframes=2:b-adapt=0:open-gop=1:scenecut=0:threads=1")
    assert kinds(stream).count("K") == 1
    assert kinds(stream).count("I") == 3
    assert stream.keyframes.count(True) == 4


def test_a_frame_of_four_slices_is_one_frame() -> None:
    units = units_of(encode(4, closed(2, "slices=4:annexb=1")))
    assert [len(unit.slices) for unit in units] == [4] * 4
    assert [unit.num_frames for unit in units] == [1] * 4
    assert [part.first_mb for part in units[0].slices] == [0, 6, 12, 18]


def test_two_frames_in_one_packet_are_counted() -> None:
    packets = encode(2, closed(2)).packets
    assert parse_access_unit(b"".join(packets)).num_frames == 2


@pytest.mark.parametrize(
    ("pixel_format", "chroma", "depth"),
    [("yuv420p", "4:2:0", 8), ("yuv422p", "4:2:2", 8), ("yuv444p", "4:4:4", 8), ("yuv420p10le", "4:2:0", 10)],
)
def test_chroma_format_and_bit_depth_are_read(pixel_format: str, chroma: str, depth: int) -> None:
    sps = sps_of(encode(1, closed(1), pixel_format=pixel_format))
    assert (sps.chroma, sps.bit_depth_luma, sps.bit_depth_chroma) == (chroma, depth, depth)
    assert (sps.width, sps.height) == (WIDTH, HEIGHT)


@pytest.mark.parametrize("size", [(96, 64), (98, 66), (1920, 1080), (640, 480)])
def test_the_size_is_that_of_the_cropped_picture(size: tuple[int, int]) -> None:
    sps = sps_of(encode(1, closed(1), size=size))
    assert (sps.width, sps.height) == size
    assert (sps.coded_width % 16, sps.coded_height % 16) == (0, 0)
    assert sps.crop == (0, -size[0] % 16, 0, -size[1] % 16)


def test_an_odd_size_is_cropped_by_one_where_chroma_allows_it() -> None:
    sps = sps_of(encode(1, closed(1), size=(97, 63), pixel_format="yuv444p"))
    assert (sps.width, sps.height) == (97, 63)


def test_interlaced_full_range_and_matrix_are_read() -> None:
    plain = sps_of(encode(1, closed(1)))
    assert (plain.frame_mbs_only, plain.vui.full_range, plain.vui.matrix) == (True, False, 2)
    assert not sps_of(encode(1, closed(1, "tff=1"))).frame_mbs_only
    tagged = sps_of(encode(1, closed(1), colorspace=1, color_range=2, color_primaries=1, color_trc=1))
    assert (tagged.vui.full_range, tagged.vui.matrix, tagged.vui.primaries, tagged.vui.transfer) == (
        True,
        1,
        1,
        1,
    )


def test_profile_and_level_are_read_and_timing_and_hrd_are_passed_over() -> None:
    hrd = "nal-hrd=vbr:vbv-maxrate=1000:vbv-bufsize=1000:sar=4/3"
    sps = sps_of(encode(3, closed(3, hrd), options={"profile": "main", "level": "4.1"}))
    assert (sps.profile_idc, sps.level_idc) == (77, 41)
    assert sps_of(encode(1, closed(1, "cqm=jvt"))).width == WIDTH  # scaling lists before the size


def test_a_lossless_stream_is_read() -> None:
    sps = sps_of(encode(1, closed(1), options={"crf": "0"}))
    assert (sps.profile_idc, sps.width, sps.chroma) == (244, WIDTH, "4:2:0")


def test_mp4_packets_become_what_the_reference_filter_makes_of_them(tmp_path: Path) -> None:
    path = write_mp4(tmp_path / "v.mp4", 11, closed(4))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        avcc = parse_avcc(stream.codec_context.extradata or b"")
        reference = av.BitStreamFilterContext("h264_mp4toannexb", stream)
        writer, ours, theirs = AnnexBWriter(avcc.parameter_sets), [], []
        for packet in container.demux(stream):
            if packet.size:
                nals = split_avcc(bytes(packet), avcc.length_bytes)
                ours.append(read_access_unit(writer.convert(nals)))
                theirs += [bytes(filtered) for filtered in reference.filter(packet)]
    assert avcc.length_bytes == 4
    assert len(ours) == len(theirs) == 11
    assert [unit.has_parameter_sets for unit in ours] == [number % 4 == 0 for number in range(11)]
    for unit, reference_bytes in zip(ours, theirs, strict=True):
        # the filter puts parameter sets behind an SEI, which may refer to them
        assert sorted(map(bytes_of, unit.nals)) == sorted(map(bytes_of, split_annexb(reference_bytes)))
    decoder = av.CodecContext.create("h264", "r")
    packets = [av.Packet(join_annexb(unit.nals)) for unit in ours]
    frames = [frame for packet in [*packets, None] for frame in decoder.decode(packet)]
    assert len(frames) == 11


def test_a_keyframe_with_its_parameter_sets_passes_unchanged_and_later_ones_get_the_newest() -> None:
    small = units_of(encode(1, closed(1)))[0].nals
    large = units_of(encode(1, closed(1), size=(640, 480)))[0].nals
    bare = without_sets(small)
    writer = AnnexBWriter()
    assert writer.convert(bare) is bare  # nothing is in force
    assert writer.convert(small) is small
    assert list(writer.convert(bare)) == list(small)
    assert writer.convert(large) is large
    assert list(writer.convert(bare)) == [nal for nal in large if nal.type in (SPS, PPS)] + bare


def without_sets(nals: Sequence[Nal]) -> list[Nal]:
    return [nal for nal in nals if nal.type not in (SPS, PPS)]


def test_parameter_sets_come_after_the_delimiter() -> None:
    whole = units_of(encode(2, closed(1, "aud=1:annexb=1")))[0].nals
    assert whole[0].type == DELIMITER
    assert list(AnnexBWriter(whole).convert(without_sets(whole))) == list(whole)


def test_bytes_without_a_start_code_are_refused_with_what_was_found() -> None:
    with pytest.raises(
        BadBitstream, match=r"byte 0: expected an Annex B start code .* found 61 62 63 in 3 bytes"
    ):
        split_annexb(b"abc")
    with pytest.raises(BadBitstream, match="found nothing in 0 bytes"):
        split_annexb(b"")


def test_empty_units_and_bad_headers_are_refused_with_the_byte() -> None:
    with pytest.raises(BadBitstream, match="byte 3: expected a NAL unit, found none"):
        split_annexb(b"\0\0\1\0\0\1\x65\x88")
    with pytest.raises(BadBitstream, match="byte 4: 0xe5 is no NAL header"):
        split_annexb(b"\0\0\0\1\xe5\x88")
    with pytest.raises(
        BadBitstream, match="byte 3: a NAL unit of type 5 holds a start code or ends in a zero"
    ):
        join_annexb([Nal(memoryview(b"\x65\0\0\1"), 3)])


def test_a_length_beyond_the_packet_is_refused_with_the_byte() -> None:
    with pytest.raises(BadBitstream, match="byte 6: a NAL unit of 9 bytes, but the packet ends at byte 11"):
        split_avcc(b"\0\0\0\2\x65\x88\0\0\0\x09\x41", 4)


def test_a_damaged_avcc_record_is_refused_with_the_byte(tmp_path: Path) -> None:
    with av.open(str(write_mp4(tmp_path / "v.mp4", 1, closed(1)))) as container:
        extradata = bytes(container.streams.video[0].codec_context.extradata or b"")
    with pytest.raises(BadBitstream, match="byte 0: expected an avcC record of version 1, found 00 00 00 01"):
        parse_avcc(b"\0\0\0\1\x67\1\2\3")
    with pytest.raises(BadBitstream, match="byte 6: a parameter set leads beyond the 12 bytes"):
        parse_avcc(extradata[:12])


def test_a_cut_parameter_set_is_refused_with_the_byte() -> None:
    sps = units_of(encode(1, closed(1)))[0].of_type(SPS)[0]
    with pytest.raises(BadBitstream, match=r"SPS: byte \d+: "):
        parse_sps(sps.data[:6])
    too_wide = "1" + "1" + "011" + "010" + "0" + "0" * 10 + f"{2000:b}"
    header = bytes([0x67, 66, 0, 30])
    with pytest.raises(
        BadBitstream, match="SPS: byte 6: pic_width_in_mbs_minus1 is 1999, expected at most 1023"
    ):
        parse_sps(header + int(too_wide.ljust(32, "0"), 2).to_bytes(4, "big"))


def test_real_clips_are_read(shared_data: Path) -> None:
    found = {}
    for name in ("nasa_13013.mp4", "h264_10bits.mp4", "bt709_full_range.mp4"):
        with av.open(str(shared_data / "tricky_video" / name)) as container:
            context = container.streams.video[0].codec_context
            sps = parse_sps(parse_avcc(context.extradata or b"").parameter_sets[0].data)
            assert (sps.width, sps.height) == (context.width, context.height)
            found[name] = (sps.bit_depth_luma, sps.vui.full_range, sps.vui.matrix)
    assert found["h264_10bits.mp4"][0] == 10
    assert found["nasa_13013.mp4"][0] == 8
