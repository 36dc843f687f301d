"""The same pictures and motion as three kinds of recording: raw ROS 2 MCAP, ALOHA HDF5, LeRobot with H.264.

Array axes: N messages, D dimensions of a vector.
"""

from __future__ import annotations

import heapq
import io
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from mcap.writer import Writer
from numpy.typing import NDArray
from PIL import Image

from dyna_assets.landing.draft import draft_source
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources import reader_of
from dyna_assets.settings import Settings
from dyna_assets.steps.work import Row
from dyna_train.video.encode import Quality, x264_options

START_NS = 1_790_000_000_000_000_000
RATE_HZ = 30
CAMERAS = ("top", "left_wrist", "right_wrist")
ARMS = {"left_arm": 100.0, "right_arm": 125.0}
LEADERS = {"left_leader": 50.0, "right_leader": 50.0}
DIM = 7
JPEG_QUALITY = 90
CHUNK_BYTES = 1 << 20
_HEADER = (
    f"{'=' * 80}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    f"{'=' * 80}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
)
_SCHEMAS = {
    "sensor_msgs/msg/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data\n" + _HEADER,
    "sensor_msgs/msg/JointState": "std_msgs/Header header\nstring[] name\nfloat64[] position\n"
    "float64[] velocity\nfloat64[] effort\n" + _HEADER,
}


@dataclass(frozen=True, slots=True)
class Scene:
    """pictures: camera -> JPEGs at RATE_HZ, in order; may be called again. width, height in pixels."""

    pictures: Callable[[str], Iterator[bytes]]
    cameras: tuple[str, ...]
    num_steps: int
    width: int
    height: int

    @property
    def seconds(self) -> float:
        """Length."""
        return self.num_steps / RATE_HZ


def jpegs(frames: Iterator[NDArray[np.uint8]]) -> list[bytes]:
    """RGB pictures as JPEG."""
    made = []
    for frame in frames:
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "JPEG", quality=JPEG_QUALITY)
        made.append(buffer.getvalue())
    return made


def write_raw_mcap(folder: Path, scene: Scene) -> Path:
    """Cameras at 30 Hz with 2 ms of jitter, arms at 100 and 125 Hz, leaders at 50 Hz, all in the same chunks."""
    folder.mkdir(parents=True)
    path = folder / "take.mcap"
    with path.open("wb") as stream:
        writer = Writer(stream, chunk_size=CHUNK_BYTES)
        writer.start("ros2")
        schemas = {
            name: writer.register_schema(name, "ros2msg", text.encode()) for name, text in _SCHEMAS.items()
        }
        lines = []
        for number, camera in enumerate(scene.cameras):
            schema = schemas["sensor_msgs/msg/CompressedImage"]
            channel = writer.register_channel(f"/{camera}/image/compressed", "cdr", schema)
            times = _clock(scene.seconds, RATE_HZ, seed=number, jitter_s=0.002)
            lines.append(_images(channel, times, scene.pictures(camera)))
        for number, (name, rate_hz) in enumerate({**ARMS, **LEADERS}.items(), 10):
            channel = writer.register_channel(
                f"/{name}/joint_states", "cdr", schemas["sensor_msgs/msg/JointState"]
            )
            times = _clock(scene.seconds, rate_hz, seed=number, jitter_s=0.0005)
            lines.append(_joints(channel, times, number))
        for sequence, (time_ns, channel, data) in enumerate(heapq.merge(*lines, key=lambda line: line[0])):
            writer.add_message(channel, time_ns + 5_000_000, data, time_ns, sequence & 0xFFFFFFFF)
        writer.finish()
    return path


def write_aloha(folder: Path, scene: Scene) -> Path:
    """Padded JPEG for each camera, qpos and action at 30 Hz."""
    folder.mkdir(parents=True)
    path = folder / "episode_0.hdf5"
    motion_ND = motion(np.arange(scene.num_steps) / RATE_HZ, 0, 2 * DIM)
    with h5py.File(path, "w") as file:
        file.attrs["fps"] = RATE_HZ
        file["observations/qpos"], file["action"] = motion_ND, motion_ND + 0.01
        for camera in scene.cameras:
            pictures = list(scene.pictures(camera))
            padded = np.zeros((len(pictures), max(map(len, pictures))), np.uint8)
            for row, picture in zip(padded, pictures, strict=True):
                row[: len(picture)] = np.frombuffer(picture, np.uint8)
            file[f"observations/images/{camera}"] = padded
    return path


