"""A film of an episode that is small enough for a list: all cameras side by side, in time-lapse.

Mostly keyframes are shown, so that a long episode costs a decoded frame where it has a GOP of them.
Array axes: H W pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream
from PIL import Image

from dyna_train.episode.reader import Episode
from dyna_train.look.axes import TimeAxis
from dyna_train.look.frames import Track, frame_tiles, tile_size
from dyna_train.look.ink import SMALL_SIZE, line_height, write
from dyna_train.look.palette import PAPER

WIDTH = 320
MAX_FPS = 10
MAX_SECONDS = 15
_LEAST_SECONDS = 3
_LEAST_FRAMES = 12
"""An episode of fewer GOPs also shows frames between its keyframes."""
_BATCH = 16
"""Steps whose GOPs are read at once: a bound on memory, whatever the length of the episode."""
_CRF = "28"


@dataclass(frozen=True, slots=True)
class PreviewPlan:
    """Which steps are shown, and how many of them a second."""

    steps: tuple[int, ...]
    fps: Fraction

    @property
    def seconds(self) -> float:
        """Length of the film."""
        return float(len(self.steps) / self.fps)


def plan_preview(num_steps: int, gop: int) -> PreviewPlan:
    """At most 150 steps evenly over the episode: keyframes, with steps between them where these are few."""
    stride = gop
    while stride > 1 and num_steps / stride < _LEAST_FRAMES:
        stride = max(stride // 2, 1)
    stride *= max(1, ceil(num_steps / stride / (MAX_FPS * MAX_SECONDS)))
    steps = tuple(range(0, num_steps, stride))
    fps = Fraction(len(steps), _LEAST_SECONDS)
    return PreviewPlan(steps, min(Fraction(MAX_FPS), max(fps, Fraction(1))))


def preview_pictures(episode: Episode, plan: PreviewPlan) -> Iterator[Image.Image]:
    """The pictures of the film: every camera at a step, and its time below."""
    header = episode.header
    axis = TimeAxis(header.num_steps, header.rate_hz)
    tracks: list[Track] = [*header.cameras, *header.depths]
    places, (width, height) = _grid(tracks)
    for start in range(0, len(plan.steps), _BATCH):
        steps = plan.steps[start : start + _BATCH]
        tiles = [
            frame_tiles(episode, track, steps, box) for track, (_, box) in zip(tracks, places, strict=True)
        ]
        for number, step in enumerate(steps):
            picture = Image.new("RGB", (width, height), PAPER)
            for (corner, _), row in zip(places, tiles, strict=True):
                picture.paste(row[number], corner)
            write(picture, (4, height - line_height(SMALL_SIZE)), axis.label(step), SMALL_SIZE)
            yield picture


def write_preview(path: Path, pictures: Iterator[Image.Image], fps: Fraction) -> list[Image.Image]:
    """Write the film as MP4 that browsers play while it loads; returns its pictures, for a thumbnail."""
    shown: list[Image.Image] = []
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        stream: VideoStream | None = None
        for picture in pictures:
            shown.append(picture)
            if stream is None:
                stream = _stream(container, picture, fps)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(picture), "rgb24")))
        if stream is not None:
            container.mux(stream.encode(None))
    return shown


def _stream(container: av.container.OutputContainer, picture: Image.Image, fps: Fraction) -> VideoStream:
    stream = container.add_stream("libx264", rate=fps)
    stream.width, stream.height = picture.size
    stream.pix_fmt = "yuv420p"
    stream.options = {"preset": "veryfast", "crf": _CRF}
    stream.codec_context.thread_count = 1
    return stream


Place = tuple[tuple[int, int], tuple[int, int]]
"""Upper left corner of a camera's picture, and the box it is made to fit into."""


def _grid(tracks: Sequence[Track]) -> tuple[list[Place], tuple[int, int]]:
    """Where the cameras stand, in rows of about as many as there are rows, and the size of the whole."""
    num_columns = max(1, ceil(len(tracks) ** 0.5))
    box = (WIDTH // num_columns // 2 * 2, WIDTH * 3 // 4)
    places: list[Place] = []
    top = 0
    for start in range(0, len(tracks), num_columns):
        row = tracks[start : start + num_columns]
        places += [((column * box[0], top), box) for column in range(len(row))]
        top += max(tile_size(track, box)[1] for track in row)
    return places, (WIDTH, top + line_height(SMALL_SIZE) // 2 * 2 + 2)
