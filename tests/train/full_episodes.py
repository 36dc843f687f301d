"""Episodes with every topic group, gaps and odd layouts, and everything that was put into them.

Array axes: T steps, H W pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
from episode_samples import CAMERAS, START_NS, VECTORS, header, paint, vectors_of
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import EpisodeHeader, grid_times_ns
from dyna_train.episode.schemas import Event
from dyna_train.episode.sparse import StoredMessage
from dyna_train.episode.tracks import CameraTrack, DepthTrack, VectorTrack
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter, ExtraTopic, Vector
from dyna_train.video.encode import Quality

MISSING_NS = -1
DEPTHS = (DepthTrack("top", 32, 24), DepthTrack("wrist", 15, 7, unit_m=0.00025))
EXTRAS = (
    ExtraTopic("/lidar", "x-cloud", "Cloud", "x-cloud", b"\0\xffany", {"frame": "base", "é": "ü"}),
    ExtraTopic("/imu", "x-cloud", "Cloud", "x-cloud", b"\0\xffany"),
    ExtraTopic("/log", "json"),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Script:
    """What goes into an episode. has_T: by topic of cameras and depths, bool [T], whether a step has a frame."""

    header: EpisodeHeader
    layout: EpisodeLayout
    has_T: Mapping[str, NDArray[np.bool_]]
    events: Sequence[Event] = ()
    extras: Sequence[ExtraTopic] = ()
    extra_messages: Sequence[tuple[str, StoredMessage]] = ()
    seed: int = 0

    def __repr__(self) -> str:
        """Short: hypothesis prints it with every failure."""
        tracks = ", ".join(f"{topic} {has_T.astype(int)}" for topic, has_T in self.has_T.items())
        return f"Script({self.header.num_steps} steps, {self.layout}, {tracks}, {self.events}, {self.extras})"

    @cached_property
    def vectors(self) -> dict[str, Vector]:
        return vectors_of(self.header, self.seed)

    @cached_property
    def capture_ns(self) -> dict[str, NDArray[np.int64]]:
        """By topic, int64 [T]: cameras and depths 1 ms later each, -1 in their gaps."""
        grid_T = grid_times_ns(self.header.start_ns, self.header.rate_hz, self.header.num_steps)
        tracks = [*self.header.cameras, *self.header.depths]
        seen = {
            track.topic: np.where(self.has_T[track.topic], grid_T + 1_000_000 * number, MISSING_NS)
            for number, track in enumerate(tracks)
        }
        return seen | {topic: capture_T for topic, (_, capture_T) in self.vectors.items()}

    def depth(self, track: DepthTrack) -> NDArray[np.uint16]:
        """Its pictures, uint16 [T, H, W]: any value there is."""
        return self._depths[track.topic]

    @cached_property
    def _depths(self) -> dict[str, NDArray[np.uint16]]:
        rng = np.random.default_rng(self.seed)
        num_steps = self.header.num_steps
        return {
            track.topic: rng.integers(0, 1 << 16, (num_steps, track.height, track.width), np.uint16)
            for track in self.header.depths
        }

    def write(self, path: Path, *, by_step: bool = False) -> EpisodeFile:
        """One track after the other, or (by_step) one step of all after the other."""
        with EpisodeWriter.create(
            path,
            self.header,
            self.layout,
            quality=Quality(18),
            vectors=self.vectors,
            events=self.events,
            extras=self.extras,
        ) as writer:
            for topic, message in self.extra_messages[::2]:
                writer.add_extra(topic, message.log_ns, message.publish_ns, message.data, message.sequence)
            tracks = [*enumerate(self.header.cameras), *((None, depth) for depth in self.header.depths)]
            steps = range(self.header.num_steps)
            turns = product(steps, tracks) if by_step else ((step, t) for t, step in product(tracks, steps))
            for step, (number, track) in turns:
                self._feed(writer, step, number, track)
            for topic, message in self.extra_messages[1::2]:
                writer.add_extra(topic, message.log_ns, message.publish_ns, message.data, message.sequence)
            return writer.finish()

    def _feed(
        self, writer: EpisodeWriter, step: int, number: int | None, track: CameraTrack | DepthTrack
    ) -> None:
        is_there, capture_ns = self.has_T[track.topic][step], int(self.capture_ns[track.topic][step])
        if isinstance(track, DepthTrack):
            if is_there:
                writer.add_depth(track.name, self.depth(track)[step], capture_ns)
            else:
                writer.skip_depth(track.name)
        elif is_there:
            writer.add_frame(track.name, paint(step, number, track.width, track.height), capture_ns)
        else:
            writer.skip_steps(track.name)

    def messages_of(self, topic: str) -> list[StoredMessage]:
        """The messages of an extra topic in the order they were handed in."""
        fed = [*self.extra_messages[::2], *self.extra_messages[1::2]]
        return [message for name, message in fed if name == topic]


def full_script(num_steps: int = 40) -> Script:
    """Three cameras, two depth cameras, vectors, events, extras; gaps at the start, end, inside, whole GOPs."""
    described = replace(header(num_steps), depths=DEPTHS)
    has_T = {track.topic: np.ones(num_steps, bool) for track in (*CAMERAS, *DEPTHS)}
    has_T[CAMERAS[1].topic][10:27] = False  # GOP 2 and 3 whole, a part of GOP 1 and 4
    has_T[CAMERAS[2].topic][:3] = has_T[CAMERAS[2].topic][num_steps - 2 :] = False
    has_T[DEPTHS[1].topic][5] = False
    rng = np.random.default_rng(3)
    messages = [
        (name, StoredMessage(START_NS + 10**7 * k, START_NS + k, k % 7, rng.bytes(60)))
        for k in range(100)
        for name in ("/lidar", "/imu")
    ]
    return Script(
        header=described,
        layout=EpisodeLayout(gop=6, gops_per_chunk=2, steps_per_block=24),
        has_T=has_T,
        events=[
            Event(time_ns, f"grasp {k}", {"k": k, "wo": "größe"}, time_ns + 9 if k % 2 else None)
            for k, time_ns in enumerate(range(START_NS, START_NS + 12 * 10**8, 10**8))
        ],
        extras=EXTRAS,
        extra_messages=messages,
    )


@st.composite
def gaps(draw: st.DrawFn, num_steps: int, gop: int) -> NDArray[np.bool_]:
    """Where a camera has frames, bool [T]: everywhere, nowhere, or not in a few stretches of any kind."""
    has_T = np.ones(num_steps, bool)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, num_steps - 1))
        length = draw(st.sampled_from([1, gop - 1, gop, 2 * gop, 3 * gop, num_steps]))
        aligned = draw(st.booleans())
        start -= start % gop if aligned else 0
        has_T[start : start + length] = False
    return has_T


@st.composite
def layouts(draw: st.DrawFn) -> EpisodeLayout:
    gop = draw(st.integers(1, 8))
    gops_per_chunk = draw(st.integers(1, 3))
    return EpisodeLayout(gop, gops_per_chunk, gop * gops_per_chunk * draw(st.integers(1, 3)))


@st.composite
def scripts(draw: st.DrawFn, *, max_steps: int = 30, min_cameras: int = 0) -> Script:
    """Any episode that an episode file can hold, small."""
    num_steps = draw(st.integers(1, max_steps))
    layout = draw(layouts())
    sizes = st.tuples(st.integers(63, 70), st.integers(24, 31))
    cameras = [CameraTrack(f"c{k}", *draw(sizes)) for k in range(draw(st.integers(min_cameras, 3)))]
    depth_sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))
    depths = [DepthTrack(f"d{k}", *draw(depth_sizes)) for k in range(draw(st.integers(0, 2)))]
    vectors: Sequence[VectorTrack] = draw(
        st.sampled_from([VECTORS, VECTORS[:1]] + [()] * bool(cameras or depths))
    )
    rate_hz = draw(st.sampled_from([7.5, 30.0, 50.0, 100 / 3, 29.97]))
    described = replace(
        header(num_steps, cameras, rate_hz=rate_hz), vectors=tuple(vectors), depths=tuple(depths)
    )
    last_ns = int(grid_times_ns(START_NS, rate_hz, num_steps)[-1])
    times = st.integers(START_NS - 10**9, last_ns + 10**9)
    values = st.one_of(
        st.none(), st.integers(-5, 5), st.text(max_size=4), st.lists(st.booleans(), max_size=2)
    )
    said = st.dictionaries(st.text(max_size=3), values, max_size=2)
    other_ns = st.none() | st.integers(0, START_NS - 2 * 10**9)  # never one of `times`
    events = draw(st.lists(st.builds(Event, times, st.text(max_size=5), said, other_ns), max_size=4))
    extras = draw(st.lists(st.sampled_from(EXTRAS), max_size=3, unique_by=lambda extra: extra.topic))
    any_ns = st.integers(0, 2**63 - 1)
    message = st.builds(StoredMessage, any_ns, any_ns, st.integers(0, 2**32 - 1), st.binary(max_size=20))
    topics = [extra.topic for extra in extras]
    messages = draw(st.lists(st.tuples(st.sampled_from(topics), message), max_size=6)) if topics else []
    return Script(
        header=described,
        layout=layout,
        has_T={track.topic: draw(gaps(num_steps, layout.gop)) for track in (*cameras, *depths)},
        events=events,
        extras=extras,
        extra_messages=messages,
        seed=draw(st.integers(0, 9)),
    )


def in_time_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.time_ns)
