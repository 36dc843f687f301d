"""What the writer takes and refuses; a file is whole or absent."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from episode_samples import (
    CAMERAS,
    LAYOUT,
    START_NS,
    camera_capture_ns,
    header,
    packets_of,
    paint,
    vectors_of,
    write_painted,
)

from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.errors import BadInput
from dyna_train.video.encode import Quality


def test_one_frame_object_may_stand_for_many_steps(tmp_path):
    described = header(20, [CameraTrack("top", 64, 48)], [])
    held = paint(3, 0, 64, 48).reformat(format="yuv420p")
    with EpisodeWriter.create(
        tmp_path / "e.mcap", described, LAYOUT, quality=Quality(18), vectors={}
    ) as writer:
        for _ in range(20):
            writer.add_frame("top", held, START_NS)
        assert writer.finish().num_steps == 20


def test_equal_input_gives_equal_bytes_whatever_pace_the_cameras_have(tmp_path):
    described, made = write_painted(tmp_path / "one.mcap", 30)
    path = tmp_path / "two.mcap"
    with EpisodeWriter.create(
        path, described, LAYOUT, quality=Quality(18), vectors=vectors_of(described)
    ) as writer:
        for step in range(30):
            for number, camera in enumerate(CAMERAS):
                capture_ns = int(camera_capture_ns(described, number)[step])
                writer.add_frame(camera.name, paint(step, number, camera.width, camera.height), capture_ns)
        again = writer.finish()
    assert again.sha256 == made.sha256
    assert path.read_bytes() == (tmp_path / "one.mcap").read_bytes()


def test_the_result_describes_the_file(tmp_path):
    _, made = write_painted(tmp_path / "e.mcap", 20)
    data = made.path.read_bytes()
    assert made.path == tmp_path / "e.mcap"
    assert (made.size_bytes, made.sha256, made.num_steps) == (len(data), hashlib.sha256(data).hexdigest(), 20)
    for camera in CAMERAS:
        assert made.video_bytes[camera.name] == sum(map(len, packets_of(made.path, camera.topic)))


def test_a_camera_that_stops_early_leaves_no_file_and_is_named_with_its_step(tmp_path):
    path = tmp_path / "e.mcap"
    described = header(20)
    message = r"camera left\.wrist ends before step 7; expected 20 frames"
    with (
        pytest.raises(BadInput, match=message),
        EpisodeWriter.create(
            path, described, LAYOUT, quality=Quality(18), vectors=vectors_of(described)
        ) as writer,
    ):
        for number, (camera, frames) in enumerate(zip(CAMERAS, (20, 7, 20), strict=True)):
            for step in range(frames):
                writer.add_frame(camera.name, paint(step, number, camera.width, camera.height), START_NS)
        writer.finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("camera", "frame", "capture_ns", "message"),
    [
        ("top", paint(0, 0, 62, 48), 1, "camera top, step 2: frame of 62x48, expected 64x48"),
        ("top", paint(0, 0, 64, 48), -5, "camera top, step 2: capture time -5 ns is negative"),
        ("top", paint(0, 0, 64, 48), 2**63, f"step 2: capture time {2**63} ns does not fit int64"),
        ("top", paint(0, 0, 64, 48), 1.5, r"step 2: capture time 1\.5 ns is no whole number"),
        ("front", paint(0, 0, 64, 48), 1, "no camera 'front'; its cameras: top"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_and_leaves_no_file(
    tmp_path, camera, frame, capture_ns, message
):
    described = header(3, [CAMERAS[0]], [])
    with (
        pytest.raises(BadInput, match=message),
        EpisodeWriter.create(
            tmp_path / "e.mcap", described, LAYOUT, quality=Quality(18), vectors={}
        ) as writer,
    ):
        writer.add_frame("top", paint(0, 0, 64, 48), 0)
        writer.add_frame("top", paint(1, 0, 64, 48), 0)
        writer.add_frame(camera, frame, capture_ns)
    assert list(tmp_path.iterdir()) == []


def test_a_frame_beyond_the_last_step_is_refused(tmp_path):
    described = header(1, [CAMERAS[0]], [])
    with (
        pytest.raises(BadInput, match="camera top: frame for step 1, expected 1 frames in all"),
        EpisodeWriter.create(
            tmp_path / "e.mcap", described, LAYOUT, quality=Quality(18), vectors={}
        ) as writer,
    ):
        writer.add_frame("top", paint(0, 0, 64, 48), 0)
        writer.add_frame("top", paint(1, 0, 64, 48), 0)


def test_an_exception_of_the_caller_leaves_the_old_file_as_it_was(tmp_path):
    path = tmp_path / "e.mcap"
    write_painted(path, 5)
    before = path.read_bytes()
    described = header(20, [CAMERAS[0]], [])
    with (
        pytest.raises(KeyError, match="the robot is gone"),
        EpisodeWriter.create(path, described, LAYOUT, quality=Quality(18), vectors={}) as writer,
    ):
        writer.add_frame("top", paint(0, 0, 64, 48), 0)
        raise KeyError("the robot is gone")
    assert [entry.name for entry in tmp_path.iterdir()] == ["e.mcap"]
    assert path.read_bytes() == before


def test_leaving_a_writer_without_finish_is_an_error_and_leaves_no_file(tmp_path):
    with (
        pytest.raises(RuntimeError, match=r"left without finish\(\); no file was written"),
        EpisodeWriter.create(
            tmp_path / "e.mcap", header(1, [CAMERAS[0]], []), LAYOUT, quality=Quality(18), vectors={}
        ),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_vectors_that_do_not_fit_the_header_are_refused_by_topic(tmp_path):
    described = header(4)
    good = vectors_of(described)
    values_TD, capture_T = good["/state/arm"]
    for wrong, message in [
        (
            (values_TD.astype(np.float64), capture_T),
            r"/state/arm: values are float64 \[4, 3\], expected float32 \[4, 3\]",
        ),
        ((values_TD[:3], capture_T), r"/state/arm: values are float32 \[3, 3\], expected float32 \[4, 3\]"),
        ((values_TD, capture_T[:3]), r"/state/arm: capture times are int64 \[3\], expected int64 \[4\]"),
        ((values_TD, -capture_T), r"/state/arm: capture times are int64 \[4\], .*none negative"),
    ]:
        with pytest.raises(BadInput, match=message):
            EpisodeWriter.create(
                tmp_path / "e.mcap",
                described,
                LAYOUT,
                quality=Quality(18),
                vectors=good | {"/state/arm": wrong},
            )
    del good["/state/arm"]
    with pytest.raises(BadInput, match=r"vectors for \['/action/arm', '/state/gripper'\], the header has"):
        EpisodeWriter.create(tmp_path / "e.mcap", described, LAYOUT, quality=Quality(18), vectors=good)
    assert list(tmp_path.iterdir()) == []


def test_a_quality_that_x264_does_not_know_is_refused_before_any_frame(tmp_path):
    with pytest.raises(BadInput, match=r"crf 52, expected 0 \(lossless\) to 51"):
        EpisodeWriter.create(
            tmp_path / "e.mcap", header(1, [CAMERAS[0]], []), LAYOUT, quality=Quality(52), vectors={}
        )
    assert list(tmp_path.iterdir()) == []


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from episode_samples import *
described = header(60)
with EpisodeWriter.create(sys.argv[1], described, LAYOUT, quality=Quality(18), vectors=vectors_of(described)) as writer:
    for step in range(40):
        for number, camera in enumerate(CAMERAS):
            writer.add_frame(camera.name, paint(step, number, camera.width, camera.height), START_NS)
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_no_file_under_the_final_name(tmp_path):
    path = tmp_path / "e.mcap"
    command = [sys.executable, "-c", KILLED, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"writing\n"
        os.kill(writer.pid, signal.SIGKILL)
    assert not path.exists()
    write_painted(path, 5)  # and what it left does not disturb the next writer
    assert Episode.open(path).num_steps == 5
