"""What LeRobot's rows hold beside roles: every column is listed and can be kept, texts come with their times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recordings import (
    change_info,
    episode_table,
    feature,
    lerobot_info,
    still,
    write_lerobot_v21,
    write_lerobot_v30,
    write_table,
    write_text,
)

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import ExtraRecording, Folder, Recording
from dyna_assets.landing.sources import reader_named

CAMERA = "observation.images.top"
DATA = "data/chunk-000/episode_000000.parquet"
STEP_NS = 100_000_000
READER = reader_named("lerobot_v21")


def data_set(root: Path, length: int = 4, *, tasks: list[str] | None = None, **columns: Any) -> Path:
    """One episode at 10 Hz with more columns, undeclared; '__' in a name stands for a dot."""
    write_lerobot_v21(root, [length], fps=10)
    if tasks is not None:
        line = {"episode_index": 0, "tasks": tasks, "length": length}
        write_text(root / "meta/episodes.jsonl", json.dumps(line) + "\n")
    named = {name.replace("__", "."): values for name, values in columns.items()}
    write_table(root / DATA, episode_table(0, length, 10, **named))
    return root


def task_table(root: Path, *texts: str, name: str = "tasks", what: str = "task") -> None:
    lines = [json.dumps({f"{what}_index": number, what: text}) for number, text in enumerate(texts)]
    write_text(root / f"meta/{name}.jsonl", "\n".join(lines) + "\n")


def opened(root: Path, index: int = 0) -> Recording:
    folder = Folder.of(root)
    return READER.open(folder, READER.recordings(folder)[index])


def said(recording: Recording) -> list[tuple[str, str, float, float | None]]:
    """(key, text, first step, end step) of the recording's texts."""
    return [
        (
            text["key"],
            text["text"],
            text["time_ns"] / STEP_NS,
            None if text["end_ns"] is None else text["end_ns"] / STEP_NS,
        )
        for text in recording.meta.texts
    ]


def test_columns_that_nothing_declares_are_listed_by_what_they_hold(tmp_path: Path) -> None:
    three = pa.array([[1.0, 2.0, 3.0]] * 4, pa.list_(pa.float32(), 3))
    root = data_set(
        tmp_path, force=three, reward=[0.5] * 4, done=[False] * 4, say=["x"] * 4, box=[{"a": 1}] * 4
    )
    with opened(root) as recording:
        found = {name: (info.kind, info.names, info.encoding) for name, info in recording.topics.items()}
    assert found["force"][:2] == ("vector", ("force_0", "force_1", "force_2"))
    assert found["reward"] == ("vector", ("reward_0",), "double")
    assert found["done"][0] == "vector"
    assert found["say"] == ("other", (), "string")
    assert found["box"][0] == "other"