def write_lerobot(folder: Path, scene: Scene, *, gop: int, quality: Quality) -> Path:
    """A LeRobot v2.1 set of one episode whose video already is what an episode file holds."""
    for camera in scene.cameras:
        path = folder / f"videos/chunk-000/observation.images.{camera}/episode_000000.mp4"
        path.parent.mkdir(parents=True)
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=RATE_HZ)
            assert isinstance(stream, av.VideoStream)
            stream.width, stream.height, stream.pix_fmt = scene.width, scene.height, "yuv420p"
            stream.codec_context.gop_size, stream.codec_context.max_b_frames = gop, 0
            stream.options = x264_options(gop, quality, scene.width)
            decoder = av.CodecContext.create("mjpeg", "r")
            assert isinstance(decoder, av.VideoCodecContext)
            for step, picture in enumerate(scene.pictures(camera)):
                (shown,) = decoder.decode(av.Packet(picture))
                frame = shown.reformat(format="yuv420p", dst_color_range="MPEG")
                frame.pts, frame.time_base, frame.pict_type = step, Fraction(1, RATE_HZ), 0
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    motion_ND = motion(np.arange(scene.num_steps) / RATE_HZ, 0, 2 * DIM).astype(np.float32)
    steps = np.arange(scene.num_steps)
    table = pa.table(
        {
            "observation.state": list(motion_ND),
            "action": list(motion_ND + np.float32(0.01)),
            "timestamp": (steps / RATE_HZ).astype(np.float32),
            "frame_index": steps,
            "episode_index": np.zeros(scene.num_steps, np.int64),
            "index": steps,
            "task_index": np.zeros(scene.num_steps, np.int64),
        }
    )
    rows = folder / "data/chunk-000/episode_000000.parquet"
    rows.parent.mkdir(parents=True)
    pq.write_table(table, rows)
    _write_meta(folder, scene)
    return folder


def row_of(folder: Path, root: Path) -> Row:
    """The one recording in `folder`, with the source that a person gets who adds it."""
    source = draft_source(folder.name, str(folder), Folder.of(folder)).profile
    (ref,) = reader_of(source).recordings(Folder.of(folder))
    return Row(
        episode_id=1,
        name=ref.name,
        recording_name=ref.name,
        files=ref.files,
        size_bytes=sum((folder / name).stat().st_size for name in ref.files),
        upload_name=folder.name,
        upload_uri=str(folder),
        upload_problem="",
        marker=None,
        source=source,
        shard_key="shard-000000",
        settings=Settings(lake=str(root / "lake")),
        pipeline_version="bench",
    )


def motion(seconds_N: NDArray[np.float64], seed: int, num_dims: int) -> NDArray[np.float64]:
    """Smooth joint angles [N, D] in rad."""
    rng = np.random.default_rng(seed)
    speed_D, phase_D = rng.uniform(0.5, 3.0, num_dims), rng.uniform(0, 6.28, num_dims)
    return np.sin(seconds_N[:, None] * speed_D + phase_D)


def _clock(seconds: float, rate_hz: float, *, seed: int, jitter_s: float) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    times_s = (np.arange(int(seconds * rate_hz)) + rng.uniform(0, 1)) / rate_hz
    return START_NS + (np.sort(times_s + rng.normal(0, jitter_s, len(times_s)).clip(0)) * 1e9).astype(
        np.int64
    )


def _images(
    channel: int, times_N: NDArray[np.int64], pictures: Iterator[bytes]
) -> Iterator[tuple[int, int, bytes]]:
    for time_ns, picture in zip(times_N.tolist(), pictures, strict=False):
        yield time_ns, channel, _stamp(time_ns) + _text("jpeg") + _sequence(picture)


def _joints(channel: int, times_N: NDArray[np.int64], seed: int) -> Iterator[tuple[int, int, bytes]]:
    values_ND = motion((times_N - START_NS) / 1e9, seed, 3 * DIM)
    names = b"".join(_text(f"joint_{number}") for number in range(DIM))
    for time_ns, values_D in zip(times_N.tolist(), values_ND, strict=True):
        head = _stamp(time_ns) + struct.pack("<I", DIM) + names
        numbers = b""
        for part in range(3):
            length = struct.pack("<I", DIM)
            padding = b"\0" * (-(len(head) + len(numbers)) % 8)  # counted after the 4 bytes of encapsulation
            numbers += length + padding + values_D[part * DIM : (part + 1) * DIM].tobytes()
        yield time_ns, channel, head + numbers


def _stamp(time_ns: int) -> bytes:
    """CDR's encapsulation and a std_msgs/Header without a frame."""
    return struct.pack("<HHiI", 0x0100, 0, time_ns // 10**9, time_ns % 10**9) + _text("")


def _text(text: str) -> bytes:
    """A string and the padding after it to the next multiple of four."""
    data = text.encode() + b"\0"
    return struct.pack("<I", len(data)) + data + b"\0" * (-len(data) % 4)


def _sequence(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _write_meta(folder: Path, scene: Scene) -> None:
    vector = {"dtype": "float32", "shape": [2 * DIM], "names": [f"joint_{k}" for k in range(2 * DIM)]}
    one = {"dtype": "int64", "shape": [1], "names": None}
    video: dict[str, Any] = {"dtype": "video", "shape": [scene.height, scene.width, 3], "names": None}
    info = {
        "codebase_version": "v2.1",
        "robot_type": "bench",
        "fps": RATE_HZ,
        "chunks_size": 1000,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": {
            "observation.state": vector,
            "action": vector,
            **{f"observation.images.{camera}": video for camera in scene.cameras},
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
            **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), one),
        },
    }
    episode = {"episode_index": 0, "tasks": ["move"], "length": scene.num_steps}
    meta = folder / "meta"
    meta.mkdir(parents=True)
    for name, lines in (
        ("info.json", [info]),
        ("episodes.jsonl", [episode]),
        ("tasks.jsonl", [{"task_index": 0, "task": "move"}]),
    ):
        (meta / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
