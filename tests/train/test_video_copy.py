from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from h264_samples import (
    HEIGHT,
    WIDTH,
    Stream,
    closed,
    coded,
    decoded,
    encode,
    from_memory,
    packets_of,
    remux,
    write_mp4,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_train.video.coded import CodedVideo, Packet, StreamFacts, copied_packets, read_facts
from dyna_train.video.copy import copy_fault, gop_of
from dyna_train.video.decode import decode_gop
from dyna_train.video.nal import IDR, PPS, SPS, join_annexb, split_annexb, split_avcc

SIZE, MOST_GOP = (WIDTH, HEIGHT), 60
STREAM = encode(2, closed(2))
VIDEO = from_memory(STREAM)


def fault_of(
    video: CodedVideo, frames_T: NDArray[np.int64] | None = None, size: tuple[int, int] = SIZE
) -> str | None:
    facts = read_facts(video)
    every_T = np.arange(max(1, len(facts.packets)))
    return copy_fault(facts, every_T if frames_T is None else frames_T, size=size, most_gop=MOST_GOP)


def bodies(data: bytes) -> list[bytes]:
    """The NAL units of an access unit without its parameter sets."""
    return [bytes(nal.data) for nal in split_annexb(data) if nal.type not in (SPS, PPS)]


def picture_of(packets: list[bytes]) -> list[NDArray[np.uint8]]:
    return [np.asarray(frame.to_ndarray()) for frame in decode_gop(packets, what="copied")]


@pytest.mark.parametrize("settings", [closed(10), closed(10, "slices=3"), closed(10, "aud=1")])
def test_an_mp4_copies_bit_for_bit_and_every_gop_decodes_alone(tmp_path: Path, settings: str) -> None:
    path = write_mp4(tmp_path / "v.mp4", 27, settings)
    video = coded(path)
    assert fault_of(video) is None
    copies = [data for _, data in copied_packets(video, range(27))]
    for source, copy in zip(packets_of(path), copies, strict=True):
        assert bodies(copy) == [bytes(nal.data) for nal in split_avcc(source.data, 4)]
    reference = decoded(path)
    for start in range(0, 27, 10):
        assert [nal.type for nal in split_annexb(copies[start]) if nal.type in (SPS, PPS)] == [SPS, PPS]
        frames = picture_of(copies[start : start + 10])
        assert len(frames) == min(10, 27 - start)
        assert all((ours == theirs).all() for ours, theirs in zip(frames, reference[start:], strict=False))


@pytest.mark.parametrize("suffix", ["mkv", "ts", "h264", "mov"])
def test_other_containers_give_the_same_frames(tmp_path: Path, suffix: str) -> None:
    path = remux(write_mp4(tmp_path / "v.mp4", 12, closed(6)), tmp_path / f"w.{suffix}")
    video = coded(path)
    if suffix == "h264":  # raw bytes have no times
        numbered = [replace(packet, pts=number) for number, packet in enumerate(raw_packets(path))]
        video = replace(video, packets=lambda: iter(numbered))
    assert fault_of(video) is None
    copies = [data for _, data in copied_packets(video, range(12))]
    reference = decoded(path)
    assert len(reference) == 12
    assert all((ours == theirs).all() for ours, theirs in zip(picture_of(copies), reference, strict=True))


def raw_packets(path: Path) -> list[Packet]:
    with av.open(str(path)) as container:
        return [
            Packet(bytes(packet), 0, packet.is_keyframe) for packet in container.demux(video=0) if packet.size
        ]


def test_annex_b_bytes_that_lack_nothing_are_the_same_bytes() -> None:
    stream = encode(8, closed(4, "repeat-headers=1:annexb=1"))
    copies = list(copied_packets(from_memory(stream), range(8)))
    assert copies == list(zip(stream.pts, stream.packets, strict=True))


def test_a_later_stretch_starts_at_its_keyframe_and_ends_anywhere(tmp_path: Path) -> None:
    path = write_mp4(tmp_path / "v.mp4", 30, closed(10))
    video, facts = coded(path), read_facts(coded(path))
    for first, last, gop in [
        (0, 30, 10),
        (10, 27, 10),
        (20, 24, 4),
        (20, 30, 10),
        (29, 30, None),
        (5, 25, None),
    ]:
        frames_T = np.arange(first, last)
        fault = copy_fault(facts, frames_T, size=SIZE, most_gop=MOST_GOP)
        if gop is None:
            assert fault == f"the first frame that is used, {first} of the source, is no keyframe"
        else:
            assert fault is None
            assert gop_of(facts, frames_T) == gop
            copies = list(copied_packets(video, range(first, last)))
            assert [pts for pts, _ in copies] == [number * 512 for number in range(first, last)]


def test_the_facts_are_those_of_the_packets(tmp_path: Path) -> None:
    facts = read_facts(coded(write_mp4(tmp_path / "v.mp4", 5, closed(3))))
    assert facts.describe() == "h264 High level 1.0 96x64"
    assert [packet.kinds for packet in facts.packets] == ["I", "P", "P", "I", "P"]
    assert [packet.is_idr for packet in facts.packets] == [True, False, False, True, False]
    assert facts.packets[0].num_bytes > 4 * facts.packets[1].num_bytes


@pytest.mark.parametrize(
    ("codec", "pixel_format", "reason"),
    [
        ("mpeg4", "yuv420p", "the source is mpeg4, not h264"),
        ("libx265", "yuv420p", "the source is hevc, not h264"),
        ("mjpeg", "yuvj420p", "the source is mjpeg, not h264"),
        ("libx264", "yuv444p", "4:4:4 with 8 bits, expected 4:2:0 with 8 bits"),
        ("libx264", "yuv422p", "4:2:2 with 8 bits, expected 4:2:0 with 8 bits"),
        ("libx264", "yuv420p10le", "4:2:0 with 10 bits, expected 4:2:0 with 8 bits"),
        ("libx264", "yuvj420p", "full range, expected limited range"),
    ],
)
def test_other_codecs_and_pictures_are_refused(
    tmp_path: Path, codec: str, pixel_format: str, reason: str
) -> None:
    options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
    path = write_mp4(
        tmp_path / "v.mkv", 3, closed(3), codec=codec, pixel_format=pixel_format, options=options
    )
    assert fault_of(coded(path)) == reason


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (closed(10, "tff=1"), "coded for interlaced fields"),
        ("keyint=30:bframes=2:b-adapt=0:scenecut=0:threads=1", "packet 2 holds B slices (B-frames)"),
        (
            closed(5, "intra-refresh=1"),
            "packet 5 is a keyframe but no IDR picture (open GOP)",
        ),
        (closed(250), "a GOP of 66 frames, expected at most 60"),
        (closed(61), "a GOP of 61 frames, expected at most 60"),
    ],
)
def test_x264_settings_that_break_the_profile_are_refused(settings: str, reason: str) -> None:
    assert fault_of(from_memory(encode(66, settings))) == reason


