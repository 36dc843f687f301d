"""Make what the episode-file benchmark measures: the encodings of one minute, and its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import av
import numpy as np

from benchmarks._codecs import JPEG, Encoded, Job, encode_all, label, psnr
from benchmarks._containers import (
    CAMERAS,
    DIM,
    NUM_STATES,
    ORDERS,
    StoredMessage,
    Take,
    make_take,
    read_messages,
    write_hdf5,
    write_ours,
    write_stock,
)
from benchmarks._footage import RATE_HZ, Footage, render_footage, robot_footage, soft_footage
from benchmarks._windows import Window, random_windows
from dyna_train.episode.layout import PATTERNS, EpisodeLayout
from dyna_train.episode.planning import plan_layout
from dyna_train.episode.sizes import CameraSizes, SizeModel, StateSizes, trial_gops
from dyna_train.episode.writer import EpisodeFile
from dyna_train.video.encode import QUALITIES, Quality

ARCHIVE, DEFAULT, TRAIN = (QUALITIES[name] for name in ("archive", "default", "train"))

Cameras = Sequence[Mapping[str, Encoded]]
"""The encodings of each camera, by label."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How many samples the figures are measured on, how long excerpts are, and which qualities are tried on them.

    tried: to find the one that equals JPEG. fast: between which `train-fast` is held against `train`.
    """

    windows: int = 300
    slow_windows: int = 60
    spans: int = 20
    decoded_steps: int = 600
    excerpt_s: float = 6.0
    clean_s: float = 20.0
    tried: tuple[Quality, ...] = tuple(Quality(crf) for crf in range(14, 24))
    fast: tuple[Quality, ...] = tuple(Quality(crf, fast_decode=True) for crf in (20, 22, 24))


@dataclass(frozen=True, slots=True)
class Made:
    """Encodings and files.

    equal: the smallest H.264 that is no worse than JPEG on the excerpt; soft_equal: the same on soft footage.
    take, file: at quality `train`, which the reading figures are about.
    """

    folder: Path
    effort: Effort
    footage: Footage
    layout: EpisodeLayout
    minute: Cameras
    excerpt: Cameras
    soft: Cameras
    equal: Quality
    soft_equal: Quality
    take: Take
    file: EpisodeFile
    messages: Sequence[StoredMessage]

    def samples(self, count: int) -> list[Window]:
        """`count` windows at random places; the same ones at every call."""
        return random_windows(self.take.header.num_steps, count)

    def path(self, name: str) -> Path:
        """One of the files: train, archive, default, clean, noiseless, jpeg, and stock ones: train.topic, ..."""
        return self.folder / (f"{name}.h5" if name == "jpeg" else f"{name}.mcap")

    @property
    def mp4s(self) -> list[Path]:
        """LeRobot's files, one a camera."""
        return [mp4_path(self.folder, number) for number in range(len(CAMERAS))]


def make(folder: Path, data: Path, num_steps: int, workers: int, effort: Effort) -> Made:
    """Encode the footage and write every file into `folder`."""
    robot = robot_footage(data)
    layout = planned_layout(robot)
    trial, soft, clean, noiseless = try_out(data, num_steps, layout.gop, workers, effort)
    equal = equal_to_jpeg(trial, effort.tried)
    kept = tuple(dict.fromkeys((ARCHIVE, DEFAULT, equal, TRAIN)))
    jobs = [
        Job(robot, camera, num_steps, layout.gop, kept, av1_file=mp4_path(folder, camera))
        for camera in range(len(CAMERAS))
    ]
    minute = encode_all(jobs, workers)
    made = Made(
        folder=folder,
        effort=effort,
        footage=robot,
        layout=layout,
        minute=minute,
        excerpt=trial,
        soft=soft,
        equal=equal,
        soft_equal=equal_to_jpeg(soft, effort.tried),
        take=take_of(minute, TRAIN),
        file=write_ours(folder / "train.mcap", take_of(minute, TRAIN), layout, TRAIN),
        messages=read_messages(folder / "train.mcap"),
    )
    write_ours(made.path("archive"), take_of(minute, ARCHIVE), layout, ARCHIVE)
    write_ours(made.path("default"), take_of(minute, DEFAULT), layout, DEFAULT)
    write_ours(made.path("clean"), take_of(clean, TRAIN), layout, TRAIN)
    write_ours(made.path("noiseless"), take_of(noiseless, TRAIN), layout, TRAIN)
    archive = read_messages(made.path("archive"))
    for order in ORDERS:
        write_stock(made.path(f"train.{order}"), made.messages, order)
        write_stock(made.path(f"archive.{order}"), archive, order)
    stills = {name: one[JPEG].packets for name, one in zip(CAMERAS, minute, strict=True)}
    write_hdf5(made.path("jpeg"), made.take, stills)
    return made


