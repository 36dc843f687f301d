"""The same pictures by others' ways: libav alone, and HDF5 to LeRobot v3."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from av.video.frame import PictureType

from benchmarks._ingest_recordings import RATE_HZ, Scene
from dyna_train.video.encode import Quality, x264_options

LEROBOT = {"g": "2", "crf": "30", "preset": "12", "svtav1-params": "lp=1"}
"""LeRobot's own settings for video (AV1 by SVT, a keyframe every second frame), on one thread as ours."""


@dataclass(frozen=True, slots=True)
class Libav:
    """CPU seconds per episode-minute of the three things that libav has to do."""

    decode: float
    convert: float
    encode: float


def libav_alone(scene: Scene, gop: int, quality: Quality) -> Libav:
    """JPEG to H.264 by libav's own contexts at the episode file's settings, one thread, nothing else."""
    spent = [0.0, 0.0, 0.0]
    for camera in scene.cameras:
        decoder, encoder = _jpeg_decoder(), _encoder(scene, gop, quality)
        for number, still in enumerate(scene.pictures(camera)):
            marks = [time.process_time()]
            (picture,) = decoder.decode(av.Packet(still))
            marks.append(time.process_time())
            frame = picture.reformat(format="yuv420p", dst_color_range="MPEG", threads=1)
            marks.append(time.process_time())
            frame.pts, frame.time_base, frame.pict_type = number, Fraction(1, RATE_HZ), PictureType.NONE
            encoder.encode(frame)
            marks.append(time.process_time())
            spent = [
                total + after - before for total, before, after in zip(spent, marks, marks[1:], strict=False)
            ]
        began = time.process_time()
        encoder.encode(None)
        spent[2] += time.process_time() - began
    return Libav(*(seconds / (scene.seconds / 60) for seconds in spent))


def to_lerobot(recording: Path, out: Path, scene: Scene) -> None:
    """One ALOHA file as a LeRobot v3 data set: a video for each camera, rows in Parquet, statistics left out."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "data/chunk-000").mkdir(parents=True)
    with h5py.File(next(recording.glob("*.hdf5"))) as file:
        for camera in scene.cameras:
            path = out / f"videos/observation.images.{camera}/chunk-000/file-000.mp4"
            path.parent.mkdir(parents=True)
            _encode_av1(path, _pictures(file[f"observations/images/{camera}"]), scene)
        state, action = file["observations/qpos"][:], file["action"][:]
    steps = np.arange(scene.num_steps)
    table = pa.table(
        {
            "observation.state": list(state.astype(np.float32)),
            "action": list(action.astype(np.float32)),
            "timestamp": (steps / RATE_HZ).astype(np.float32),
            "frame_index": steps,
        }
    )
    pq.write_table(table, out / "data/chunk-000/file-000.parquet")


def _pictures(rows: h5py.Dataset) -> Iterator[av.VideoFrame]:
    decoder = _jpeg_decoder()
    for row in rows:
        yield from decoder.decode(av.Packet(row.tobytes()))


def _encode_av1(path: Path, pictures: Iterator[av.VideoFrame], scene: Scene) -> None:
    os.environ.setdefault("SVT_LOG", "1")  # errors only; it prints a page for each file otherwise
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libsvtav1", rate=RATE_HZ)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = scene.width, scene.height, "yuv420p"
        stream.options = LEROBOT
        for number, picture in enumerate(pictures):
            frame = picture.reformat(format="yuv420p", dst_color_range="MPEG", threads=1)
            frame.pts, frame.time_base, frame.pict_type = number, Fraction(1, RATE_HZ), PictureType.NONE
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _jpeg_decoder() -> av.VideoCodecContext:
    decoder = av.CodecContext.create("mjpeg", "r")
    assert isinstance(decoder, av.VideoCodecContext)
    decoder.thread_count = 1
    return decoder


def _encoder(scene: Scene, gop: int, quality: Quality) -> av.VideoCodecContext:
    encoder = av.CodecContext.create("libx264", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = scene.width, scene.height, "yuv420p"
    encoder.framerate, encoder.time_base = Fraction(RATE_HZ), Fraction(1, RATE_HZ)
    encoder.thread_count = 1
    encoder.options = x264_options(gop, quality, scene.width)
    return encoder
