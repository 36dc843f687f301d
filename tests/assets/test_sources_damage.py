"""Damage of any kind costs one recording its verdict: readers raise RecordingError and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from recordings import write_aloha, write_lerobot_v21, write_lerobot_v30, write_mcap

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, Reader
from dyna_assets.landing.sources import reader_named

WRITERS: dict[str, Callable[[Path], object]] = {
    "lerobot_v21": lambda root: write_lerobot_v21(root, [6]),
    "lerobot_v30": lambda root: write_lerobot_v30(root, [3, 4]),
    "aloha_hdf5": lambda root: write_aloha(root / "a.hdf5", 3),
    "mcap": lambda root: write_mcap(root / "a.mcap", 3, facts={"task": "x"}),
}


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The content cut somewhere, or with some bytes changed."""
    if chance.random() < 0.3:
        return content[: chance.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(chance.choice([1, 3, 20])):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def read_all(reader: Reader, folder: Folder) -> None:
    reader.notes(folder)
    for ref in reader.recordings(folder):
        with reader.open(folder, ref) as recording:
            reader.roles(recording)
            topics = [topic for topic, info in recording.topics.items() if info.kind != "other"]
            for topic in topics:
                recording.times(topic)
            for _ in recording.read(topics):
                pass


@pytest.mark.parametrize("name", list(WRITERS))
def test_damaged_recordings_are_refused_with_a_recording_error_and_never_another(
    tmp_path: Path, name: str
) -> None:
    WRITERS[name](tmp_path)
    folder, reader = Folder.of(tmp_path), reader_named(name)
    files = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    num_refused = 0
    for seed in range(80):
        chance = random.Random(seed)
        path = chance.choice(list(files))
        path.write_bytes(damaged(files[path], chance))
        try:
            read_all(reader, folder)
        except RecordingError as error:
            assert len(str(error)) > 20
            num_refused += 1
        path.write_bytes(files[path])
    assert num_refused > 0
    read_all(reader, folder)
