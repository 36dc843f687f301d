"""What the transform costs, from a raw recording to a checked episode file, beside libav alone and LeRobot's way.

The same pictures (three 640x480 cameras at 30 Hz with sensor noise) as raw ROS 2 MCAP, ALOHA HDF5, and a LeRobot set
whose H.264 can be copied. Every step runs as the pipeline runs it, on one row, in one process and one thread. CPU
seconds per episode-minute, medians. Beside ours, on the same pictures: libav alone (decode, convert, encode, same
settings), and HDF5 to LeRobot v3 by PyAV at LeRobot's own settings (AV1, a keyframe every second frame).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import av

from benchmarks._footage import HEIGHT, SHARED_DATA, WIDTH, robot_footage
from benchmarks._ingest_peers import Libav, libav_alone, to_lerobot
from benchmarks._ingest_recordings import (
    CAMERAS,
    Scene,
    jpegs,
    row_of,
    write_aloha,
    write_lerobot,
    write_raw_mcap,
)
from benchmarks.harness import Figure, Report, cpu_seconds, main, measure
from dyna_assets.quality.trace import CameraEye
from dyna_assets.shard_run import GIVEN
from dyna_assets.steps.attempt import attempt
from dyna_assets.steps.work import Row
from dyna_assets.warehouse.tables import TABLES
from dyna_train.episode.reader import Episode
from dyna_train.errors import BadInput
from dyna_train.video.encode import QUALITIES

NUM_STEPS = 600
RUNS = 3
QUALITY = QUALITIES["default"]
STEPS = ("recordings", "gate_before", "episodes", "gate_after", "labels", "media")
GATES = ("gate_before", "gate_after")
TRACE = "trace"
"""Part of the step `episodes`: what the gate after is told of the pictures as they pass."""
HOURS_A_WEEK = 440_000
"""Episode-hours a week that the published pipeline takes in."""
WEEK_H = 7 * 24
LONG_S, SHORT_S = 7200, 360
"""Lengths whose memory is compared: two hours, and a twentieth of it."""


@dataclass
class Walk:
    """One recording through every step, several times: step -> CPU seconds per episode-minute."""

    cpu: dict[str, list[float]] = field(default_factory=dict)
    upstream: dict[str, Any] = field(default_factory=dict)

    def median(self, *steps: str) -> float:
        """The sum of the steps' medians."""
        return sum(statistics.median(self.cpu[step]) for step in steps)


def build() -> Report:
    """Make the recordings, walk each of them, and measure the peers on the same pictures."""
    with tempfile.TemporaryDirectory(prefix="dyna-bench-") as folder:
        root = Path(folder)
        scene = make_scene()
        rows = {
            "raw MCAP": row_of(write_raw_mcap(root / "mcap", scene).parent, root),
            "HDF5": row_of(write_aloha(root / "hdf5", scene).parent, root),
        }
        gop = _gop(rows["raw MCAP"], walk(rows["raw MCAP"]))
        rows["copied"] = row_of(write_lerobot(root / "lerobot", scene, gop=gop, quality=QUALITY), root)
        walks = {name: Walk() for name in rows}
        libav: list[Libav] = []
        lerobot: list[float] = []
        for _ in range(RUNS):  # ours and theirs in turn, so that a machine that slows down slows all of them
            for name, row in rows.items():
                walk(row, walks[name])
            libav.append(libav_alone(scene, gop, QUALITY))
            lerobot.append(_per_minute(lambda: to_lerobot(root / "hdf5", root / "peer", scene), scene))
        memory = {seconds: peak_bytes(root / f"long{seconds}", seconds) for seconds in (SHORT_S, LONG_S)}
    return report(walks, libav, statistics.median(lerobot), memory)


def make_scene() -> Scene:
    """Noisy pictures of a real robot as JPEG."""
    footage = robot_footage(SHARED_DATA)
    pictures = {name: jpegs(footage.frames(k, NUM_STEPS)) for k, name in enumerate(CAMERAS)}
    return Scene(lambda camera: iter(pictures[camera]), CAMERAS, NUM_STEPS, WIDTH, HEIGHT)


def walk(row: Row, done: Walk | None = None, steps: Sequence[str] = STEPS) -> Walk:
    """The row through `steps`, added to `done`; each step is given what the warehouse would give it."""
    done = Walk() if done is None else done
    kept: dict[str, list[Mapping[str, Any]]] = {}
    for step in steps:
        given = {name: _given(name, kept.get(name, [])) for name in GIVEN[step]}
        with traces_timed() as trace_s:
            began = cpu_seconds()
            result = attempt(step, replace(row, upstream=given))
            spent_s = cpu_seconds() - began
        if result.status != "ok":
            raise BadInput(f"{row.where()}: step '{step}' ended {result.status}: {result.reason}")
        minutes = _minutes(kept, result.rows)
        done.cpu.setdefault(step, []).append(spent_s / minutes)
        if step == "episodes":
            done.cpu.setdefault(TRACE, []).append(sum(trace_s) / minutes)
        for name, found in result.rows.items():
            kept.setdefault(name, []).extend(found)
    done.upstream = {name: _given(name, found) for name, found in kept.items()}
    return done


