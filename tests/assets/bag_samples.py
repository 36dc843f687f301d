"""ROS 2 bags written by rosbags: an arm, a camera and a command, whole or in splits, packed or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from recordings import T0_NS, TYPES, still
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from ruamel.yaml import YAML

STEP_NS, LATENCY_NS = 10_000_000, 3_000_000
STORAGES = {"db3": StoragePlugin.SQLITE3, "mcap": StoragePlugin.MCAP}
JOINTS = ["shoulder", "elbow"]
ARM, TOP, COMMAND = "/arm", "/top/compressed", "/command"
KINDS = {
    ARM: "sensor_msgs/msg/JointState",
    TOP: "sensor_msgs/msg/CompressedImage",
    COMMAND: "std_msgs/msg/Float64MultiArray",
}


def message(topic: str, step: int) -> bytes:
    """The message of a topic at a step, in CDR; stamped ones say when it was captured."""
    make = TYPES.types
    seconds, ns = divmod(T0_NS + step * STEP_NS, 1_000_000_000)
    header = make["std_msgs/msg/Header"](make["builtin_interfaces/msg/Time"](seconds, ns), "base")
    none = np.empty(0)
    if topic == ARM:
        position = np.array([step, step + 0.5])
        found: Any = make[KINDS[ARM]](header, JOINTS, position, none, none)
    elif topic == TOP:
        found = make[KINDS[TOP]](header, "jpeg", np.frombuffer(still(step), np.uint8))
    else:
        layout = make["std_msgs/msg/MultiArrayLayout"]([], 0)
        found = make[KINDS[COMMAND]](layout, np.array([step / 4]))
    return bytes(TYPES.serialize_cdr(found, KINDS[topic]))


def write_bag(
    folder: Path,
    storage: str,
    steps: Iterable[int] = range(4),
    *,
    packed: str = "",
    topics: Sequence[str] = (ARM, TOP, COMMAND),
) -> Path:
    """A bag of one split; each message arrives 3 ms after its capture. packed: '', 'file' or 'message'."""
    writer = Writer(folder, version=9, storage_plugin=STORAGES[storage])
    if packed:
        writer.set_compression(CompressionMode[packed.upper()], CompressionFormat.ZSTD)
    writer.set_custom_data("task", "stack")
    with writer:
        known = {topic: writer.add_connection(topic, KINDS[topic], typestore=TYPES) for topic in topics}
        for step in steps:
            for topic, connection in known.items():
                writer.write(connection, T0_NS + step * STEP_NS + LATENCY_NS, message(topic, step))
    return folder


def write_split_bag(folder: Path, storage: str, splits: Sequence[Iterable[int]]) -> Path:
    """A bag whose splits hold these steps."""
    folder.mkdir(parents=True)
    described = []
    for number, steps in enumerate(splits):
        part = write_bag(folder.parent / f"part{number}", storage, steps)
        (part / f"part{number}.{storage}").rename(folder / f"bag_{number}.{storage}")
        described.append(metadata_of(part))
    whole = described[0]
    whole["relative_file_paths"] = [f"bag_{number}.{storage}" for number in range(len(splits))]
    whole["message_count"] = sum(one["message_count"] for one in described)
    for place, topic in enumerate(whole["topics_with_message_count"]):
        topic["message_count"] = sum(
            one["topics_with_message_count"][place]["message_count"] for one in described
        )
    write_metadata(folder, whole)
    return folder


def metadata_of(folder: Path) -> dict[str, Any]:
    """What metadata.yaml says."""
    found: dict[str, Any] = YAML(typ="safe", pure=True).load((folder / "metadata.yaml").read_text())
    return dict(found["rosbag2_bagfile_information"])


def write_metadata(folder: Path, values: dict[str, Any]) -> None:
    """Another metadata.yaml."""
    text = StringIO()
    YAML(typ="safe", pure=True).dump({"rosbag2_bagfile_information": values}, text)
    (folder / "metadata.yaml").write_text(text.getvalue())
