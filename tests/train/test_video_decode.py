"""One GOP to frames: in part and on again, and what a damaged one gives."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import islice
from typing import Any

import av
import numpy as np
import pytest
from av import logging
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_train.errors import CorruptEpisode
from dyna_train.video.decode import decode_gop
from dyna_train.video.encode import CameraEncoder, Quality

KINDS = ["cabac", "fast"]


@cache
def noisy_gop(kind: str) -> list[bytes]:
    """The 12 packets of one GOP, with CABAC or 'fast', without."""
    quality = Quality(20, fast_decode=kind == "fast")
    encoder = CameraEncoder("top", 160, 128, rate_hz=30, gop=12, quality=quality)
    row, column = np.indices((128, 160))
    rng, packets = np.random.default_rng(0), []
    for step in range(12):
        waves = [np.sin((column + 3 * step) / 17), np.cos((row - step) / 23), np.sin((row + column) / 31)]
        rgb = 128 + 90 * np.stack(waves, -1) + rng.normal(0, 3, (128, 160, 3))
        frame = av.VideoFrame.from_ndarray(rgb.clip(0, 255).astype(np.uint8), "rgb24")
        packets += encoder.encode(frame, step)
    return packets + encoder.flush()


@pytest.mark.parametrize("kind", KINDS)
def test_a_gop_decoded_in_part_goes_on_where_it_stopped(kind):
    all_at_once = [frame.to_ndarray() for frame in decode_gop(noisy_gop(kind), what="x")]
    decoding = decode_gop(noisy_gop(kind), what="x")
    parts = [[frame.to_ndarray() for frame in islice(decoding, count)] for count in (1, 5, 3, 9)]
    assert [len(part) for part in parts] == [1, 5, 3, 3]
    assert np.array_equal(np.concatenate(parts), all_at_once)


def test_a_frame_needs_no_packet_after_its_own():
    packets = [*noisy_gop("cabac")[:5], b"no video at all"]
    decoding = decode_gop(packets, what="x")
    assert len(list(islice(decoding, 5))) == 5
    with pytest.raises(CorruptEpisode, match="x: "):
        next(decoding)


def test_a_stream_that_states_a_delay_it_does_not_use_is_decoded_whole():
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = 64, 48, "yuv420p"
    context.time_base = Fraction(1, 30)
    context.options = {"x264-params": "bframes=2:b-adapt=0:keyint=8:min-keyint=8:scenecut=0:annexb=1"}
    packets = []
    for step in range(8):
        picture = np.random.default_rng(step).integers(0, 256, (72, 64), np.uint8)
        frame = av.VideoFrame.from_ndarray(picture, "yuv420p")
        frame.pts, frame.pict_type = step, 2 if step else 1  # P, though B-frames are announced
        packets += [bytes(packet) for packet in context.encode(frame)]
    packets += [bytes(packet) for packet in context.encode(None)]
    assert [frame.pts for frame in decode_gop(packets, what="x")] == list(range(8))


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    number=st.integers(0, 11),
    place=st.floats(0, 0.999),
    bit=st.integers(0, 7),
)
def test_a_flipped_bit_never_gives_a_frame_that_the_decoder_painted_over(kind, number, place, bit):
    packets = list(noisy_gop(kind))
    damaged = bytearray(packets[number])
    damaged[int(place * len(damaged))] ^= 1 << bit
    packets[number] = bytes(damaged)
    whole_frames = [frame.to_ndarray() for frame in decode_gop(noisy_gop(kind)[:number], what="x")]
    found: list[NDArray[Any]] = []
    logging.set_level(logging.INFO)
    with logging.Capture() as logs:
        try:
            found.extend(frame.to_ndarray() for frame in decode_gop(packets, what="x"))
        except CorruptEpisode as error:
            assert str(error).startswith("x: ")
        else:
            assert not [line for _, _, line in logs if "concealing" in line]
        finally:
            logging.set_level(None)
    assert all(np.array_equal(one, other) for one, other in zip(found, whole_frames, strict=False))


@pytest.mark.parametrize("kind", KINDS)
def test_damage_inside_a_p_frame_is_refused_at_that_frame(kind):
    packets = list(noisy_gop(kind))
    middle = len(packets[6]) // 2
    packets[6] = packets[6][:middle] + b"\x5a" * 40 + packets[6][middle + 40 :]
    decoding = decode_gop(packets, what="e.mcap: camera top, GOP 3")
    assert len(list(islice(decoding, 6))) == 6
    with pytest.raises(
        CorruptEpisode, match=r"^e\.mcap: camera top, GOP 3: frame 6 (does not decode|decodes in part)"
    ):
        next(decoding)


@pytest.mark.parametrize("kept", [0, 1, 100])
def test_a_cut_packet_is_refused_at_its_frame(kept):
    packets = [*noisy_gop("cabac")[:6], noisy_gop("cabac")[6][:kept], *noisy_gop("cabac")[7:]]
    with pytest.raises(CorruptEpisode, match=r"x: frame 6 (has no bytes|does not decode|decodes in part)"):
        list(decode_gop(packets, what="x"))


def test_packets_that_are_no_keyframe_give_no_frame():
    with pytest.raises(CorruptEpisode, match=r"x: "):
        list(decode_gop(noisy_gop("cabac")[3:6], what="x"))
