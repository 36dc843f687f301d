"""Frames to H.264 packets that a random reader can use: closed GOPs of one length, no B-frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType
from av.video.reformatter import ColorRange

from dyna_train.errors import BadInput, EpisodeError
from dyna_train.video.pixels import PIXEL_FORMAT, FrameConverter, matrix_of

CODEC = "libx264"  # by name: 'h264' may be a hardware encoder, and its defaults emit B-frames
PRESET = "veryfast"  # the knee: ultrafast triples the size, slower presets save nothing on sensor noise


@dataclass(frozen=True, slots=True)
class Quality:
    """What the video gives up for its size.

    crf: x264's constant rate factor, 0 (lossless) to 51. fast_decode: without CABAC and deblocking, which
    halves the time to decode and costs a quarter more bytes at equal PSNR. Raises BadInput for another crf.
    """

    crf: int
    fast_decode: bool = False

    def __post_init__(self) -> None:
        """Refuse a crf that x264 does not have."""
        if not 0 <= self.crf <= 51:
            raise BadInput(f"crf {self.crf}, expected 0 (lossless) to 51; 18 is the default of sources")


QUALITIES: Mapping[str, Quality] = {
    "archive": Quality(crf=16),
    "default": Quality(crf=18),
    "train": Quality(crf=22),
    "train-fast": Quality(crf=20, fast_decode=True),
}
"""By name, for what a file is kept. Measured beside JPEG quality 80: `archive` is better, `train` equal."""


def x264_params(gop: int) -> str:
    """What x264 is told beside preset, tune and crf; the rules of foxglove.CompressedVideo."""
    return (
        f"keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:bframes=0:"
        "repeat-headers=1:annexb=1:threads=1:lookahead-threads=1"
    )


def x264_options(gop: int, quality: Quality, width: int) -> dict[str, str]:
    """The encoder's options for frames of `width` pixels, as libavcodec takes them."""
    tune = {"tune": "fastdecode"} if quality.fast_decode else {}
    asm = ":asm=avx2" if -(-width // 16) % 8 and _has_avx512() else ""
    return {
        "preset": PRESET,
        **tune,
        "crf": str(quality.crf),
        "forced-idr": "1",
        "x264-params": x264_params(gop) + asm,
    }


@cache
def _has_avx512() -> bool:
    """True where x264 would use AVX-512.

    Its macroblock tree then reads memory that it never wrote, if a row holds no multiple of 8 macroblocks (848, 424,
    320, 224 pixels), and equal frames give unequal bytes. Its AVX2 code does not, for 6 % more time. Drop this
    when test_encoded_bytes_do_not_depend_on_what_stood_in_memory_before passes without.
    """
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and "avx512f" in cpu.read_text(encoding="utf-8", errors="replace")


def codec_params(gop: int, quality: Quality) -> str:
    """The encoder's settings in one line, for the channel metadata."""
    tune = " tune=fastdecode" if quality.fast_decode else ""
    return f"{CODEC} preset={PRESET}{tune} crf={quality.crf} {x264_params(gop)}"


class CameraEncoder:
    """The encoder of one camera: frames in step order in, one Annex B packet per frame out.

    The first frame decides the colour matrix; frames that differ are converted to it. A step may have no
    frame; the first frame of every GOP is its keyframe. watch: is shown every step and its frame as it is encoded
    (8-bit 4:2:0 of limited range, even sides), before the encoder gets it.
    """

    def __init__(
        self,
        name: str,
        width: int,
        height: int,
        *,
        rate_hz: float,
        gop: int,
        quality: Quality,
        watch: Callable[[int, av.VideoFrame], None] | None = None,
    ) -> None:
        self._name = name
        self._width = width
        self._height = height
        self._rate = Fraction(rate_hz).limit_denominator(100_000)
        self._gop = gop
        self._quality = quality
        self._watch = watch
        self._converter = FrameConverter()
        self._context: VideoCodecContext | None = None
        self._matrix = 0
        self._last_gop = -1
        self._inside: list[tuple[int, bool]] = []
        """(step, starts a GOP) of the frames that went in and have not come out."""

    def encode(self, frame: av.VideoFrame, step: int) -> list[bytes]:
        """Feed the frame of `step`, which ascends; returns the packets that are ready, some frames behind.

        Leaves `frame` as it was. Raises EpisodeError if the encoder breaks the GOP rules.
        """
        if self._context is None:
            self._matrix = matrix_of(frame)
            self._context = self._open(frame)
        ready = self._converter.to_video(frame, self._matrix)
        if self._watch is not None:
            self._watch(step, ready)
        starts = step // self._gop != self._last_gop
        self._last_gop = step // self._gop
        self._inside.append((step, starts))
        # A decoded source frame carries its own picture type, and x264 would obey it: an I in the middle
        # of a GOP, or a B anywhere. It may also stand for several steps, so its fields are put back.
        kept = ready.pts, ready.time_base or Fraction(0), ready.pict_type
        ready.pts, ready.time_base = step, 1 / self._rate
        ready.pict_type = PictureType.I if starts else PictureType.NONE
        try:
            return self._checked(self._context.encode(ready))
        finally:
            ready.pts, ready.time_base, ready.pict_type = kept

    def flush(self) -> list[bytes]:
        """The packets still inside; nothing can be fed after it."""
        return self._checked(self._context.encode(None)) if self._context else []

    def _open(self, frame: av.VideoFrame) -> VideoCodecContext:
        context = av.CodecContext.create(CODEC, "w")
        assert isinstance(context, VideoCodecContext)
        context.width = self._width + self._width % 2
        context.height = self._height + self._height % 2
        context.pix_fmt = PIXEL_FORMAT
        context.framerate, context.time_base = self._rate, 1 / self._rate
        context.gop_size, context.max_b_frames, context.thread_count = self._gop, 0, 1
        context.colorspace, context.color_range = self._matrix, ColorRange.MPEG
        context.color_primaries, context.color_trc = frame.color_primaries, frame.color_trc
        context.options = x264_options(self._gop, self._quality, context.width)
        return context

    def _checked(self, packets: Sequence[av.Packet[Any]]) -> list[bytes]:
        for packet in packets:
            step, starts = self._inside.pop(0)
            if packet.pts != step or packet.is_keyframe != starts:
                raise EpisodeError(
                    f"camera {self._name}, step {step}: {CODEC} gave packet {packet.pts} (keyframe: "
                    f"{packet.is_keyframe}); expected step order and a keyframe every {self._gop} steps"
                )
        return [bytes(packet) for packet in packets]
