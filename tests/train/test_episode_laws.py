"""Laws of the episode file: whatever goes in comes back, by every way of reading there is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import av
import numpy as np
import pytest
from episode_samples import CAMERAS, LAYOUT, START_NS, VECTORS, header, paint, read_painting, vectors_of
from fsspec.implementations.memory import MemoryFileSystem
from full_episodes import DEPTHS, EXTRAS, Script, full_script, in_time_order, scripts
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader

from dyna_train.episode.index import GopTable
from dyna_train.episode.reader import Episode
from dyna_train.episode.schemas import parse_video
from dyna_train.episode.source import REMOTE_STORE, merge_ranges
from dyna_train.episode.span import fetch
from dyna_train.episode.tracks import DepthTrack, Tracks
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter
from dyna_train.errors import MissingFrame
from dyna_train.video.encode import Quality


def open_both_ways(script: Script, made: EpisodeFile) -> Iterator[Episode]:
    """By the file's end, and by what travels beside a manifest."""
    with Episode.open(made.path) as episode:
        yield episode
    tracks = Tracks.from_json(script.header.tracks.to_json())
    table = GopTable.from_bytes(made.gop_table, uri="manifest")
    with Episode.open_at(made.path, tracks, table) as episode:
        yield episode


def assert_holds_what_went_in(episode: Episode, script: Script) -> None:
    steps = np.arange(script.header.num_steps)
    for number, camera in enumerate(script.header.cameras):
        has_T = script.has_T[camera.topic]
        assert np.array_equal(episode.has_frame(camera.name), has_T)
        frames = episode.frames(camera.name, steps[has_T])
        assert frames.shape == (has_T.sum(), camera.height, camera.width, 3)
        assert [read_painting(frame) for frame in frames] == [(step, number) for step in steps[has_T]]
        for step in steps[~has_T][:2].tolist():
            with pytest.raises(MissingFrame, match=rf"camera {camera.name} has no frame at step {step}"):
                episode.frames(camera.name, [step])
    (span,) = fetch([episode.plan(frame_steps=steps, state_steps=steps, depth_steps=steps)])
    for depth in script.header.depths:
        has_T = script.has_T[depth.topic]
        assert np.array_equal(span.depth(depth.name, steps[has_T]), script.depth(depth)[has_T])
    for topic, (values_TD, _) in script.vectors.items():
        assert np.array_equal(episode.vector(topic), values_TD)
    for topic, capture_T in script.capture_ns.items():
        assert np.array_equal(episode.capture_ns(topic), capture_T), topic
    assert np.array_equal(span.state(steps), episode.state_TD)
    assert np.array_equal(span.action(steps), episode.action_TA)
    assert episode.events() == in_time_order(script.events)
    assert episode.extra_topics() == tuple(script.extras)
    for extra in script.extras:
        assert list(episode.extra_messages(extra.topic)) == script.messages_of(extra.topic)
    assert episode.header == script.header
    assert (episode.tracks, episode.layout) == (script.header.tracks, script.layout)


def test_a_reader_with_the_tracks_alone_knows_the_channel_of_every_topic(tmp_path):
    script = full_script()
    with open(script.write(tmp_path / "e.mcap").path, "rb") as stream:
        summary = make_reader(stream).get_summary()
    ids = {channel.topic: channel.id for channel in summary.channels.values()}
    tracks = script.header.tracks
    assert {topic: tracks.channel_id(topic) for topic in tracks.topics} == {
        topic: ids[topic] for topic in tracks.topics
    }


def test_an_episode_with_every_group_and_gaps_comes_back_as_it_went_in(tmp_path):
    script = full_script()
    made = script.write(tmp_path / "e.mcap")
    for episode in open_both_ways(script, made):
        assert_holds_what_went_in(episode, script)


@given(script=scripts())
@settings(max_examples=60)
def test_any_episode_comes_back_as_it_went_in_by_its_end_and_by_its_table(script, tmp_path_factory):
    made = script.write(tmp_path_factory.mktemp("law") / "e.mcap")
    for episode in open_both_ways(script, made):
        assert_holds_what_went_in(episode, script)


@given(script=scripts(max_steps=20))
@settings(max_examples=20)
def test_equal_input_gives_equal_bytes_whatever_pace_its_tracks_have(script, tmp_path_factory):
    folder = tmp_path_factory.mktemp("equal")
    made = script.write(folder / "one.mcap")
    again = script.write(folder / "two.mcap", by_step=True)
    assert again.sha256 == made.sha256
    assert (folder / "two.mcap").read_bytes() == (folder / "one.mcap").read_bytes()
    assert again.gop_table == made.gop_table


