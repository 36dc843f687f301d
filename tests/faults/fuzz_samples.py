"""What is mutated for `fuzz_reading`, and how: a small recording of every format."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import h5py
import mcap_samples
import numpy as np
from bag_samples import write_bag
from hand_samples import write_hand_video, write_poses
from message_video_samples import encoded, stamp
from recordings import T0_NS, still, write_aloha, write_lerobot_v21, write_lerobot_v30, write_mcap
from tf_records import episode, example, write_records


def write_video_mcap(path: Path) -> None:
    """An H.264 camera as foxglove.CompressedVideo, in JSON."""
    samples = [
        mcap_samples.json_sample(
            "/cam",
            {
                "timestamp": mcap_samples.json_time(stamp(number)),
                "frame_id": "",
                "data": data,
                "format": "h264",
            },
            "foxglove.CompressedVideo",
            publish_ns=stamp(number),
            log_ns=stamp(number),
        )
        for number, data in encoded("h264", b=2)
    ]
    mcap_samples.write_samples(path, samples, use_chunking=False)


def write_protobuf_mcap(path: Path) -> None:
    kind, message = mcap_samples.protobuf_type({"stamp": "Timestamp", "position": "*double", "on": "bool"})
    samples = []
    for step in range(20):
        made = message(position=[step, 0.5], on=True)
        made.stamp.seconds, made.stamp.nanos = divmod(T0_NS + step * 10**7, 10**9)
        samples.append(mcap_samples.Sample("/arm", kind, made.SerializeToString(), T0_NS + step * 10**7))
    mcap_samples.write_samples(path, samples, use_chunking=False)


def write_json_mcap(path: Path) -> None:
    samples = [
        mcap_samples.json_sample(
            "/arm", {"timestamp": mcap_samples.json_time(T0_NS + step * 10**7), "position": [step, 0.5]}
        )
        for step in range(20)
    ]
    mcap_samples.write_samples(path, samples, use_chunking=False)


def write_hdf5(path: Path) -> None:
    """Chunks, gzip, texts, attributes and groups, as files of other recorders have them."""
    write_aloha(path, 4, fps=20, task="fold")
    with h5py.File(path, "a") as file:
        stills = np.stack([np.frombuffer(still(step).ljust(3000, b"\0"), np.uint8) for step in range(4)])
        file.create_dataset("observations/images/zipped", data=stills, chunks=(2, 3000), compression="gzip")
        file.create_dataset("say", data=["a", "b", "c", "d"])
        file.create_dataset("sensors/force", data=np.zeros((4, 6)), chunks=(2, 6), shuffle=True)
        file["sensors"].attrs["frame"] = "base"


def hands(form: str) -> Callable[[Path], object]:
    return lambda root: write_poses(write_hand_video(root, 12).parent, form, 12)


RECORD = example(episode(0, 6))
WRITERS: dict[str, Callable[[Path], object]] = {
    "mcap-cdr": lambda root: write_mcap(root / "a.mcap", 8, facts={"task": "x"}),
    "mcap-plain": lambda root: write_mcap(root / "a.mcap", 8, use_chunking=False),
    "mcap-protobuf": lambda root: write_protobuf_mcap(root / "a.mcap"),
    "mcap-json": lambda root: write_json_mcap(root / "a.mcap"),
    "mcap-h264": lambda root: write_video_mcap(root / "a.mcap"),
    "lerobot-v21": lambda root: write_lerobot_v21(root, [8]),
    "lerobot-v30": lambda root: write_lerobot_v30(root, [5, 6]),
    "hdf5": lambda root: write_hdf5(root / "a.hdf5"),
    "bag-db3": lambda root: write_bag(root / "bag", "db3", range(8)).rename(root / "b"),
    "bag-mcap": lambda root: write_bag(root / "bag", "mcap", range(8)).rename(root / "b"),
    "tfrecord": lambda root: write_records(root / "a.tfrecord", [example(episode(0, 6))]),
    "tfrecord-inside": lambda root: write_records(root / "a.tfrecord", [RECORD]),
    "hands-csv": hands("wide.csv"),
    "hands-json": hands("frames.json"),
    "hands-parquet": hands("frames.parquet"),
}
PACKED: dict[str, Callable[[Path, bytes], object]] = {
    "tfrecord-inside": lambda path, content: write_records(path, [content])
}
"""What a checksum protects is mutated before it is written, or nothing behind the checksum would be tried."""
MARKER, TOML = "upload.json", "source.toml"


def mutated(content: bytes, chance: random.Random) -> bytes:
    """The content with one to four things done to it."""
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        content = chance.choice(MUTATIONS)(content, chance)
    return content


def _flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice([1, 3, 20])):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _insert(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.randbytes(chance.choice([1, 4, 100])) + content[at:]


def _swap(content: bytes, chance: random.Random) -> bytes:
    one, two, three = sorted(chance.randrange(len(content) + 1) for _ in range(3))
    return content[:one] + content[two:three] + content[one:two] + content[three:]


def _number(content: bytes, chance: random.Random) -> bytes:
    """A number that is too large, too small or none, over what stood there."""
    value = chance.choice(
        [b"\xff" * 8, b"\0" * 8, b"\xff" * 4, b"\x7f" + b"\xff" * 7, b"\0\0\0\x80", b"9" * 8]
    )
    at = chance.randrange(max(len(content) - len(value), 0) + 1)
    return content[:at] + value + content[at + len(value) :]


MUTATIONS = (_flip, _flip, _cut, _insert, _swap, _number)
