"""Frames and their times out of a video file, or out of a stretch of one that many episodes share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, is_local
from dyna_train.episode.profile import SECOND_NS
from dyna_train.errors import BadInput
from dyna_train.video.coded import Appearance, CodedVideo, Packet
from dyna_train.video.pixels import Orientation, orientation_of, turned

MAX_S = 365 * 86_400
DECODABLE = "video.decodable"
NEW_EXTRADATA = "new_extradata"  # FFmpeg's name for parameter sets that a container changes at a packet
GRID_TOLERANCE = 1e-2
"""How far from a grid instant, in frames, a stored time may lie and still mean that instant."""


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """width, height: of the upright picture, as `Video.frames` gives it.

    num_frames: as the container states it, 0 where it does not. Times are pts * time_base seconds.
    """

    width: int
    height: int
    codec: str
    time_base: Fraction
    num_frames: int


@dataclass(frozen=True, slots=True)
class Video:
    """The video file `name` of a folder, or its frames with start <= pts < stop (ticks of its time base)."""

    folder: Folder
    name: str
    start: int | None = None
    stop: int | None = None

    @property
    def where(self) -> str:
        """Its address, for messages."""
        return self.folder.at(self.name)

    def info(self) -> VideoInfo:
        """Size, codec and time base; decodes the first frame, which alone knows how it is to be turned.

        Raises RecordingError if the file is no video or is cut, or its frames cannot be turned upright.
        """
        with self._opened() as (container, stream):
            time_base = Fraction(stream.time_base.numerator, stream.time_base.denominator)
            first = next(self._decoded(container, stream), None)
            if first is None:
                raise RecordingError(f"{self.where}: no frame inside, though a video stream", check=DECODABLE)
            width, height = self._orientation(first).size(first.width, first.height)
            codec = stream.codec_context.codec.canonical_name
            return VideoInfo(width, height, codec, time_base, stream.frames)

    def pts(self) -> NDArray[np.int64]:
        """Presentation times [N] in ticks, sorted, of the frames that a decoder shows; nothing is decoded.

        Packets come in decoding order, and an edit list can discard some: both are undone here.
        Raises RecordingError.
        """
        with self._opened() as (container, stream):
            self._seek(container, stream)
            ticks = sorted(p.pts for p in self._demuxed(container, stream) if not p.is_discard)
            if ticks and max(-ticks[0], ticks[-1]) * stream.time_base > MAX_S:
                raise RecordingError(f"{self.where}: presentation times beyond a year", check=DECODABLE)
        return np.array(ticks, np.int64)

    def frames(self, expected: NDArray[np.int64]) -> Iterator[av.VideoFrame]:
        """Decoded frames in presentation order and upright, the k-th at expected[k] (from `pts`).

        Raises RecordingError at the frame that does not decode, is not the expected one, or cannot be turned.
        """
        position = 0
        with self._opened() as (container, stream):
            self._seek(container, stream)
            for frame in self._decoded(container, stream):
                if self.start is not None and frame.pts < self.start:
                    continue
                if position == len(expected):
                    if self.stop is None or frame.pts < self.stop:
                        raise self._mismatch(position, None, frame.pts)
                    return
                if frame.pts != expected[position] or frame.is_corrupt:
                    raise self._mismatch(position, int(expected[position]), frame.pts)
                yield turned(frame, self._orientation(frame))
                position += 1
        if position < len(expected):
            raise self._mismatch(position, int(expected[position]), None)

    def coded(self) -> CodedVideo:
        """Its packets, and how the first frame is shown. Raises RecordingError, also while packets are read."""
        with self._opened() as (container, stream):
            context = stream.codec_context
            codec, extradata = context.codec.canonical_name, bytes(context.extradata or b"")
            self._seek(container, stream)
            for frame in self._decoded(container, stream):
                if self._inside(frame.pts):
                    self._orientation(frame)  # raises what `Appearance.of` would, with the file's name
                    return CodedVideo(codec, extradata, Appearance.of(frame), self.packets)
        raise RecordingError(f"{self.where}: no frame in it is shown", check=DECODABLE)

    def packets(self) -> Iterator[Packet]:
        """Its packets in decoding order, those included that an edit list hides. Raises RecordingError."""
        with self._opened() as (container, stream):
            self._seek(container, stream)
            for packet in self._demuxed(container, stream):
                changed = packet.has_sidedata(NEW_EXTRADATA)
                yield Packet(
                    bytes(packet),
                    packet.pts,
                    is_keyframe=packet.is_keyframe,
                    is_discard=packet.is_discard,
                    extradata=bytes(packet.get_sidedata(NEW_EXTRADATA)) if changed else b"",
                )

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """(container, first video stream); FFmpeg's errors inside become RecordingErrors."""
        try:
            with self._source() as source, av.open(source, metadata_errors="replace") as container:
                if not container.streams.video:
                    raise RecordingError(f"{self.where}: no video stream inside", check=DECODABLE)
                stream = container.streams.video[0]
                if stream.codec_context is None:
                    raise RecordingError(f"{self.where}: no decoder for its codec", check=DECODABLE)
                yield container, stream
        except av.FFmpegError as error:
            raise RecordingError(
                f"{self.where}: cannot be read as video ({error.strerror}); {self._size_bytes():,} bytes. "
                "A cut file looks like this: record or upload it again",
                check=DECODABLE,
            ) from None

    @contextmanager
    def _source(self) -> Iterator[Any]:
        """What av.open takes: the path of a local file (FFmpeg reads it itself), else a file object."""
        if is_local(self.folder.fs):
            yield f"file:{self.folder.path}/{self.name}"
            return
        with self.folder.open(self.name) as file:
            yield file

    def _seek(self, container: Any, stream: Any) -> None:
        """Seek to a keyframe shown at or before start. Containers index by decoding time: look, go back."""
        if self.start is None:
            return
        tick_s = max(1, round(1 / stream.time_base))
        target, back = self.start, tick_s
        while target > 0:
            container.seek(target, stream=stream)
            first = next(container.demux(stream), None)
            if first is None or first.pts is None or first.pts <= self.start:
                break
            target, back = target - back, back * 2
        container.seek(max(target, 0), stream=stream)

    def _demuxed(self, container: Any, stream: Any) -> Iterator[Any]:
        """The packets inside, in decoding order; each has a presentation time."""
        number = 0
        for packet in container.demux(stream):
            if packet.size == 0:  # the flush at the end
                continue
            if packet.pts is None:
                raise RecordingError(
                    f"{self.where}: packet {number} has no presentation time", check=DECODABLE
                )
            if self.stop is not None and packet.dts is not None and packet.dts >= self.stop:
                return
            number += 1
            if self._inside(packet.pts):
                yield packet
        self._refuse_cut(stream)

    def _refuse_cut(self, stream: Any) -> None:
        """FFmpeg takes the end of a cut file for the end of the video; the index in front knows better."""
        entries = stream.index_entries
        needed = max((entry.pos + entry.size for entry in entries), default=0)
        size = self._size_bytes()
        if needed > size:
            raise RecordingError(
                f"{self.where}: the file ends at byte {size:,}, its {len(entries):,} frames need "
                f"{needed:,} bytes: it was cut while being recorded or uploaded, upload it again",
                check=DECODABLE,
            )

    def _size_bytes(self) -> int:
        return int(self.folder.fs.info(f"{self.folder.path}/{self.name}")["size"])

    def _decoded(self, container: Any, stream: Any) -> Iterator[Any]:
        # one thread: recordings are worked on side by side, and frame threads hold frames in memory
        stream.codec_context.thread_count = 1
        last = None
        try:
            for frame in container.decode(stream):
                yield frame
                last = frame.pts
        except av.FFmpegError as error:
            place = "the first frame" if last is None else f"the frame after tick {last}"
            raise RecordingError(
                f"{self.where}: {place} does not decode ({error.strerror}); the video is damaged, "
                "record or upload it again",
                check=DECODABLE,
            ) from None

    def _orientation(self, frame: av.VideoFrame) -> Orientation:
        try:
            return orientation_of(frame)
        except BadInput as error:
            raise RecordingError(f"{self.where}: {error}", check=DECODABLE) from None

    def _inside(self, pts: int) -> bool:
        return (self.start is None or pts >= self.start) and (self.stop is None or pts < self.stop)

    def _mismatch(self, number: int, expected: int | None, found: int | None) -> RecordingError:
        wanted = "no further frame" if expected is None else f"a whole frame at tick {expected}"
        got = "none" if found is None else f"one at tick {found}"
        return RecordingError(
            f"{self.where}: frame {number}: expected {wanted}, the decoder gave {got}; "
            "the video is damaged, record or upload it again",
            check=DECODABLE,
        )


def ticks_to_ns(ticks: NDArray[np.int64], unit_s: Fraction) -> NDArray[np.int64]:
    """Ticks [N] of unit_s seconds as ns [N], exact, halves rounded up: equal instants give equal integers."""
    scale, whole = 2 * unit_s.numerator * SECOND_NS, unit_s.denominator
    return np.array([(tick * scale + whole) // (2 * whole) for tick in ticks.tolist()], np.int64)


def pts_to_ns(ticks: NDArray[np.int64], time_base: Fraction, fps: Fraction) -> NDArray[np.int64]:
    """Ticks [N] since the episode's start as ns [N]; on the fps grid if all of them lie on it."""
    step = time_base * fps  # whole numbers of 1 / denominator frames: exact, and fast
    parts, whole = [tick * step.numerator for tick in ticks.tolist()], step.denominator
    numbers = [(2 * part + whole) // (2 * whole) for part in parts]
    slack = GRID_TOLERANCE * whole
    if all(abs(part - number * whole) < slack for part, number in zip(parts, numbers, strict=True)):
        return ticks_to_ns(np.array(numbers, np.int64), 1 / fps)
    return ticks_to_ns(ticks, time_base)
