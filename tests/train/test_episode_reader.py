from __future__ import annotations

import multiprocessing
import os
import pickle
from itertools import pairwise
from pathlib import Path

import fsspec
import numpy as np
import pytest
from episode_samples import (
    CAMERAS,
    VECTORS,
    camera_capture_ns,
    header,
    read_painting,
    vectors_of,
    write_painted,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import grid_times_ns
from dyna_train.episode.reader import Episode
from dyna_train.episode.source import merge_ranges
from dyna_train.episode.tracks import VectorTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.errors import BadInput, EpisodeError
from dyna_train.video.encode import Quality

NUM_STEPS = 50


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("episode") / "painted.mcap"
    write_painted(path, NUM_STEPS)
    return path


@pytest.fixture(scope="module")
def episode(path):
    with Episode.open(path) as episode:
        yield episode


def paintings(episode: Episode, camera: int, steps, size=None) -> list[tuple[int, int]]:
    frames = episode.frames(episode.header.cameras[camera].name, steps, size)
    return [read_painting(frame) for frame in frames]


@pytest.mark.parametrize("camera", range(len(CAMERAS)))
def test_every_step_of_every_camera_reads_back_the_step_painted_into_it(episode, camera):
    assert paintings(episode, camera, range(NUM_STEPS)) == [(step, camera) for step in range(NUM_STEPS)]
    for step in range(NUM_STEPS):
        assert paintings(episode, camera, [step]) == [(step, camera)]


@given(camera=st.integers(0, 2), steps=st.lists(st.integers(0, NUM_STEPS - 1), max_size=12))
@settings(max_examples=60)
def test_any_list_of_steps_gives_those_frames_in_that_order(path, camera, steps):
    with Episode.open(path) as episode:
        frames = episode.frames(CAMERAS[camera].name, steps)
        assert frames.shape == (len(steps), CAMERAS[camera].height, CAMERAS[camera].width, 3)
        assert frames.dtype == np.uint8
        assert [read_painting(frame) for frame in frames] == [(step, camera) for step in steps]


@given(steps=st.sets(st.integers(0, NUM_STEPS - 1), min_size=1, max_size=8))
@settings(max_examples=30)
def test_a_subset_of_steps_equals_the_plain_decode_bit_for_bit(episode, steps):
    everything = episode.frames("left.wrist", range(NUM_STEPS))
    wanted = sorted(steps)
    assert np.array_equal(episode.frames("left.wrist", wanted), everything[wanted])


@pytest.mark.parametrize("num_steps", [1, 2, 5, 6, 7, 12, 13, 24, 25])
def test_episodes_of_any_length_read_back_whole(tmp_path, num_steps):
    described, _ = write_painted(tmp_path / "e.mcap", num_steps)
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert (episode.header, episode.num_steps) == (described, num_steps)
        for camera in range(3):
            assert paintings(episode, camera, range(num_steps)) == [(s, camera) for s in range(num_steps)]
        for topic, (values_TD, capture_T) in vectors_of(described).items():
            assert np.array_equal(episode.vector(topic), values_TD)
            assert np.array_equal(episode.capture_ns(topic), capture_T)


def test_the_header_reads_back_as_it_was_with_its_quality_completed(episode):
    assert episode.header.quality == {"before": "pass", "after": "pass"}
    assert episode.header.vectors == VECTORS
    assert episode.header.cameras == CAMERAS
    assert episode.layout == EpisodeLayout(6, 2, 24)


def test_state_and_action_are_their_topics_side_by_side_in_header_order(episode):
    vectors = vectors_of(header(NUM_STEPS))
    assert np.array_equal(
        episode.state_TD, np.hstack([vectors["/state/arm"][0], vectors["/state/gripper"][0]])
    )
    assert np.array_equal(episode.action_TA, vectors["/action/arm"][0])
    assert episode.state_TD.dtype == np.float32


def test_shared_vectors_cannot_be_changed_by_one_of_their_users(episode):
    with pytest.raises(ValueError, match="read-only"):
        episode.state_TD[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        episode.vector("/action/arm")[0] = 0


def test_capture_times_of_cameras_and_vectors_read_back(episode):
    described = header(NUM_STEPS)
    for number, camera in enumerate(CAMERAS):
        assert np.array_equal(episode.capture_ns(camera.topic), camera_capture_ns(described, number))
    with pytest.raises(BadInput, match="no topic '/camera/front/video'; its topics: /camera/top/video"):
        episode.capture_ns("/camera/front/video")


def test_an_episode_without_cameras_keeps_its_vectors(tmp_path):
    described, made = write_painted(tmp_path / "e.mcap", 50, cameras=[])
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert np.array_equal(episode.vector("/state/arm"), vectors_of(described)["/state/arm"][0])
    assert made.video_bytes == {}


def test_an_episode_without_vectors_has_states_of_no_dimensions(tmp_path):
    write_painted(tmp_path / "e.mcap", 13, vectors=[])
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert (episode.state_TD.shape, episode.action_TA.shape) == ((13, 0), (13, 0))
        assert paintings(episode, 1, [12, 0]) == [(12, 1), (0, 1)]


@given(
    data=st.data(), num_steps=st.integers(1, 30), dims=st.lists(st.integers(1, 40), min_size=1, max_size=4)
)
@settings(max_examples=30)
def test_vectors_come_back_bit_for_bit_whatever_floats_they_hold(tmp_path_factory, data, num_steps, dims):
    tracks = [
        VectorTrack(f"v{k}", "action" if k % 2 else "state", tuple(map(str, range(dim))), ("",) * dim)
        for k, dim in enumerate(dims)
    ]
    described = header(num_steps, [], tracks)
    bits = st.integers(0, 2**32 - 1)  # as bits, so that every NaN is among them
    times = st.integers(0, 2**62)
    vectors = {
        track.topic: (
            data.draw(hnp.arrays(np.uint32, (num_steps, track.dim), elements=bits)).view(np.float32),
            data.draw(hnp.arrays(np.int64, num_steps, elements=times)),
        )
        for track in tracks
    }
    path = tmp_path_factory.mktemp("vectors") / "e.mcap"
    with EpisodeWriter.create(
        path, described, EpisodeLayout(3, 2, 12), quality=Quality(18), vectors=vectors
    ) as writer:
        writer.finish()
    with Episode.open(path) as episode:
        for topic, (values_TD, capture_T) in vectors.items():
            assert episode.vector(topic).tobytes() == values_TD.tobytes()
            assert np.array_equal(episode.capture_ns(topic), capture_T)


def test_frames_can_be_resized_on_the_way(episode):
    frames = episode.frames("top", [7, 31], size=(24, 32))
    assert frames.shape == (2, 24, 32, 3)
    assert [read_painting(frame) for frame in frames] == [(7, 0), (31, 0)]
    assert episode.frames("right_wrist", [7], size=(94, 126)).shape == (1, 94, 126, 3)


def test_a_gop_is_decoded_once_and_only_up_to_the_last_wanted_frame(path):
    with Episode.open(path) as episode:
        episode.frames("top", [8, 7, 8, 14])  # GOP 6-11 up to its third frame, GOP 12-17 up to its third
        assert (episode.counters.decoded, episode.counters.kept) == (6, 3)


def test_cameras_of_the_same_steps_share_one_read(path):
    with Episode.open(path) as episode:
        opened = episode.counters.requests
        for camera in CAMERAS:
            episode.frames(camera.name, [13, 14, 20])
        assert (opened, episode.counters.requests) == (1, 2)


def test_opening_a_file_reads_one_tail_of_at_most_64_kib(tmp_path):
    _, made = write_painted(tmp_path / "e.mcap", 700, cameras=CAMERAS[:1])
    assert made.size_bytes > 2 * 64 * 1024
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert (episode.counters.requests, episode.counters.bytes) == (1, 64 * 1024)


def test_a_tail_larger_than_64_kib_takes_one_more_read(tmp_path):
    described, _ = write_painted(
        tmp_path / "e.mcap",
        1300,
        cameras=[],
        layout=EpisodeLayout(gop=1, gops_per_chunk=1, steps_per_block=1),
    )
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert episode.counters.requests == 2
        assert episode.header == described
        assert np.array_equal(episode.vector("/action/arm"), vectors_of(described)["/action/arm"][0])


@pytest.mark.parametrize("steps", [[-1], [0, NUM_STEPS]])
def test_a_step_outside_the_episode_is_refused(episode, steps):
    with pytest.raises(
        BadInput, match=rf"step (-1|50) is outside the episode; expected 0 <= step < {NUM_STEPS}"
    ):
        episode.frames("top", steps)


def test_unknown_cameras_and_topics_are_refused_with_the_known_ones(episode):
    with pytest.raises(BadInput, match=r"no camera 'front'; its cameras: top, left\.wrist, right_wrist"):
        episode.frames("front", [0])
    with pytest.raises(BadInput, match="no vector topic '/state/leg'; its vector topics: /state/arm"):
        episode.vector("/state/leg")


def test_an_absent_file_is_an_episode_error_that_names_it(tmp_path):
    with pytest.raises(EpisodeError, match=r"absent\.mcap: no such episode file"):
        Episode.open(tmp_path / "absent.mcap")
    with pytest.raises(EpisodeError, match=r"memory://absent\.mcap: no such episode file"):
        Episode.open("memory://absent.mcap")


@pytest.fixture
def remote(path):
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/bucket/painted.mcap", path.read_bytes())
    yield "memory://bucket/painted.mcap"
    memory.rm("/bucket", recursive=True)


def test_a_remote_file_reads_as_a_local_one_with_few_requests(episode, remote):
    with Episode.open(remote) as far:
        assert far.counters.requests == 1
        assert far.header == episode.header
        assert np.array_equal(far.state_TD, episode.state_TD)
        assert far.counters.requests == 2  # its blocks lie closer than the merge gap
        assert np.array_equal(far.frames("top", [0, 49]), episode.frames("top", [0, 49]))
        assert far.counters.requests == 3
        assert np.array_equal(far.capture_ns("/state/arm"), episode.capture_ns("/state/arm"))


def test_a_given_filesystem_is_the_one_that_is_read(episode, remote):
    inside = fsspec.filesystem("dir", path="/bucket", fs=fsspec.filesystem("memory"))
    with Episode.open("painted.mcap", fs=inside) as far:
        assert far.header == episode.header
        assert pickle.loads(pickle.dumps(far)).header == episode.header


def test_an_open_episode_holds_one_file_handle_and_a_dropped_one_none(path):
    def handles() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = handles()
    episode = Episode.open(path)
    episode.frames("top", [0])
    assert handles() == before + 1
    del episode
    assert handles() == before


def test_a_pickled_episode_reopens_its_file(path):
    with Episode.open(path) as episode:
        episode.frames("top", [3])
        copy = pickle.loads(pickle.dumps(episode))
    assert paintings(copy, 0, [33]) == [(33, 0)]
    copy.close()


def _paintings_in_a_worker(episode: Episode, results) -> None:
    results.put([*paintings(episode, 1, [0, 17, 49]), (float(episode.state_TD.sum()), 0)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_open_episode_works_in_forked_and_spawned_workers(path, method):
    context = multiprocessing.get_context(method)
    with Episode.open(path) as episode:
        results = context.Queue()
        worker = context.Process(target=_paintings_in_a_worker, args=(episode, results))
        worker.start()
        found = results.get(timeout=60)
        worker.join()
        expected = [(0, 1), (17, 1), (49, 1), (float(episode.state_TD.sum()), 0)]
    assert (found, worker.exitcode) == (expected, 0)


def test_a_forked_worker_reads_a_remote_file_through_a_filesystem_of_its_own(remote, path):
    context = multiprocessing.get_context("fork")
    far = Episode.open(remote)
    results = context.Queue()
    worker = context.Process(target=_paintings_in_a_worker, args=(far, results))
    worker.start()
    assert results.get(timeout=60)[:3] == [(0, 1), (17, 1), (49, 1)]
    worker.join()


@given(
    ranges=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), min_size=1, max_size=12),
    gap=st.integers(0, 50),
)
def test_merged_ranges_cover_all_ask_for_nothing_twice_and_leave_only_large_gaps(ranges, gap):
    wanted = [(start, start + length) for start, length in ranges]
    merged = merge_ranges(wanted, gap_bytes=gap)
    for start, end in wanted:
        assert any(first <= start and end <= last for first, last in merged)
    for (_, end), (start, _) in pairwise(merged):
        assert start - end > gap


def test_frame_offsets_of_the_index_point_at_h264(episode, path):
    data = path.read_bytes()
    for camera in range(3):
        for gop in range(episode.index.num_gops):
            for start, end in episode.index.frame_ranges(camera, gop).tolist():
                assert (
                    data[start : start + 4] == b"\x00\x00\x00\x01"
                    or data[start : start + 3] == b"\x00\x00\x01"
                )
                assert end > start


def test_times_of_an_episode_with_an_odd_rate_are_exact(tmp_path):
    described, _ = write_painted(tmp_path / "e.mcap", 40, cameras=[], rate_hz=29.97)
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert episode.header.rate_hz == 29.97
        skew = episode.capture_ns("/state/arm") - grid_times_ns(described.start_ns, 29.97, 40)
        assert np.abs(skew).max() <= 4_000_000
