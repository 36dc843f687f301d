from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_samples import (
    FORMS,
    POINTS,
    confidence_of,
    frames_list,
    long_rows,
    value_of,
    wide_rows,
    write_csv,
    write_hand_video,
    write_lines,
    write_parquet,
    write_poses,
)
from hypothesis import given
from hypothesis import strategies as some
from recordings import number_in, write_video

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.hand_video.pairing import paired_with_frames
from dyna_assets.landing.sources.hand_video.poses import COLUMN, MEDIAPIPE, HandPoses
from dyna_assets.landing.sources.hand_video.reader import HandVideoReader
from dyna_assets.landing.sources.hand_video.recording import HandVideoRecording
from dyna_train.errors import ConfigError
from dyna_train.video.coded import read_facts

LEFT, RIGHT = "left_hand.keypoints", "right_hand.keypoints"


def opened(folder: Path, reader: HandVideoReader | None = None) -> HandVideoRecording:
    reader = reader or HandVideoReader()
    (ref,) = reader.recordings(Folder.of(folder))
    recording = reader.open(Folder.of(folder), ref)
    assert isinstance(recording, HandVideoRecording)
    return recording


def rows_of(recording: HandVideoRecording, topic: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([message.payload for message in recording.read([topic])], np.float64)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_pose_file_says_the_same_and_pairs_with_its_frames(tmp_path: Path, form: str) -> None:
    write_hand_video(tmp_path, 6)
    write_poses(tmp_path, form, 6, unseen=[2])
    with opened(tmp_path) as recording:
        assert list(recording.topics) == [
            "video", LEFT, "left_hand.confidence", RIGHT, "right_hand.confidence",
        ]  # fmt: skip
        messages = list(recording.read(["video", LEFT, RIGHT, "left_hand.confidence"]))
        frames = [m for m in messages if m.topic == "video"]
        assert [number_in(m.payload) for m in frames] == list(range(6))  # type: ignore[arg-type]
        for topic, side in ((LEFT, "left"), (RIGHT, "right")):
            assert recording.times(topic).tolist() == recording.times("video").tolist()
            expected = [
                [value_of(side, f, point, axis) for point in range(POINTS) for axis in "xyz"]
                for f in range(6)
            ]
            if side == "left":
                expected[2] = [math.nan] * 9
            assert np.array_equal(rows_of(recording, topic), np.array(expected), equal_nan=True)
        confidence = rows_of(recording, "left_hand.confidence")
        assert confidence[2].tolist() == [0, 0, 0]
        assert confidence[3].tolist() == [confidence_of(3, point) for point in range(POINTS)]
        assert recording.topics[LEFT].names[:4] == ("kp_0.x", "kp_0.y", "kp_0.z", "kp_1.x")
        assert (recording.meta.paired_by, recording.meta.num_listed) == ("number", 6)
        assert recording.meta.extra["poses_paired_by"] == "frame"


def test_twenty_one_points_have_mediapipes_names(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 2)
    write_csv(tmp_path / "take.csv", wide_rows(range(2), num_points=21))
    with opened(tmp_path) as recording:
        assert recording.topics[LEFT].names[:3] == ("wrist.x", "wrist.y", "wrist.z")
        assert recording.topics[LEFT].names[-1] == "pinky_tip.z"
        assert recording.topics["left_hand.confidence"].names == MEDIAPIPE


def test_points_with_names_stand_in_mediapipes_order(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 1)
    rows = [{"Frame": 0, "left_hand_thumb_tip_x": 4.0, "left_hand_thumb_tip_y": 5.0, "left_wrist_x": 0.0}]
    write_csv(tmp_path / "take.csv", [{**rows[0], "left_wrist_y": 1.0, "left_hand_score": 0.75}])
    with opened(tmp_path) as recording:
        assert recording.topics[LEFT].names == ("wrist.x", "wrist.y", "thumb_tip.x", "thumb_tip.y")
        assert rows_of(recording, LEFT).tolist() == [[0, 1, 4, 5]]
        assert recording.topics["left_hand.confidence"].names == ("hand",)
        assert rows_of(recording, "left_hand.confidence").tolist() == [[0.75]]


@pytest.mark.parametrize(
    ("column", "parts"),
    [
        ("left_0_x", ("left", "0", "x")),
        ("RIGHT_kp12_Confidence", ("RIGHT", "12", "Confidence")),
        ("right_hand.landmark_3.z", ("right", "3", "z")),
        ("left_index_finger_tip_visibility", ("left", "index_finger_tip", "visibility")),
        ("left_score", ("left", None, "score")),
        ("left_arm_x", None),
        ("frame", None),
    ],
)
def test_columns_are_known_by_side_point_and_part(column: str, parts: tuple[str, ...] | None) -> None:
    match = COLUMN.fullmatch(column)
    assert (match and match.group("side", "point", "part")) == parts


def test_rows_with_times_pair_by_clock_and_keep_their_own(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 6)
    rows = [
        {"timestamp_ms": k * 50 + 7, **{key: v for key, v in row.items() if key != "frame"}}
        for k, row in enumerate(wide_rows(range(3)))
    ]
    write_csv(tmp_path / "take.csv", rows)
    with opened(tmp_path) as recording:
        assert recording.times(LEFT).tolist() == [7_000_000, 57_000_000, 107_000_000]
        assert (recording.meta.paired_by, recording.meta.num_listed) == ("clock", None)
        assert recording.meta.extra["poses_paired_by"] == "time"


def test_whole_nanoseconds_stay_exact_and_seconds_are_rounded_to_them(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 3)
    keypoints = [[0.0, 0.0], [1.0, 1.0]]
    hands = [{"handedness": "Left", "score": 0.5, "landmarks": keypoints}]
    write_lines(tmp_path / "take.jsonl", [{"timestamp_ns": 66_666_667, "hands": hands}])
    with opened(tmp_path) as recording:
        assert recording.times(LEFT).tolist() == [66_666_667]
    write_lines(tmp_path / "take.jsonl", [{"timestamp_s": 1 / 15, "hands": hands}])
    with opened(tmp_path) as recording:
        assert recording.times(LEFT).tolist() == [66_666_667]


def test_rows_on_a_clock_of_their_own_are_refused(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 6)
    rows = [{**row, "timestamp": 1_790_000_000.5} for row in wide_rows(range(2))]
    write_csv(tmp_path / "take.csv", [{k: v for k, v in row.items() if k != "frame"} for row in rows])
    with pytest.raises(
        RecordingError,
        match=r"take\.csv: its rows are at 1,790,000,000\.500 .* the video lasts 0\.167 s: expected",
    ):
        opened(tmp_path)


def test_a_file_that_lists_every_frame_keeps_its_length_for_the_gates(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 6)
    for listed in (4, 8):
        write_csv(tmp_path / "take.csv", wide_rows(range(listed)))
        with opened(tmp_path) as recording:
            times = recording.times(LEFT).tolist()
            assert len(times) == recording.topics[LEFT].num_messages == listed
            assert times == sorted(set(times)) and times[3] == recording.times("video")[3]
            assert recording.meta.num_listed == 6


def test_frames_between_that_are_not_listed_are_without_a_detection(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 8)
    write_csv(tmp_path / "take.csv", long_rows([1, 2, 5]))
    with opened(tmp_path) as recording:
        seen = [not math.isnan(row[0]) for row in rows_of(recording, LEFT)]
        assert seen == [frame in (1, 2, 5) for frame in range(8)]
        assert rows_of(recording, "left_hand.confidence")[0].tolist() == [0, 0, 0]
        assert "names 3 of 8 frames: the others are without a detection" in recording.meta.notes[0]


def test_files_that_count_from_one_are_refused_and_read_with_the_option(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 6)
    write_csv(tmp_path / "take.csv", wide_rows(range(1, 7)))
    with opened(tmp_path) as recording:
        assert "frames 1 to 6, the video has 0 to 5: every pose would" in recording.meta.missing[LEFT]
        with pytest.raises(
            RecordingError, match=r"counts from 1, set first_frame = 1 under \[reader_options\]"
        ):
            recording.times(LEFT)
        assert HandVideoReader().roles(recording).states  # so that the source's TOML can be drafted
    reader = HandVideoReader().configured({"first_frame": 1}, where="x")
    with opened(tmp_path, reader) as recording:
        assert recording.times(LEFT).tolist() == recording.times("video").tolist()
    write_csv(tmp_path / "take.csv", wide_rows(range(6)))
    with pytest.raises(
        RecordingError, match="a row names a frame before the first one; set first_frame under"
    ):
        opened(tmp_path, reader)
    with pytest.raises(
        ConfigError, match=r"x, \[reader_options\]: unknown key 'first'; did you mean 'first_frame'"
    ):
        HandVideoReader().configured({"first": 1}, where="x")


@given(
    keys=some.lists(some.integers(0, 40), unique=True, min_size=1),
    num_frames=some.integers(1, 30),
)
def test_every_row_is_kept_at_its_own_frames_time(keys: list[int], num_frames: int) -> None:
    times_F = np.arange(num_frames, dtype=np.int64) * 33
    poses = HandPoses("frame", np.array(keys), {}, {"row": list(range(len(keys)))})
    paired, times_M, _ = paired_with_frames(poses, times_F, 0, "f")
    rows = paired.columns["row"]
    found = {row: int(time) for row, time in zip(rows, times_M, strict=True) if row is not None}
    assert sorted(found) == list(range(len(keys)))
    assert all(found[row] == key * 33 for row, key in enumerate(keys) if key < num_frames)
    assert (np.diff(times_M) > 0).all()
    assert len(times_M) == num_frames or None not in rows or max(keys) >= num_frames


def test_what_else_a_file_says_is_kept_column_by_column(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 3)
    rows = [{**row, "head_x": k / 2, "note": "ab"[k % 2]} for k, row in enumerate(wide_rows(range(3)))]
    write_csv(tmp_path / "take.csv", rows)
    with opened(tmp_path) as recording:
        assert recording.topics["poses.head_x"].kind == "vector"
        assert rows_of(recording, "poses.head_x").tolist() == [[0], [0.5], [1]]
        assert recording.topics["poses.note"].kind == "other"
        assert [json.loads(row.data)["value"] for row in recording.extras(["poses.note"])] == ["a", "b", "a"]


def test_what_frames_say_beside_keypoints_is_kept_too(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 2)
    frames = frames_list(range(2))
    frames[1]["light"] = {"lux": 3, "half": "\ud800", "odd": math.nan}
    frames[1]["hands"][0] |= {"box": [1, 2], "score": 0.5}
    (tmp_path / "take.json").write_text(
        json.dumps({"task": "knead \ud800", "tracker": "t1", "frames": frames})
    )
    with opened(tmp_path) as recording:
        rows = list(recording.extras(["poses.light", "poses.left_hand.box", "poses.left_hand.score"]))
        assert [(row.topic, json.loads(row.data)["value"]) for row in rows[3:]] == [
            ("poses.light", {"lux": 3, "half": "\ud800", "odd": "NaN"}),
            ("poses.left_hand.box", [1, 2]), ("poses.left_hand.score", 0.5),
        ]  # fmt: skip
        assert recording.meta.task == r"knead \ud800"
        assert recording.meta.extra["poses"] == {"task": r"knead \ud800", "tracker": "t1"}


def test_of_two_hands_on_one_side_the_surer_one_counts_and_the_other_is_kept(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 1)
    hands = [{"side": "Left", "score": score, "keypoints": [[score, 0], [1, 1]]} for score in (0.25, 0.75)]
    (tmp_path / "take.json").write_text(json.dumps([{"frame": 0, "hands": hands}]))
    with opened(tmp_path) as recording:
        assert rows_of(recording, LEFT).tolist() == [[0.75, 0, 1, 1]]
        (row,) = recording.extras(["poses.left_hand.others"])
        assert json.loads(row.data)["value"] == [hands[0]]


def test_a_hand_that_is_never_seen_has_rows_without_a_detection_and_no_role(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 4)
    write_csv(tmp_path / "take.csv", [row for row in long_rows(range(4)) if row["hand"] == "right"])
    reader = HandVideoReader()
    with opened(tmp_path) as recording:
        assert np.isnan(rows_of(recording, LEFT)).all()
        assert not rows_of(recording, "left_hand.confidence").any()
        roles = reader.roles(recording)
        assert roles.states == (("right_hand", RIGHT),)
        assert roles.confidence == {RIGHT: "right_hand.confidence"}
        assert (roles.cameras, roles.rate_hz) == ((("video", "video"),), 30)


def test_confidence_that_is_zero_everywhere_or_absent_counts_as_seen(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 2)
    points = [{"x": 1, "y": 2, "z": 3, "visibility": 0.0}, {"x": 4, "y": 5, "z": 6, "visibility": 0.0}]
    write_lines(
        tmp_path / "take.jsonl", [{"frame": k, "hands": [{"side": "l", "keypoints": points}]} for k in (0, 1)]
    )
    with opened(tmp_path) as recording:
        assert rows_of(recording, LEFT).tolist() == [[1, 2, 3, 4, 5, 6]] * 2
        assert rows_of(recording, "left_hand.confidence").tolist() == [[1, 1]] * 2
        assert "left hand: its confidence is 0 everywhere and says nothing" in recording.meta.notes[0]
    (tmp_path / "take.jsonl").unlink()
    rows = [
        {key: v for key, v in row.items() if "conf" not in key} for row in wide_rows(range(2), unseen=[1])
    ]
    write_csv(tmp_path / "take.csv", rows)
    with opened(tmp_path) as recording:
        assert rows_of(recording, "left_hand.confidence").tolist() == [[1, 1, 1], [0, 0, 0]]


def test_zeros_without_confidence_are_no_detection(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 2)
    rows = wide_rows(range(2))
    rows[1] |= {key: 0.0 for key in rows[1] if key.startswith("left_0_")}
    write_csv(tmp_path / "take.csv", rows)
    with opened(tmp_path) as recording:
        assert np.isnan(rows_of(recording, LEFT)[1]).tolist() == [True] * 3 + [False] * 6


def test_a_video_alone_is_a_camera_with_a_note(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 3)
    with opened(tmp_path) as recording:
        assert list(recording.topics) == ["video"]
        assert list(recording.meta.notes) == ["no pose file: a camera alone"]
    assert HandVideoReader().notes(Folder.of(tmp_path)) == ["1 of 1 videos have no pose file, first take.mp4"]


def test_videos_and_tables_find_each_other_by_name_or_as_the_only_ones(tmp_path: Path) -> None:
    for name in ("a/1.mp4", "a/2.mkv", "b/x.mov", "c/3.mp4", "c/3.avi"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    for name in ("a/1.csv", "a/other.json", "b/poses.parquet", "c/upload.csv"):
        (tmp_path / name).write_bytes(b"")
    folder, reader = Folder.of(tmp_path), HandVideoReader()
    assert [(ref.name, ref.files) for ref in reader.recordings(folder)] == [
        ("a/1", ("a/1.mp4", "a/1.csv")),
        ("a/2", ("a/2.mkv",)),
        ("b/x", ("b/x.mov", "b/poses.parquet")),
        ("c/3.avi", ("c/3.avi",)),
        ("c/3.mp4", ("c/3.mp4",)),
    ]
    assert reader.notes(folder) == [
        "3 of 5 videos have no pose file, first a/2.mkv",
        "2 tables belong to no video by their name, first a/other.json",
    ]
    assert reader.matches(folder.below("a").files(), folder) and not reader.matches(folder.files(), folder)
    with pytest.raises(RecordingError, match=r"expected files \*\.mp4, .* found no files"):
        reader.recordings(folder.limited_to([]))


def test_two_pose_files_of_one_name_are_refused(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 2)
    write_poses(tmp_path, "wide.csv", 2)
    write_poses(tmp_path, "frames.json", 2)
    with pytest.raises(
        RecordingError, match=r"take\.mp4: several pose files have its name: take\.csv, take\.json"
    ):
        opened(tmp_path)


def test_the_packets_of_the_video_can_be_copied_or_kept(tmp_path: Path) -> None:
    write_video(tmp_path / "take.mp4", range(12), b_frames=2)
    write_poses(tmp_path, "wide.csv", 12, unseen=[1])
    with opened(tmp_path) as recording:
        coded = recording.coded("video")
        assert coded is not None and len(read_facts(coded).packets) == 12
        assert recording.coded(LEFT) is None
        video, points = recording.extra_topics(["video", LEFT])
        assert (video.message_encoding, points.message_encoding) == ("h264", "json")
        assert base64.b64decode(video.metadata["extradata"]) == coded.extradata
        rows = list(recording.extras(["video", LEFT]))
        packets = [row for row in rows if row.topic == "video"]
        assert [row.data for row in packets] == [packet.data for packet in coded.packets()]
        assert sorted(row.time_ns for row in packets) == recording.times("video").tolist()
        values = [json.loads(row.data)["value"] for row in rows if row.topic == LEFT]
        assert values[0][1] == [value_of("left", 0, 1, axis) for axis in "xyz"]
        assert values[1] == [["NaN"] * 3] * 3


def test_a_video_that_starts_late_has_its_first_frame_at_zero(tmp_path: Path) -> None:
    write_video(tmp_path / "take.mp4", range(4), pts=[5120, 5632, 6144, 6656])
    with opened(tmp_path) as recording:
        assert recording.times("video").tolist() == [0, 33_333_333, 66_666_667, 100_000_000]


def test_the_real_hand_video_is_a_camera_alone(shared_data: Path) -> None:
    with opened(shared_data / "human_hand_video") as recording:
        assert recording.topics["video"].num_messages == 621
        assert recording.times("video")[-1] == 20_666_666_667
        assert list(recording.meta.notes) == ["no pose file: a camera alone"]


def test_parquet_keeps_whole_numbers_of_any_type(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 2)
    rows = [{**row, "frame": float(row["frame"])} for row in wide_rows(range(2))]
    write_parquet(tmp_path / "take.parquet", rows)
    with opened(tmp_path) as recording:
        assert recording.times(LEFT).tolist() == recording.times("video").tolist()
