"""The episode file beside its peers and its limits: bytes, fetches, latency, CPU to read, decode and write.

One minute of three cameras (640x480, 30 Hz) and eight state topics, from real robot recordings with the noise of
a sensor: as HDF5 with a JPEG a frame, as MCAP topic after topic, as MCAP in order of arrival, as LeRobot's AV1 mp4.
A sample is the window of a world model: 8 frames of each camera, 0.2 s apart, and 48 steps of all states.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks._codecs import JPEG, label
from benchmarks._figures_bytes import fetches, index, storage
from benchmarks._figures_time import (
    BANDWIDTH,
    LATENCY_S,
    decoding,
    latency,
    reading,
    train_fast,
    windows,
    writing,
)
from benchmarks._footage import (
    RATE_HZ,
    SHARED_DATA,
    check_recordings,
    render_footage,
    robot_footage,
    soft_footage,
)
from benchmarks._making import ARCHIVE, TRAIN, Effort, Made, make, mean_mb, mean_psnr
from benchmarks.harness import Figure, Report, main

SECONDS = 60.0


def build(
    seconds: float = SECONDS,
    data: Path = SHARED_DATA,
    workers: int | None = None,
    effort: Effort = Effort(),  # noqa: B008 (immutable)
) -> Report:
    """seconds: of footage, at least 2. data: the folder of recordings. workers: processes that encode.

    Raises BadInput if the recordings are absent.
    """
    check_recordings(robot_footage(data), soft_footage(data), render_footage(data))
    with tempfile.TemporaryDirectory(prefix="dyna-bench-") as folder:
        made = make(Path(folder), data, round(seconds * RATE_HZ), workers or os.cpu_count() or 1, effort)
        figures = figures_of(made)
        return Report("episode_file", tuple(figures), notes(made))


def figures_of(made: Made) -> list[Figure]:
    """Every figure, those of the issue's table first in each group."""
    return [
        *storage(made),
        *fetches(made),
        *latency(made),
        *reading(made),
        *decoding(made),
        *windows(made),
        *index(made),
        *writing(made),
        *train_fast(made),
    ]


def notes(made: Made) -> tuple[str, ...]:
    """What the figures have to be read with."""
    layout, soft = made.layout, made.soft
    return (
        f"footage: {made.footage.source}, looped forth and back; noise: Gaussian, independent per pixel and colour, "
        "sigma 1 level at black to 2 at white. PSNR: decoded luma against that noisy picture, every frame.",
        "soft_vs_jpeg: three of the recordings at their own 640x480, soft from the AV1 they were kept in, same noise: "
        f"JPEG {mean_mb(soft, JPEG):.1f} MB at {mean_psnr(soft, JPEG):.1f} dB. There is little to predict but noise.",
        f"layout: GOP {layout.gop}, {layout.gops_per_chunk} GOPs a video chunk, {layout.steps_per_block} steps a state "
        f"block, planned for pattern mixed at {label(TRAIN)}. All MCAP files hold the same messages.",
        "baselines: the stock MCAP writers mix all topics in one chunk stream ('stock, by arrival'). A chunk stream a "
        "topic ('per topic', as of `mcap --order topic`) is what the published 3.4x is measured against, at the "
        f"bitrate of {label(ARCHIVE)}. Their readers here hold all indexes and fetch no chunk without need.",
        f"latency: measured, not modelled: every request sleeps {1e3 * LATENCY_S:.0f} ms and its bytes at "
        f"{BANDWIDTH / 1e6:.0f} MB/s, parallel ones (16 threads) do not share it; decoding comes on top.",
        "stock reader: mcap's SeekingReader as it comes (log time order), summary held, one pass a window.",
        "window: 8 windows at random places of 4 s that begin with a GOP; their frames and all before them are "
        "decoded once, then RGB. The clean render hardly moves; 'no noise added' is the robot as it was recorded.",
        "writers: foxglove-sdk and mcap's Writer get finished payloads and write our order of chunks by flush(), "
        "uncompressed. Neither can compress state and leave video alone; foxglove-sdk stores no publish time and no "
        "sequence. So we write with the record classes of mcap, and pay what the figure says.",
    )


if __name__ == "__main__":
    main(build)
