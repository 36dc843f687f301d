from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pytest
from recordings import (
    NAMES,
    change_info,
    episode_table,
    feature,
    lerobot_info,
    number_in,
    still,
    write_lerobot_v21,
    write_table,
)

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, Recording, RecordingRef
from dyna_assets.landing.sources import detect, reader_named
from dyna_assets.landing.stills import decode_still

CAMERA = "observation.images.top"
CLOCK = ["timestamp", "frame_index", "episode_index"]
READER = reader_named("lerobot_v21")


def opened(root: Path, index: int = 0) -> Recording:
    folder = Folder.of(root)
    return READER.open(folder, READER.recordings(folder)[index])


def test_every_frame_and_row_comes_with_its_time_and_equal_instants_are_equal(tmp_path: Path) -> None:
    with opened(write_lerobot_v21(tmp_path, [12, 9]), 1) as recording:
        assert list(recording.topics) == [CAMERA, "observation.state", "action", *CLOCK]
        topics = [CAMERA, "observation.state", "action"]
        seen: dict[str, list[tuple[int, Any]]] = {topic: [] for topic in topics}
        for message in recording.read(topics):
            value = (
                number_in(message.payload) if isinstance(message.payload, av.VideoFrame) else message.payload
            )
            seen[message.topic].append((message.time_ns, value))
        grid = [(2 * step * 10**9 + 30) // 60 for step in range(9)]
        for topic in topics:
            assert recording.times(topic).tolist() == grid == [time_ns for time_ns, _ in seen[topic]]
        assert [value for _, value in seen[CAMERA]] == list(range(20, 29))
        assert [value.tolist() for _, value in seen["action"]] == [[step + 0.5] * 3 for step in range(9)]
        assert seen["action"][0][1].dtype == np.float64


def test_topics_are_merged_in_time_order(tmp_path: Path) -> None:
    with opened(write_lerobot_v21(tmp_path, [10])) as recording:
        times = [message.time_ns for message in recording.read([CAMERA, "action"])]
    assert times == sorted(times) and len(times) == 20


def test_meta_and_topics_say_what_the_metadata_says(tmp_path: Path) -> None:
    with opened(write_lerobot_v21(tmp_path, [4], success=False, operator="kim")) as recording:
        assert (recording.meta.task, recording.meta.success, recording.meta.robot) == (
            "stack the cups",
            False,
            "testbot",
        )
        assert recording.meta.extra["operator"] == "kim"
        camera, state = recording.topics[CAMERA], recording.topics["observation.state"]
        assert (camera.kind, camera.num_messages, camera.width, camera.height, camera.encoding) == (
            "image",
            4,
            64,
            48,
            "h264",
        )
        assert (state.kind, state.num_messages, state.names) == ("vector", 4, NAMES)


def test_other_dtypes_are_listed_and_refused(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [2])
    change_info(root, features={"note": feature("string", [1]), "grid": feature("float32", [2, 2])})
    table = episode_table(0, 2, note=["x", "y"], grid=[[[0.0]], [[0.0]]])
    write_table(root / "data/chunk-000/episode_000000.parquet", table)
    with opened(root) as recording:
        assert {name: info.kind for name, info in recording.topics.items()} == {
            "note": "other",
            "grid": "other",
            **dict.fromkeys(
                ["observation.state", "action", *CLOCK], "vector"
            ),  # columns that nothing declares
        }
        with pytest.raises(
            RecordingError, match=r"topic 'note' \(string \[1\]\) is neither pictures nor vectors"
        ):
            recording.times("note")


def test_stills_stored_in_the_rows_are_read_lazily_in_order(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [40])
    change_info(root, features={"observation.images.top": feature("image", [48, 64, 3])})
    column = pa.array([{"bytes": still(step, "PNG"), "path": None} for step in range(40)])
    table = episode_table(0, 40, **{CAMERA: column})
    write_table(root / "data/chunk-000/episode_000000.parquet", table, row_group_size=7)
    with opened(root) as recording:
        info = recording.topics[CAMERA]
        assert (info.kind, info.width, info.height, info.encoding, info.num_messages) == (
            "image",
            64,
            48,
            "png",
            40,
        )
        payloads = [message.payload for message in recording.read([CAMERA])]
        assert [
            number_in(decode_still(payload)) for payload in payloads if isinstance(payload, bytes)
        ] == list(range(40))


def test_float32_seconds_never_shift_a_row(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [2], fps=29.97)
    write_table(root / "data/chunk-000/episode_000000.parquet", episode_table(0, 60_000, 29.97))
    with opened(root) as recording:
        times = recording.times("action").tolist()
    fps = Fraction(2997, 100)
    assert times == [(2 * step * 10**9 / fps + 1) // 2 for step in range(60_000)]


def test_times_off_the_grid_stay_as_they_are(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [4])
    stored = np.array([0.0, 0.05, 0.11, 0.2], np.float32)
    table = episode_table(0, 4).set_column(2, "timestamp", pa.array(stored))
    write_table(root / "data/chunk-000/episode_000000.parquet", table)
    with opened(root) as recording:
        assert recording.times("action").tolist() == np.rint(stored.astype(float) * 1e9).astype(int).tolist()


def test_a_time_that_is_no_number_is_refused_by_row(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3])
    table = episode_table(0, 3).set_column(2, "timestamp", pa.array([0.0, np.nan, 0.1], pa.float32()))
    write_table(root / "data/chunk-000/episode_000000.parquet", table)
    with (
        opened(root) as recording,
        pytest.raises(RecordingError, match=r"column 'timestamp' row 1: .* found nan"),
    ):
        recording.times("action")


def test_rows_skipped_by_the_recorder_keep_their_place_on_the_grid(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [6])
    table = episode_table(0, 6).take([0, 1, 4, 5])
    write_table(root / "data/chunk-000/episode_000000.parquet", table)
    with opened(root) as recording:
        assert recording.times("action").tolist() == [0, 33_333_333, 133_333_333, 166_666_667]


def test_a_missing_video_leaves_the_recording_listed_and_says_so(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3, 3])
    (root / "videos/chunk-000/observation.images.top/episode_000001.mp4").unlink()
    folder = Folder.of(root)
    refs = READER.recordings(folder)
    assert (refs[1].name, refs[1].files) == ("episode_000001", ("data/chunk-000/episode_000001.parquet",))
    assert READER.notes(folder) == [
        "1 of 2 listed episodes lack a file, first episode_000001: "
        "no videos/chunk-000/observation.images.top/episode_000001.mp4"
    ]
    with READER.open(folder, refs[1]) as recording:
        assert CAMERA not in recording.topics
        assert "no file" in recording.meta.missing[CAMERA]
        with pytest.raises(
            RecordingError, match=r"topic 'observation\.images\.top' cannot be read: no file .*\.mp4"
        ):
            recording.read([CAMERA])
        assert len(recording.times("action")) == 3


