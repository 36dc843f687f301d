"""One window read by everybody: our spans, the stock MCAP reader, JPEG in HDF5, mp4 by PyAV.

Array axes: W wanted frames, H steps of state (in state_HD) or rows of pixels, D dimensions, C colours.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import av
import h5py
import numpy as np
from av.container import InputContainer
from mcap.reader import McapReader
from numpy.typing import NDArray
from PIL import Image

from benchmarks._codecs import plain_decoder
from benchmarks._containers import CAMERAS, Take
from benchmarks._footage import HEIGHT, RATE_HZ, WIDTH
from benchmarks._windows import Window, union
from dyna_train.episode.profile import grid_times_ns
from dyna_train.episode.reader import Episode
from dyna_train.episode.schemas import parse_video
from dyna_train.episode.span import Span, fetch
from dyna_train.video.pixels import FrameConverter

Frames = NDArray[np.uint8]


def read_encoded(episode: Episode, window: Window) -> tuple[Span, NDArray[np.float32]]:
    """Ours, without decoding: the span with its packets, and state float32 [H, D]."""
    (span,) = fetch([episode.plan(frame_steps=window.frame_steps_W, state_steps=window.state_steps_H)])
    return span, span.state(window.state_steps_H)


def read_span(episode: Episode, windows: Sequence[Window], out: Frames) -> None:
    """Ours, whole: several windows of one stretch, every frame decoded once.

    out: uint8 [cameras, W, H, W, 3], which every window overwrites as a row of a batch would be.
    """
    span, _ = read_encoded(episode, union(windows))
    for window in windows:
        for number, camera in enumerate(CAMERAS):
            span.frames(camera, window.frame_steps_W, out=out[number])
        span.state(window.state_steps_H)


def room() -> Frames:
    """Where the frames of one window go."""
    return np.zeros((len(CAMERAS), len(Window.at(0).frame_steps_W), HEIGHT, WIDTH, 3), np.uint8)


class StockReader:
    """The stock Python reader on an open file, its summary held: packets and state of a window.

    One pass over everything between the first step to decode and the last of the state, which touches each
    chunk once; unpacking is as short as it can be.
    """

    def __init__(self, reader: McapReader, take: Take, gop: int) -> None:
        header = take.header
        self._reader = reader
        self._gop = gop
        self._topics = list(header.topics)
        self._grid_ns = grid_times_ns(header.start_ns, header.rate_hz, header.num_steps)

    def read(self, window: Window) -> tuple[dict[str, list[memoryview]], NDArray[np.float32]]:
        """Packets by topic, and state float32 [H, D]."""
        fed, state = window.fed_steps(self._gop), window.state_steps_H
        needed = set(fed.tolist())
        packets: dict[str, list[memoryview]] = {}
        rows: dict[str, list[NDArray[np.float32]]] = {}
        messages = self._reader.iter_messages(
            self._topics,
            starting_at=int(self._grid_ns[fed[0]]),
            ending_at=int(self._grid_ns[max(fed[-1], state[-1])]),
        )
        for _, channel, message in messages:
            if channel.topic.startswith("/camera/"):
                if message.sequence in needed:
                    packets.setdefault(channel.topic, []).append(parse_video(message.data).data)
            elif state[0] <= message.sequence <= state[-1]:
                values_D = np.frombuffer(message.data, "<f4", offset=2)  # tag and length of a packed field
                rows.setdefault(channel.topic, []).append(values_D)
        return packets, np.concatenate([np.stack(topic) for topic in rows.values()], axis=1)


class Hdf5Reader:
    """A JPEG a frame in HDF5: every wanted picture is a read of its own, and nothing else is decoded."""

    def __init__(self, path: Path) -> None:
        self._file = h5py.File(path, "r")

    def read(self, window: Window, out: Frames) -> NDArray[np.float32]:
        """Frames into `out`, and state float32 [H, D]."""
        for number, camera in enumerate(CAMERAS):
            rows = self._file[f"observations/images/{camera}"]
            for place, step in enumerate(window.frame_steps_W.tolist()):
                with Image.open(io.BytesIO(rows[step])) as image:
                    out[number, place] = np.asarray(image)
        first, last = int(window.state_steps_H[0]), int(window.state_steps_H[-1])
        topics: Mapping[str, h5py.Dataset] = self._file["observations/state"]
        return np.concatenate([topics[name][first : last + 1] for name in sorted(topics)], axis=1)

    def __enter__(self) -> Hdf5Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class Mp4Reader:
    """LeRobot's way: an mp4 a camera, open; a seek to the keyframe before each wanted frame, then decode."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: list[InputContainer] = [av.open(str(path)) for path in paths]
        for file in self._files:
            file.streams.video[0].thread_count = 1

    def read(self, window: Window, out: Frames) -> None:
        """Frames into `out`; state lies in another file and is not read."""
        for number, file in enumerate(self._files):
            stream = file.streams.video[0]
            assert stream.time_base is not None
            ticks = 1 / (RATE_HZ * stream.time_base)
            for place, step in enumerate(window.frame_steps_W.tolist()):
                wanted = round(step * ticks)
                file.seek(wanted, stream=stream)
                for frame in file.decode(stream):
                    if frame.pts is not None and frame.pts >= wanted:
                        out[number, place] = frame.to_ndarray(format="rgb24", threads=1)
                        break

    def __enter__(self) -> Mp4Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


def decode_ours(episode: Episode, num_steps: int, out: Frames) -> None:
    """Every frame of every camera once, GOP by GOP, as planes; out: uint8 [steps, H * 3 / 2, W]."""
    gop = episode.layout.gop
    for start in range(0, num_steps, gop):
        steps = np.arange(start, min(start + gop, num_steps))
        for camera in CAMERAS:
            episode.frames(camera, steps, output="yuv420", out=out[: len(steps)])


def decode_libav(packets: Sequence[Sequence[bytes]], out: Frames | None) -> None:
    """The same frames by one plain decoder a camera; as planes into `out`, round and round, or nowhere at all."""
    converter = FrameConverter()
    for camera in packets:
        context = plain_decoder("h264")
        place = 0
        for packet in (*map(av.Packet, camera), None):
            for frame in context.decode(packet):
                if out is not None:
                    converter.to_yuv420(frame, WIDTH, HEIGHT, None, out=out[place % len(out)])
                    place += 1
