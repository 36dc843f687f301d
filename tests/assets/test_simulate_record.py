"""Recorded uploads: files, markers, messages, determinism, and starting again."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from collections import defaultdict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from PIL import Image

from dyna_assets.landing.recording import Folder
from dyna_assets.landing.upload import check_sizes, commit_upload, read_marker, verify_hashes
from dyna_assets.simulate import read_paint, record_uploads
from dyna_assets.simulate.record import RecordedUpload
from dyna_train.errors import BadInput

SMALL: dict[str, Any] = {"seconds": 1.0, "size": (96, 128)}
RATES_HZ = {
    "/cam_top/image/compressed": 30,
    "/cam_left_wrist/image/compressed": 30,
    "/cam_right_wrist/image/compressed": 30,
    "/left_arm/joint_states": 100,
    "/right_arm/joint_states": 125,
    "/left_leader/joint_states": 50,
    "/right_leader/joint_states": 50,
}


def messages(path: Path) -> dict[str, list[tuple[Any, Any]]]:
    """(record, decoded message) of every topic of the MCAP file in the folder `path`, in file order."""
    found: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    with next(path.glob("*.mcap")).open("rb") as file:
        reader = make_reader(file, validate_crcs=True, decoder_factories=[DecoderFactory()])
        for _, channel, record, message in reader.iter_decoded_messages(log_time_order=False):
            found[channel.topic].append((record, message))
    return found


def episode_record(path: Path) -> dict[str, str]:
    with next(path.glob("*.mcap")).open("rb") as file:
        return {record.name: record.metadata for record in make_reader(file).iter_metadata()}["episode"]


def hashes(landing: Path) -> dict[str, str]:
    files = sorted(path for path in landing.rglob("*") if path.is_file())
    return {str(path.relative_to(landing)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("landing")
    record_uploads(folder, 2, paint=True, **SMALL)
    return folder


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(landing: Path, tmp_path: Path) -> None:
    record_uploads(tmp_path / "again", 2, paint=True, **SMALL)
    assert hashes(tmp_path / "again") == hashes(landing)
    record_uploads(tmp_path / "other", 2, seed=1, paint=True, **SMALL)
    assert not set(hashes(tmp_path / "other").values()) & set(hashes(landing).values())


def test_an_episode_is_the_same_whether_it_is_recorded_alone_or_among_others(
    landing: Path, tmp_path: Path
) -> None:
    (upload,) = record_uploads(tmp_path, 1, start=1, paint=True, **SMALL)
    assert (
        hashes(tmp_path)[f"{upload.name}/{upload.name}.mcap"]
        == hashes(landing)[f"{upload.name}/{upload.name}.mcap"]
    )


def test_an_upload_is_one_recording_and_a_marker_that_holds(landing: Path) -> None:
    for path in sorted(landing.iterdir()):
        assert sorted(file.name for file in path.iterdir()) == [f"{path.name}.mcap", "upload.json"]
        folder = Folder.of(path)
        marker = read_marker(folder)
        check_sizes(marker, folder.files())
        verify_hashes(folder, marker)
        assert (marker.kind, marker.source, marker.task) == ("simulation", "sim", "hand over the cube")
        assert marker.robot and marker.robot_software_version


def test_marker_and_recording_agree_on_what_happened(landing: Path) -> None:
    for path in sorted(landing.iterdir()):
        marker, record = read_marker(Folder.of(path)), episode_record(path)
        assert record["success"] == str(marker.outcome == "success")
        assert (record["task"], record["robot"]) == (marker.task, marker.robot)
        assert record["robot_software_version"] == marker.robot_software_version
        assert record["operator"] == marker.metadata["operator"]
        assert record["seed"] == marker.metadata["seed"]


def test_every_sensor_runs_at_its_own_rate_and_stamps_capture_and_arrival(landing: Path) -> None:
    found = messages(landing / "sim-0-000000")
    assert found.keys() == RATES_HZ.keys()
    starts = set()
    for topic, rate_hz in RATES_HZ.items():
        capture_ns = np.array([record.publish_time for record, _ in found[topic]])
        arrival_ns = np.array([record.log_time for record, _ in found[topic]])
        stamps = [message.header.stamp for _, message in found[topic]]
        assert [stamp.sec * 10**9 + stamp.nanosec for stamp in stamps] == capture_ns.tolist()
        assert float(np.median(np.diff(capture_ns))) == pytest.approx(1e9 / rate_hz, rel=0.05)
        assert (np.diff(capture_ns) > 0).all() and (arrival_ns >= capture_ns).all()
        assert [record.sequence for record, _ in found[topic]] == list(range(len(capture_ns)))
        starts.add(int(capture_ns[0]))
    assert len(starts) == len(RATES_HZ)


def test_messages_lie_in_the_file_in_order_of_arrival(landing: Path) -> None:
    with next((landing / "sim-0-000000").glob("*.mcap")).open("rb") as file:
        times = [record.log_time for _, _, record in make_reader(file).iter_messages(log_time_order=False)]
    assert times == sorted(times)


def test_joint_states_have_names_units_of_an_encoder_and_followers_that_follow(landing: Path) -> None:
    found = messages(landing / "sim-0-000000")
    arm, leader = found["/left_arm/joint_states"], found["/left_leader/joint_states"]
    assert arm[0][1].name == [f"left/{joint}" for joint in ("shoulder", "elbow", "wrist", "lift", "gripper")]
    arm_position = np.array([message.position for _, message in arm])
    lead_position = np.array([message.position for _, message in leader])
    assert arm_position.shape[1] == lead_position.shape[1] == 5
    steps = arm_position[:, :3] / (2 * np.pi / 4096)
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
    assert np.ptp(arm_position, axis=0).min() > 0.005, "every joint moves"
    np.testing.assert_allclose(arm_position[-1, :3], lead_position[-1, :3], atol=0.05)


def test_each_picture_shows_its_number_within_its_topic(landing: Path) -> None:
    found = messages(landing / "sim-0-000001")
    for topic in (topic for topic in RATES_HZ if "cam" in topic):
        pictures = [Image.open(BytesIO(bytes(message.data))) for _, message in found[topic]]
        assert {picture.size for picture in pictures} == {(128, 96)}
        assert [read_paint(np.asarray(picture)) for picture in pictures] == list(range(len(pictures)))


def test_pictures_move_and_carry_sensor_noise(tmp_path: Path) -> None:
    (upload,) = record_uploads(tmp_path, 1, **SMALL)
    for topic in (topic for topic in RATES_HZ if "cam" in topic):
        data = [bytes(message.data) for _, message in messages(upload.path)[topic]]
        assert len(set(data)) == len(data)
        first, last = (np.asarray(Image.open(BytesIO(part)), np.int16) for part in (data[0], data[-1]))
        assert np.abs(first - last).mean() > 1
        assert 40 < first.mean() < 220
        assert first.std() > 15


def test_the_reported_number_of_frames_is_the_number_in_the_file(landing: Path) -> None:
    for upload in record_uploads(landing, 2, **SMALL):
        found = messages(upload.path)
        assert upload.num_frames == sum(len(found[topic]) for topic in RATES_HZ if "cam" in topic)


def test_committed_uploads_are_left_as_they_are_and_reported_again(tmp_path: Path) -> None:
    first = record_uploads(tmp_path, 2, faults=["frozen_joint"], **SMALL)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = record_uploads(tmp_path, 2, faults=["frozen_joint"], **SMALL)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert [upload.is_new for upload in first + again] == [True, True, False, False]

    def facts(upload: RecordedUpload) -> tuple[object, ...]:
        return upload.name, upload.path, upload.success, upload.fault, upload.num_frames

    assert [facts(upload) for upload in first] == [facts(upload) for upload in again]


def test_an_interrupted_recording_has_no_marker_and_is_recorded_again(tmp_path: Path) -> None:
    def interrupt(upload: RecordedUpload) -> None:
        if upload.name.endswith("0"):
            (tmp_path / "sim-0-000001").mkdir()
            (tmp_path / "sim-0-000001" / "sim-0-000001.mcap").write_bytes(b"half a recording")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_uploads(tmp_path, 2, progress=interrupt, **SMALL)
    uploads = record_uploads(tmp_path, 2, **SMALL)
    assert [upload.is_new for upload in uploads] == [False, True]
    folder = Folder.of(uploads[1].path)
    verify_hashes(folder, read_marker(folder))


def test_a_recorder_killed_while_it_writes_leaves_no_marker_and_is_made_good_by_the_next(
    tmp_path: Path,
) -> None:
    code = (
        f"from dyna_assets.simulate import record_uploads; record_uploads({str(tmp_path)!r}, 1, seconds=30.0)"
    )
    recorder = subprocess.Popen([sys.executable, "-c", code])
    file = tmp_path / "sim-0-000000" / "sim-0-000000.mcap"
    deadline_s = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    recorder.kill()
    assert recorder.wait() == -signal.SIGKILL
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    (upload,) = record_uploads(tmp_path, 1, **SMALL)
    verify_hashes(Folder.of(upload.path), read_marker(Folder.of(upload.path)))


def test_progress_is_told_of_every_upload_in_order(tmp_path: Path) -> None:
    told: list[RecordedUpload] = []
    assert record_uploads(tmp_path, 2, progress=told.append, **SMALL) == told


def test_an_upload_of_somebody_else_under_the_same_name_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "sim-0-000000"
    folder.mkdir()
    (folder / "a.mcap").write_bytes(b"x")
    commit_upload(folder, source="lab", kind="teleoperation", recorded_at=0)
    with pytest.raises(
        BadInput, match=r"upload of source 'lab' was not recorded by the simulator\. Record into"
    ):
        record_uploads(tmp_path, 1, **SMALL)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seconds": 0.1}, r"an episode of 0\.1 s is too short .* record 0\.5 s or more"),
        ({"size": (241, 320)}, r"pictures of 320x241: expected even numbers from 32 up, such as 320x240"),
        ({"size": (48, 48), "paint": True}, r"a picture of 48x48 is too small for a painted number"),
        ({"faults": ["black_camera", "clock_jump"]}, r"2 faults for 1 uploads: each fault needs an upload"),
        ({"faults": ["blak_camera"]}, r"unknown fault 'blak_camera'; did you mean 'black_camera'\?"),
        ({"source": "../up"}, r"source name '\.\./up' cannot name a folder"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        record_uploads(tmp_path / "landing", 1, **{**SMALL, **change})
    assert not (tmp_path / "landing").exists()


def test_success_labels_of_a_landing_folder_are_not_all_alike(tmp_path: Path) -> None:
    outcomes = [upload.success for upload in record_uploads(tmp_path, 10, seconds=2.0, size=(32, 32))]
    assert set(outcomes) == {True, False}