def test_a_cut_video_leaves_the_other_topics_readable(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3])
    video = root / "videos/chunk-000/observation.images.top/episode_000000.mp4"
    video.write_bytes(video.read_bytes()[:700])
    with opened(root) as recording:
        assert "cannot be read as video" in recording.meta.missing[CAMERA]
        assert sum(1 for _ in recording.read(["action", "observation.state"])) == 6


def test_a_missing_or_cut_data_file_leaves_the_video_readable(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3, 3])
    (root / "data/chunk-000/episode_000000.parquet").unlink()
    cut = root / "data/chunk-000/episode_000001.parquet"
    cut.write_bytes(cut.read_bytes()[:200])
    for index, reason in enumerate(["no file", "not readable as parquet"]):
        with opened(root, index) as recording:
            assert list(recording.topics) == [CAMERA]
            assert reason in recording.meta.missing["action"]
            assert sum(1 for _ in recording.read([CAMERA])) == 3


def test_a_column_that_is_not_there_is_missing_by_name(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3])
    write_table(root / "data/chunk-000/episode_000000.parquet", episode_table(0, 3).drop_columns(["action"]))
    with opened(root) as recording:
        assert recording.meta.missing == {"action": "no such column in data/chunk-000/episode_000000.parquet"}


def test_rows_of_another_width_than_promised_are_refused(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3])
    features = lerobot_info("v2.1")["features"]
    change_info(root, features={**features, "action": feature("float32", [4], None)})  # type: ignore[dict-item]
    with (
        opened(root) as recording,
        pytest.raises(
            RecordingError, match=r"topic 'action': info\.json promises 4 dimensions, the rows have 3"
        ),
    ):
        list(recording.read(["action"]))