def test_keyframes_where_a_scene_changes_are_refused(tmp_path: Path) -> None:
    whole, rest = encode(8, closed(4)), encode(6, closed(6))
    packets = whole.packets[:7] + rest.packets
    uneven = Stream(packets, list(range(13)), [True] * 13, b"")
    uneven = replace(uneven, keyframes=[IDR in [n.type for n in split_annexb(data)] for data in packets])
    assert fault_of(from_memory(uneven)) == "a GOP of 3 frames at packet 4, the first one has 4"
    longer = replace(uneven, packets=whole.packets + rest.packets, pts=list(range(14)), keyframes=[True] * 14)
    longer = replace(
        longer, keyframes=[IDR in [n.type for n in split_annexb(data)] for data in longer.packets]
    )
    assert fault_of(from_memory(longer)) == "a GOP of 6 frames at packet 8, the first one has 4"


def test_packets_that_are_not_one_frame_are_refused() -> None:
    stream = encode(6, closed(3, "slices=2"))
    first, second, *others = stream.packets
    pasted = Stream([first + second, *others], [0, 1, 2, 3, 4], [True, False, True, False, False], b"")
    assert fault_of(from_memory(pasted)) == "packet 0 holds 2 frames, expected 1"
    halves = [nal for nal in split_annexb(second)]
    cut = [first, join_annexb(halves[:1]), join_annexb(halves[1:]), *others]
    split = Stream(cut, list(range(7)), [True, False, False, False, True, False, False], b"")
    assert fault_of(from_memory(split)) == "packet 2 holds 0 frames, expected 1"


def test_times_that_go_back_are_refused() -> None:
    stream = encode(4, closed(4))
    for pts in ([0, 2, 1, 3], [0, 1, 1, 2]):
        assert fault_of(from_memory(replace(stream, pts=pts))) == (
            "packet 2 is shown before packet 1: not in order of presentation"
        )


