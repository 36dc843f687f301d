"""Peak memory of one long episode, in a process of its own: python -m benchmarks._ingest_memory FOLDER SECONDS."""

from __future__ import annotations

import json
import multiprocessing
import sys
from pathlib import Path

import numpy as np

from benchmarks._ingest_recordings import RATE_HZ, Scene, jpegs, row_of, write_raw_mcap

WIDTH, HEIGHT, NUM_PICTURES = 64, 48, 64


def small_scene(seconds: int) -> Scene:
    """One camera that shows a few small pictures again and again: a long episode is cheap to make."""
    rng = np.random.default_rng(0)
    pictures = jpegs(rng.integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8) for _ in range(NUM_PICTURES))
    num_steps = seconds * RATE_HZ
    return Scene(
        lambda camera: (pictures[step % NUM_PICTURES] for step in range(num_steps)),
        ("top",),
        num_steps,
        WIDTH,
        HEIGHT,
    )


def transform(folder: str) -> int:
    """Every critical step on the recording in `folder`; the peak of this process in bytes."""
    from benchmarks.ingest import walk  # which starts this module

    walk(
        row_of(Path(folder), Path(folder).parent),
        steps=("recordings", "gate_before", "episodes", "gate_after"),
    )
    # not ru_maxrss, which a process inherits from the one that started it
    return peak_bytes()


def peak_bytes() -> int:
    """The most memory that this process had resident."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def main(folder: str, seconds: str) -> None:
    """Write the recording here, transform it in a fresh process, print that one's peak."""
    write_raw_mcap(Path(folder), small_scene(int(seconds)))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(json.dumps({"peak_bytes": pool.apply(transform, (folder,))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
