"""What the planner predicts against what the counting reader sees, on noisy footage that moves.

Array axes: T steps, D dimensions, H W pixels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import gcd
from pathlib import Path
from statistics import fmean

import av
import fsspec
import numpy as np
import pytest
import typer
from episode_samples import header
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from typer.testing import CliRunner

from dyna_train.commands.plan import plan
from dyna_train.episode.layout import (
    LOCAL_STORE,
    PATTERNS,
    REMOTE_STORE,
    EpisodeLayout,
    ReadPattern,
    StoreCosts,
)
from dyna_train.episode.planning import plan_layout
from dyna_train.episode.prediction import Prediction, predict
from dyna_train.episode.profile import grid_times_ns
from dyna_train.episode.reader import Episode
from dyna_train.episode.sizes import SizeModel, StateSizes
from dyna_train.episode.source import merge_ranges
from dyna_train.episode.span import fetch
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.trial import try_file
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter, Vector
from dyna_train.errors import BadInput
from dyna_train.video.encode import Quality

RATE_HZ = 30.0
NUM_STEPS = 660
TRIAL = slice(240, 420)
WIDTH, HEIGHT = 160, 120
QUALITY = Quality(18)
JOINTS = tuple(f"joint{k}" for k in range(7))
HEADER = header(
    NUM_STEPS,
    [CameraTrack(name, WIDTH, HEIGHT) for name in ("top", "left_wrist", "right_wrist")],
    [VectorTrack("arm", role, JOINTS, ("rad",) * 7) for role in ("state", "action")],
    RATE_HZ,
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A file that was written as planned."""

    pattern: ReadPattern
    layout: EpisodeLayout
    made: EpisodeFile

    @property
    def anchors(self) -> range:
        """Every anchor whose window lies inside the file."""
        ahead = max(self.pattern.frame_offsets(RATE_HZ)[-1] + 1, self.pattern.horizon_steps(RATE_HZ))
        return range(NUM_STEPS - ahead + 1)

    def windows(self, anchors: range) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Frame steps and state steps of every anchor."""
        offsets = np.array(self.pattern.frame_offsets(RATE_HZ))
        rows = np.arange(self.pattern.horizon_steps(RATE_HZ))
        return [(anchor + offsets, anchor + rows) for anchor in anchors]


@pytest.fixture(scope="module")
def footage() -> dict[str, list[av.VideoFrame]]:
    return {camera.name: noisy_scene(seed) for seed, camera in enumerate(HEADER.cameras)}


@pytest.fixture(scope="module")
def vectors() -> dict[str, Vector]:
    """Joints that move, captured up to 4 ms around the grid."""
    rng = np.random.default_rng(0)
    grid_T = grid_times_ns(HEADER.start_ns, RATE_HZ, NUM_STEPS)
    return {
        track.topic: (
            np.cumsum(rng.normal(0, 0.01, (NUM_STEPS, track.dim)), axis=0).astype(np.float32),
            grid_T + rng.integers(-4_000_000, 4_000_000, NUM_STEPS),
        )
        for track in HEADER.vectors
    }


@pytest.fixture(scope="module")
def sizes(footage: dict[str, list[av.VideoFrame]], vectors: dict[str, Vector]) -> SizeModel:
    """Fitted on six of the twenty-two seconds."""
    part = {topic: (values_TD[TRIAL], times_T[TRIAL]) for topic, (values_TD, times_T) in vectors.items()}
    return SizeModel.fitted(
        {name: frames[TRIAL] for name, frames in footage.items()},
        rate_hz=RATE_HZ,
        quality=QUALITY,
        state=StateSizes.fitted(part, rate_hz=RATE_HZ),
    )


@pytest.fixture(scope="module", params=sorted(PATTERNS))
def planned(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    footage: dict[str, list[av.VideoFrame]],
    vectors: dict[str, Vector],
    sizes: SizeModel,
) -> Planned:
    pattern = PATTERNS[request.param]
    layout = plan_layout(pattern, RATE_HZ, sizes=sizes)
    path = tmp_path_factory.mktemp("planned") / f"{pattern.name}.mcap"
    capture_ns = grid_times_ns(HEADER.start_ns, RATE_HZ, NUM_STEPS).tolist()
    with EpisodeWriter.create(path, HEADER, layout, quality=QUALITY, vectors=vectors) as writer:
        for name, frames in footage.items():
            for frame, time_ns in zip(frames, capture_ns, strict=True):
                writer.add_frame(name, frame, time_ns)
        return Planned(pattern, layout, writer.finish())


@pytest.fixture(params=["local", "remote"])
def opened(request: pytest.FixtureRequest, planned: Planned) -> Iterator[tuple[Episode, StoreCosts]]:
    """The planned file, and what its store costs."""
    if request.param == "local":
        with Episode.open(planned.made.path) as episode:
            yield episode, LOCAL_STORE
        return
    memory = fsspec.filesystem("memory")
    place = f"/prediction/{planned.made.path.name}"
    memory.pipe_file(place, planned.made.path.read_bytes())
    with Episode.open(place, fs=memory) as episode:
        yield episode, REMOTE_STORE
    memory.rm(place)


def test_requests_and_bytes_of_all_windows_are_predicted_within_five_percent(planned, opened, sizes):
    episode, store = opened
    expected = predict(planned.pattern, planned.layout, RATE_HZ, sizes=sizes, store=store)
    requests, num_bytes = episode.counters.requests, episode.counters.bytes
    for frame_steps, state_steps in planned.windows(planned.anchors):
        fetch([episode.plan(frame_steps=frame_steps, state_steps=state_steps)])
    requests, num_bytes = episode.counters.requests - requests, episode.counters.bytes - num_bytes
    assert requests / len(planned.anchors) == pytest.approx(expected.requests, rel=0.05)
    assert num_bytes / len(planned.anchors) == pytest.approx(expected.read_bytes, rel=0.05)


@pytest.mark.parametrize("gap_bytes", [0, 20_000, 60_000, 120_000])
def test_merging_is_predicted_within_five_percent_for_stores_of_every_gap(planned, sizes, gap_bytes):
    store = StoreCosts(latency_s=gap_bytes / 1e8, bandwidth_bytes_per_s=1e8)
    expected = predict(planned.pattern, planned.layout, RATE_HZ, sizes=sizes, store=store)
    with Episode.open(planned.made.path) as episode:
        reads = [
            merge_ranges(episode.plan(frame_steps=frames, state_steps=rows).ranges, gap_bytes)
            for frames, rows in planned.windows(planned.anchors)
        ]
    read_bytes = fmean(sum(end - start for start, end in read) for read in reads)
    assert fmean(map(len, reads)) == pytest.approx(expected.requests, rel=0.05)
    assert read_bytes == pytest.approx(expected.read_bytes, rel=0.05)
    latency_s = fmean(map(len, reads)) * store.latency_s + read_bytes / store.bandwidth_bytes_per_s
    assert latency_s == pytest.approx(expected.latency_s, rel=0.05)


def test_decoded_frames_of_windows_of_every_phase_are_predicted_exactly(planned, sizes):
    expected = predict(planned.pattern, planned.layout, RATE_HZ, sizes=sizes)
    assert gcd(7, planned.layout.gop) == 1
    anchors = range(0, 7 * planned.layout.gop, 7)  # each phase once, spread over the file
    with Episode.open(planned.made.path) as episode:
        for frame_steps, _ in planned.windows(anchors):
            (span,) = fetch([episode.plan(frame_steps=frame_steps)])
            for camera in HEADER.cameras:
                span.frames(camera.name, frame_steps, size=(8, 8))
        assert episode.counters.decoded / len(anchors) == pytest.approx(expected.decoded_frames)


def test_the_bytes_that_a_window_cannot_do_without_are_predicted_within_five_percent(planned, sizes):
    expected = predict(planned.pattern, planned.layout, RATE_HZ, sizes=sizes)
    gop = planned.layout.gop
    with Episode.open(planned.made.path) as episode:
        bytes_T = episode.index.frame_bytes_NT.sum(axis=0, dtype=np.int64)
    needed = []
    for frame_steps, state_steps in planned.windows(planned.anchors):
        last_of = {step // gop: step for step in frame_steps.tolist()}
        video = sum(int(bytes_T[touched * gop : last + 1].sum()) for touched, last in last_of.items())
        needed.append(video + len(state_steps) * sizes.state.step_bytes)
    assert fmean(needed) == pytest.approx(expected.needed_bytes, rel=0.05)


def test_the_chunks_that_a_reader_of_whole_chunks_fetches_are_predicted_within_five_percent(planned, sizes):
    expected = predict(planned.pattern, planned.layout, RATE_HZ, sizes=sizes)
    with Episode.open(planned.made.path) as episode:
        chunks = episode.index.chunks
    for group, which, predicted in (("video", 0, expected.video_chunks), ("state", 1, expected.state_chunks)):
        table = chunks[group]
        touched = [
            int(
                (
                    (table.first_step_K <= steps[-1]) & (steps[0] < table.first_step_K + table.num_steps_K)
                ).sum()
            )
            for steps in (window[which] for window in planned.windows(planned.anchors))
        ]
        assert fmean(touched) == pytest.approx(predicted, rel=0.05)


def test_the_size_of_the_file_is_predicted_within_five_percent(planned, sizes):
    expected = predict(planned.pattern, planned.layout, RATE_HZ, sizes=sizes)
    found = planned.made.size_bytes / 1e6 / (NUM_STEPS / RATE_HZ / 60)
    assert expected.file_mb_per_minute == pytest.approx(found, rel=0.05)


@settings(max_examples=50)
@given(
    name=st.sampled_from(sorted(PATTERNS)),
    num_cameras=st.integers(0, 4),
    crf=st.integers(10, 30),
    rate_hz=st.sampled_from([5.0, 12.5, 25.0, 30.0, 60.0]),
    gap_bytes=st.integers(0, 8_000_000),
)
def test_a_wider_gap_asks_less_often_for_more_bytes_and_never_for_less_than_is_needed(
    name, num_cameras, crf, rate_hz, gap_bytes
):
    sizes = SizeModel.assumed([(320, 240)] * num_cameras, Quality(crf), dims=(14, 7))
    layout = plan_layout(PATTERNS[name], rate_hz, sizes=sizes)
    narrow, wide = (
        predict(PATTERNS[name], layout, rate_hz, sizes=sizes, store=StoreCosts(gap / 1e9, 1e9))
        for gap in (gap_bytes, 2 * gap_bytes + 1)
    )
    assert 1 <= wide.requests <= narrow.requests
    assert narrow.needed_bytes <= narrow.read_bytes * 1.000001 <= wide.read_bytes * 1.000002
    assert narrow.decoded_frames == wide.decoded_frames


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_chunk_fetches_follow_the_law_of_one_plus_window_over_chunk(name):
    pattern, sizes = PATTERNS[name], SizeModel.assumed([(640, 480)] * 3, QUALITY, dims=(14, 14))
    layout = plan_layout(pattern, RATE_HZ, sizes=sizes)
    found = predict(pattern, layout, RATE_HZ, sizes=sizes)
    span = pattern.frame_offsets(RATE_HZ)[-1]
    assert found.video_chunks == pytest.approx(1 + span / layout.steps_per_chunk)
    assert found.state_chunks == pytest.approx(
        1 + (pattern.horizon_steps(RATE_HZ) - 1) / layout.steps_per_block
    )


@pytest.mark.parametrize("name", sorted(PATTERNS))
@pytest.mark.parametrize("crf", [16, 18, 20, 23])
def test_at_three_cameras_of_vga_a_remote_window_of_any_pattern_is_one_request(name, crf):
    sizes = SizeModel.assumed([(640, 480)] * 3, Quality(crf), dims=(14, 14))
    found = predict(PATTERNS[name], plan_layout(PATTERNS[name], 30.0, sizes=sizes), 30.0, sizes=sizes)
    assert found.requests == 1.0


def test_a_window_that_looks_back_costs_what_the_same_window_costs_looking_ahead():
    sizes = SizeModel.assumed([(640, 480)] * 2, QUALITY, dims=(7,))
    ahead = ReadPattern("ahead", (Fraction(0), Fraction(1, 5), Fraction(2, 5)), horizon_s=0.0)
    back = ReadPattern("back", (Fraction(-2, 5), Fraction(-1, 5), Fraction(0)), horizon_s=0.0)
    layout = plan_layout(ahead, 30.0, sizes=sizes)
    assert plan_layout(back, 30.0, sizes=sizes) == layout
    costs = [predict(pattern, layout, 30.0, sizes=sizes, store=LOCAL_STORE) for pattern in (ahead, back)]
    assert asdict(costs[0]) == pytest.approx(asdict(costs[1]))


@pytest.mark.parametrize("planned", ["vla"], indirect=True)
def test_the_plan_command_tries_an_episode_and_predicts_its_own_file(planned, sizes):
    done = run(str(planned.made.path), "--pattern", planned.pattern.name, "--json")
    found = json.loads(done)
    assert found["rate_hz"] == RATE_HZ
    assert len(found["sizes"]["cameras"]) == 3
    assert found["sizes"]["state"]["num_topics"] == 2
    assert found["sizes"]["state"]["step_bytes"] == pytest.approx(sizes.state.step_bytes, rel=0.05)
    assert set(found["predictions"]) == {"remote", "local"}
    assert found["predictions"]["remote"].keys() == asdict(NOTHING).keys()


def test_the_plan_command_shows_a_layout_without_any_file():
    shown = run("--pattern", "wam", "--cameras", "2", "--size", "640x480", "--crf", "20")
    assert "wam, crf 20: sizes assumed; name a FILE to try them" in shown
    assert "2 of 640x480 at 30 Hz" in shown
    assert "60 steps (2.00 s)" in shown
    assert "requests" in shown and "1.00" in shown


def test_a_video_is_tried_as_so_many_equal_cameras(tmp_path, footage):
    video = tmp_path / "clip.mkv"
    write_video(video, footage["top"][TRIAL])
    trial = try_file(video, QUALITY, state=StateSizes(2, 100.0), num_cameras=2)
    assert trial.rate_hz == RATE_HZ
    assert trial.frame_sizes == ((WIDTH, HEIGHT),) * 2
    assert trial.sizes.cameras[0] == trial.sizes.cameras[1]
    assert trial.sizes.cameras[0].keyframe_bytes > trial.sizes.cameras[0].other_bytes > 0


def test_what_the_plan_command_cannot_use_is_refused_with_what_to_give(tmp_path, planned):
    for arguments, message in (
        (["--size", "640"], "--size 640: expected width x height in pixels, as 640x480"),
        (["--pattern", "wan"], "unknown read pattern 'wan'; did you mean 'wam'"),
        (["--rate", "0"], "rate_hz = 0.0: expected a positive number"),
        (["--crf", "60"], r"crf 60, expected 0 \(lossless\) to 51"),
        ([str(tmp_path / "none.mp4")], "none.mp4: no such file; expected a video or an episode file"),
        (
            [str(planned.made.path), "--rate", "10"],
            "says its frame size and rate; leave --size and --rate out",
        ),
        ([str(planned.made.path), "--cameras", "2"], "says itself how many cameras it has"),
    ):
        with pytest.raises(BadInput, match=message):
            run(*arguments)


def test_a_file_that_is_no_video_is_refused_with_its_name(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing to see")
    with pytest.raises(BadInput, match=r"notes.txt: not readable as video: .*expected a video or an episode"):
        try_file(tmp_path / "notes.txt", QUALITY, state=StateSizes(0, 0.0))


NOTHING = Prediction(0, 0, 0, 0, 0, 0, 0, 0)


def run(*arguments: str) -> str:
    """What `plan` prints; raises what it raises."""
    app = typer.Typer()
    app.command()(plan)
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def noisy_scene(seed: int) -> list[av.VideoFrame]:
    """A camera that sways over a textured scene, with sensor noise."""
    rng = np.random.default_rng(seed)
    scene = np.kron(rng.normal(128, 40, (80, 120)), np.ones((4, 4)))
    for axis in (0, 1):
        scene = sum(np.roll(scene, shift, axis) for shift in (-1, 0, 1)) / 3
    time_s = np.arange(NUM_STEPS) / RATE_HZ
    left_T = (72 + 60 * np.sin(2 * np.pi * time_s / 7 + seed)).astype(int)
    top_T = (48 + 40 * np.sin(2 * np.pi * time_s / 11)).astype(int)
    frames = []
    for left, top in zip(left_T, top_T, strict=True):
        view = scene[top : top + HEIGHT, left : left + WIDTH] + rng.normal(0, 3, (HEIGHT, WIDTH))
        yuv = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
        yuv[:HEIGHT] = np.clip(view, 0, 255)
        frames.append(av.VideoFrame.from_ndarray(yuv, "yuv420p"))
    return frames


def write_video(path: Path, frames: list[av.VideoFrame]) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number, frame in enumerate(frames):
            frame.pts, frame.time_base = number, Fraction(1, 30)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