def test_packets_that_an_edit_list_hides_are_refused(shared_data: Path) -> None:
    path = shared_data / "tricky_video/discard_first_keyframe.mp4"
    assert fault_of(coded(path), size=(64, 64)) == "packet 0 is not shown (edit list)"


@pytest.mark.parametrize("angle", [90, 180, -90])
def test_a_container_that_turns_the_picture_is_refused(tmp_path: Path, angle: int) -> None:
    plain = write_mp4(tmp_path / "plain.mp4", 3, closed(3))
    turned = remux(plain, tmp_path / "turned.mp4", angle=angle)
    assert fault_of(coded(turned)) == "its container turns the picture (display matrix)"
    assert fault_of(coded(plain)) is None


def test_colours_that_only_the_container_states_are_refused() -> None:
    stream = encode(3, closed(3))
    assert fault_of(from_memory(stream)) is None
    assert fault_of(from_memory(stream, matrix=1)) == (
        "its container shows colours (1, 2, 2) where the stream says (2, 2, 2) (matrix, primaries, transfer)"
    )
    assert fault_of(from_memory(stream, full_range=True)) == "full range, expected limited range"
    tagged = encode(3, closed(3), colorspace=1, color_primaries=1, color_trc=1)
    assert fault_of(from_memory(tagged)) is None
    odd = encode(3, closed(3, "colormatrix=YCgCo"))
    assert fault_of(from_memory(odd)) == "colour matrix 8, expected one of [1, 4, 5, 6, 7, 9, 10] or none"


def test_an_odd_camera_is_copied_when_its_stream_is_one_larger_and_refused_otherwise() -> None:
    stream = encode(3, closed(3), size=(98, 64))
    video = from_memory(stream, width=97, height=63)
    assert fault_of(video, size=(97, 63)) is None
    assert fault_of(video, size=(98, 64)) == "pictures of 98x64, shown as 97x63; the camera has 98x64"
    assert fault_of(from_memory(stream, width=96), size=(96, 64)) == (
        "pictures of 98x64, shown as 96x64; the camera has 96x64"
    )
    assert fault_of(from_memory(stream), size=(640, 480)) == (
        "pictures of 98x64, shown as 98x64; the camera has 640x480"
    )


def test_cropping_at_the_left_is_refused() -> None:
    stream = encode(3, closed(3, "crop-rect=2,0,0,0"))
    assert fault_of(from_memory(stream, width=94), size=(94, 64)) == (
        "cropped at the left or top by 2 and 0 pixels"
    )


def without(kinds: tuple[int, ...], packets: list[bytes]) -> list[bytes]:
    return [join_annexb(nal for nal in split_annexb(data) if nal.type not in kinds) for data in packets]


def test_missing_parameter_sets_are_refused_and_those_of_the_container_are_put_in() -> None:
    stream = encode(6, closed(3))
    sets = [nal for nal in split_annexb(stream.packets[0]) if nal.type in (SPS, PPS)]
    shown = from_memory(stream).appearance
    for kinds, reason in [
        ((SPS, PPS), "no keyframe comes with its parameter sets"),
        ((PPS,), "packet 0 comes without its parameter sets"),
    ]:
        packets = [Packet(data, pts) for pts, data in enumerate(without(kinds, stream.packets))]
        bare = CodedVideo("h264", b"", shown, lambda packets=packets: iter(packets))  # type: ignore[misc]
        assert fault_of(bare) == reason
        helped = replace(bare, extradata=join_annexb(sets))
        assert fault_of(helped) is None
        assert [data for _, data in copied_packets(helped, range(6))][3] == stream.packets[3]


def test_parameter_sets_that_change_are_refused() -> None:
    first, second = encode(3, closed(3)), encode(3, closed(3), size=(64, 64))
    joined = Stream([*first.packets, *second.packets], list(range(6)), [True, False, False] * 2, b"")
    assert fault_of(from_memory(joined)) == "the parameter sets change, or are several, at packet 3"
    packets = [Packet(data, pts) for pts, data in enumerate(first.packets)]
    packets[2] = replace(packets[2], extradata=b"\0\0\0\1other")
    video = replace(from_memory(first), packets=lambda: iter(packets))
    assert fault_of(video) == (
        "no H.264 that can be taken apart: packet 2: its container changes the parameter sets here"
    )


