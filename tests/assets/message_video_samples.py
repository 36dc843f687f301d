"""Video in messages as people publish it, and what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import av
import pytest
from av.video.codeccontext import VideoCodecContext
from recordings import HEIGHT, WIDTH, number_in, painted

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.messages.video import MessageVideo
from dyna_train.video.nal import PPS, SPS, split_annexb

T0_NS, STEP_NS = 1_790_000_000_000_000_000, 33_333_333
WHERE = "a.mcap: topic '/cam'"
NUM_FRAMES = 12
Message = tuple[int, bytes]

FAST = {"preset": "ultrafast", "crf": "10"}
X264 = (
    "keyint={gop}:min-keyint={gop}:scenecut=0:bframes={b}:b-adapt=0:aud=1:repeat-headers=1:threads=1:{more}"
)
X265 = "keyint={gop}:min-keyint={gop}:scenecut=0:bframes={b}:b-adapt=0:aud=1:repeat-headers=1:pools=1:{more}"


@cache
def encoded(
    codec: str, b: int = 0, gop: int = 6, more: str = "", num_frames: int = NUM_FRAMES
) -> tuple[Message, ...]:
    """(number of the frame as it is shown, packet) of frames that show their numbers, in decoding order."""
    names = {"h264": "libx264", "hevc": "libx265", "vp9": "libvpx-vp9", "av1": "libsvtav1"}
    options: dict[str, dict[str, str]] = {
        "h264": FAST | {"x264-params": X264.format(gop=gop, b=b, more=more)},
        "hevc": FAST
        | {"x265-params": "log-level=none:frame-threads=1:" + X265.format(gop=gop, b=b, more=more)},
        "vp9": {"cpu-used": "8", "lag-in-frames": "0", "g": str(gop), "b": "300k"},
        "av1": {"preset": "12", "crf": "20", "g": str(gop), "svtav1-params": "lp=1"},
    }
    context = av.CodecContext.create(names[codec], "w")
    assert isinstance(context, VideoCodecContext)
    context.width, context.height = (WIDTH, HEIGHT) if codec != "av1" else (WIDTH, 64)
    context.pix_fmt, context.framerate, context.time_base = "yuv420p", Fraction(30), Fraction(1, 30)
    context.options = options[codec]
    packets = []
    for number in range(num_frames):
        picture = av.VideoFrame.from_ndarray(painted(number), "rgb24").reformat(
            context.width, context.height, "yuv420p"
        )
        picture.pts, picture.time_base = number, context.time_base
        packets += context.encode(picture)
    packets += context.encode(None)
    return tuple((int(packet.pts or 0), bytes(packet)) for packet in packets)


def stamp(number: int) -> int:
    """When frame `number` was captured: no two gaps alike, so that even spacing would show."""
    return T0_NS + number * STEP_NS + number * number * 1_000


def stamped(packets: Sequence[Message]) -> list[Message]:
    """Messages with the capture time of each frame."""
    return [(stamp(number), data) for number, data in packets]


def survey(messages: Sequence[Message], codec: str = "h264") -> MessageVideo:
    return MessageVideo.survey(lambda: iter(messages), codec, where=WHERE)


def numbers(video: MessageVideo) -> list[int]:
    """What the frames show."""
    return [number_in(frame.reformat(WIDTH, HEIGHT)) for frame in video.frames()]


def units(data: bytes) -> list[bytes]:
    """Its NAL units, each behind a start code of four bytes."""
    return [b"\0\0\0\1" + bytes(nal.data) for nal in split_annexb(data)]


def kind(unit: bytes) -> int:
    """nal_unit_type of an H.264 unit behind its start code of four bytes."""
    return unit[4] & 31


def without(data: bytes, *kinds: int) -> bytes:
    return b"".join(unit for unit in units(data) if kind(unit) not in kinds)


def only(data: bytes, *kinds: int) -> bytes:
    return b"".join(unit for unit in units(data) if kind(unit) in kinds)


def avcc(data: bytes, length_bytes: int = 4) -> bytes:
    """The same units behind their lengths."""
    return b"".join((len(unit) - 4).to_bytes(length_bytes, "big") + unit[4:] for unit in units(data))


def configuration(data: bytes, length_bytes: int = 4) -> bytes:
    """The avcC record of an access unit's parameter sets."""
    (sps,), (pps,) = ([unit[4:] for unit in units(data) if kind(unit) == k] for k in (SPS, PPS))
    head = bytes([1, *sps[1:4], 0xFC | length_bytes - 1, 0xE1])
    return head + len(sps).to_bytes(2, "big") + sps + b"\1" + len(pps).to_bytes(2, "big") + pps


def refused(messages: Sequence[Message], codec: str, match: str, check: str = "video.decodable") -> None:
    """Asserts that the topic is refused with this reason, in the survey or while its frames are read."""
    with pytest.raises(RecordingError, match=match) as caught:
        list(survey(messages, codec).frames())
    assert str(caught.value).startswith(WHERE)
    assert caught.value.check == check
