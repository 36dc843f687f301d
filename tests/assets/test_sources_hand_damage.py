from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hand_samples import frames_list, write_hand_video, write_lines

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, Recording
from dyna_assets.landing.sources.hand_video.reader import HandVideoReader


def opened(folder: Path) -> Recording:
    (ref,) = HandVideoReader().recordings(Folder.of(folder))
    return HandVideoReader().open(Folder.of(folder), ref)


BAD_FRAMES: list[tuple[Any, str]] = [
    ([], "no frame in it"),
    ({"hands": []}, r'expected a list of frames or \{"frames": \[\.\.\.\]\}, found'),
    ([{"frame": 0}], r"frame 0 of the list: expected \{\"frame\": …, \"hands\": \[\.\.\.\]\}, found"),
    ([{"hands": []}], r"frame 0 of the list: expected 'frame', 'timestamp_s' or .*, found hands"),
    ([{"frame": 0, "hands": [3]}], "expected a hand as an object, found 3"),
    (
        [{"frame": 0, "hands": [{"side": "top"}]}],
        "frame 0 of the list: expected the hand 'left' or 'right', found 'top'",
    ),
    (
        [{"frame": 0, "hands": [{"side": "l", "keypoints": [[1]]}]}],
        r"expected a keypoint \[x, y\], .* found \[1\]",
    ),
    ([{"frame": 0, "hands": [{"side": "l", "keypoints": [["a", 1]]}]}], "expected numbers in a keypoint"),
    ([{"frame": 0, "hands": [{"side": "l", "keypoints": 5}]}], "expected a list of keypoints, found 5"),
    (
        [{"frame": 0, "hands": [{"side": "l", "keypoints": [[1, 2], [1, 2, 3]]}]}],
        "keypoints of different lengths",
    ),
    ([{"frame": 0.5, "hands": []}], "row 0: expected a whole frame number, found 0.5"),
    ([{"frame": 1, "hands": []}, {"frame": 1, "hands": []}], "frame 1 stands in more than one row"),
    ([{"timestamp_s": None, "hands": []}], "row 0: expected a time, found None"),
    ([{"frame": 0, "hands": [{"side": "l", "keypoints": [[10**400, 1]]}]}], "int too large to convert"),
    ([{"frame": 10**30, "hands": []}], "row 0: expected a whole frame number, found 1000"),
]


@pytest.mark.parametrize(("frames", "reason"), BAD_FRAMES)
def test_frames_that_say_something_else_are_refused_where_they_do(
    tmp_path: Path, frames: Any, reason: str
) -> None:
    write_hand_video(tmp_path, 2)
    (tmp_path / "take.json").write_text(json.dumps(frames))
    with pytest.raises(RecordingError, match=rf"take\.json: {reason}|take\.json: .*{reason}"):
        opened(tmp_path)


def test_a_hand_with_other_points_than_before_is_refused_by_its_frame(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 2)
    frames = frames_list(range(2))
    frames[1]["hands"][1]["keypoints"].pop()
    write_lines(tmp_path / "take.jsonl", frames)
    with pytest.raises(
        RecordingError,
        match="frame 1 of the list: right hand: expected 3 keypoints of 4 numbers as before, found 2",
    ):
        opened(tmp_path)


BAD_TABLES: list[tuple[str, str]] = [
    (
        "frame,a,b\n0,1,2\n",
        "no hand in it: expected columns like left_0_x or hand, keypoint, x, y; found frame, a, b",
    ),
    (
        "left_0_x,left_0_y\n1,2\n",
        "expected 'frame', 'timestamp_s' or 'timestamp_ns' for each row, found left_0_x",
    ),
    ("frame,left_0_x\n0,1\n", "left_0_x without y: every keypoint needs the same axes"),
    ("frame,left_0_x,left_0_y,left_1_x,left_1_y,left_1_z\n0,1,2,3,4,5\n", "left_0_x, left_0_y without z"),
    ("frame,left_confidence\n0,1\n", "left_confidence without any keypoint"),
    ("frame,left_0_x,left_0_y\n0,up,2\n", "column 'left_0_x': expected numbers, found string, first 'up'"),
    ("frame,left_0_x,left_0_y\n,1,2\n", "row 0: expected a whole frame number, found None"),
    ("frame,left_0_x,left_0_y\n0,1\n", r"cannot be read as csv \(CSV parse error: Expected 3 columns, got 2"),
    ("", r"cannot be read as csv \(Empty CSV file\)"),
    ("frame,hand,keypoint,x,y\n0,up,0,1,2\n", "row 0: expected the hand 'left' or 'right', found 'up'"),
    ("frame,hand,keypoint,x,y\n0,left,,1,2\n", "row 0: expected a keypoint's number or name, found none"),
    (
        "frame,hand,keypoint,x,y\n0,left,1,1,2\n0,left,1,3,4\n",
        "row 0: keypoint 1 of the same hand stands more than once",
    ),
]


@pytest.mark.parametrize(("text", "reason"), BAD_TABLES)
def test_tables_that_say_something_else_are_refused_where_they_do(
    tmp_path: Path, text: str, reason: str
) -> None:
    write_hand_video(tmp_path, 2)
    (tmp_path / "take.csv").write_text(text)
    with pytest.raises(RecordingError, match=rf"take\.csv: {reason}"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("take.json", b'{"frames": [', r"cannot be read as json \(Expecting value"),
        ("take.json", b"\xff\xfe\xfa", "cannot be read as json"),
        ("take.json", b"[" * 200_000, r"cannot be read as json \(maximum recursion depth exceeded"),
        ("take.jsonl", b'{"frame": 0, "hands": []}\n{"fra', "line 2: not JSON: "),
        ("take.parquet", b"PAR1 no", "cannot be read as parquet"),
        (
            "take.csv",
            b"frame,left_0_x,left_0_y\n0,1,2\n1,\xff,3\n",
            "column 'left_0_x': expected numbers, found binary",
        ),
    ],
)
def test_damaged_pose_files_are_named(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    write_hand_video(tmp_path, 2)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordingError, match=rf"{name}: {reason}"):
        opened(tmp_path)


def test_json_too_large_to_parse_whole_is_refused_with_a_way_out(tmp_path: Path) -> None:
    write_hand_video(tmp_path, 2)
    with (tmp_path / "take.json").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(
        RecordingError, match=r"67,108,865 bytes of JSON in one piece, .* one frame a line \(\.jsonl\)"
    ):
        opened(tmp_path)


def test_a_cut_video_is_refused(tmp_path: Path) -> None:
    path = write_hand_video(tmp_path, 30)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(RecordingError, match=r"take\.mp4: cannot be read as video"):
        opened(tmp_path)