def test_packets_that_are_damaged_are_refused_with_the_byte() -> None:
    stream = encode(3, closed(3))
    damaged = [Packet(data, pts) for pts, data in enumerate(stream.packets)]
    damaged[1] = replace(damaged[1], data=b"\1" + damaged[1].data)
    video = replace(from_memory(stream), packets=lambda: iter(damaged))
    reason = fault_of(video)
    assert reason is not None
    assert reason.startswith(
        "no H.264 that can be taken apart: packet 1: byte 0: expected an Annex B start code"
    )
    assert fault_of(replace(video, packets=lambda: iter(()))) == "the source holds no packet"


@given(data=st.data())
def test_a_flipped_byte_anywhere_gives_a_verdict_and_no_other_error(data: st.DataObject) -> None:
    number = data.draw(st.integers(0, 1), "packet")
    at = data.draw(st.integers(0, min(80, len(STREAM.packets[number]) - 1)), "byte")
    changed = bytearray(STREAM.packets[number])
    changed[at] ^= data.draw(st.integers(1, 255), "difference")
    packets = [Packet(one, pts) for pts, one in enumerate(STREAM.packets)]
    packets[number] = replace(packets[number], data=bytes(changed))
    fault = fault_of(replace(VIDEO, packets=lambda: iter(packets)))
    assert fault is None or fault


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([0, 1, 1, 2], "step 2 shows frame 1 of the source, expected 2: not one new frame for each step"),
        ([0, 1, 3, 4], "step 2 shows frame 3 of the source, expected 2: not one new frame for each step"),
        ([3, 4, 5, 6], "the last step shows frame 6 of the source, it has 6 packets"),
    ],
)
def test_steps_that_repeat_or_drop_frames_are_refused(frames: list[int], reason: str) -> None:
    assert fault_of(from_memory(encode(6, closed(3))), np.array(frames)) == reason


@settings(max_examples=60)
@given(
    gop=st.integers(1, 8),
    before=st.integers(0, 3),
    num_gops=st.integers(1, 4),
    last=st.integers(1, 8),
    moved=st.integers(-1, 1),
)
def test_only_gops_of_one_length_from_the_first_used_frame_are_copied(
    gop: int, before: int, num_gops: int, last: int, moved: int
) -> None:
    starts = [before + gop * number for number in range(num_gops)]
    num_packets = starts[-1] + min(last, gop)
    if num_gops > 1:
        starts[-1] += moved
    template = read_facts(VIDEO)
    packets = tuple(
        replace(template.packets[1], pts=number, is_idr=number in starts) for number in range(num_packets)
    )
    facts: StreamFacts = replace(template, packets=packets)
    frames_T = np.arange(before, num_packets)
    allowed = cuts_evenly([start - before for start in starts if start < num_packets], num_packets - before)
    fault = copy_fault(facts, frames_T, size=SIZE, most_gop=8)
    assert (fault is None) == allowed
    if allowed:
        length = gop_of(facts, frames_T)
        assert [packet.is_idr for packet in packets[before:]] == [
            step % length == 0 for step in range(num_packets - before)
        ]


def cuts_evenly(starts: list[int], num_steps: int) -> bool:
    """True if these starts are every multiple of a length of at most 8."""
    lengths = range(1, 9)
    return any(sorted(set(starts)) == list(range(0, num_steps, length)) for length in lengths)


REAL = [
    ("nasa_13013.mp4", (320, 180), "packet 2 holds B slices (B-frames)"),
    ("nasa_13013_rotated.mp4", (480, 270), "its container turns the picture (display matrix)"),
    ("bt709_full_range.mp4", (1280, 720), "full range, expected limited range"),
    ("h264_10bits.mp4", None, "4:2:0 with 10 bits, expected 4:2:0 with 8 bits"),
    ("testsrc2_odd_height_and_width_444.mp4", None, "4:4:4 with 8 bits, expected 4:2:0 with 8 bits"),
    ("av1_video.mkv", None, "the source is av1, not h264"),
    ("h265_video.mp4", None, "the source is hevc, not h264"),
]


@pytest.mark.parametrize(("name", "size", "reason"), REAL)
def test_real_clips_are_refused_for_what_is_wrong_with_them(
    shared_data: Path, name: str, size: tuple[int, int] | None, reason: str
) -> None:
    assert fault_of(coded(shared_data / "tricky_video" / name), size=size or SIZE) == reason