def test_a_column_that_is_not_what_info_json_says_is_no_vector(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    features: Any = lerobot_info("v2.1", 10)["features"]
    change_info(root, features={**features, "speed": feature("float32", [1])})
    write_table(root / DATA, episode_table(0, 4, 10, speed=["fast"] * 4))
    with opened(root) as recording:
        assert recording.topics["speed"].kind == "other"
        assert recording.topics["speed"].encoding == "string, in info.json float32 [1]"


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    table = pq.read_table(root / DATA)
    write_table(root / DATA, table.append_column("action", table["action"]))
    with opened(root) as recording:
        assert "column 'action' stands more than once" in recording.meta.missing["action"]


def test_counters_rewards_and_numbers_of_texts_are_drafted_as_no_role(tmp_path: Path) -> None:
    root = data_set(tmp_path, task_index=[0] * 4, next__reward=[0.5] * 4)
    with opened(root) as recording:
        roles = READER.roles(recording)
    assert roles.states == (("state", "observation.state"),)
    assert roles.actions == (("action", "action"),)


def test_counters_are_no_role_either_where_no_name_is_known(tmp_path: Path) -> None:
    root = data_set(tmp_path, subtask_index=[0] * 4, torque=[0.5] * 4)
    table = pq.read_table(root / DATA).drop_columns(["observation.state", "action"])
    write_table(root / DATA, table)
    (root / f"videos/chunk-000/{CAMERA}/episode_000000.mp4").unlink()
    with opened(root) as recording:
        roles = READER.roles(recording)
    assert (roles.cameras, roles.states, roles.actions) == ((), (("torque", "torque"),), ())


def test_any_column_is_kept_row_by_row_with_its_times(tmp_path: Path) -> None:
    root = data_set(
        tmp_path, 3, reward=[0.5, float("nan"), 1.0], say=["a", None, "c"], raw=[b"\0\1", b"", b"x"]
    )
    with opened(root) as recording:
        assert isinstance(recording, ExtraRecording)
        topics = ["reward", "say", "raw", "action", "timestamp"]
        assert {topic.message_encoding for topic in recording.extra_topics(topics)} == {"json"}
        rows = [(raw.topic, raw.time_ns, json.loads(raw.data)["value"]) for raw in recording.extras(topics)]
    assert [time_ns for _, time_ns, _ in rows] == sorted(time_ns for _, time_ns, _ in rows)
    by_topic = {
        topic: [(t // STEP_NS, value) for name, t, value in rows if name == topic] for topic in topics
    }
    assert by_topic["reward"] == [(0, 0.5), (1, "NaN"), (2, 1.0)]
    assert by_topic["say"] == [(0, "a"), (1, None), (2, "c")]
    assert by_topic["raw"] == [(0, "AAE="), (1, ""), (2, "eA==")]
    assert by_topic["action"] == [(step, [step + 0.5] * 3) for step in range(3)]
    assert len(by_topic["timestamp"]) == 3


def test_stored_pictures_are_kept_byte_for_byte_and_a_video_is_refused_with_advice(tmp_path: Path) -> None:
    stills = [{"bytes": still(step, "PNG"), "path": None} for step in range(3)]
    root = data_set(tmp_path, 3, wrist=stills)
    features: Any = lerobot_info("v2.1", 10)["features"]
    change_info(root, features={**features, "wrist": feature("image", [48, 64, 3])})
    with opened(root) as recording:
        assert isinstance(recording, ExtraRecording)
        assert [topic.message_encoding for topic in recording.extra_topics(["wrist"])] == ["png"]
        assert [raw.data for raw in recording.extras(["wrist"])] == [one["bytes"] for one in stills]
        for ask in (recording.extra_topics, lambda topics: list(recording.extras(topics))):
            with pytest.raises(
                RecordingError, match=r"is a video: give it a role under \[\[cameras\]\], or name"
            ):
                ask([CAMERA])


def test_only_the_episodes_own_rows_are_kept_of_a_shared_file(tmp_path: Path) -> None:
    folder = Folder.of(write_lerobot_v30(tmp_path, [3, 5, 2], row_group=4))
    reader = reader_named("lerobot_v30")
    with reader.open(folder, reader.recordings(folder)[1]) as recording:
        assert isinstance(recording, ExtraRecording)
        rows = [json.loads(raw.data)["value"] for raw in recording.extras(["frame_index", "episode_index"])]
    assert sorted(rows[0::2]) == list(range(5)) or rows == [0, 1, 1, 1, 2, 1, 3, 1, 4, 1]


def test_a_picture_outside_the_data_set_is_never_read(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(still(1, "PNG"))
    for path in ("../secret.png", str(tmp_path / "secret.png")):
        root = data_set(tmp_path / "set", 2, wrist=[{"bytes": None, "path": path}] * 2)
        features: Any = lerobot_info("v2.1", 10)["features"]
        change_info(root, features={**features, "wrist": feature("image", [48, 64, 3])})
        with opened(root) as recording:
            assert "outside the data set; copy it into" in recording.meta.missing["wrist"]


def test_a_task_that_changes_comes_with_its_times(tmp_path: Path) -> None:
    root = data_set(tmp_path, 5, tasks=["open", "close"], task_index=[1, 1, 0, 0, 0])
    task_table(root, "close", "open")
    with opened(root) as recording:
        assert said(recording) == [("task", "open", 0, 2), ("task", "close", 2, 4)]
        assert (recording.meta.task, recording.meta.notes) == ("open", ())


def test_one_task_all_along_is_no_text_of_its_own(tmp_path: Path) -> None:
    with opened(data_set(tmp_path, task_index=[3] * 4)) as recording:
        assert recording.meta.texts == []
        assert recording.meta.task == "stack the cups"


def test_further_tasks_of_an_episode_that_stand_on_no_row_hold_for_all_of_it(tmp_path: Path) -> None:
    with opened(data_set(tmp_path, tasks=["stack", "build a tower"], task_index=[0] * 4)) as recording:
        assert said(recording) == [("task", "build a tower", 0, 3)]


def test_an_episode_that_lists_no_task_has_the_one_of_its_first_row(tmp_path: Path) -> None:
    root = data_set(tmp_path, tasks=[], task_index=[1] * 4)
    task_table(root, "close", "open")
    with opened(root) as recording:
        assert recording.meta.task == "open"


def test_tasks_of_a_parquet_table_are_found_by_pandas_index_or_by_name(tmp_path: Path) -> None:
    for name, column in (("one", "__index_level_0__"), ("two", "task")):
        root = data_set(tmp_path / name, 2, tasks=["a", "b"], task_index=[0, 1])
        table = pa.table({"task_index": [0, 1], column: ["a", "b"]})
        write_table(root / "meta/tasks.parquet", table)
        with opened(root) as recording:
            assert [text for _, text, _, _ in said(recording)] == ["a", "b"]


def test_a_number_that_no_table_lists_is_noted_and_a_negative_one_is_none(tmp_path: Path) -> None:
    root = data_set(tmp_path, subtask_index=[-1, 0, 7, 7])
    task_table(root, "reach", name="subtasks", what="subtask")
    with opened(root) as recording:
        assert said(recording) == [("subtask", "reach", 1, 2)]
        assert list(recording.meta.notes) == [
            "episode_000000: subtask_index 7 stands in no table meta/subtasks.*"
        ]


def test_annotations_as_groot_has_them_are_texts_of_the_table_of_tasks(tmp_path: Path) -> None:
    name = "annotation.human.action.task_description"
    root = data_set(tmp_path, annotation__human__action__task_description=[0, 0, 1, 1])
    task_table(root, "reach", "lift")
    with opened(root) as recording:
        assert said(recording) == [(name, "reach", 0, 2), (name, "lift", 2, 3)]


def test_a_column_of_texts_gives_a_text_for_each_stretch(tmp_path: Path) -> None:
    with opened(data_set(tmp_path, phase=["reach", "reach", None, "lift"])) as recording:
        assert said(recording) == [("phase", "reach", 0, 2), ("phase", "lift", 3, 3)]


def test_a_text_that_differs_on_every_row_is_data_and_not_said(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    write_table(
        root / DATA, episode_table(0, 300, 10, path=[f"/frames/{number}.png" for number in range(300)])
    )
    with opened(root) as recording:
        assert recording.meta.texts == []
        assert recording.topics["path"].num_messages == 300


def language(content: str, time_s: float, style: str | None = "subtask", **more: object) -> dict[str, object]:
    return {
        "role": "assistant", "content": content, "style": style, "timestamp": time_s, "camera": None,
        "tool_calls": None, **more,
    }  # fmt: skip


def test_language_columns_come_with_their_times_speakers_and_tools(tmp_path: Path) -> None:
    lasting = [
        language("lift", 0.2),
        language("reach", 0.0),
        language("be careful", 0.1, "memory", camera="top"),
    ]
    events: list[Any] = [[] for _ in range(4)]
    events[2] = [language("stop!", 0.2, None, role="user", tool_calls=["say(ok)"])]
    root = data_set(tmp_path, language_persistent=[lasting] * 4, language_events=events)
    with opened(root) as recording:
        texts = recording.meta.texts
        assert said(recording) == [
            ("subtask", "reach", 0, 2),
            ("memory", "be careful", 1, 3),
            ("subtask", "lift", 2, 3),
            ("utterance", "stop!", 2, None),
            ("tool_calls", '["say(ok)"]', 2, None),
        ]
        assert [(text["subject"], text["role"]) for text in texts] == [
            ("", "assistant"), ("top", "assistant"), ("", "assistant"), ("", "user"), ("", "user")
        ]  # fmt: skip


def test_language_columns_of_another_form_are_refused_by_name(tmp_path: Path) -> None:
    root = data_set(tmp_path, language_persistent=[[{"content": "x"}]] * 4)
    with pytest.raises(
        RecordingError, match=r"column 'language_persistent' is malformed: KeyError\('timestamp'\)"
    ):
        opened(root)


def test_a_table_of_tasks_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    root = data_set(tmp_path, task_index=[0, 0, 1, 1])
    write_text(root / "meta/tasks.jsonl", '{"task_index": 0, "task": "a"}\n{"task')
    with pytest.raises(RecordingError, match=r"meta/tasks\.jsonl line 2: not JSON"):
        opened(root)
    write_text(root / "meta/tasks.jsonl", '{"task": "a"}\n')
    with pytest.raises(RecordingError, match=r"meta/tasks: its rows are malformed: KeyError\('task_index'\)"):
        opened(root)


def test_the_real_sets_have_nothing_that_is_not_listed(shared_data: Path) -> None:
    for name in ("g1_inspire_lerobot_v21", "so101_sim_lerobot_v30"):
        folder = Folder.of(shared_data / name)
        reader = reader_named(name[-11:])
        with reader.open(folder, reader.recordings(folder)[-1]) as recording:
            (data,) = [file for file in reader.recordings(folder)[-1].files if file.endswith(".parquet")]
            with folder.open(data) as file:
                assert set(pq.read_schema(file).names) <= set(recording.topics)
            assert recording.meta.texts == []


def test_an_episode_of_no_rows_has_topics_without_messages(tmp_path: Path) -> None:
    root = data_set(tmp_path)
    write_table(
        root / DATA, episode_table(0, 4, 10, task_index=[0] * 4).slice(0, 0).drop_columns(["episode_index"])
    )
    with opened(root) as recording:
        assert (recording.topics["action"].num_messages, len(recording.times("action"))) == (0, 0)
        assert list(recording.read(["action", "observation.state"])) == []
        assert isinstance(recording, ExtraRecording) and list(recording.extras(["action"])) == []
