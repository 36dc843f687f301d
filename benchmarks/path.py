"""The whole path, stage by stage: seconds per episode-minute, and which stage is the bottleneck.

Simulated uploads (three 320x240 cameras at 30 Hz, 14 joint and gripper values, raw ROS 2 MCAP) go from the
landing folder to a trained batch, in one process and on one core, several times; medians. Recording is
shown for scale and is not part of the path. Beside the episode file stands libav alone: decoding the same
pictures and encoding them with the same settings, without anything of ours.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

import av
import duckdb
import torch
from av.video.frame import PictureType

from benchmarks.harness import Figure, Report, cpu_seconds, main, measure
from dyna_assets.catalog.server import ensure_server, stop_server
from dyna_assets.curation.curate import Curated, CurationSpec, curate_into_lake
from dyna_assets.describe import add_source
from dyna_assets.home import Home
from dyna_assets.landing.recording import Folder, RecordingRef
from dyna_assets.landing.sources import reader_named
from dyna_assets.profiles import profile_named
from dyna_assets.shard_session import open_shard
from dyna_assets.simulate import record_uploads
from dyna_assets.workspace import Workspace
from dyna_train.episode.layout import PATTERNS
from dyna_train.episode.planning import plan_layout
from dyna_train.episode.sizes import SizeModel
from dyna_train.loader import EpisodeDataset
from dyna_train.manifest import Manifest
from dyna_train.recipe.train import RecipeConfig, Run
from dyna_train.video.encode import Quality, x264_options
from dyna_train.window import WindowSpec
from dyna_train.world import World

T = TypeVar("T")
NUM_UPLOADS = 3
SECONDS = 10.0
RUNS = 3
STEPS = ("recordings", "gate_before", "episodes", "gate_after", "labels", "media")
TRAIN_STEPS = 20
BATCH = 16
WIDTH, HEIGHT, CRF = 320, 240, 18


@dataclass
class Stages:
    """What each stage took, per run: wall and CPU seconds per episode-minute."""

    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def time(self, stage: str, minutes: float, work: Callable[[], T]) -> T:
        """Do `work` once and book it under `stage`."""
        result: list[T] = []
        timing = measure(lambda: result.append(work()), runs=1, warmup=0)
        self.wall.setdefault(stage, []).append(timing.wall_s / minutes)
        self.cpu.setdefault(stage, []).append(timing.cpu_s / minutes)
        return result[0]


def build() -> Report:
    """Walk the path RUNS times."""
    torch.set_num_threads(1)
    stages = Stages()
    peers: list[float] = []
    with tempfile.TemporaryDirectory(prefix="dyna-bench-") as folder:
        home = Home.at(folder).prepare()
        ensure_server(home)
        home.settings.write_text("workers = 1\n")
        workspace = Workspace.open(home)
        try:
            record(stages, home)
            for number in range(RUNS):
                walk(stages, workspace, number)
            peers = [libav_alone(home) for _ in range(RUNS)]
        finally:
            workspace.catalog.close()
            stop_server(home)
    return report(stages, statistics.median(peers))


def record(stages: Stages, home: Home) -> None:
    """Record the uploads that every run copies."""
    minutes = NUM_UPLOADS * SECONDS / 60
    stages.time(
        "record",
        minutes,
        lambda: record_uploads(home.landing / "raw", NUM_UPLOADS, seconds=SECONDS, source="x"),
    )


def walk(stages: Stages, workspace: Workspace, number: int) -> None:
    """One walk from landing to trained batches, as a source of its own in a shard of its own."""
    source = f"run{number}"
    landing = workspace.home.landing / source
    for upload in sorted((workspace.home.landing / "raw").iterdir()):
        target = landing / upload.name
        target.mkdir(parents=True)
        for file in upload.iterdir():
            shutil.copy(file, target)
        marker = target / "upload.json"
        marker.write_text(marker.read_text().replace('"x"', f'"{source}"'))
    add_source(workspace, source, str(landing))
    minutes = NUM_UPLOADS * SECONDS / 60
    stages.time(
        "register",
        minutes,
        workspace.register_landed,
    )
    for shard in workspace.catalog.due_shards():
        with open_shard(workspace, shard.key, profile_named("ingest_online"), run_id=source) as run:
            assert run is not None
            stages.time("verify", minutes, lambda: run.verified_uploads)
            for step in STEPS:
                stages.time(step, minutes, lambda step=step: run.run(step))  # type: ignore[misc]
            run.settle()
    made = stages.time("curate", minutes, lambda: curate(workspace, source))
    hours_to_minutes = made.hours * 60
    stages.time("load", hours_to_minutes, lambda: load(made))
    steps_minutes = TRAIN_STEPS * BATCH / made.totals.num_steps * hours_to_minutes
    stages.time("train", steps_minutes, lambda: train(workspace, made, source))


def curate(workspace: Workspace, source: str) -> Curated:
    """The manifest of one run's episodes."""
    with duckdb.connect() as connection:
        spec = CurationSpec(name=source, where=f"source = '{source}'")
        return curate_into_lake(spec, workspace.warehouse, connection, workspace.settings)


