"""The episode-file benchmark: its footage, its peers and its readers are what it says of them."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.records import Message
from PIL import Image

from benchmarks._chunked import ChunkedFile, DistantStore
from benchmarks._codecs import JPEG, Encoded, label, psnr
from benchmarks._containers import CAMERAS, read_messages, write_foxglove_groups, write_stock_groups
from benchmarks._footage import EPISODES, RENDER, ROBOT, SensorNoise, forth_and_back, robot_footage
from benchmarks._making import TRAIN, Effort, Made, equal_to_jpeg, make
from benchmarks._readers import Hdf5Reader, Mp4Reader, StockReader, read_encoded, read_span, room
from benchmarks._windows import Window, random_spans, random_windows, union
from benchmarks.episode_file import build, figures_of, notes
from benchmarks.harness import Report
from dyna_train.episode.reader import Episode
from dyna_train.episode.schemas import parse_video
from dyna_train.errors import BadInput
from dyna_train.video.encode import Quality

NUM_STEPS = 54
EFFORT = Effort(
    windows=2,
    slow_windows=2,
    spans=1,
    decoded_steps=12,
    excerpt_s=0.5,
    clean_s=1.8,
    tried=(Quality(18),),
    fast=(Quality(24, fast_decode=True),),
)
KEYS = [
    "storage.vs_jpeg",
    "storage.psnr_over_jpeg",
    "storage.archive_vs_jpeg",
    "storage.soft_vs_jpeg",
    "storage.mb_per_camera_minute",
    "storage.psnr",
    "fetches.per_topic_over_ours",
    "fetches.chunks",
    "fetches.chunk_mb",
    "fetches.train_per_topic_over_ours",
    "fetches.train_chunks",
    "fetches.train_chunk_mb",
    "requests.per_sample",
    "requests.mb",
    "open.requests",
    "open.bytes",
    "latency.sequential",
    "latency.per_topic_over_ours",
    "latency.parallel",
    "read.cpu",
    "read.wall",
    "read.stock_over_ours",
    "decode.overhead",
    "decode.cpu",
    "window.cpu",
    "window.wall",
    "window.clean_cpu",
    "index.attachment_bytes",
    "index.gop_table_bytes",
    "write.over_encoding",
    "write.cpu",
    "write.wall",
    "train_fast.decode",
    "train_fast.bytes",
]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the shared one, with one small moving picture in every recording."""
    data = tmp_path_factory.mktemp("data")
    robot, render = data / ROBOT.format(EPISODES[0]), data / RENDER
    record(robot, 480, num_frames=12)
    record(render, 360, num_frames=1010)
    for episode in EPISODES[1:]:
        shutil.copy(robot, data / ROBOT.format(episode))
    return data


def record(path: Path, height: int, num_frames: int) -> None:
    """A small moving picture, 640 pixels wide."""
    path.parent.mkdir(parents=True)
    picture = np.add.outer(np.arange(height), np.arange(640)).astype(np.uint8)
    moved = [
        av.VideoFrame.from_ndarray(np.stack([np.roll(picture, 5 * step, axis=1)] * 3, axis=-1), "rgb24")
        for step in range(12)
    ]
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 640, height, "yuv420p"
        for step in range(num_frames):
            moved[step % 12].pts = None
            file.mux(stream.encode(moved[step % 12]))
        file.mux(stream.encode(None))


@pytest.fixture(scope="module")
def made(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("made"), recordings, NUM_STEPS, 1, EFFORT)


@pytest.fixture
def episode(made: Made) -> Iterator[Episode]:
    with Episode.open(made.path("train")) as opened:
        yield opened


def plain_messages(path: Path) -> dict[str, list[Message]]:
    """By topic, without the ids that each file gives its channels."""
    found: dict[str, list[Message]] = {}
    for one in read_messages(path):
        one.message.channel_id = 0
        found.setdefault(one.channel.topic, []).append(one.message)
    return found


