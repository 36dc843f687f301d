"""Figures of the episode file that a clock measures: latency, and CPU to read, decode and write."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import av
import numpy as np
from mcap.reader import make_reader

from benchmarks._chunked import DistantStore
from benchmarks._codecs import AV1, label
from benchmarks._containers import CAMERAS, write_foxglove_groups, write_ours, write_stock_groups
from benchmarks._figures_bytes import chunked_files, needed_bytes
from benchmarks._footage import HEIGHT, RATE_HZ, WIDTH
from benchmarks._making import DEFAULT, TRAIN, Made, mean_mb, mean_psnr
from benchmarks._readers import (
    Hdf5Reader,
    Mp4Reader,
    StockReader,
    decode_libav,
    decode_ours,
    read_encoded,
    read_span,
    room,
)
from benchmarks._windows import Window, random_spans
from benchmarks.harness import Figure, Timing, cpu_seconds, measure
from dyna_train.episode.reader import Episode
from dyna_train.video.encode import CameraEncoder
from dyna_train.video.pixels import MATRIX_601, FrameConverter

T = TypeVar("T")
SPAN_STEPS, WINDOWS_PER_SPAN = 120, 8
LATENCY_S, BANDWIDTH = 0.020, 200e6
ENCODED_STEPS = 120


def latency(made: Made) -> list[Figure]:
    """A store that really sleeps; wall time until packets and state are there, without decoding.

    Medians; the ratio is of the time for all samples, which are the same ones for everybody.
    """
    store, samples = DistantStore(LATENCY_S, BANDWIDTH), made.samples(made.effort.slow_windows)
    train, default = (ours_afar(made.path(name), store, samples) for name in ("train", "default"))
    with ThreadPoolExecutor(16) as threads:
        one_by_one = chunks_afar(made, store, samples, None)
        together = chunks_afar(made, store, samples, threads)
    ratio = sum(one_by_one["per topic"]) / sum(train)
    limit_ms = 1e3 * (LATENCY_S + needed_bytes(made, samples) / BANDWIDTH)
    with Episode.open(made.path("train")) as episode:
        few, out = samples[: max(1, len(samples) // 4)], room()
        decoding = per_item(few, lambda one: read_span(episode, [one], out), runs=3)
    ours_ms, at = statistics.median(train), f"ms wall at {label(TRAIN)}"
    beside = {
        f"ours {label(DEFAULT)}": statistics.median(default),
        "decoding, to be added": 1e3 * decoding.wall_s,
    }
    sequential, parallel = (
        {name: statistics.median(taken) for name, taken in one.items()} for one in (one_by_one, together)
    )
    return [
        Figure("latency.sequential", ours_ms, at, 30.0, limit_ms, {**sequential, **beside}),
        Figure("latency.per_topic_over_ours", ratio, f"ratio at {label(TRAIN)}", 10.0, direction=">="),
        Figure("latency.parallel", ours_ms, at, limit=limit_ms, peers={**parallel, **beside}),
    ]


def reading(made: Made) -> list[Figure]:
    """Packets and state from a local file in the page cache, without decoding."""
    samples = made.samples(made.effort.windows)
    with Episode.open(made.path("train")) as episode:
        ours = per_item(samples, lambda one: read_encoded(episode, one))
    few = samples[: max(1, made.effort.slow_windows // 4)]
    with made.path("train").open("rb") as stream:
        reader = StockReader(make_reader(stream), made.take, made.layout.gop)
        stock = per_item(few, reader.read)
    ratio = stock.cpu_s / ours.cpu_s
    return [
        Figure("read.cpu", 1e3 * ours.cpu_s, "ms a sample", 0.5, 0.2, {"stock reader": 1e3 * stock.cpu_s}),
        Figure("read.wall", 1e3 * ours.wall_s, "ms a sample", peers={"stock reader": 1e3 * stock.wall_s}),
        Figure("read.stock_over_ours", ratio, "ratio of CPU", 50.0, direction=">="),
    ]


def decoding(made: Made) -> list[Figure]:
    """Every frame once, by the reader and by libavcodec alone. The copy of planes, equal in both, is taken off."""
    num_steps = min(made.effort.decoded_steps, made.take.header.num_steps)
    packets = [camera[:num_steps] for camera in made.take.packets.values()]
    out = np.zeros((made.layout.gop, HEIGHT * 3 // 2, WIDTH), np.uint8)
    with Episode.open(made.path("train")) as episode:
        ours_s, copied_s, alone_s = in_turn(
            lambda: decode_ours(episode, num_steps, out),
            lambda: decode_libav(packets, out),
            lambda: decode_libav(packets, None),
        )
    overhead = 100 * (ours_s - copied_s) / alone_s
    alone_ms = 1e3 * alone_s / (num_steps * len(CAMERAS))
    at = f"at {label(TRAIN)}"
    return [
        Figure("decode.overhead", overhead, f"% of CPU {at}", 10.0, 0.0),
        Figure("decode.cpu", alone_ms * (1 + overhead / 100), f"ms a frame {at}", limit=alone_ms),
    ]


def windows(made: Made) -> list[Figure]:
    """Frames as RGB, and state: by stretches that eight windows share, and by single windows."""
    out, at = room(), f"ms a window at {label(TRAIN)}"
    samples = made.samples(made.effort.spans)
    noisy, clean, noiseless = (span_time(made, name) for name in ("train", "clean", "noiseless"))
    with Episode.open(made.path("train")) as episode:
        single = per_item(samples, lambda one: read_span(episode, [one], out), runs=3)
    with Hdf5Reader(made.path("jpeg")) as hdf5:
        jpeg = per_item(samples, lambda one: hdf5.read(one, out), runs=3)
    with Mp4Reader(made.mp4s) as mp4:
        av1 = per_item(samples, lambda one: mp4.read(one, out), runs=3)
    beside = {"HDF5 JPEG q80": jpeg, f"LeRobot {AV1}": av1, "ours, one window a span": single}
    cpu_ms = {name: 1e3 * timing.cpu_s for name, timing in beside.items()}
    wall_ms = {name: 1e3 * timing.wall_s for name, timing in beside.items()}
    cpu_ms["ours, no noise added"] = 1e3 * noiseless.cpu_s
    return [
        Figure("window.cpu", 1e3 * noisy.cpu_s, at, 35.0, 20.0, cpu_ms),
        Figure("window.wall", 1e3 * noisy.wall_s, at, peers=wall_ms),
        Figure("window.clean_cpu", 1e3 * clean.cpu_s, at, 26.0, 20.0),
    ]


def writing(made: Made) -> list[Figure]:
    """From encoded packets to a file on disk, beside what encoding them took and what other writers take."""
    path = made.folder / "written.mcap"
    writers: dict[str, Callable[[], object]] = {
        "ours": lambda: write_ours(path, made.take, made.layout, TRAIN),
        "foxglove-sdk": lambda: write_foxglove_groups(path, made.messages, made.layout),
        "stock writer": lambda: write_stock_groups(path, made.messages, made.layout),
    }
    timings = {
        name: measure(write, prepare=lambda: path.unlink(missing_ok=True)) for name, write in writers.items()
    }
    ours = timings.pop("ours")
    encoding_s = encode_alone_s(made) * made.take.header.num_steps * len(CAMERAS)
    cpu_ms = {name: 1e3 * timing.cpu_s for name, timing in timings.items()}
    wall_ms = {name: 1e3 * timing.wall_s for name, timing in timings.items()}
    return [
        Figure("write.over_encoding", 100 * ours.cpu_s / encoding_s, f"% of CPU at {label(TRAIN)}", 3.0),
        Figure("write.cpu", 1e3 * ours.cpu_s, "ms a file", peers=cpu_ms),
        Figure("write.wall", 1e3 * ours.wall_s, "ms a file", peers=wall_ms),
    ]


def train_fast(made: Made) -> list[Figure]:
    """`train-fast` beside `train` at the PSNR of `train`, between crf points: log bytes and decode time."""
    names = [label(quality) for quality in made.effort.fast]
    decoders = [
        partial(decode_libav, [camera[name].packets for camera in made.excerpt], None)
        for name in (*names, label(TRAIN))
    ]
    *fast_s, train_s = in_turn(*decoders)
    wanted_db, found_db = mean_psnr(made.excerpt, label(TRAIN)), [mean_psnr(made.excerpt, n) for n in names]
    rising = np.argsort(found_db)
    log_mb = np.log([mean_mb(made.excerpt, name) for name in names])
    mb = float(np.exp(np.interp(wanted_db, np.take(found_db, rising), log_mb[rising])))
    decode_s = float(np.interp(wanted_db, np.take(found_db, rising), np.take(fast_s, rising)))
    at = f"ratio at {wanted_db:.1f} dB"
    return [
        Figure("train_fast.decode", decode_s / train_s, at, 0.55),
        Figure("train_fast.bytes", mb / mean_mb(made.excerpt, label(TRAIN)), at, 1.3),
    ]


def ours_afar(path: Path, store: DistantStore, samples: Sequence[Window]) -> list[float]:
    """Wall time of each window of one of our files, read from `store` with the index held, ms."""
    with Episode.open(path, fs=store) as episode:
        return walls_ms(samples, lambda one: read_encoded(episode, one))


def chunks_afar(
    made: Made, store: DistantStore, samples: Sequence[Window], threads: Executor | None
) -> dict[str, list[float]]:
    """Wall time of each window of the stock files, all indexes held, chunk after chunk or by `threads`, ms."""
    files = chunked_files(made, "train")
    del files["ours"]
    return {
        name: walls_ms(samples, partial(file.read, store, side_by_side=threads))
        for name, file in files.items()
    }


def span_time(made: Made, name: str) -> Timing:
    """Eight windows at random places of 4 s that begin with a GOP, every frame decoded once; per window."""
    out = room()
    with Episode.open(made.path(name)) as episode:
        span = min(SPAN_STEPS, episode.num_steps)
        count, gop = made.effort.spans, made.layout.gop
        spans = random_spans(episode.num_steps, count, span, WINDOWS_PER_SPAN, gop=gop)
        timing = per_item(spans, lambda several: read_span(episode, several, out), runs=3)
    return Timing(timing.wall_s / WINDOWS_PER_SPAN, timing.cpu_s / WINDOWS_PER_SPAN, timing.runs)


def encode_alone_s(made: Made) -> float:
    """CPU seconds to encode one frame at `train`, nothing else running here, of all cameras' first seconds."""
    converter, layout = FrameConverter(), made.layout
    num_steps = min(ENCODED_STEPS, made.take.header.num_steps)
    pictures = [
        [
            converter.to_video(av.VideoFrame.from_ndarray(rgb_HWC, "rgb24"), MATRIX_601)
            for rgb_HWC in islice(made.footage.frames(camera, num_steps), num_steps)
        ]
        for camera in range(len(CAMERAS))
    ]

    def encode() -> None:
        for frames in pictures:
            encoder = CameraEncoder("camera", WIDTH, HEIGHT, rate_hz=RATE_HZ, gop=layout.gop, quality=TRAIN)
            for step, frame in enumerate(frames):
                encoder.encode(frame, step)
            encoder.flush()

    return measure(encode, runs=3).cpu_s / (num_steps * len(CAMERAS))


def per_item(items: Sequence[T], fn: Callable[[T], object], runs: int = 5) -> Timing:
    """Medians of time per item; what `fn` returns is dropped at once, as a loader would."""

    def every() -> None:
        for one in items:
            fn(one)

    timing = measure(every, runs)
    return Timing(timing.wall_s / len(items), timing.cpu_s / len(items), timing.runs)


def in_turn(*jobs: Callable[[], object], runs: int = 5) -> list[float]:
    """Median CPU seconds of each job; they take turns, so that a busy moment meets them all."""
    taken: list[list[float]] = [[] for _ in jobs]
    for number in range(runs + 1):
        for place, job in enumerate(jobs):
            began = cpu_seconds()
            job()
            if number:  # the first round warms up
                taken[place].append(cpu_seconds() - began)
    return [statistics.median(one) for one in taken]


def walls_ms(items: Sequence[T], fn: Callable[[T], object]) -> list[float]:
    """Wall time of each call, ms."""
    taken = []
    for one in items:
        began = time.perf_counter()
        fn(one)
        taken.append(1e3 * (time.perf_counter() - began))
    return taken