def load(made: Curated) -> None:
    """Every anchor once, in batches of neighbours: two frames of each camera, 16 actions."""
    spec = WindowSpec(frames=(0, 4), state=(0,), action=tuple(range(16)))
    dataset = EpisodeDataset(Manifest.open(made.uri), spec, size=(96, 128))
    for start in range(0, len(dataset), BATCH):
        dataset.__getitems__(list(range(start, min(start + BATCH, len(dataset)))))


def train(workspace: Workspace, made: Curated, source: str) -> None:
    """A few optimizer steps of the recipe in this process, loading included, in shuffled order."""
    out = str(workspace.home.runs / source)
    run = Run(RecipeConfig(manifest=made.uri, out=out, steps=TRAIN_STEPS, batch_size=BATCH), World())
    for _ in run.train():
        pass


def libav_alone(home: Home) -> float:
    """CPU seconds per episode-minute to decode the cameras' pictures and encode them, and nothing else."""
    reader = reader_named("mcap")
    pictures: dict[str, list[bytes]] = {}
    for upload in sorted((home.landing / "raw").iterdir()):
        file = next(upload.glob("*.mcap"))
        with reader.open(Folder.of(upload), RecordingRef(file.stem, (file.name,))) as recording:
            cameras = [topic for topic, info in recording.topics.items() if info.kind == "image"]
            for message in recording.read(cameras):
                assert isinstance(message.payload, bytes)
                pictures.setdefault(f"{upload.name}{message.topic}", []).append(message.payload)
    began = cpu_seconds()
    for stills in pictures.values():
        transcode(stills)
    return (cpu_seconds() - began) / (NUM_UPLOADS * SECONDS / 60)


def transcode(stills: list[bytes]) -> None:
    """JPEG to H.264 by libav's own contexts, at the episode file's settings."""
    decoder = av.CodecContext.create("mjpeg", "r")
    encoder = av.CodecContext.create("libx264", "w")
    assert isinstance(decoder, av.VideoCodecContext)
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = WIDTH, HEIGHT, "yuv420p"
    encoder.framerate, encoder.time_base = Fraction(30), Fraction(1, 30)
    encoder.thread_count = decoder.thread_count = 1
    sizes = SizeModel.assumed([(WIDTH, HEIGHT)] * 3, Quality(CRF), dims=(14, 14))
    gop = plan_layout(PATTERNS["mixed"], 30.0, sizes=sizes).gop
    encoder.options = x264_options(gop, Quality(CRF), WIDTH)
    for number, still in enumerate(stills):
        (picture,) = decoder.decode(av.Packet(still))
        frame = picture.reformat(format="yuv420p", dst_color_range="MPEG", threads=1)
        frame.pts, frame.time_base, frame.pict_type = number, encoder.time_base, PictureType.NONE
        encoder.encode(frame)
    encoder.encode(None)


def report(stages: Stages, libav_cpu_s: float) -> Report:
    """Medians per stage; the bottleneck is the stage of the path that takes the most wall time."""
    wall = {stage: statistics.median(values) for stage, values in stages.wall.items()}
    cpu = {stage: statistics.median(values) for stage, values in stages.cpu.items()}
    path = {stage: seconds for stage, seconds in wall.items() if stage != "record"}
    slowest = max(path, key=lambda stage: path[stage])
    unit = "s/episode-min"
    figures = [Figure(f"{stage}.wall", seconds, unit) for stage, seconds in wall.items()]
    figures += [
        Figure(f"{stage}.cpu", seconds, unit, limit=libav_cpu_s if stage == "episodes" else None)
        for stage, seconds in cpu.items()
    ]
    ratio = cpu["episodes"] / libav_cpu_s
    figures.append(Figure("episodes.cpu_over_libav", ratio, "ratio", limit=1.0, peers={"libav alone": 1.0}))
    figures.append(Figure("path.wall", sum(path.values()), unit, limit=libav_cpu_s))
    share = path[slowest] / sum(path.values())
    notes = (
        f"bottleneck: {slowest}, {share:.0%} of the path's {sum(path.values()):.1f} s per episode-minute on one core",
        "crf 18, GOP 30, three cameras of 320x240 at 30 Hz; load and train decode, at 96x128",
    )
    return Report("path", tuple(figures), notes)


if __name__ == "__main__":
    main(build)
