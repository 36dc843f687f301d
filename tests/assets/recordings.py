"""Tiny recordings in every landed format, with the step number painted into each picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import av
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from mcap.reader import make_reader
from mcap.writer import Writer as McapWriter
from mcap_ros2.writer import Writer as Ros2Writer
from numpy.typing import NDArray
from PIL import Image
from rosbags.typesys import Stores, get_typestore

WIDTH, HEIGHT, BITS = 64, 48, 8
NAMES = ("shoulder", "elbow", "gripper")
TYPES = get_typestore(Stores.ROS2_HUMBLE)
"""The message types that ROS 2 brings."""
T0_NS = 1_790_000_000_000_000_000


def painted(number: int) -> NDArray[np.uint8]:
    """A picture [H, W, 3] whose eight stripes are the bits of `number`."""
    bits = [(number >> bit) & 1 for bit in range(BITS)]
    row = np.repeat(np.array([40 + 180 * bit for bit in bits], np.uint8), WIDTH // BITS)
    return np.broadcast_to(row[None, :, None], (HEIGHT, WIDTH, 3)).copy()


def number_in(frame: av.VideoFrame) -> int:
    """The number painted into a picture."""
    grey = frame.to_ndarray(format="gray").astype(float).mean(axis=0)
    stripes = grey.reshape(BITS, -1)[:, 2:-2].mean(axis=1)
    return sum(1 << bit for bit, level in enumerate(stripes) if level > 128)


def still(number: int, form: str = "JPEG") -> bytes:
    """The painted picture as JPEG or PNG bytes."""
    buffer = BytesIO()
    Image.fromarray(painted(number)).save(buffer, form, **({"quality": 90} if form == "JPEG" else {}))
    return buffer.getvalue()


def write_video(
    path: Path,
    numbers: Sequence[int],
    *,
    fps: Fraction | int = 30,
    gop: int = 10,
    b_frames: int = 0,
    pts: Sequence[int] | None = None,
    faststart: bool = False,
) -> None:
    """H.264 with painted numbers; pts in ticks of 1 / (512 fps) where given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"movflags": "faststart"} if faststart else {}
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream("libx264", rate=Fraction(fps))
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.options = {"crf": "10", "g": str(gop), "bf": str(b_frames), "preset": "veryfast"}
        stream.time_base = Fraction(1, 512) / Fraction(fps)
        stream.codec_context.time_base = stream.time_base
        for step, number in enumerate(numbers):
            frame = av.VideoFrame.from_ndarray(painted(number), format="rgb24")
            frame.pts = pts[step] if pts else step * 512
            frame.time_base = stream.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def feature(dtype: str, shape: Sequence[int], names: object = None) -> dict[str, object]:
    """One entry of info.json's features."""
    return {"dtype": dtype, "shape": list(shape), "names": names}


def lerobot_info(
    version: str, fps: float = 30, cameras: Sequence[str] = ("top",), **features: object
) -> dict[str, object]:
    """info.json of a data set with state, action and cameras."""
    v3 = version.startswith("v3")
    place = "chunk-{chunk_index:03d}/file-{file_index:03d}" if v3 else "chunk-{episode_chunk:03d}/"
    key = "{video_key}/"
    return {
        "codebase_version": version,
        "robot_type": "testbot",
        "fps": fps,
        "chunks_size": 1000,
        "data_path": f"data/{place}.parquet" if v3 else f"data/{place}episode_{{episode_index:06d}}.parquet",
        "video_path": f"videos/{key}{place}.mp4"
        if v3
        else f"videos/{place}{key}episode_{{episode_index:06d}}.mp4",
        "features": {
            "observation.state": feature("float32", [3], list(NAMES)),
            "action": feature("float32", [3], {"motors": list(NAMES)}),
            **{f"observation.images.{camera}": feature("video", [HEIGHT, WIDTH, 3]) for camera in cameras},
            "timestamp": feature("float32", [1]),
            "frame_index": feature("int64", [1]),
            "episode_index": feature("int64", [1]),
            **features,
        },
    }


