"""Episode files that another tool wrote anew: what they say is still there, where it lies is not.

Array axes: T steps, D A dimensions, N asked frames, H W pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode import wire
from dyna_train.episode.base import EpisodeBase
from dyna_train.episode.channels import ExtraTopic, is_extra
from dyna_train.episode.foreign import ForeignFile, stacked, video_packet
from dyna_train.episode.gop import GopFrames
from dyna_train.episode.profile import (
    EVENT_GROUP,
    GRID_GROUPS,
    MISSING_NS,
    EpisodeHeader,
    grid_times_ns,
    read_header,
)
from dyna_train.episode.schemas import Event
from dyna_train.episode.source import ReadCounters
from dyna_train.episode.span import Steps
from dyna_train.episode.sparse import StoredMessage, check_extra, event_of, without_group
from dyna_train.errors import CorruptEpisode, MissingFrame
from dyna_train.video.frame_numbers import FrameNumbers
from dyna_train.video.pixels import FrameConverter


class ForeignEpisode(EpisodeBase):
    """An episode in a file that another tool wrote, with the reading methods of `Episode`.

    Tracks stand in order of their channel ids. A GOP has no checksum: that of its chunk is checked, if the
    tool wrote one. Picklable; not for two threads at once.
    """

    def __init__(self, file: ForeignFile, header: EpisodeHeader, gops: Mapping[str, int]) -> None:
        """gops: length of a GOP in steps, by camera name."""
        self.uri = file.uri
        self.file = file
        self.header = header
        self.tracks = header.tracks
        self._gops = gops
        self._converter = FrameConverter()
        self._capture: dict[str, NDArray[np.int64]] = {}
        self._values: dict[str, NDArray[np.float32]] = {}

    @classmethod
    def of(cls, file: ForeignFile) -> ForeignEpisode:
        """The episode in `file`. Raises CorruptEpisode naming what of its description is absent."""
        described = {topic.topic: topic.metadata for topic in file.topics}
        ours = {topic: found for topic, found in described.items() if found.get("group") in GRID_GROUPS}
        header = read_header(file.uri, ours, file.metadata)
        try:
            gops = {camera.name: int(ours[camera.topic]["gop"]) for camera in header.cameras}
        except (KeyError, ValueError) as error:
            raise CorruptEpisode(
                f"{file.uri}: the channel of a camera does not say its GOP: {error!r}"
            ) from error
        return cls(file, header, gops)

    @property
    def num_steps(self) -> int:
        """Steps of the grid."""
        return self.header.num_steps

    @property
    def counters(self) -> ReadCounters:
        """What reading cost since the file was opened."""
        return self.file.counters

    def vector(self, topic: str) -> NDArray[np.float32]:
        """The vector topic `topic` (`/state/<name>`), float32 [T, D]; read-only.

        Raises BadInput for an unknown topic, CorruptEpisode naming a step that is absent or not readable.
        """
        self.tracks.vector(topic, where=self.uri)
        if topic not in self._values:
            self._read(topic)
        return self._values[topic]

    def capture_ns(self, topic: str) -> NDArray[np.int64]:
        """When each step of `topic` was captured, int64 [T] ns; -1 where a camera has no frame.

        Raises BadInput for an unknown topic, CorruptEpisode for a message off the grid.
        """
        self._check_topic(topic)
        if topic not in self._capture:
            self._read(topic)
        return self._capture[topic]

    def has_frame(self, camera: str) -> NDArray[np.bool_]:
        """Whether camera `camera` (a name) has a frame at each step, bool [T]."""
        number = self.tracks.camera(camera, where=self.uri)
        present: NDArray[np.bool_] = self.capture_ns(self.tracks.cameras[number].topic) != MISSING_NS
        return present

    def events(self) -> list[Event]:
        """What happened, in order of time."""
        topics = [topic.topic for topic in self.file.topics if topic.metadata.get("group") == EVENT_GROUP]
        return [
            event_of(f"{self.uri}: {topic}", message.log_ns, message.publish_ns, message.data)
            for topic in topics
            for message in self.file.messages(topic)
        ]

    def extra_topics(self) -> tuple[ExtraTopic, ...]:
        """The topics that no pattern reads, as they were declared; those that a tool added are among them."""
        found = [topic for topic in self.file.topics if is_extra(topic.topic, topic.metadata)]
        return tuple(without_group(topic) for topic in found)

    def extra_messages(self, topic: str) -> Iterator[StoredMessage]:
        """The messages of an extra topic as they came, in order of log time. Raises BadInput if it is none."""
        check_extra(self.uri, topic, [extra.topic for extra in self.extra_topics()])
        return self.file.messages(topic)

    def frames(
        self,
        camera: str,
        steps: Steps,
        size: tuple[int, int] | None = None,
        *,
        out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """RGB frames of camera `camera` (a name) at `steps`, uint8 [N, H, W, 3]; see `Episode.frames`.

        Raises BadInput for an unknown camera or step, MissingFrame in a gap, EpisodeError for a B-frame,
        CorruptEpisode naming camera and GOP.
        """
        track = self.tracks.cameras[self.tracks.camera(camera, where=self.uri)]
        steps_N = self._checked_steps(steps)
        gop = self._gops[camera]
        pictures: dict[int, NDArray[np.uint8]] = {}
        for number in np.unique(steps_N // gop).tolist():
            wanted = np.unique(steps_N[steps_N // gop == number]).tolist()
            what = f"{self.uri}: camera {camera}, GOP {number}"
            packets = self._packets(track.topic, range(number * gop, wanted[-1] + 1), what)
            frames = GopFrames(packets, frozenset(), self.counters, what)
            for step in wanted:
                frame = frames.frame(step)
                if frame is None:
                    raise MissingFrame(
                        f"{self.uri}: camera {camera} has no frame at step {step}: a gap of the episode"
                    )
                pictures[step] = self._converter.to_rgb(frame, track.width, track.height, size)
        self.counters.kept += len(pictures)
        return stacked(self.uri, pictures, steps_N, size or (track.height, track.width), out)

    def close(self) -> None:
        """Release the file handle."""
        self.file.close()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """A copy reopens the file, in whatever process it wakes up."""
        return ForeignEpisode.of, (self.file,)

    @cached_property
    def _grid_T(self) -> NDArray[np.int64]:
        return grid_times_ns(self.header.start_ns, self.header.rate_hz, self.num_steps)

    @cached_property
    def _step_at(self) -> Mapping[int, int]:
        """The step of each grid time."""
        return {time_ns: step for step, time_ns in enumerate(self._grid_T.tolist())}

    def _read(self, topic: str) -> None:
        """Remember the capture times of a topic, and its values if it is a vector."""
        dims = {track.topic: track.dim for track in self.tracks.vectors}
        capture_T = np.full(self.num_steps, MISSING_NS, np.int64)
        values_TD = np.empty((self.num_steps, dims.get(topic, 0)), np.float32)
        for step, message in self._on_grid(topic):
            capture_T[step] = message.publish_ns
            if topic in dims:
                values_TD[step] = _values(f"{self.uri}: {topic}, step {step}", message.data, dims[topic])
        if topic in dims:
            missing = np.flatnonzero(capture_T == MISSING_NS)
            if len(missing):
                raise CorruptEpisode(
                    f"{self.uri}: {topic} has no message at step {missing[0]}; ingest the recording"
                )
            values_TD.flags.writeable = False
            self._values[topic] = values_TD
        self._capture[topic] = capture_T

    def _on_grid(self, topic: str, steps: range | None = None) -> Iterator[tuple[int, StoredMessage]]:
        """The messages of a topic, of all steps or some, each with its step; one a step, and none besides."""
        times = (
            {}
            if steps is None
            else {"start_ns": int(self._grid_T[steps[0]]), "end_ns": int(self._grid_T[steps[-1]]) + 1}
        )
        last = -1
        for message in self.file.messages(topic, **times):
            step = self._step_at.get(message.log_ns, -1)
            if step <= last:
                found = f"a second message at step {step}" if step >= 0 else "a message off the grid"
                raise CorruptEpisode(
                    f"{self.uri}: {topic} has {found}, at {message.log_ns} ns; ingest the recording"
                )
            last = step
            yield step, message

    def _packets(self, topic: str, steps: range, what: str) -> dict[int, memoryview]:
        """The H.264 bytes of these steps of one GOP, where there are any, by step."""
        packets: dict[int, memoryview] = {}
        numbers = FrameNumbers()
        for step, message in self._on_grid(topic, steps):
            packet, unit = video_packet(f"{what}, step {step}", message.data)
            if not packets and not unit.is_idr:
                raise CorruptEpisode(
                    f"{what}: its first frame, step {step}, is no keyframe; ingest the recording"
                )
            if fault := numbers.fault(unit):
                raise CorruptEpisode(f"{what}, step {step}: {fault}; ingest the recording")
            packets[step] = packet
        return packets


def _values(what: str, data: bytes, dim: int) -> NDArray[np.float32]:
    """The floats of a `dyna.JointVector`. Raises CorruptEpisode that starts with `what`."""
    try:
        found = wire.bytes_of(dict(wire.fields(memoryview(data))), 1)
    except CorruptEpisode as error:
        raise CorruptEpisode(f"{what}: {error}") from error
    if len(found) != 4 * dim:
        raise CorruptEpisode(f"{what}: {len(found)} bytes of values, expected {dim} floats")
    return np.frombuffer(found, "<f4")