def decode_in_sequence(path: Path, topic: str, height: int, width: int) -> dict[int, np.ndarray]:
    """Every frame of a camera by its step: the stock reader and one decoder that never stops."""
    decoder = av.CodecContext.create("h264", "r")
    frames = {}
    with path.open("rb") as stream:
        for _, _, message in make_reader(stream).iter_messages([topic]):
            packet = av.Packet(bytes(parse_video(message.data).data))
            packet.pts = message.sequence
            for frame in decoder.decode(packet):
                frames[frame.pts] = frame.to_ndarray(format="rgb24")[:height, :width]
        for frame in decoder.decode(None):
            frames[frame.pts] = frame.to_ndarray(format="rgb24")[:height, :width]
    return frames


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> tuple[Script, EpisodeFile]:
    script = full_script(50)
    return script, script.write(tmp_path_factory.mktemp("full") / "full.mcap")


@pytest.fixture(scope="module")
def in_sequence(full) -> dict[str, dict[int, np.ndarray]]:
    script, made = full
    return {
        camera.name: decode_in_sequence(made.path, camera.topic, camera.height, camera.width)
        for camera in script.header.cameras
    }


def most_decoded(steps: set[int], has_T: np.ndarray, gop: int) -> int:
    """Frames of one camera from each keyframe up to the last wanted one of its GOP."""
    last = {step // gop: step for step in sorted(steps)}
    return sum(int(has_T[number * gop : step + 1].sum()) for number, step in last.items())


@given(
    offsets=st.lists(st.integers(-4, 24), min_size=1, max_size=8, unique=True),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=12)
def test_every_window_of_every_anchor_equals_a_decode_in_sequence_bit_for_bit(
    full, in_sequence, offsets, seed
):
    """Eight windows a span, in any order, of all cameras; and no frame is decoded twice or for nothing."""
    script, made = full
    rng = np.random.default_rng(seed)
    anchors = rng.permutation(script.header.num_steps)
    with Episode.open(made.path) as episode:
        for eight in np.array_split(anchors, range(8, len(anchors), 8)):
            windows_AN = np.clip(eight[:, None] + np.array(offsets), 0, script.header.num_steps - 1)
            (span,) = fetch([episode.plan(frame_steps=windows_AN.ravel(), state_steps=windows_AN.ravel())])
            before = episode.counters.decoded
            bound = 0
            for camera in script.header.cameras:
                has_T = script.has_T[camera.topic]
                bound += most_decoded(set(windows_AN[has_T[windows_AN]].tolist()), has_T, script.layout.gop)
            reads = [(camera, row) for camera in script.header.cameras for row in range(len(eight))]
            for number in rng.permutation(len(reads)).tolist():
                camera, row = reads[number]
                steps = windows_AN[row][script.has_T[camera.topic][windows_AN[row]]]
                expected = [in_sequence[camera.name][step] for step in steps.tolist()]
                assert np.array_equal(span.frames(camera.name, steps), expected) or not expected
                assert np.array_equal(span.state(windows_AN[row]), episode.state_TD[windows_AN[row]])
            assert episode.counters.decoded - before <= bound


@given(data=st.data())
@settings(max_examples=25)
def test_fetching_many_plans_of_many_files_together_equals_reading_them_one_by_one(
    data, full, tmp_path_factory
):
    script, made = full
    with Episode.open(made.path) as one, Episode.open(made.path) as other:
        steps = st.lists(st.integers(0, script.header.num_steps - 1), max_size=6)
        wanted = data.draw(st.lists(st.tuples(st.booleans(), steps, steps, steps), min_size=1, max_size=5))
        plans = [
            (one if first else other).plan(frame_steps=f, state_steps=s, depth_steps=d)
            for first, f, s, d in wanted
        ]
        for plan, span, (_, frame_steps, state_steps, depth_steps) in zip(
            plans, fetch(plans), wanted, strict=True
        ):
            (alone,) = fetch([plan])
            assert (span.num_bytes, alone.num_bytes) == (sum(e - s for s, e in plan.ranges),) * 2
            assert np.array_equal(span.frames("top", frame_steps), alone.frames("top", frame_steps))
            assert np.array_equal(span.state(state_steps), alone.state(state_steps))
            assert np.array_equal(span.action(state_steps), one.action_TA[state_steps])
            assert np.array_equal(span.depth("top", depth_steps), alone.depth("top", depth_steps))
            assert np.array_equal(span.depth("top", depth_steps), script.depth(DEPTHS[0])[depth_steps])


class CountingStore(MemoryFileSystem):
    """A store in memory that remembers what it was asked for."""

    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int | None, int | None]] = []

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        self.asked.append((path, start, end))
        return super().cat_file(path, start=start, end=end, **kwargs)


FAR_BYTES = REMOTE_STORE.gap_bytes + 100_000