def test_a_row_without_a_value_is_refused_by_number(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3])
    table = episode_table(0, 3).set_column(1, "action", pa.array([[1.0] * 3, None, [1.0] * 3]))
    write_table(root / "data/chunk-000/episode_000000.parquet", table)
    with (
        opened(root) as recording,
        pytest.raises(RecordingError, match="column 'action' has no value in row 1"),
    ):
        list(recording.read(["action"]))


def test_rows_of_uneven_length_are_refused_by_number(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3])
    table = episode_table(0, 3).set_column(1, "action", pa.array([[1.0] * 3, [1.0] * 3, [1.0] * 2]))
    write_table(root / "data/chunk-000/episode_000000.parquet", table)
    with (
        opened(root) as recording,
        pytest.raises(
            RecordingError, match="column 'action' row 2: expected 3 values, as in the first row, found 2"
        ),
    ):
        list(recording.read(["action"]))


def test_the_real_data_set_lists_thirteen_recordings_and_counts_the_rest(shared_data: Path) -> None:
    folder = Folder.of(shared_data / "g1_inspire_lerobot_v21")
    reader = detect(folder)
    refs = reader.recordings(folder)
    assert (reader.name, len(refs)) == ("lerobot_v21", 13)
    assert reader.notes(folder)[0] == "87 of 100 listed episodes have no file here, first episode_000003"
    assert "first episode_000000: no videos/" in reader.notes(folder)[1]
    with reader.open(folder, refs[0]) as recording:
        assert set(recording.topics) == {"observation.state", "action", "index", "task_index", *CLOCK}
        assert "no file" in recording.meta.missing["observation.images.cam_high"]


def test_a_real_episode_gives_its_frames_and_rows_on_one_grid(shared_data: Path) -> None:
    folder = Folder.of(shared_data / "g1_inspire_lerobot_v21")
    name, camera = (
        "videos/chunk-000/observation.images.cam_high/episode_000010.mp4",
        "observation.images.cam_high",
    )
    with READER.open(folder, RecordingRef("episode_000010", ())) as recording:
        assert recording.topics["action"].names[:2] == ("kLeftShoulderPitch", "kLeftShoulderRoll")
        times = recording.times(camera)
        assert (times == recording.times("action")).all()
        frames = recording.read([camera])
        first = next(frames).payload
        with av.open(str(shared_data / "g1_inspire_lerobot_v21" / name)) as container:
            plain = next(container.decode(video=0))
            assert container.streams.video[0].frames == len(times) == recording.topics[camera].num_messages
    assert isinstance(first, av.VideoFrame)
    assert (first.to_ndarray() == plain.to_ndarray()).all()


def test_corrected_metadata_is_other_input_for_the_episodes_that_it_concerns(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3, 3])
    before = READER.recordings(Folder.of(root))
    episodes = root / "meta" / "episodes.jsonl"
    first, second = episodes.read_text().splitlines()
    episodes.write_text(
        f"{first}\n{second.replace(chr(34) + 'length' + chr(34) + ': 3', chr(34) + 'length' + chr(34) + ': 2')}\n"
    )
    after = READER.recordings(Folder.of(root))
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)
    info = root / "meta" / "info.json"
    info.write_text(info.read_text().replace('"fps": 30', '"fps": 15'))
    assert all(old != new for old, new in zip(before, READER.recordings(Folder.of(root)), strict=True))
