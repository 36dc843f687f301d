"""The same pictures as H.264, JPEG and AV1, in one pass: bytes, error, time.

The error of all of them is that of the decoded luma against the luma of the noisy RGB picture, on the full
range from 0 to 255, every frame counted. So no converter to RGB, and no difference between full and limited
range, enters into it.

Array axes: H W pixels, C colours (RGB).
"""

from __future__ import annotations

import io
import math
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream
from numpy.typing import NDArray
from PIL import Image

from benchmarks._footage import HEIGHT, RATE_HZ, WIDTH, Footage
from dyna_train.video.encode import CameraEncoder, Quality
from dyna_train.video.pixels import MATRIX_601, FrameConverter

JPEG = "JPEG q80"
AV1 = "AV1 g2 crf30"
_JPEG_QUALITY = 80
# What LeRobot passes to libsvtav1. Parallelism of its own it does not need here, and with it SVT-AV1 4.1 was
# seen to hang, once in four minutes of video; the bytes are the same.
_AV1_OPTIONS = {"preset": "12", "g": "2", "crf": "30", "svtav1-params": "lp=1"}
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_FRAMES_PER_MINUTE = 60 * RATE_HZ


@dataclass(frozen=True, slots=True)
class Encoded:
    """One camera in one encoding: one packet a frame; mse: mean squared error of luma, levels²."""

    packets: tuple[bytes, ...]
    mse: float
    encode_cpu_s: float

    @property
    def mb_per_minute(self) -> float:
        """1e6 bytes per minute of video."""
        return sum(map(len, self.packets)) / 1e6 / len(self.packets) * _FRAMES_PER_MINUTE


@dataclass(frozen=True, slots=True)
class Job:
    """What to make of one camera; av1_file: where to put the mp4, None for none."""

    footage: Footage
    camera: int
    num_steps: int
    gop: int
    qualities: tuple[Quality, ...]
    jpeg: bool = True
    av1_file: Path | None = None


def label(quality: Quality) -> str:
    """How an H.264 encoding is called in tables."""
    return f"crf {quality.crf} fastdecode" if quality.fast_decode else f"crf {quality.crf}"


def encode_all(jobs: Sequence[Job], workers: int) -> list[dict[str, Encoded]]:
    """The encodings of every job by label, in `workers` processes; in this one for a single worker."""
    if workers == 1:
        return [encode(job) for job in jobs]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(encode, jobs))


def encode(job: Job) -> dict[str, Encoded]:
    """One camera: its pictures are made once and handed to every encoder."""
    tracks: dict[str, _Track] = {label(quality): _H264Track(quality, job.gop) for quality in job.qualities}
    if job.jpeg:
        tracks[JPEG] = _JpegTrack()
    if job.av1_file is not None:
        tracks[AV1] = _Av1Track(job.av1_file)
    converter = FrameConverter()
    for step, rgb_HWC in enumerate(job.footage.frames(job.camera, job.num_steps)):
        luma_HW = rgb_HWC @ _LUMA
        frame = converter.to_video(av.VideoFrame.from_ndarray(rgb_HWC, "rgb24"), MATRIX_601)
        for track in tracks.values():
            track.feed(step, rgb_HWC, luma_HW, frame)
    return {name: track.finish() for name, track in tracks.items()}


def psnr(mse: float) -> float:
    """Peak signal to noise, dB, of a mean squared error in levels²."""
    return 10 * math.log10(255**2 / mse)


def together(cameras: Iterable[Encoded]) -> tuple[float, float]:
    """Mean MB per camera-minute, and PSNR in dB of the mean squared error."""
    several = list(cameras)
    mb = sum(one.mb_per_minute for one in several) / len(several)
    return mb, psnr(sum(one.mse for one in several) / len(several))


def plain_decoder(codec: str) -> VideoCodecContext:
    """A decoder of libavcodec with one thread and nothing around it."""
    context = av.CodecContext.create(codec, "r")
    assert isinstance(context, VideoCodecContext)
    context.thread_count = 1
    return context


class _Track(Protocol):
    """One encoding while its pictures come in."""

    def feed(
        self, step: int, rgb_HWC: NDArray[np.uint8], luma_HW: NDArray[np.float32], frame: av.VideoFrame
    ) -> None:
        """The next picture: as RGB, its luma, and as limited-range yuv420p."""
        ...

    def finish(self) -> Encoded:
        """What became of them."""
        ...


