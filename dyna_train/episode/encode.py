"""Frames to H.264 packets that a random reader can use: closed GOPs of one length, no B-frames."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType
from av.video.reformatter import ColorRange

from dyna_train.episode.pixels import PIXEL_FORMAT, FrameConverter, matrix_of
from dyna_train.episode.profile import CameraTrack
from dyna_train.errors import EpisodeError

CODEC = "libx264"  # by name: 'h264' may be a hardware encoder, and its defaults emit B-frames
PRESET = "veryfast"  # the knee: ultrafast triples the size, slower presets save nothing on sensor noise


def x264_params(gop: int) -> str:
    """What x264 is told beside preset and crf; the rules of foxglove.CompressedVideo."""
    return (
        f"keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:bframes=0:"
        "repeat-headers=1:annexb=1:threads=1:lookahead-threads=1"
    )


def codec_params(gop: int, crf: int) -> str:
    """The encoder's settings in one line, for the channel metadata."""
    return f"{CODEC} preset={PRESET} crf={crf} {x264_params(gop)}"


class CameraEncoder:
    """The encoder of one camera: frames in step order in, one Annex B packet per step out.

    The first frame decides the colour matrix; frames that differ are converted to it.
    """

    def __init__(self, camera: CameraTrack, rate_hz: float, gop: int, crf: int) -> None:
        self._camera = camera
        self._rate = Fraction(rate_hz).limit_denominator(100_000)
        self._gop = gop
        self._crf = crf
        self._converter = FrameConverter()
        self._context: VideoCodecContext | None = None
        self._matrix = 0
        self._num_frames = 0
        self._num_packets = 0

    def encode(self, frame: av.VideoFrame) -> list[bytes]:
        """Feed the frame of the next step; returns the packets that are ready, which lag some frames behind.

        Leaves `frame` as it was. Raises EpisodeError if the encoder breaks the GOP rules.
        """
        if self._context is None:
            self._matrix = matrix_of(frame)
            self._context = self._open(frame)
        ready = self._converter.to_video(frame, self._matrix)
        # A decoded source frame carries its own picture type, and x264 would obey it: an I in the middle
        # of a GOP, or a B anywhere. It may also stand for several steps, so its fields are put back.
        kept = ready.pts, ready.time_base or Fraction(0), ready.pict_type
        ready.pts, ready.time_base = self._num_frames, 1 / self._rate
        ready.pict_type = PictureType.NONE if self._num_frames % self._gop else PictureType.I
        self._num_frames += 1
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
        context.width = self._camera.width + self._camera.width % 2
        context.height = self._camera.height + self._camera.height % 2
        context.pix_fmt = PIXEL_FORMAT
        context.framerate, context.time_base = self._rate, 1 / self._rate
        context.gop_size, context.max_b_frames, context.thread_count = self._gop, 0, 1
        context.colorspace, context.color_range = self._matrix, ColorRange.MPEG
        context.color_primaries, context.color_trc = frame.color_primaries, frame.color_trc
        context.options = {
            "preset": PRESET,
            "crf": str(self._crf),
            "forced-idr": "1",
            "x264-params": x264_params(self._gop),
        }
        return context

    def _checked(self, packets: Sequence[av.Packet[Any]]) -> list[bytes]:
        for packet in packets:
            step = self._num_packets
            if packet.pts != step or packet.is_keyframe != (step % self._gop == 0):
                raise EpisodeError(
                    f"camera {self._camera.name}, step {step}: {CODEC} gave packet {packet.pts} (keyframe: "
                    f"{packet.is_keyframe}); expected step order and a keyframe every {self._gop} steps"
                )
            self._num_packets += 1
        return [bytes(packet) for packet in packets]
