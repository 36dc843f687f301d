"""Planted faults: each is in the files as described, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from PIL import Image

from dyna_assets.errors import UploadError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.upload import check_sizes, read_marker, verify_hashes
from dyna_assets.simulate import describe_fault, fault_names, plant, record_uploads
from dyna_assets.simulate.faults import STRUCK_ARM, STRUCK_CAMERA, STRUCK_JOINT, struck_camera
from dyna_assets.simulate.plan import RecordingPlan, plan_recording
from dyna_train.errors import BadInput

CAMERA_FAULTS = (
    "black_camera",
    "blurred_camera",
    "covered_camera",
    "dark_camera",
    "drifting_clock",
    "dropping_camera",
    "frozen_camera",
    "glitching_camera",
    "late_camera",
    "late_messages",
    "length_mismatch",
    "missing_camera",
    "overexposed_camera",
    "repeating_camera",
    "silent_camera",
)
ARM_FAULTS = ("frozen_joint", "jittery_stamps", "nan_state", "spiking_joint", "stuttering_arm", "wrong_unit")
OTHER_FAULTS = ("clock_jump", "early_stop", "frozen_arms", "future_clock", "silent_leader", "unknown_topic")
PLAN_FAULTS = (*CAMERA_FAULTS, *ARM_FAULTS, *OTHER_FAULTS)
FILE_FAULTS = ("bad_checksum", "missing_file", "truncated_file")
Record = Callable[[str], Path]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    def record_one(fault: str) -> Path:
        return record_uploads(tmp_path, 1, seconds=1.0, size=(96, 128), faults=[fault] if fault else [])[
            0
        ].path

    return record_one


def decoded(path: Path, topic: str) -> list[Any]:
    with next(path.glob("*.mcap")).open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        return [message for *_, message in reader.iter_decoded_messages(topics=[topic], log_time_order=False)]


def topics(path: Path) -> set[str]:
    with next(path.glob("*.mcap")).open("rb") as file:
        summary = make_reader(file).get_summary()
        assert summary is not None
        return {channel.topic for channel in summary.channels.values()}


def test_all_the_faults_that_the_gates_are_tried_on_are_there_and_described() -> None:
    assert fault_names() == sorted(PLAN_FAULTS + FILE_FAULTS)
    assert all(describe_fault(name).endswith(".") for name in fault_names())


def test_an_unknown_fault_is_refused_with_the_nearest_and_all_valid_names() -> None:
    with pytest.raises(BadInput, match=r"unknown fault 'frozen_cam'; did you mean 'frozen_camera'\?"):
        plant("frozen_cam", Path("x"))
    with pytest.raises(BadInput, match=r"unknown fault 'zzz'; faults are bad_checksum, .*truncated_"):
        describe_fault("zzz")


def test_no_fault_and_a_fault_of_another_stage_leave_a_plan_as_it_is() -> None:
    plan = plan_recording("r", 0, 0, 1.0)
    assert plant("", plan) is plan
    assert plant("truncated_file", plan) is plan


@pytest.mark.parametrize("strength", ["", ":0.05", ":0.5"])
@pytest.mark.parametrize("fault", [*CAMERA_FAULTS, *ARM_FAULTS])
def test_a_fault_of_one_sensor_leaves_all_others_as_they_are(fault: str, strength: str) -> None:
    plan: RecordingPlan = plan_recording("r", 0, 0, 1.0)
    struck = plant(fault + strength, plan)
    after = {track.topic: track for track in struck.tracks}
    changed = {track.topic for track in plan.tracks if after.get(track.topic) is not track}
    assert changed == {STRUCK_ARM if fault in ARM_FAULTS else STRUCK_CAMERA}


def test_a_strength_outside_0_to_1_or_that_is_no_number_is_refused() -> None:
    for asked in ("dark_camera:0", "dark_camera:1.5", "dark_camera:half", "dark_camera:nan"):
        with pytest.raises(
            BadInput, match=r"expected a strength above 0 and up to 1, as in 'dark_camera:0\.5'"
        ):
            describe_fault(asked)
    assert describe_fault("dark_camera:0.5") == describe_fault("dark_camera")


def test_a_weaker_fault_does_less() -> None:
    plan = plan_recording("r", 0, 0, 4.0)

    def lost(strength: str) -> int:
        return len(struck_camera(plan)) - len(struck_camera(plant(f"dropping_camera{strength}", plan)))

    assert 0 < lost(":0.2") < lost(":0.5") < lost("") < len(struck_camera(plan))
    half = struck_camera(plant("frozen_camera:0.5", plan))
    assert 0.4 < np.mean(np.diff(half.shot_s_N) == 0) < 0.6


def test_a_strength_stands_in_the_marker_and_in_the_name_of_the_folder(record: Record) -> None:
    path = record("dark_camera:0.5")
    assert path.name == "sim-0-000000-dark_camera-0.5"
    assert read_marker(Folder.of(path)).metadata["planted_fault"] == "dark_camera:0.5"


def test_what_the_lens_does_shows_in_the_picture(record: Record) -> None:
    def pictures(fault: str) -> np.ndarray:
        found = decoded(record(fault), STRUCK_CAMERA)
        return np.stack([np.asarray(Image.open(BytesIO(bytes(message.data)))) for message in found]).astype(
            float
        )

    good = pictures("")
    assert pictures("dark_camera:0.5").mean() == pytest.approx(0.51 * good.mean(), rel=0.05)
    assert (pictures("overexposed_camera") >= 250).mean() > 0.9
    assert np.ptp(pictures("covered_camera"), axis=(1, 2)).max() < 40
    rough = [
        np.abs(np.diff(shots[:, :, 8:-8], axis=2)).mean() for shots in (pictures("blurred_camera"), good)
    ]
    assert rough[0] < 0.8 * rough[1]


def test_a_glitch_is_garbage_in_one_picture_of_forty(record: Record) -> None:
    good, bad = decoded(record(""), STRUCK_CAMERA), decoded(record("glitching_camera"), STRUCK_CAMERA)
    differs = [bytes(one.data) != bytes(other.data) for one, other in zip(good, bad, strict=True)]
    assert differs.index(True) == 20
    assert sum(differs[:21]) == 1


def test_times_of_the_future_are_still_times_of_ros(record: Record) -> None:
    found = decoded(record("future_clock"), STRUCK_CAMERA)
    assert (
        found[0].header.stamp.sec - decoded(record(""), STRUCK_CAMERA)[0].header.stamp.sec
        == 10 * 365 * 86_400
    )


@pytest.mark.parametrize("fault", ["black_camera", "clock_jump", "frozen_joint", *FILE_FAULTS])
def test_faulty_uploads_say_which_fault_they_carry_in_name_and_marker(record: Record, fault: str) -> None:
    path = record(fault)
    marker = read_marker(Folder.of(path))
    assert path.name == f"sim-0-000000-{fault}"
    assert marker.metadata["planted_fault"] == fault


def test_the_black_camera_sees_noise_in_the_dark_and_the_others_the_scene(record: Record) -> None:
    path = record("black_camera")
    dark = [np.asarray(Image.open(BytesIO(bytes(message.data)))) for message in decoded(path, STRUCK_CAMERA)]
    assert max(picture.max() for picture in dark) < 24
    assert max(picture.mean() for picture in dark) < 6
    assert len({picture.tobytes() for picture in dark}) > 1, "black is not frozen"
    top = np.asarray(Image.open(BytesIO(bytes(decoded(path, "/cam_top/image/compressed")[0].data))))
    assert top.mean() > 40


def test_the_frozen_camera_repeats_one_picture_with_new_stamps(record: Record) -> None:
    found = decoded(record("frozen_camera"), STRUCK_CAMERA)
    assert len({bytes(message.data) for message in found}) == 1
    stamps = {(message.header.stamp.sec, message.header.stamp.nanosec) for message in found}
    assert len(stamps) == len(found) > 20


def test_the_frozen_joint_reports_one_position_while_its_neighbours_move(record: Record) -> None:
    position = np.array([message.position for message in decoded(record("frozen_joint"), STRUCK_ARM)])
    moved = np.ptp(position, axis=0)
    assert moved[STRUCK_JOINT] == 0
    assert (np.delete(moved, STRUCK_JOINT) > 0).all()


def test_the_missing_camera_has_no_topic(record: Record) -> None:
    found = topics(record("missing_camera"))
    assert STRUCK_CAMERA not in found
    assert len(found) == 6


def test_length_mismatch_ends_one_camera_in_the_middle(record: Record) -> None:
    path = record("length_mismatch")
    stopped, whole = decoded(path, STRUCK_CAMERA), decoded(path, "/cam_top/image/compressed")
    assert len(stopped) == pytest.approx(len(whole) / 2, abs=2)


def test_the_clock_jump_makes_capture_times_repeat_while_arrivals_go_on(record: Record) -> None:
    with next(record("clock_jump").glob("*.mcap")).open("rb") as file:
        records = [
            record_
            for _, channel, record_ in make_reader(file).iter_messages(log_time_order=False)
            if channel.topic == STRUCK_CAMERA
        ]
    capture_ns = np.array([record_.publish_time for record_ in records])
    arrival_ns = np.array([record_.log_time for record_ in records])
    assert (np.diff(capture_ns) < 0).sum() == 1
    assert np.diff(capture_ns).min() < -100e6
    assert (np.diff(arrival_ns) > 0).all()


def test_a_missing_file_is_listed_in_the_marker_and_not_in_the_folder(record: Record) -> None:
    folder = Folder.of(record("missing_file"))
    with pytest.raises(
        UploadError, match=r"sim-0-000000-missing_file_1\.mcap: expected .* bytes, found no such file"
    ):
        check_sizes(read_marker(folder), folder.files())


def test_a_bad_checksum_shows_only_when_the_bytes_are_read(record: Record) -> None:
    folder = Folder.of(record("bad_checksum"))
    marker = read_marker(folder)
    check_sizes(marker, folder.files())
    with pytest.raises(UploadError, match=r"bad_checksum\.mcap: expected sha256 [0-9a-f]{64}, found"):
        verify_hashes(folder, marker)


def test_a_truncated_file_agrees_with_its_marker_but_cannot_be_read_to_its_end(record: Record) -> None:
    path = record("truncated_file")
    folder = Folder.of(path)
    verify_hashes(folder, read_marker(folder))
    with pytest.raises(McapError, match="length"), next(path.glob("*.mcap")).open("rb") as file:
        list(make_reader(file).iter_messages())


def test_the_success_label_of_a_faulty_upload_is_still_that_of_the_world(record: Record) -> None:
    healthy, faulty = read_marker(Folder.of(record(""))), read_marker(Folder.of(record("black_camera")))
    assert healthy.outcome == faulty.outcome != "unknown"
