"""Read an episode file by its index: vectors, capture times, frames of any steps.

Array axes: T steps, D state dimensions, A action dimensions, N asked frames, H W pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import fsspec
import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.arrays import unpack_arrays
from dyna_train.episode.base import EpisodeBase
from dyna_train.episode.channels import ExtraTopic
from dyna_train.episode.index import CAPTURE_NAME, EpisodeIndex, GopTable
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import DEPTH_GROUP, STATE_GROUP, VIDEO_GROUP, EpisodeHeader, grid_times_ns
from dyna_train.episode.schemas import Event
from dyna_train.episode.source import ByteSource, ReadCounters, open_source
from dyna_train.episode.span import Output, Piece, ReadPlan, Span, Steps, fetch
from dyna_train.episode.sparse import StoredMessage, read_events, read_extra_messages, read_extra_topics
from dyna_train.episode.tail import Tail, attachment_data, read_tail
from dyna_train.episode.tracks import Tracks
from dyna_train.errors import EpisodeError
from dyna_train.video.pixels import FrameConverter


class Episode(EpisodeBase):
    """An open episode file.

    Holds one file handle and, after the first use, the vectors. Picklable: a copy reopens the file. May be
    used in forked and spawned workers, by one thread at a time.
    """

    def __init__(
        self,
        source: ByteSource,
        tracks: Tracks,
        table: GopTable,
        tail: Tail | None,
        fs: fsspec.AbstractFileSystem | None,
    ) -> None:
        self.uri = source.uri
        self.tracks = tracks
        self.table = table
        self._source = source
        self._tail = tail
        self._fs = fs
        self._converters = {track.name: FrameConverter() for track in tracks.cameras}
        self._span: Span | None = None
        """That of the last call of `frames`: the other cameras of the same steps lie in it."""

    @classmethod
    def open(cls, uri: str | Path, fs: fsspec.AbstractFileSystem | None = None) -> Episode:
        """Open the file at `uri` by one read of its tail; a plain path is a local file.

        Raises TruncatedEpisode, CorruptEpisode, or EpisodeError for an absent file or one of another kind.
        """
        source = open_source(uri, fs)
        try:
            tail = read_tail(source)
        except EpisodeError:
            source.close()
            raise
        return cls(source, tail.header.tracks, tail.index.gop_table, tail, fs)

    @classmethod
    def open_at(
        cls, uri: str | Path, tracks: Tracks, table: GopTable, fs: fsspec.AbstractFileSystem | None = None
    ) -> Episode:
        """Open the file at `uri` whose tracks and GOP table are known; reads nothing.

        What only the end of the file knows (header, index, capture times) is read when it is asked for.
        """
        return cls(open_source(uri, fs), tracks, table, None, fs)

    @property
    def header(self) -> EpisodeHeader:
        """What the file says of itself."""
        return self._known_tail.header

    @property
    def index(self) -> EpisodeIndex:
        """Where every single frame lies."""
        return self._known_tail.index

    @property
    def counters(self) -> ReadCounters:
        """What reading cost since the file was opened."""
        return self._source.counters

    @property
    def layout(self) -> EpisodeLayout:
        """GOP, chunk and block lengths in steps."""
        return self.table.layout

    @property
    def num_steps(self) -> int:
        """Steps of the grid."""
        return self.table.num_steps

    def vector(self, topic: str) -> NDArray[np.float32]:
        """The vector topic `topic` (`/state/<name>`), float32 [T, D]; read-only.

        Raises BadInput for an unknown topic, CorruptEpisode naming the damaged block.
        """
        number = self.tracks.vector(topic, where=self.uri)
        first = sum(track.dim for track in self.tracks.vectors[:number])
        return self._vectors_TD[:, first : first + self.tracks.vectors[number].dim]

    def capture_ns(self, topic: str) -> NDArray[np.int64]:
        """When each step of `topic` (`/camera/<name>/video`, `/state/<name>`) was captured, int64 [T] ns.

        -1 where a camera has no frame. Raises BadInput for an unknown topic, CorruptEpisode if the record of the
        times is damaged.
        """
        self._check_topic(topic)
        return self._capture_ns[topic]

    def has_frame(self, camera: str) -> NDArray[np.bool_]:
        """Whether camera `camera` (a name) has a frame at each step, bool [T]."""
        present: NDArray[np.bool_] = self.index.frame_bytes_NT[self.tracks.camera(camera, where=self.uri)] > 0
        return present

    def events(self) -> list[Event]:
        """What happened, in order of time. Raises CorruptEpisode naming the damaged chunk."""
        return read_events(self._source, self._known_tail)

    def extra_topics(self) -> tuple[ExtraTopic, ...]:
        """The topics that no pattern reads, as they were declared."""
        return read_extra_topics(self._known_tail)

    def extra_messages(self, topic: str) -> Iterator[StoredMessage]:
        """The messages of an extra topic as they came, in file order; holds one chunk of about 1 MB.

        Raises BadInput for a topic that is none, CorruptEpisode naming the damaged chunk.
        """
        return read_extra_messages(self._source, self._known_tail, topic)

    def frames(
        self,
        camera: str,
        steps: Steps,
        size: tuple[int, int] | None = None,
        *,
        output: Output = "rgb",
        out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """Frames of camera `camera` (a name) at `steps`, RGB uint8 [N, H, W, 3] or planes; see `Span.frames`.

        Each GOP they touch is read and checked whole, and decoded once, up to its last wanted frame; decoded
        frames are not kept. Raises BadInput for an unknown camera or step, MissingFrame in a gap,
        CorruptEpisode naming camera and GOP.
        """
        self.tracks.camera(camera, where=self.uri)
        plan = replace(self.plan(frame_steps=steps), frame_steps=frozenset())
        if self._span is None or not self._span.holds(plan.pieces):
            (self._span,) = fetch([plan])
        frames = self._span.frames(camera, steps, size, output=output, out=out)
        self._span.drop_frames()
        return frames

    def plan(self, *, frame_steps: Steps = (), state_steps: Steps = (), depth_steps: Steps = ()) -> ReadPlan:
        """What a read of these steps needs of the file, for `fetch`: frames of all cameras, all vectors.

        A span holds the GOPs of the steps whole, and keeps the decoded frames of just these steps.
        Raises BadInput for a step outside the episode.
        """
        pieces: list[Piece] = []
        frame_steps_N = self._checked_steps(frame_steps)
        asked = (
            (VIDEO_GROUP, frame_steps_N),
            (STATE_GROUP, self._checked_steps(state_steps)),
            (DEPTH_GROUP, self._checked_steps(depth_steps)),
        )
        for group, steps_N in asked:
            if len(steps_N) and group in self.table.groups:
                pieces += [(group, piece) for piece in self.table.groups[group].of_steps(steps_N)]
        planned = frozenset(frame_steps_N.tolist())
        return ReadPlan(self._source, self.tracks, self.table, self._converters, tuple(pieces), planned)

    def close(self) -> None:
        """Release the file handle."""
        self._source.close()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """A copy reopens the file, in whatever process it wakes up."""
        if self._tail is None:
            return Episode.open_at, (self.uri, self.tracks, self.table, self._fs)
        return Episode.open, (self.uri, self._fs)

    @property
    def _known_tail(self) -> Tail:
        if self._tail is None:
            self._tail = read_tail(self._source)
        return self._tail

    @cached_property
    def _vectors_TD(self) -> NDArray[np.float32]:
        """Every vector topic side by side, read once: they share their blocks, and a minute is small."""
        steps_T = np.arange(self.num_steps)
        (span,) = fetch([self.plan(state_steps=steps_T)])
        values_TD = span.vectors(steps_T, range(len(self.tracks.vectors)))
        values_TD.flags.writeable = False  # shared by everybody who asks
        return values_TD

    @cached_property
    def _capture_ns(self) -> Mapping[str, NDArray[np.int64]]:
        place = self._known_tail.attachments[CAPTURE_NAME]
        (record,) = self._source.read([(place.offset, place.offset + place.length)])
        _, skew = unpack_arrays(attachment_data(self.uri, record, place), what=f"{self.uri}: {CAPTURE_NAME}")
        grid_T = grid_times_ns(self.header.start_ns, self.tracks.rate_hz, self.num_steps)
        times = {topic: grid_T + skew_T for topic, skew_T in skew.items()}
        for capture_T in times.values():
            capture_T.flags.writeable = False  # shared by everybody who asks
        return times
