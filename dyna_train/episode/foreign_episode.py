"""Episode files that another tool wrote anew: what they say is still there, where it lies is not.

    opened = open_episode(uri)   # an Episode, a ForeignEpisode or a ForeignFile

Array axes: T steps, D A dimensions, N asked frames, H W pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import fsspec
import numpy as np
from numpy.typing import NDArray

from dyna_train.episode import wire
from dyna_train.episode.channels import ExtraTopic
from dyna_train.episode.foreign import ForeignFile, stacked, video_packet
from dyna_train.episode.gop import GopFrames
from dyna_train.episode.index import INDEX_NAME, EpisodeIndex
from dyna_train.episode.profile import (
    DEPTH_GROUP,
    EVENT_GROUP,
    EXTRA_GROUP,
    RECORD_PROFILE,
    STATE_GROUP,
    VIDEO_GROUP,
    EpisodeHeader,
    Role,
    Tracks,
    grid_times_ns,
    read_header,
)
from dyna_train.episode.queues import MISSING_NS
from dyna_train.episode.reader import Episode
from dyna_train.episode.schemas import Event
from dyna_train.episode.source import ReadCounters
from dyna_train.episode.span import Steps
from dyna_train.episode.sparse import StoredMessage, event_of, without_group
from dyna_train.episode.tail import attachment_data
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError, MissingFrame
from dyna_train.video.pixels import FrameConverter

_GRID_GROUPS = (VIDEO_GROUP, STATE_GROUP, DEPTH_GROUP)


def open_episode(
    uri: str | Path, fs: fsspec.AbstractFileSystem | None = None
) -> Episode | ForeignEpisode | ForeignFile:
    """Open the MCAP file at `uri` as what it is: an episode file, one that was rewritten, or any other.

    Raises EpisodeError for an absent file or one that is no MCAP, TruncatedEpisode, CorruptEpisode.
    """
    file = ForeignFile.open(uri, fs)
    try:
        if not _index_holds(file):
            return ForeignEpisode.of(file) if RECORD_PROFILE in file.metadata else file
    except EpisodeError:
        file.close()
        raise
    file.close()
    return Episode.open(uri, fs)


class ForeignEpisode:
    """An episode in a file that another tool wrote, with the reading methods of `Episode`.

    Tracks stand in order of their channel ids. A GOP has no checksum: that of its chunk is checked, if the
    tool wrote one. Picklable; not for two threads at once.
    """

    def __init__(self, file: ForeignFile, header: EpisodeHeader, gops: Mapping[str, int]) -> None:
        """gops: length of a GOP in steps, by camera name."""
        self.uri = file.uri
        self.file = file
        self.header = header
        self._gops = gops
        self._converter = FrameConverter()
        self._capture: dict[str, NDArray[np.int64]] = {}
        self._values: dict[str, NDArray[np.float32]] = {}

    @classmethod
    def of(cls, file: ForeignFile) -> ForeignEpisode:
        """The episode in `file`. Raises CorruptEpisode naming what of its description is absent."""
        described = {topic.topic: topic.metadata for topic in file.topics}
        ours = {topic: found for topic, found in described.items() if found.get("group") in _GRID_GROUPS}
        header = read_header(file.uri, ours, file.metadata)
        try:
            gops = {camera.name: int(ours[camera.topic]["gop"]) for camera in header.cameras}
        except (KeyError, ValueError) as error:
            raise CorruptEpisode(
                f"{file.uri}: the channel of a camera does not say its GOP: {error!r}"
            ) from error
        return cls(file, header, gops)

    @property
    def tracks(self) -> Tracks:
        """What the episode offers on its grid."""
        return self.header.tracks

    @property
    def num_steps(self) -> int:
        """Steps of the grid."""
        return self.header.num_steps

    @property
    def counters(self) -> ReadCounters:
        """What reading cost since the file was opened."""
        return self.file.counters

    @cached_property
    def state_TD(self) -> NDArray[np.float32]:
        """All state topics side by side in header order, float32 [T, D]; D is 0 without any."""
        return self._role("state")

    @cached_property
    def action_TA(self) -> NDArray[np.float32]:
        """All action topics side by side in header order, float32 [T, A]; A is 0 without any."""
        return self._role("action")

    def vector(self, topic: str) -> NDArray[np.float32]:
        """The vector topic `topic` (`/state/<name>`), float32 [T, D]; read-only.

        Raises BadInput for an unknown topic, CorruptEpisode naming a step that is absent or not readable.
        """
        self.tracks.vector(topic, where=self.uri)
        if topic not in self._values:
            self._read(topic)
        return self._values[topic]

    def capture_ns(self, topic: str) -> NDArray[np.int64]:
        """When each step of `topic` was captured, int64 [T] ns; -1 where a camera has no frame."""
        if topic not in self.tracks.topics:
            raise BadInput(f"{self.uri}: no topic '{topic}'; its topics: {', '.join(self.tracks.topics)}")
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
            event_of(f"{self.uri}: {topic}", message.log_ns, message.data)
            for topic in topics
            for message in self.file.messages(topic)
        ]

    def extra_topics(self) -> tuple[ExtraTopic, ...]:
        """The topics that no pattern reads, as they were declared."""
        found = [topic for topic in self.file.topics if topic.metadata.get("group") == EXTRA_GROUP]
        return tuple(without_group(topic) for topic in found)

    def extra_messages(self, topic: str) -> Iterator[StoredMessage]:
        """The messages of an extra topic as they came, in order of log time. Raises BadInput if it is none."""
        known = [extra.topic for extra in self.extra_topics()]
        if topic not in known:
            raise BadInput(
                f"{self.uri}: no extra topic '{topic}'; its extra topics: {', '.join(known) or 'none'}"
            )
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
            frames = GopFrames(packets, self.counters, what)
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

    def __enter__(self) -> ForeignEpisode:
        """Itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """A copy reopens the file, in whatever process it wakes up."""
        return ForeignEpisode.of, (self.file,)

    def __repr__(self) -> str:
        """What it is, not what is in it."""
        topics = ", ".join(self.tracks.topics)
        return f"ForeignEpisode({self.uri!r}: {self.num_steps} steps at {self.tracks.rate_hz:g} Hz; {topics})"

    @cached_property
    def _grid_T(self) -> NDArray[np.int64]:
        return grid_times_ns(self.header.start_ns, self.header.rate_hz, self.num_steps)

    @cached_property
    def _step_at(self) -> Mapping[int, int]:
        """The step of each grid time."""
        return {time_ns: step for step, time_ns in enumerate(self._grid_T.tolist())}

    def _checked_steps(self, steps: Steps) -> NDArray[np.int64]:
        steps_N = np.asarray(steps, dtype=np.int64).reshape(-1)
        outside = steps_N[(steps_N < 0) | (steps_N >= self.num_steps)]
        if len(outside):
            raise BadInput(
                f"{self.uri}: step {outside[0]} is outside the episode; expected 0 <= step < {self.num_steps}"
            )
        return steps_N

    def _role(self, role: Role) -> NDArray[np.float32]:
        parts = [self.vector(track.topic) for track in self.tracks.vectors if track.role == role]
        joined = np.hstack(parts) if parts else np.empty((self.num_steps, 0), np.float32)
        joined.flags.writeable = False
        return joined

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
        for step, message in self._on_grid(topic, steps):
            packet, unit = video_packet(f"{what}, step {step}", message.data)
            if not packets and not unit.is_idr:
                raise CorruptEpisode(
                    f"{what}: its first frame, step {step}, is no keyframe; ingest the recording"
                )
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


def _index_holds(file: ForeignFile) -> bool:
    """Whether the file has our index, and the index names the chunks that the file has.

    A tool that copies attachments copies the index too, with the places of the old file.
    """
    place = file.contents.attachments.get(INDEX_NAME)
    if place is None:
        return False
    (record,) = file.source.read([(place.offset, place.offset + place.length)])
    index = EpisodeIndex.from_bytes(attachment_data(file.uri, record, place), uri=file.uri)
    named = {
        (offset, length)
        for table in index.chunks.values()
        for offset, length in zip(table.offset_K.tolist(), table.length_K.tolist(), strict=True)
    }
    return named == {(chunk.offset, chunk.length) for chunk in file.contents.chunks}
