"""info.json and the episode list of LeRobot data sets, as they occur and as they should not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recordings import (
    change_info,
    feature,
    lerobot_info,
    write_lerobot_v21,
    write_text,
    write_video,
)

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, Recording, RecordingRef
from dyna_assets.landing.sources import detect, reader_named

CAMERA = "observation.images.top"
READER = reader_named("lerobot_v21")


def opened(root: Path, index: int = 0) -> Recording:
    folder = Folder.of(root)
    return READER.open(folder, READER.recordings(folder)[index])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b", "c"], ("a", "b", "c")),
        ([["a", "b", "c"]], ("a", "b", "c")),
        ({"motors": ["a", "b", "c"]}, ("a", "b", "c")),
        ({"a": 0, "b": 1, "c": 2}, ("a", "b", "c")),
        (None, ("state_0", "state_1", "state_2")),
    ],
)
def test_dimension_names_in_every_form_that_occurs(
    tmp_path: Path, names: object, expected: tuple[str, ...]
) -> None:
    root = write_lerobot_v21(tmp_path, [2])
    features = {**lerobot_info("v2.1")["features"], "observation.state": feature("float32", [3], names)}  # type: ignore[dict-item]
    change_info(root, features=features)
    with opened(root) as recording:
        assert recording.topics["observation.state"].names == expected
        assert list(recording.meta.notes) == []


def test_too_few_names_are_numbered_and_noted(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [2])
    change_info(root, features={"observation.state": feature("float32", [3], ["a", "b"])})
    with opened(root) as recording:
        assert recording.topics["observation.state"].names == ("state_0", "state_1", "state_2")
        assert list(recording.meta.notes) == ["observation.state: 2 names for 3 dimensions, numbered instead"]


def test_episodes_without_any_file_are_counted_not_listed(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [2, 2])
    with (root / "meta/episodes.jsonl").open("a") as file:
        file.writelines(
            json.dumps({"episode_index": k, "tasks": [], "length": 5}) + "\n" for k in range(2, 9)
        )
    write_video(root / "videos/chunk-000/observation.images.top/episode_000077.mp4", range(2))
    folder = Folder.of(root)
    assert [ref.name for ref in READER.recordings(folder)] == ["episode_000000", "episode_000001"]
    assert READER.notes(folder) == [
        "7 of 9 listed episodes have no file here, first episode_000002",
        "1 data or video files belong to no listed episode, first "
        "videos/chunk-000/observation.images.top/episode_000077.mp4",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("meta/info.json", "{", r"info\.json: not JSON at line 1"),
        ("meta/info.json", "[" * 100_000, r"info\.json: not JSON"),
        ("meta/info.json", "[]", r"info\.json: expected a JSON object, found list"),
        (
            "meta/info.json",
            '{"codebase_version": "v2.1"}',
            "expected the keys fps, features, data_path, found codebase",
        ),
        ("meta/episodes.jsonl", '{"episode_index": 0}\n{"episode', r"episodes\.jsonl line 2: not JSON"),
        (
            "meta/episodes.jsonl",
            '{"length": 3}',
            r"episodes\.jsonl line 1: expected an object with an integer episode",
        ),
    ],
)
def test_broken_metadata_is_refused_with_file_and_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    root = write_lerobot_v21(tmp_path, [2])
    write_text(root / name, content)
    folder = Folder.of(root)
    with pytest.raises(RecordingError, match=message):
        detect(folder).recordings(folder)


def test_a_missing_episode_list_is_refused(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [2])
    (root / "meta/episodes.jsonl").unlink()
    with pytest.raises(RecordingError, match=r"meta/episodes\.jsonl: no such file"):
        READER.recordings(Folder.of(root))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fps": 0}, "expected a rate above 0 and up to 100,000 Hz, found '0'"),
        ({"fps": "1e999999999"}, "fps, chunks_size or features are malformed"),
        ({"chunks_size": 0}, "expected chunks_size above 0, found 0"),
        ({"fps": "fast"}, "fps, chunks_size or features are malformed"),
        ({"features": {"action": {}}}, "fps, chunks_size or features are malformed"),
        ({"data_path": "../{episode_index}.parquet"}, "leads out of the data set"),
        ({"data_path": "{episode_index:0999999999d}"}, "asks for a name of endless length"),
        ({"data_path": "{nothing}.parquet"}, "does not fit episode_index, episode_chunk"),
    ],
)
def test_wrong_entries_of_info_json_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    root = write_lerobot_v21(tmp_path, [2])
    change_info(root, **changes)
    with pytest.raises(RecordingError, match=message):
        READER.recordings(Folder.of(root))


def test_an_episode_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    folder = Folder.of(write_lerobot_v21(tmp_path, [2]))
    with pytest.raises(RecordingError, match=r"episodes\.jsonl: lists no episode 7"):
        READER.open(folder, RecordingRef("episode_000007", ()))
    with pytest.raises(RecordingError, match="expected a recording named like episode_000012, found 'run3'"):
        READER.open(folder, RecordingRef("run3", ()))


def test_an_unknown_topic_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with (
        opened(write_lerobot_v21(tmp_path, [2])) as recording,
        pytest.raises(
            RecordingError,
            match=r"episode_000000: no topic 'wrist'; topics here: .*observation\.images\.top.*action",
        ),
    ):
        recording.times("wrist")