def episode_table(index: int, length: int, fps: float = 30, **columns: object) -> pa.Table:
    """Rows of one episode: state = step, action = step + 0.5."""
    steps = np.arange(length)
    vector = pa.list_(pa.float32(), 3)
    state = np.repeat(steps[:, None], 3, axis=1).astype(np.float32)
    return pa.table(
        {
            "observation.state": pa.array(list(state), vector),
            "action": pa.array(list(state + np.float32(0.5)), vector),
            "timestamp": (steps / fps).astype(np.float32),
            "frame_index": steps,
            "episode_index": np.full(length, index),
            **columns,
        }
    )


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def change_info(root: Path, **changes: Any) -> None:
    """Other entries in a data set's info.json."""
    path = root / "meta/info.json"
    write_text(path, json.dumps({**json.loads(path.read_text()), **changes}))


def write_table(path: Path, table: pa.Table, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def write_lerobot_v21(root: Path, lengths: Sequence[int], *, fps: float = 30, **says: object) -> Path:
    """Episode e, step k shows e * 20 + k. says: more facts for every line of episodes.jsonl."""
    write_text(root / "meta/info.json", json.dumps(lerobot_info("v2.1", fps)))
    lines = []
    for index, length in enumerate(lengths):
        write_table(root / f"data/chunk-000/episode_{index:06d}.parquet", episode_table(index, length, fps))
        video = root / f"videos/chunk-000/observation.images.top/episode_{index:06d}.mp4"
        write_video(video, [index * 20 + step for step in range(length)], fps=Fraction(str(fps)))
        lines.append(
            json.dumps({"episode_index": index, "tasks": ["stack the cups"], "length": length, **says})
        )
    write_text(root / "meta/episodes.jsonl", "\n".join(lines) + "\n")
    return root


def write_lerobot_v30(
    root: Path, lengths: Sequence[int], *, fps: int = 30, gop: int = 10, b_frames: int = 0, row_group: int = 7
) -> Path:
    """All episodes in one data file and one video per camera; frame k of the video shows k."""
    write_text(root / "meta/info.json", json.dumps(lerobot_info("v3.0", fps)))
    tables = [episode_table(index, length, fps) for index, length in enumerate(lengths)]
    write_table(root / "data/chunk-000/file-000.parquet", pa.concat_tables(tables), row_group_size=row_group)
    video = root / "videos/observation.images.top/chunk-000/file-000.mp4"
    write_video(video, range(sum(lengths)), fps=fps, gop=gop, b_frames=b_frames)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    key = "videos/observation.images.top"
    rows = [
        {
            "episode_index": index,
            "tasks": ["stack the cups"],
            "length": length,
            "data/chunk_index": 0,
            "data/file_index": 0,
            "dataset_from_index": int(starts[index]),
            "dataset_to_index": int(starts[index + 1]),
            f"{key}/chunk_index": 0,
            f"{key}/file_index": 0,
            f"{key}/from_timestamp": starts[index] / fps,
            f"{key}/to_timestamp": starts[index + 1] / fps,
            "stats/action/mean": [0.0, 0.0, 0.0],
        }
        for index, length in enumerate(lengths)
    ]
    write_table(root / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(rows))
    return root


def write_aloha(path: Path, length: int = 6, *, raw: bool = False, **attrs: object) -> Path:
    """ALOHA's layout: padded JPEG per frame with compress_len, or raw pictures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    steps = np.repeat(np.arange(length, dtype=np.float32)[:, None], 4, axis=1)
    with h5py.File(path, "w") as file:
        file.attrs.update(attrs)
        for shift, name in enumerate(
            ("observations/qpos", "observations/qvel", "observations/effort", "action")
        ):
            file[name] = steps + np.float32(shift)
        for camera in ("cam_high", "cam_left_wrist"):
            if raw:
                file[f"observations/images/{camera}"] = np.stack([painted(step) for step in range(length)])
                continue
            stills = [still(step) for step in range(length)]
            size = max(map(len, stills)) + 5
            padded = [np.frombuffer(one.ljust(size, b"\0"), np.uint8) for one in stills]
            file.create_dataset(f"observations/images/{camera}", data=np.stack(padded), chunks=(1, size))
        if not raw:
            file["compress_len"] = np.zeros((2, length), np.float32)
    return path


def stamp(time_ns: int, frame: str = "base") -> dict[str, object]:
    """A std_msgs/Header."""
    return {"stamp": {"sec": time_ns // 10**9, "nanosec": time_ns % 10**9}, "frame_id": frame}


def definition(kind: str) -> str:
    """A ROS 2 message type with all that it is made of, as recorders write it beside the messages."""
    return TYPES.generate_msgdef(kind, ros_version=2)[0].strip() + "\n"


def encoded(kind: str, message: dict[str, object], text: str = "") -> bytes:
    """The CDR bytes that the mcap-ros2-support package writes for a message. text: a definition of its own."""
    buffer = BytesIO()
    writer = Ros2Writer(buffer)
    writer.write_message("/x", writer.register_msgdef(kind, text or definition(kind)), message, 0, 0)
    writer.finish()
    buffer.seek(0)
    _, _, record = next(iter(make_reader(buffer).iter_messages()))
    return record.data


def write_mcap(
    path: Path, length: int = 6, *, stamped: bool = True, facts: dict[str, str] | None = None, **flags: Any
) -> Path:
    """A raw ROS 2 upload: a JPEG camera at 30 Hz, an arm and its leader at 60 Hz, a string topic.

    Capture times are T0_NS + k / rate; publish_time is 1 ms later, arrival (log_time) 20 ms later.
    flags: of mcap's writer (chunk_size, compression, use_chunking, index_types, ...).
    """
    buffer = BytesIO()
    writer = Ros2Writer(buffer)
    image, joints, text = (
        writer.register_msgdef(kind, definition(kind))
        for kind in ("sensor_msgs/msg/CompressedImage", "sensor_msgs/msg/JointState", "std_msgs/msg/String")
    )
    for tick in range(2 * length):
        time_ns = T0_NS + tick * 10**9 // 60
        head = stamp(time_ns if stamped else 0)
        late = {"log_time": time_ns + 20_000_000, "publish_time": time_ns + 1_000_000}
        if tick % 2 == 0:
            picture = {"header": head, "format": "jpeg", "data": still(tick // 2)}
            writer.write_message("/top/image/compressed", image, picture, **late)
        arm = {
            "header": head,
            "name": list(NAMES),
            "position": [float(tick)] * 3,
            "velocity": [],
            "effort": [0.5] * 3,
        }
        writer.write_message("/arm/joint_states", joints, arm, **late)
        writer.write_message("/leader/joint_states", joints, {**arm, "velocity": [0.0] * 3}, **late)
    writer.write_message("/log", text, {"data": "done"}, log_time=T0_NS, publish_time=T0_NS)
    writer.finish()
    buffer.seek(0)
    return rewrite_mcap(buffer, path, facts=facts, **{"chunk_size": 2000, **flags})


def rewrite_mcap(
    source: IO[bytes], target: Path, *, facts: dict[str, str] | None = None, **flags: Any
) -> Path:
    """The same messages, written with other flags of mcap's writer and a metadata record."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        writer = McapWriter(file, **flags)
        writer.start("ros2", "test")
        schemas: dict[int, int] = {}
        channels: dict[int, int] = {}
        for schema, channel, message in make_reader(source).iter_messages(log_time_order=False):
            if schema is not None and schema.id not in schemas:
                schemas[schema.id] = writer.register_schema(schema.name, schema.encoding, schema.data)
            if channel.id not in channels:
                known = schemas.get(channel.schema_id, 0)
                channels[channel.id] = writer.register_channel(channel.topic, channel.message_encoding, known)
            writer.add_message(channels[channel.id], message.log_time, message.data, message.publish_time)
        if facts:
            writer.add_metadata("episode", facts)
        writer.finish()
    return target


@dataclass
class RawMessage:
    """One message as it stands in the file."""

    topic: str
    kind: str
    data: bytes
    log_ns: int = T0_NS
    publish_ns: int = T0_NS
    encoding: str = "cdr"


def write_raw_mcap(path: Path, messages: Sequence[RawMessage], **flags: Any) -> Path:
    """Any bytes under any message type; a kind of '' has no schema."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        writer = McapWriter(file, **flags)
        writer.start("ros2", "test")
        channels: dict[tuple[str, str, str], int] = {}
        for message in messages:
            key = (message.topic, message.kind, message.encoding)
            if key not in channels:
                schema = writer.register_schema(message.kind, "ros2msg", b"") if message.kind else 0
                channels[key] = writer.register_channel(message.topic, message.encoding, schema)
            writer.add_message(channels[key], message.log_ns, message.data, message.publish_ns)
        writer.finish()
    return path