@dataclass(slots=True)
class _Sum:
    """Packets, squared errors and CPU seconds so far; pictures wait here until their codec is done."""

    packets: list[bytes] = field(default_factory=list)
    cpu_s: float = 0.0
    waiting: deque[NDArray[np.float32]] = field(default_factory=deque)
    mses: list[float] = field(default_factory=list)

    def compare(self, luma_HW: NDArray[np.float32]) -> None:
        """The next decoded picture beside the one it was made of."""
        self.mses.append(float(np.mean((luma_HW - self.waiting.popleft()) ** 2)))

    def result(self) -> Encoded:
        """Every picture was decoded and compared."""
        assert not self.waiting and len(self.mses) == len(self.packets)
        return Encoded(tuple(self.packets), float(np.mean(self.mses)), self.cpu_s)


class _H264Track:
    """What an episode file holds."""

    def __init__(self, quality: Quality, gop: int) -> None:
        self._encoder = CameraEncoder("camera", WIDTH, HEIGHT, rate_hz=RATE_HZ, gop=gop, quality=quality)
        self._decoder = plain_decoder("h264")
        self._sum = _Sum()

    def feed(
        self, step: int, rgb_HWC: NDArray[np.uint8], luma_HW: NDArray[np.float32], frame: av.VideoFrame
    ) -> None:
        self._sum.waiting.append(luma_HW)
        began = time.thread_time()
        packets = self._encoder.encode(frame, step)
        self._sum.cpu_s += time.thread_time() - began
        self._take(packets)

    def finish(self) -> Encoded:
        began = time.thread_time()
        packets = self._encoder.flush()
        self._sum.cpu_s += time.thread_time() - began
        self._take(packets)
        self._compare(None)
        return self._sum.result()

    def _take(self, packets: list[bytes]) -> None:
        self._sum.packets.extend(packets)
        for packet in packets:
            self._compare(av.Packet(packet))

    def _compare(self, packet: av.Packet[Any] | None) -> None:
        for decoded in self._decoder.decode(packet):
            self._sum.compare(_luma(decoded))


class _JpegTrack:
    """A JPEG a frame, as HDF5 recorders keep them: libjpeg-turbo, quality 80, 4:2:0."""

    def __init__(self) -> None:
        self._sum = _Sum()

    def feed(
        self, step: int, rgb_HWC: NDArray[np.uint8], luma_HW: NDArray[np.float32], frame: av.VideoFrame
    ) -> None:
        self._sum.waiting.append(luma_HW)
        began = time.thread_time()
        still = io.BytesIO()
        Image.fromarray(rgb_HWC).save(still, "JPEG", quality=_JPEG_QUALITY)
        self._sum.cpu_s += time.thread_time() - began
        self._sum.packets.append(still.getvalue())
        with Image.open(still) as image:
            image.draft("YCbCr", image.size)  # luma as it was coded, without a way through RGB
            self._sum.compare(np.asarray(image)[..., 0].astype(np.float32))

    def finish(self) -> Encoded:
        return self._sum.result()


class _Av1Track:
    """A camera's mp4 as LeRobot records it."""

    def __init__(self, path: Path) -> None:
        os.environ.setdefault("SVT_LOG", "1")  # errors only: it greets every encoder with thirty lines
        self._file = av.open(str(path), "w", options={"movflags": "faststart"})
        stream = self._file.add_stream("libsvtav1", rate=Fraction(RATE_HZ), options=_AV1_OPTIONS)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        self._stream = stream
        self._decoder = plain_decoder("libdav1d")
        self._sum = _Sum()

    def feed(
        self, step: int, rgb_HWC: NDArray[np.uint8], luma_HW: NDArray[np.float32], frame: av.VideoFrame
    ) -> None:
        self._sum.waiting.append(luma_HW)
        frame.pts, frame.time_base = step, 1 / Fraction(RATE_HZ)
        self._take(self._stream.encode(frame))

    def finish(self) -> Encoded:
        self._take(self._stream.encode(None))
        self._file.close()
        self._compare(None)
        return self._sum.result()

    def _take(self, packets: Iterable[av.Packet[Any]]) -> None:
        for packet in packets:
            data = bytes(packet)
            self._sum.packets.append(data)
            self._compare(av.Packet(data))
            self._file.mux(packet)

    def _compare(self, packet: av.Packet[Any] | None) -> None:
        for decoded in self._decoder.decode(packet):
            self._sum.compare(_luma(decoded))


def _luma(frame: av.VideoFrame) -> NDArray[np.float32]:
    """The luma of a limited-range yuv420p frame, on the full range, float32 [H, W]."""
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[:, : frame.width]
    return (rows[: frame.height].astype(np.float32) - 16) * np.float32(255 / 219)