@contextmanager
def traces_timed() -> Iterator[list[float]]:
    """CPU seconds of each picture that a camera trace is taken of meanwhile, in the middle of everything else."""
    see = CameraEye.see
    spent_s: list[float] = []

    def timed(eye: CameraEye, step: int, frame: av.VideoFrame) -> None:
        began = time.process_time()
        see(eye, step, frame)
        spent_s.append(time.process_time() - began)

    with patch.object(CameraEye, "see", timed):
        yield spent_s


def _given(table: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    return list(rows) if TABLES[table].has_many else rows[-1]


def _minutes(
    kept: Mapping[str, Sequence[Mapping[str, Any]]], new: Mapping[str, Sequence[Mapping[str, Any]]]
) -> float:
    """Length of the recording, known once it was probed."""
    (found,) = kept.get("recordings") or new["recordings"]
    return float(found["duration_s"]) / 60


def _gop(row: Row, done: Walk) -> int:
    """The GOP that was planned for the row's file."""
    with Episode.open(row.episode_uri(done.upstream["episodes"]["content_hash"])) as episode:
        return episode.layout.gop


def _per_minute(fn: Callable[[], object], scene: Scene) -> float:
    return measure(fn, runs=1, warmup=0).cpu_s / (scene.seconds / 60)


def peak_bytes(folder: Path, seconds: int) -> int:
    """Peak resident memory of a process that probes, transforms and gates a recording of so many seconds."""
    command = [sys.executable, "-m", "benchmarks._ingest_memory", str(folder), str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(json.loads(done.stdout)["peak_bytes"])


def report(
    walks: Mapping[str, Walk],
    libav: Sequence[Libav],
    lerobot_s: float,
    memory: Mapping[int, int],
) -> Report:
    """The bars, where the time goes, and what it means for a fleet."""
    raw, hdf5, copied = walks["raw MCAP"], walks["HDF5"], walks["copied"]
    alone = {
        part: statistics.median(getattr(one, part) for one in libav)
        for part in ("decode", "convert", "encode")
    }
    libav_s, unit = sum(alone.values()), "CPU s/episode-min"
    transform, gates = raw.median("episodes") - raw.median(TRACE), raw.median(*GATES, TRACE)
    whole = raw.median(*STEPS)
    figures = [
        Figure(
            "transform.over_libav",
            transform / libav_s,
            "ratio",
            bar=1.10,
            limit=1.0,
            peers={"libav alone": 1.0},
        ),
        Figure("transform.with_trace.over_libav", raw.median("episodes") / libav_s, "ratio", limit=1.0),
        Figure(
            "transform.hdf5.over_libav",
            (hdf5.median("episodes") - hdf5.median(TRACE)) / libav_s,
            "ratio",
            limit=1.0,
        ),
        Figure("gates.share_of_transform", gates / transform, "ratio", bar=0.20),
        Figure(
            "hdf5.lerobot_over_ours",
            lerobot_s / hdf5.median("episodes"),
            "ratio",
            peers={"ours": 1.0},
        ),
        Figure(
            "copied.speedup",
            transform / copied.median("episodes"),
            "ratio",
            bar=20.0,
            direction=">=",
        ),
        # Nobody saw these pictures pass, so that the gate after decodes all of them.
        Figure("copied.all_steps.speedup", whole / copied.median(*STEPS), "ratio"),
        Figure("memory.two_hours", memory[LONG_S] / 1e6, "MB", bar=1000.0),
        Figure("memory.two_hours_over_six_minutes", memory[LONG_S] / memory[SHORT_S], "ratio"),
        *_steps(walks, unit),
        *(Figure(f"libav.{part}", seconds, unit) for part, seconds in alone.items()),
        Figure(TRACE, raw.median(TRACE), unit),
        Figure("transform.rest", transform - libav_s, unit),
        Figure("lerobot_v3.from_hdf5", lerobot_s, unit, peers={"ours, from HDF5": hdf5.median("episodes")}),
        Figure("episode_hours_a_core_week", WEEK_H * 60 / whole, "h"),
        Figure("cores_for_440000_hours_a_week", HOURS_A_WEEK / (WEEK_H * 60 / whole), "cores"),
    ]
    notes = (
        f"three cameras of {WIDTH}x{HEIGHT} at 30 Hz, {NUM_STEPS / 30:.0f} s, JPEG 90 with sensor noise, "
        f"crf {QUALITY.crf}, one thread. The camera trace (what the gates measure of pictures as they "
        "pass) is booked to the gates",
        f"two hours: pictures of 64x48, since memory is the question; {SHORT_S} s take {memory[SHORT_S] / 1e6:.0f} MB",
    )
    return Report("ingest", tuple(figures), notes)


def _steps(walks: Mapping[str, Walk], unit: str) -> Iterator[Figure]:
    for step in STEPS:
        peers = {name: done.median(step) for name, done in walks.items() if name != "raw MCAP"}
        yield Figure(f"step.{step}", walks["raw MCAP"].median(step), unit, peers=peers)


if __name__ == "__main__":
    main(build)