@pytest.fixture(scope="module")
def scattered(tmp_path_factory) -> tuple[CountingStore, EpisodeFile]:
    """Two equal files whose second half lies farther from the first than it pays to read along."""
    described = header(48, CAMERAS[:2])
    path = tmp_path_factory.mktemp("scattered") / "far.mcap"
    with EpisodeWriter.create(
        path, described, LAYOUT, quality=Quality(18), vectors=vectors_of(described), extras=EXTRAS[:1]
    ) as writer:
        for half in (range(24), range(24, 48)):
            for number, camera in enumerate(described.cameras):
                for step in half:
                    writer.add_frame(camera.name, paint(step, number, camera.width, camera.height), START_NS)
            if (
                half.start == 0
            ):  # frames wait in the encoder: this stands before the chunk of step 24 at the latest
                writer.add_extra("/lidar", START_NS, START_NS, np.random.default_rng(0).bytes(FAR_BYTES))
        made = writer.finish()
    store = CountingStore()
    for name in ("a", "b"):
        store.pipe_file(f"/{name}.mcap", path.read_bytes())
    return store, made


@given(data=st.data())
@settings(max_examples=40)
def test_a_batch_asks_a_store_for_as_few_ranges_as_its_gaps_allow(scattered, data):
    store, _ = scattered
    episodes = [Episode.open(f"{name}.mcap", fs=store) for name in ("a", "b")]
    steps = st.lists(st.integers(0, 47), max_size=4)
    wanted = data.draw(st.lists(st.tuples(st.integers(0, 1), steps, steps), min_size=1, max_size=6))
    plans = [episodes[file].plan(frame_steps=f, state_steps=s) for file, f, s in wanted]
    expected = []
    for file, name in enumerate(("a.mcap", "b.mcap")):
        ranges = [
            part for plan, (of, *_) in zip(plans, wanted, strict=True) if of == file for part in plan.ranges
        ]
        expected += [(name, start, end) for start, end in merge_ranges(ranges, REMOTE_STORE.gap_bytes)]
    store.asked.clear()
    before = [episode.counters.requests for episode in episodes]
    fetch(plans)
    assert sorted(store.asked) == sorted(expected)
    assert sum(e.counters.requests - b for e, b in zip(episodes, before, strict=True)) == len(expected)


def test_near_pieces_are_one_request_and_far_ones_two_a_file(scattered):
    store, _ = scattered
    a, b = (Episode.open(f"{name}.mcap", fs=store) for name in ("a", "b"))
    for plans, requests in [
        ([a.plan(frame_steps=[0, 11], state_steps=range(24))], 1),
        ([a.plan(frame_steps=[0, 47], state_steps=[0, 47])], 2),
        ([a.plan(frame_steps=[0, 47]), a.plan(state_steps=[1]), b.plan(frame_steps=[3])], 3),
        ([a.plan()], 0),
    ]:
        store.asked.clear()
        fetch(plans)
        assert len(store.asked) == requests


def test_no_steps_of_any_group_are_an_empty_answer_whatever_the_span_holds(full):
    _, made = full
    with Episode.open(made.path) as episode:
        (span,) = fetch([episode.plan()])
    assert span.frames("top", []).shape == (0, 48, 64, 3)
    assert span.depth("top", []).shape == (0, 24, 32)
    assert (span.state([]).shape, span.action([]).shape) == ((0, 4), (0, 2))


def test_depth_chunks_stand_among_the_video_of_their_time_whatever_pace_the_tracks_have(tmp_path):
    """A depth camera that is fed after the others must not end up behind all video."""
    described = replace(header(48, CAMERAS[:1], VECTORS[:1]), depths=(DepthTrack("far", 640, 480),))
    script = Script(
        header=described, layout=LAYOUT, has_T={topic: np.ones(48, bool) for topic in described.topics}
    )
    made = script.write(tmp_path / "one.mcap")
    again = script.write(tmp_path / "two.mcap", by_step=True)
    for file in (made, again):
        with Episode.open(file.path) as episode:
            starts = {group: table.offset_K.tolist() for group, table in episode.index.chunks.items()}
            firsts = {group: table.first_step_K.tolist() for group, table in episode.index.chunks.items()}
        placed = sorted(
            (at, group, step)
            for group in starts
            for at, step in zip(starts[group], firsts[group], strict=True)
        )
        assert placed[-1][1] == "depth" and firsts["depth"] == list(range(0, 48, 6))
        videos = [at for at, group, _ in placed if group == "video"]
        assert starts["depth"][0] < videos[1], [place[1:] for place in placed]
    assert again.sha256 == made.sha256


ENCODED = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from episode_samples import *
from dyna_train.video.encode import CameraEncoder
encoder = CameraEncoder("top", 320, 240, rate_hz=30.0, gop=3, quality=Quality(18))
packets = [packet for step in range(6) for packet in encoder.encode(paint(step, 0, 320, 240), step)]
print(hashlib.sha256(b"".join(packets + encoder.flush())).hexdigest())
"""


def test_encoded_bytes_do_not_depend_on_what_stood_in_memory_before(tmp_path):
    """x264's AVX-512 code reads memory it never wrote where a row has no multiple of 8 macroblocks."""
    found = set()
    for fill in ("0", "1", "2", "200"):
        done = subprocess.run(
            [sys.executable, "-c", ENCODED, str(Path(__file__).parent)],
            env={**os.environ, "MALLOC_PERTURB_": fill},  # glibc fills new memory with it
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1