@pytest.mark.parametrize("level", [30, 128, 220])
def test_noise_has_the_sigma_that_the_notes_state(level: int) -> None:
    noise = SensorNoise((1.0, 2.0), seed=0)
    frame_HWC = np.full((480, 640, 3), level, np.uint8)
    errors = np.stack([noise.add(frame_HWC).astype(float) - level for _ in range(3)])
    stated = np.sqrt(1 + 3 * level / 255 + 1 / 12)  # the last term: rounding to whole levels
    assert errors.std() == pytest.approx(stated, rel=0.01)
    assert abs(errors.mean()) < 0.02
    assert abs(np.corrcoef(errors[0].ravel(), errors[1].ravel())[0, 1]) < 0.01


def test_footage_is_the_same_at_every_call_and_no_frame_repeats(recordings: Path) -> None:
    footage = robot_footage(recordings)
    once, again = (list(footage.frames(1, 30)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in pairwise(once))


@given(step=st.integers(0, 10**6), length=st.integers(1, 500))
def test_a_loop_stays_inside_and_never_jumps(step: int, length: int) -> None:
    here, there = forth_and_back(step, length), forth_and_back(step + 1, length)
    assert 0 <= here < length
    assert abs(here - there) == (length > 1)


def test_absent_recordings_are_named_before_anything_is_encoded(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"episode_000001\.mp4: no such recording.*lay the recordings"):
        build(data=tmp_path)


def test_psnr_of_one_level_is_48_db() -> None:
    assert psnr(1.0) == pytest.approx(48.13, abs=0.01)
    assert psnr(100.0) == pytest.approx(28.13, abs=0.01)


def test_stated_errors_are_those_of_the_packets(made: Made) -> None:
    luma = [frame @ np.array([0.299, 0.587, 0.114]) for frame in made.footage.frames(0, NUM_STEPS)]
    decoder = av.CodecContext.create("h264", "r")
    packets = made.minute[0][label(TRAIN)].packets
    decoded = [f for packet in (*map(av.Packet, packets), None) for f in decoder.decode(packet)]
    video = [
        np.mean(((f.to_ndarray()[:480] - 16.0) * 255 / 219 - y) ** 2)
        for f, y in zip(decoded, luma, strict=True)
    ]
    assert made.minute[0][label(TRAIN)].mse == pytest.approx(np.mean(video), rel=1e-3)
    stills = [
        np.asarray(Image.open(io.BytesIO(still)).convert("L")) for still in made.minute[0][JPEG].packets
    ]
    jpeg = [np.mean((still - y) ** 2) for still, y in zip(stills, luma, strict=True)]
    assert made.minute[0][JPEG].mse == pytest.approx(np.mean(jpeg), rel=0.05)  # "L" goes by way of RGB


def test_the_quality_equal_to_jpeg_is_the_smallest_that_is_no_worse() -> None:
    errors = {JPEG: 5.0, "crf 18": 3.0, "crf 19": 5.0, "crf 20": 5.1}
    cameras = [{name: Encoded((b"x",), mse, 0.0) for name, mse in errors.items()}]
    tried = [Quality(18), Quality(19), Quality(20)]
    assert equal_to_jpeg(cameras, tried) == Quality(19)
    assert equal_to_jpeg(cameras, tried[2:]) == Quality(20)


def test_the_stock_files_hold_the_messages_of_ours(made: Made, tmp_path: Path) -> None:
    ours = plain_messages(made.path("train"))
    assert {len(messages) for messages in ours.values()} == {NUM_STEPS}
    assert len(ours) == 3 + 8
    write_stock_groups(tmp_path / "groups.mcap", made.messages, made.layout)
    for path in (made.path("train.topic"), made.path("train.arrival"), tmp_path / "groups.mcap"):
        assert plain_messages(path) == ours


def test_foxglove_sdk_writes_the_same_payloads_at_the_same_times(made: Made, tmp_path: Path) -> None:
    write_foxglove_groups(tmp_path / "foxglove.mcap", made.messages, made.layout)
    ours, theirs = plain_messages(made.path("train")), plain_messages(tmp_path / "foxglove.mcap")
    for topic, messages in ours.items():
        assert [(m.log_time, m.data) for m in theirs[topic]] == [(m.log_time, m.data) for m in messages]


def test_only_the_per_topic_file_gives_each_topic_chunks_of_its_own(made: Made) -> None:
    topics_of = {}
    for name in ("train.topic", "train.arrival", "train"):
        with made.path(name).open("rb") as stream:
            summary = make_reader(stream).get_summary()
        assert summary is not None
        topics_of[name] = {len(chunk.message_index_offsets) for chunk in summary.chunk_indexes}
    assert topics_of == {"train.topic": {1}, "train.arrival": {11}, "train": {3, 8}}


@given(anchor=st.integers(0, 500), gop=st.sampled_from([1, 2, 15, 30, 60]))
def test_a_decoder_is_fed_from_keyframes_to_the_last_wanted_frames(anchor: int, gop: int) -> None:
    window = Window.at(anchor)
    fed = window.fed_steps(gop)
    assert set(window.frame_steps_W) <= set(fed)
    for step in fed:
        assert step % gop == 0 or step - 1 in fed
        assert any(step <= wanted and wanted // gop == step // gop for wanted in window.frame_steps_W)


@pytest.mark.parametrize("name", ["train.topic", "train.arrival", "train"])
def test_every_reader_hands_out_the_same_packets_and_states(made: Made, episode: Episode, name: str) -> None:
    file = ChunkedFile.open(made.path(name), made.layout.gop)
    with ThreadPoolExecutor(4) as threads, made.path("train").open("rb") as stream:
        stock = StockReader(make_reader(stream), made.take, made.layout.gop)
        for window in random_windows(NUM_STEPS, 3):
            fed = window.fed_steps(made.layout.gop)
            packets = [[camera[step] for step in fed] for camera in made.take.packets.values()]
            state_HD = np.hstack([v[window.state_steps_H] for v, _ in made.take.vectors.values()])
            for found, state in (
                file.read(DistantStore(0.0, 1e12), window),
                file.read(DistantStore(0.0, 1e12), window, threads),
            ):
                assert [[bytes(parse_video(one).data) for one in camera] for camera in found] == packets
                assert np.array_equal(state, state_HD)
            by_topic, state = stock.read(window)
            assert [[bytes(one) for one in camera] for camera in by_topic.values()] == packets
            assert np.array_equal(state, state_HD)
            assert np.array_equal(read_encoded(episode, window)[1], state_HD)


def test_jpeg_and_mp4_readers_return_the_frames_of_their_files(made: Made) -> None:
    window, out = random_windows(NUM_STEPS, 1)[0], room()
    with Hdf5Reader(made.path("jpeg")) as hdf5:
        state_HD = hdf5.read(window, out)
    assert np.array_equal(
        state_HD, np.hstack([v[window.state_steps_H] for v, _ in made.take.vectors.values()])
    )
    still = made.minute[2][JPEG].packets[int(window.frame_steps_W[3])]
    assert np.array_equal(out[2, 3], np.asarray(Image.open(io.BytesIO(still))))
    with Mp4Reader(made.mp4s) as mp4:
        mp4.read(window, out)
    with av.open(str(made.mp4s[1])) as file:
        every = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert all(np.array_equal(out[1, place], every[step]) for place, step in enumerate(window.frame_steps_W))


def test_windows_of_a_span_are_the_frames_of_the_episode(made: Made, episode: Episode) -> None:
    (windows,) = random_spans(NUM_STEPS, 1, NUM_STEPS, 3, gop=made.layout.gop)
    assert set(union(windows).frame_steps_W) == {step for one in windows for step in one.frame_steps_W}
    out = room()
    read_span(episode, windows, out)
    assert np.array_equal(out[1], episode.frames(CAMERAS[1], windows[-1].frame_steps_W))


def test_the_distant_store_sleeps_for_the_request_and_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    store = DistantStore(latency_s=0.01, bandwidth=10_000)
    began = time.perf_counter()
    assert store.cat_file(str(path), 10, 60) == bytes(range(10, 60))
    assert time.perf_counter() - began >= 0.015
    assert store.cat_file(str(path), start=-30) == bytes(range(70, 100))
    assert store.cat_file(str(path), start=-300) == bytes(range(100))


def test_the_report_has_stable_keys_and_names_the_crf_beside_every_size(made: Made) -> None:
    report = Report("episode_file", tuple(figures_of(made)), notes(made)).as_json()
    assert [figure["key"] for figure in report["figures"]] == KEYS
    units = {figure["key"]: figure["unit"] for figure in report["figures"]}
    assert all("crf" in unit for key, unit in units.items() if key.startswith(("storage.", "latency.")))