def try_out(data: Path, num_steps: int, gop: int, workers: int, effort: Effort) -> list[Cameras]:
    """Seconds of the robot and of the soft footage at many crfs, and of clean and noiseless ones at `train`."""
    short, longer = (
        min(num_steps, round(seconds * RATE_HZ)) for seconds in (effort.excerpt_s, effort.clean_s)
    )
    every = tuple(dict.fromkeys((*effort.tried, TRAIN, *effort.fast)))
    jobs = []
    for camera in range(len(CAMERAS)):
        jobs += [
            Job(robot_footage(data), camera, short, gop, every),
            Job(soft_footage(data), camera, short, gop, effort.tried),
            Job(render_footage(data), camera, longer, gop, (TRAIN,), jpeg=False),
            Job(robot_footage(data, sigma=None), camera, longer, gop, (TRAIN,), jpeg=False),
        ]
    encoded = encode_all(jobs, workers)
    return [encoded[kind::4] for kind in range(4)]


def planned_layout(footage: Footage) -> EpisodeLayout:
    """What ingestion would choose for this footage, read pattern `mixed` and quality `train`."""
    _, trial = trial_gops(RATE_HZ)

    def frames(camera: int) -> Iterable[av.VideoFrame]:
        pictures = islice(footage.frames(camera, trial), trial)
        return (av.VideoFrame.from_ndarray(picture, "rgb24") for picture in pictures)

    sizes = [
        CameraSizes.fitted(frames(camera), rate_hz=RATE_HZ, quality=TRAIN) for camera in range(len(CAMERAS))
    ]
    state = StateSizes.assumed([DIM] * NUM_STATES)
    return plan_layout(PATTERNS["mixed"], RATE_HZ, sizes=SizeModel(tuple(sizes), state))


def equal_to_jpeg(cameras: Cameras, tried: Sequence[Quality]) -> Quality:
    """The highest crf whose error is not above JPEG's; the lowest one tried if none is."""
    wanted = mean_mse(cameras, JPEG)
    passed = [quality for quality in tried if mean_mse(cameras, label(quality)) <= wanted]
    return max(passed, key=lambda quality: quality.crf, default=min(tried, key=lambda quality: quality.crf))


def mean_mse(cameras: Cameras, name: str) -> float:
    """Mean squared error of luma over all cameras, levels²."""
    return float(np.mean([camera[name].mse for camera in cameras]))


def mean_psnr(cameras: Cameras, name: str) -> float:
    """The PSNR of that error, dB."""
    return psnr(mean_mse(cameras, name))


def mean_mb(cameras: Cameras, name: str) -> float:
    """1e6 bytes per camera-minute."""
    return float(np.mean([camera[name].mb_per_minute for camera in cameras]))


def take_of(cameras: Cameras, quality: Quality) -> Take:
    """The episode in one of its encodings."""
    return make_take([camera[label(quality)].packets for camera in cameras])


def mp4_path(folder: Path, camera: int) -> Path:
    """Where the mp4 of a camera goes."""
    return folder / f"{CAMERAS[camera]}.mp4"
