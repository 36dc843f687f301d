"""Video in messages: every frame at the stamp of the message in which it begins, or refused with the reason."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

import av
import numpy as np
import pytest
from av.bitstream import BitStreamFilterContext
from av.video.codeccontext import VideoCodecContext
from message_video_samples import (
    NUM_FRAMES,
    WHERE,
    Message,
    avcc,
    configuration,
    encoded,
    kind,
    numbers,
    only,
    refused,
    stamp,
    stamped,
    survey,
    units,
    without,
)
from recordings import HEIGHT, WIDTH

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.messages.frames import MOST_COUNTED
from dyna_assets.landing.sources.messages.video import MessageVideo
from dyna_train.video.bits import unescape
from dyna_train.video.coded import read_facts
from dyna_train.video.copy import copy_fault
from dyna_train.video.framing import MAX_UNIT_BYTES
from dyna_train.video.nal import IDR, PPS, SEI, SLICE, SPS


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1", "vp9"])
def test_one_frame_per_message_comes_out_at_its_own_stamp(codec: str) -> None:
    messages = stamped(encoded(codec))
    video = survey(messages, codec)
    assert video.times_ns.dtype == np.int64
    assert video.times_ns.tolist() == [stamp(number) for number in range(NUM_FRAMES)]
    assert numbers(video) == list(range(NUM_FRAMES))
    assert (video.codec, video.num_frames) == (codec, NUM_FRAMES)
    assert (video.width, video.height) == (WIDTH, HEIGHT if codec != "av1" else 64)
    assert video.note == ""


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1", "vp9"])
def test_frames_before_the_first_keyframe_are_left_out_and_counted(codec: str) -> None:
    video = survey(stamped(encoded(codec))[2:], codec)
    assert numbers(video) == [6, 7, 8, 9, 10, 11]
    assert video.times_ns.tolist() == [stamp(number) for number in range(6, 12)]
    assert video.note == "10 messages: 4 left out with frames that need one before the first keyframe"


def test_slices_of_one_frame_in_several_messages_are_joined_at_the_first_stamp() -> None:
    messages = []
    for number, data in encoded("h264", more="slices=3"):
        messages += [(stamp(number) + 5 * at, unit) for at, unit in enumerate(units(data)) if kind(unit) != 9]
    video = survey(messages)
    starts = [messages[at][0] for at in first_slices([data for _, data in messages])]
    assert video.times_ns.tolist() == starts
    assert len(starts) == NUM_FRAMES
    assert numbers(video) == list(range(NUM_FRAMES))
    assert video.note.startswith(
        f"{len(messages)} messages: {len(messages) - NUM_FRAMES} without the start of a frame"
    )


def first_slices(messages: Sequence[bytes]) -> list[int]:
    """Positions of the messages whose unit is a slice with macroblock 0 (an Exp-Golomb 0 is one bit)."""
    return [at for at, unit in enumerate(messages) if kind(unit) in (SLICE, IDR) and unit[5] & 0x80]


def test_a_stream_cut_into_packets_of_a_network_comes_out_whole() -> None:
    messages = []
    for number, data in encoded("h264"):
        messages += [(stamp(number) + at, data[at : at + 100]) for at in range(0, len(data), 100)]
    video = survey(messages)
    assert numbers(video) == list(range(NUM_FRAMES))
    late = video.times_ns - np.array([stamp(number) for number in range(NUM_FRAMES)])
    assert ((late >= 0) & (late < 1000)).all()  # the slice of a keyframe begins behind its parameter sets


def test_a_message_of_several_frames_is_refused_with_its_number_and_theirs() -> None:
    messages = stamped(encoded("h264"))
    batch = b"".join(data for _, data in messages[3:6])
    refused(
        [*messages[:3], (stamp(5), batch), *messages[6:]],
        "h264",
        rf"message 3 at {stamp(5)} ns holds 3 frames, expected at most 1: one stamp.*Publish one frame per message",
        "video.times",
    )
    refused([(stamp(0), batch)], "h264", "message 0 .* holds 3 frames", "video.times")


def test_a_message_of_countless_frames_is_refused_without_counting_them_all() -> None:
    key = encoded("h264", num_frames=1)[0][1]
    match = f"message 0 .* holds {MOST_COUNTED} or more frames"
    refused([(stamp(0), only(key, IDR, SPS, PPS) * 5 * MOST_COUNTED)], "h264", match, "video.times")


@pytest.mark.parametrize("codec", ["vp9", "av1"])
def test_a_temporal_unit_of_two_shown_frames_is_refused(codec: str) -> None:
    messages = stamped(encoded(codec))
    two = messages[3][1] + messages[4][1]
    if codec == "vp9":
        marker = bytes([0xC9])
        sizes = b"".join(len(messages[at][1]).to_bytes(2, "little") for at in (3, 4))
        two += marker + sizes + marker
    refused([*messages[:3], (stamp(3), two)], codec, "message 3 at .* holds 2 frames", "video.times")


def test_keyframes_without_parameter_sets_are_refused_with_advice() -> None:
    bare = [(time, without(data, SPS, PPS)) for time, data in stamped(encoded("h264"))]
    refused(
        bare, "h264", r"no keyframe \(of 2\) comes with its parameter sets \(SPS, PPS\).*repeat-headers=1"
    )


def test_parameter_sets_that_come_once_serve_every_keyframe() -> None:
    messages = stamped(encoded("h264"))
    sets = only(messages[0][1], SPS, PPS)
    bare = [(time, without(data, SPS, PPS)) for time, data in messages]
    # A frame of an earlier GOP stands between them and the first keyframe: they hold all the same.
    video = survey([(stamp(0) - 9, sets), (stamp(0) - 5, without(messages[1][1])), *bare])
    assert numbers(video) == list(range(NUM_FRAMES))
    facts = read_facts(video.coded())
    assert [packet.has_sets for packet in facts.packets] == [True] * NUM_FRAMES
    assert video.note == (
        "14 messages: 1 without the start of a frame (parameter sets, marks, the rest of a frame), "
        "1 left out with frames that need one before the first keyframe"
    )


def test_decoding_starts_at_the_first_keyframe_whose_parameter_sets_have_come() -> None:
    (time, data), *rest = stamped(encoded("h264"))
    video = survey([(time, without(data, SPS, PPS)), *rest])
    assert numbers(video) == [6, 7, 8, 9, 10, 11]
    assert video.note == "12 messages: 6 left out with frames that need one before the first keyframe"


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_b_frames_with_capture_stamps_come_out_as_they_are_shown(codec: str) -> None:
    packets = encoded(codec, b=3)
    assert [number for number, _ in packets] != sorted(number for number, _ in packets)
    video = survey(stamped(packets), codec)
    assert video.times_ns.tolist() == [stamp(number) for number in range(NUM_FRAMES)]
    assert numbers(video) == list(range(NUM_FRAMES))
    assert [packet.pts for packet in video.coded().packets()] == [number for number, _ in packets]


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_b_frames_stamped_in_decoding_order_are_refused(codec: str) -> None:
    packets = encoded(codec, b=3)
    messages = [(stamp(at), data) for at, (_, data) in enumerate(packets)]
    match = r"messages 0 to \d+: .*they ascend in decoding order, so nobody knows .*bframes=0"
    refused(messages, codec, match, "video.times")


def test_b_frames_with_stamps_of_no_order_are_refused() -> None:
    packets = encoded("h264", b=3)
    shuffled = random.Random(1).sample(range(NUM_FRAMES), NUM_FRAMES)
    messages = [(stamp(at), data) for at, (_, data) in zip(shuffled, packets, strict=True)]
    refused(messages, "h264", "they ascend in no order, so nobody knows", "video.times")


def test_a_clock_that_restarts_between_sequences_keeps_the_order_of_the_frames() -> None:
    packets = encoded("h264", b=2)
    messages = [(stamp(number % 6), data) for number, data in packets]
    video = survey(messages)
    assert video.times_ns.tolist() == [stamp(number) for number in [*range(6), *range(6)]]
    assert numbers(video) == list(range(NUM_FRAMES))


def test_reordered_frames_come_out_though_the_stream_does_not_state_its_delay() -> None:
    packets = [(number, without_restriction(data)) for number, data in encoded("h264", b=3)]
    video = survey(stamped(packets))
    assert numbers(video) == list(range(NUM_FRAMES))


def without_restriction(data: bytes) -> bytes:
    """The packet without bitstream_restriction in its SPS, where the depth of reordering stands."""
    return b"".join(unrestricted(unit) if kind(unit) == SPS else unit for unit in units(data))


def unrestricted(sps: bytes) -> bytes:
    """Of two flags and six Exp-Golomb numbers at the end of the SPS only the first flag is left, off."""
    raw = unescape(sps[4:])
    bits = f"{int.from_bytes(raw, 'big'):0{8 * len(raw)}b}".rstrip("0")[:-1]
    (at,) = (
        at
        for at in range(len(bits) - 40, len(bits))
        if bits[at : at + 4] == "1111" and num_golomb(bits[at + 2 :]) == 6
    )
    text = bits[:at] + "01"
    text += "0" * (-len(text) % 8)
    raw = int(text, 2).to_bytes(len(text) // 8, "big")
    return sps[:4] + re.sub(rb"\0\0(?=[\0-\3])", lambda _: b"\0\0\3", raw)


def num_golomb(bits: str) -> int:
    """How many Exp-Golomb numbers `bits` is; -1 if it ends inside one."""
    count = at = 0
    while at < len(bits):
        zeros = len(bits[at:]) - len(bits[at:].lstrip("0"))
        at, count = at + 2 * zeros + 1, count + 1
    return count if at == len(bits) else -1


def test_different_frames_with_one_stamp_are_refused() -> None:
    messages = stamped(encoded("h264"))
    messages[5] = (messages[4][0], messages[5][1])
    match = rf"messages 4 and 5 hold different frames with one stamp, {stamp(4)} ns \(1 such pairs\)"
    refused(messages, "h264", match, "video.times")


def test_stamps_that_go_backwards_are_kept_for_the_gates_to_judge() -> None:
    messages = stamped(encoded("h264"))
    messages[5] = (messages[2][0] - 7, messages[5][1])
    assert survey(messages).times_ns.tolist() == [time for time, _ in messages]


def test_empty_messages_and_messages_of_marks_hold_no_frame() -> None:
    messages: list[Message] = []
    for number, data in encoded("h264"):
        messages += [
            (stamp(number) - 30, b""),
            (stamp(number) - 20, b"\0\0\0\1\x09\xf0"),
            (stamp(number), data),
        ]
    video = survey([*messages, (stamp(99), b"")])
    assert video.times_ns.tolist() == [stamp(number) for number in range(NUM_FRAMES)]
    assert numbers(video) == list(range(NUM_FRAMES))
    assert video.note == (
        "37 messages: 13 empty, 12 without the start of a frame (parameter sets, marks, the rest of a frame)"
    )


@pytest.mark.parametrize("length_bytes", [1, 2, 4])
def test_units_behind_lengths_are_the_same_video(length_bytes: int) -> None:
    packets = [(number, without(data, SEI)) for number, data in encoded("h264")]
    messages = [(stamp(number), avcc(data, length_bytes)) for number, data in packets]
    assert numbers(survey(messages)) == list(range(NUM_FRAMES))
    record = configuration(packets[0][1], length_bytes)
    bare = [(stamp(number), avcc(without(data, SPS, PPS), length_bytes)) for number, data in packets]
    video = survey([(stamp(0) - 1, record), *bare])
    assert video.times_ns.tolist() == [stamp(number) for number in range(NUM_FRAMES)]
    assert numbers(video) == list(range(NUM_FRAMES))
    assert [packet.data for packet in video.coded().packets()] != []
    assert read_facts(video.coded()).fault == ""


def test_a_mix_of_framings_is_refused() -> None:
    messages = stamped(encoded("h264"))
    mixed = [(time, avcc(data) if at % 2 else data) for at, (time, data) in enumerate(messages)]
    refused(mixed, "h264", r"message 1 at \d+ ns: .*a mix of Annex B and AVCC")
    refused(mixed[1:], "h264", r"message 1 at \d+ ns: .*a mix of AVCC and Annex B")


def test_a_lost_message_is_refused_where_the_next_frame_needs_it() -> None:
    messages = stamped(encoded("h264"))
    refused(
        messages[:3] + messages[4:], "h264", r"message 3 at \d+ ns: its frame cannot be decoded: frame_num 4"
    )
    messages = stamped(encoded("hevc"))
    refused(messages[:3] + messages[4:], "hevc", rf"frame 3 at {stamp(4)} ns does not decode")


def test_a_lost_slice_is_refused_though_the_decoder_paints_over_it() -> None:
    packets = list(encoded("h264", more="slices=3"))
    number, data = packets[8]
    packets[8] = (number, b"".join(units(data)[:-1]))
    refused(stamped(packets), "h264", rf"frame 8 at {stamp(8)} ns decodes in part only; .*a message was lost")


def test_other_pictures_half_way_are_refused() -> None:
    large = av.CodecContext.create("libx264", "w")
    assert isinstance(large, VideoCodecContext)
    large.width, large.height, large.pix_fmt, large.time_base = 80, HEIGHT, "yuv420p", Fraction(1, 30)
    frame = av.VideoFrame.from_ndarray(np.zeros((HEIGHT, 80, 3), np.uint8), "rgb24").reformat(
        format="yuv420p"
    )
    packets = [bytes(packet) for packet in (*large.encode(frame), *large.encode(None))]
    messages = stamped([*encoded("h264"), (12, packets[0])])
    refused(messages, "h264", rf"frame 12 at {stamp(12)} ns has 80x48 pixels, the first one 64x48")


def test_a_stream_that_says_how_it_is_turned_comes_out_upright() -> None:
    turn = BitStreamFilterContext("h264_metadata=display_orientation=insert:rotate=90", "h264")
    packets = []
    for number, data in encoded("h264"):
        packet = av.Packet(data)
        packets += [(number, bytes(out)) for out in turn.filter(packet)]
    video = survey(stamped(packets))
    assert (video.width, video.height) == (HEIGHT, WIDTH)
    frames = list(video.frames())
    assert {(frame.width, frame.height) for frame in frames} == {(HEIGHT, WIDTH)}
    assert video.coded().appearance.is_turned
    rows = (
        frames[0b1010]
        .to_ndarray(format="gray")
        .astype(float)
        .mean(axis=1)
        .reshape(8, -1)[:, 2:-2]
        .mean(axis=1)
    )
    found = [int(level > 128) for level in rows]
    assert found in ([0, 1, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 1, 0])


def test_packets_without_a_fault_can_be_copied() -> None:
    messages = stamped(encoded("h264", more="slices=2"))
    parts = [(time + at, unit) for time, data in messages for at, unit in enumerate(units(data))]
    coded = survey(parts).coded()
    facts = read_facts(coded)
    assert copy_fault(facts, np.arange(NUM_FRAMES), size=(WIDTH, HEIGHT), most_gop=30) is None
    assert [packet.pts for packet in facts.packets] == list(range(NUM_FRAMES))
    assert "B-frames" in str(
        copy_fault(
            read_facts(survey(stamped(encoded("h264", b=2))).coded()),
            np.arange(NUM_FRAMES),
            size=(WIDTH, HEIGHT),
            most_gop=30,
        )
    )


def test_a_file_that_is_replaced_while_it_is_read_is_refused() -> None:
    passes = [stamped(encoded("h264")), stamped(encoded("h264"))[:-1]]
    current = passes[0]
    video = MessageVideo.survey(lambda: iter(current), "h264", where=WHERE)
    current = passes[1]
    with pytest.raises(
        RecordingError, match="frame 11 is another one than a moment ago: the file was replaced"
    ):
        list(video.frames())


@pytest.mark.parametrize(
    ("messages", "codec", "match"),
    [
        ([], "h264", r"no frame of h264 in 0 messages \(0 empty\)"),
        ([(1, b""), (2, b"")], "hevc", r"no frame of hevc in 2 messages \(2 empty\)"),
        (
            [(7, b"\xff\xd8\xff\xe0" + b"x" * 99)],
            "h264",
            "message 0 at 7 ns: no H[.]264: expected a start code",
        ),
        ([(7, b""), (8, b"text")], "h264", "message 1 at 8 ns: no H[.]264"),
        ([(7, b"\0\0\1\x09\xf0")], "mjpeg", "video of format 'mjpeg', expected one of h264, hevc, av1, vp9"),
    ],
)
def test_topics_without_video_are_refused(messages: list[Message], codec: str, match: str) -> None:
    refused(messages, codec, match)


def test_a_topic_without_a_keyframe_is_refused_with_advice() -> None:
    refused(stamped(encoded("h264"))[1:6], "h264", "no keyframe among 5 frames.*one at least every second")


def test_a_message_that_is_too_large_for_a_frame_is_refused_unread() -> None:
    first, *_ = stamped(encoded("h264"))
    large = (stamp(1), bytes(MAX_UNIT_BYTES + 1))
    refused([first, large], "h264", r"message 1 at \d+ ns: 268,435,457 bytes, expected at most 268,435,456")
    refused([large], "vp9", r"message 0 at \d+ ns: 268,435,457 bytes")


def test_a_survey_holds_no_payload() -> None:
    alive: list[int] = []
    most = []

    class Payload(bytes):
        def __del__(self) -> None:
            alive.pop()

    def messages() -> Iterator[Message]:
        for at, (_, data) in enumerate(encoded("h264") * 4):
            payload = Payload(data)
            alive.append(1)
            most.append(len(alive))
            yield stamp(at), payload

    assert MessageVideo.survey(messages, "h264", where=WHERE).num_frames == 4 * NUM_FRAMES
    assert max(most) <= 3
