from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import (
    write_aloha,
    write_lerobot_v21,
    write_lerobot_v30,
    write_mcap,
    write_text,
    write_video,
)

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, TopicInfo
from dyna_assets.landing.sources import READERS, detect, reader_named
from dyna_assets.landing.sources.base import paired
from dyna_assets.landing.sources.facts import meta_of, others, plain, text_of, truth_of
from dyna_assets.landing.sources.roles import guess_roles, short_names
from dyna_train.episode.values import is_text


def test_every_reader_is_found_by_its_name() -> None:
    assert list(READERS) == [
        "lerobot_v21", "lerobot_v30", "aloha_hdf5", "rlds", "rosbag2", "mcap", "hand_video",
    ]  # fmt: skip
    assert all(reader_named(name).name == name for name in READERS)


def test_an_unknown_reader_names_the_nearest_or_all() -> None:
    with pytest.raises(
        RecordingError, match=r"no reader is called 'lerobot_v2'; did you mean 'lerobot_v21'\?"
    ):
        reader_named("lerobot_v2")
    with pytest.raises(
        RecordingError, match="no reader is called 'x'; readers are lerobot_v21, lerobot_v30, aloha"
    ):
        reader_named("x")


def test_each_format_is_detected_in_its_folder(tmp_path: Path) -> None:
    write_lerobot_v21(tmp_path / "lerobot_v21", [1])
    write_lerobot_v30(tmp_path / "lerobot_v30", [1])
    write_aloha(tmp_path / "aloha_hdf5/a.hdf5", 1)
    write_mcap(tmp_path / "mcap/a.mcap", 1)
    write_text(tmp_path / "rlds/train.tfrecord", "")
    write_text(tmp_path / "rosbag2/metadata.yaml", "rosbag2_bagfile_information: {}")
    write_mcap(tmp_path / "rosbag2/bag_0.mcap", 1)
    write_video(tmp_path / "hand_video/hand.mp4", [1])
    assert [detect(Folder.of(tmp_path / name)).name for name in READERS] == list(READERS)


def test_a_folder_of_text_files_is_refused_with_what_was_looked_for_and_found(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.csv"):
        write_text(tmp_path / name, "hello")
    with pytest.raises(RecordingError) as hit:
        detect(Folder.of(tmp_path))
    assert str(hit.value) == (
        f"{tmp_path}: no known recording format. Looked for "
        "lerobot_v21: meta/info.json with codebase_version v2.0 or v2.1; "
        "lerobot_v30: meta/info.json with codebase_version v3.0; "
        "aloha_hdf5: files *.hdf5 or *.h5; rlds: files *.tfrecord or *.tfrecord-00000-of-00001; "
        "rosbag2: metadata.yaml of a ROS 2 bag, or files *.db3; mcap: files *.mcap; "
        "hand_video: files *.mp4, *.mkv, *.mov or *.webm, with hand poses beside them. "
        "Found 3 files (2 .txt, 1 .csv), for example a.txt. Give a folder that holds one of these directly"
    )


def test_a_data_set_of_an_unknown_version_is_not_taken_for_a_known_one(tmp_path: Path) -> None:
    write_text(tmp_path / "meta/info.json", '{"codebase_version": "v1.6"}')
    with pytest.raises(RecordingError, match="no known recording format"):
        detect(Folder.of(tmp_path))


@pytest.mark.parametrize(
    ("topics", "names"),
    [
        (["observation.images.cam_high"], ["cam_high"]),
        (["/top/image/compressed", "/left_wrist/image/compressed"], ["top", "left_wrist"]),
        (["/left/camera/color/image_raw", "/right/camera/color/image_raw"], ["left_camera", "right_camera"]),
        (["/arm/joint_states.position", "/arm/joint_states.effort"], ["arm_position", "arm_effort"]),
        (
            ["/l/arm/joint_states.position", "/r/arm/joint_states.position"],
            ["l_arm_position", "r_arm_position"],
        ),
        (["/images"], ["images"]),
        (["a/x!", "b/x?"], ["a_x_", "b_x_"]),
        (["/image", "/image/"], ["image_1", "image_2"]),
        ([], []),
    ],
)
def test_short_names_are_the_telling_end_of_a_path_and_unique(topics: list[str], names: list[str]) -> None:
    assert list(short_names(topics)) == names
    assert list(short_names(topics).values()) == topics


def test_vectors_are_actions_by_name_and_a_leaders_measurements_are_none() -> None:
    kinds = {
        "/leader/joint_states.position": "vector",
        "/leader/joint_states.effort": "vector",
        "/leader/joint_states.acceleration": "vector",
        "/arm.effort": "vector",
    }
    kinds |= {"/joint_cmd": "vector", "/top": "image", "/log": "other"}
    topics = {name: TopicInfo(name, kind, 1) for name, kind in kinds.items()}  # type: ignore[arg-type]
    roles = guess_roles(topics, 30)
    assert roles.cameras == (("top", "/top"),)
    assert roles.states == (("arm_effort", "/arm.effort"),)
    assert [topic for _, topic in roles.actions] == ["/leader/joint_states.position", "/joint_cmd"]


@pytest.mark.parametrize(
    ("value", "truth"), [("Yes", True), (b"failed", False), (None, None), ("maybe", None), (1, True)]
)
def test_truth_is_said_in_many_words(value: object, truth: bool | None) -> None:
    assert truth_of(value) is truth


def test_times_without_payload_and_payloads_without_time_are_refused() -> None:
    two = np.array([1, 2])
    assert [message.time_ns for message in paired("t", two, [b"a", b"b"], "f")] == [1, 2]
    with pytest.raises(RecordingError, match="f: topic 't' has 2 times, but more payloads"):
        list(paired("t", two, [b"a", b"b", b"c"], "f"))
    with pytest.raises(RecordingError, match="f: topic 't' has 2 times, but 1 payloads"):
        list(paired("t", two, [b"a"], "f"))


def test_plain_values_are_what_json_knows() -> None:
    assert plain([b"a", (1, None), {"k"}]) == ["a", [1, None], "{'k'}"]
    assert plain({"a": np.array([1, 2]), b"\xe9": "half \ud800"}) == {"a": [1, 2], r"\xe9": r"half \ud800"}


@given(st.text(st.characters()) | st.binary() | st.lists(st.text(), max_size=2) | st.none())
def test_any_text_of_metadata_can_be_said_in_utf8(value: object) -> None:
    assert is_text(text_of(value))


def test_facts_are_read_under_their_usual_names_and_the_others_are_kept() -> None:
    facts = {
        "is_success": np.bool_(True),
        "robot_id": b"arm-3",
        "robot_type": "arm",
        "prompt": "fold",
        "fps": 30,
        "note": np.float32(0.5),
    }
    meta = meta_of(facts)
    assert (meta.task, meta.success, meta.robot, meta.operator) == ("fold", True, "arm-3", "")
    assert others(facts, "fps") == {"robot_type": "arm", "note": 0.5}
