from __future__ import annotations

import base64
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image
from recordings import number_in, still
from tf_records import declare, episode, example, float32, write_records

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import ExtraRecording, Folder, RecordingRef
from dyna_assets.landing.sources.rlds.reader import RldsReader
from dyna_assets.landing.sources.rlds.recording import RldsRecording
from dyna_assets.landing.stills import decode_still
from dyna_train.errors import ConfigError

READER = RldsReader(10.0)
FILE = "set-train.tfrecord-00000-of-00001"


def opened(path: Path, number: int = 0) -> RldsRecording:
    recording = READER.open(Folder.of(path.parent), RecordingRef(f"{path.name}:{number:05d}", (path.name,)))
    assert isinstance(recording, RldsRecording)
    return recording


def one(folder: Path, **more: Any) -> RldsRecording:
    return opened(write_records(folder / FILE, [example(episode(0, 4, **more))]))


def test_every_record_is_a_recording_on_the_grid_of_the_given_rate(tmp_path: Path) -> None:
    write_records(tmp_path / FILE, [example(episode(10 * number, 4)) for number in range(3)])
    folder = Folder.of(tmp_path)
    refs = READER.recordings(folder)
    assert [ref.name for ref in refs] == [f"{FILE}:0000{number}" for number in range(3)]
    for number, ref in enumerate(refs):
        with READER.open(folder, ref) as recording:
            messages = list(recording.read(["observation/top", "observation/state", "action"]))
            pictures = [m.payload for m in messages if m.topic == "observation/top"]
            states = [np.asarray(m.payload).tolist() for m in messages if m.topic == "observation/state"]
            assert recording.times("action").tolist() == [0, 100_000_000, 200_000_000, 300_000_000]
        steps = [10 * number + step for step in range(4)]
        assert [number_in(decode_still(bytes(picture))) for picture in pictures] == steps  # type: ignore[arg-type]
        assert states == [[step, step + 0.125, step + 0.25] for step in steps]
        assert [m.time_ns for m in messages] == sorted(m.time_ns for m in messages)


def test_topics_say_what_they_hold(tmp_path: Path) -> None:
    with one(tmp_path) as recording:
        kinds = {name: (info.kind, info.encoding, len(info.names)) for name, info in recording.topics.items()}
        assert kinds == {
            "action": ("vector", "float32", 2),
            "is_first": ("vector", "int64", 1),
            "language_instruction": ("other", "text", 0),
            "observation/state": ("vector", "float32", 3),
            "observation/top": ("image", "jpeg", 0),
        }
        assert recording.topics["observation/state"].names == ("state_0", "state_1", "state_2")
        assert (recording.topics["observation/top"].width, recording.topics["observation/top"].height) == (
            64,
            48,
        )
        assert recording.meta.task == "put the cup down"
        assert (recording.meta.paired_by, recording.meta.extra["episode"]) == (
            "number",
            {"file_path": "/data/ep"},
        )


def test_without_a_rate_a_source_and_a_recording_are_refused_with_what_to_write(tmp_path: Path) -> None:
    write_records(tmp_path / FILE, [example(episode(0, 4))])
    with pytest.raises(
        ConfigError, match=r"source 'x': RLDS keeps no times: give the rate .* as rate_hz under"
    ):
        RldsReader().configured({}, where="source 'x'")
    with pytest.raises(RecordingError, match=r"00001: RLDS keeps no times: give the rate"):
        RldsReader().open(Folder.of(tmp_path), RecordingRef(f"{FILE}:00000", (FILE,)))
    with pytest.raises(
        ConfigError, match=r"source 'x', \[reader_options\]: key 'rate_hz' = 0: Input should be"
    ):
        RldsReader().configured({"rate_hz": 0}, where="source 'x'")
    with pytest.raises(ConfigError, match=r"unknown key 'rate'; did you mean 'rate_hz'\?"):
        RldsReader().configured({"rate_hz": 3, "rate": 0}, where="source 'x'")
    assert RldsReader().configured({"rate_hz": 3}, where="").options == {"rate_hz": 3.0}


def test_roles_are_what_is_observed_and_the_action(tmp_path: Path) -> None:
    with one(tmp_path, **{"steps/reward": [0.0] * 4, "steps/embedding": [0.0] * 40}) as recording:
        roles = READER.roles(recording)
    assert roles.cameras == (("top", "observation/top"),)
    assert (roles.states, roles.actions) == ((("state", "observation/state"),), (("action", "action"),))
    assert roles.rate_hz == 10


def test_an_instruction_that_changes_is_kept_with_its_times(tmp_path: Path) -> None:
    texts = ["", "open the jar", "open the jar", "pour"]
    with one(tmp_path, **{"steps/language_instruction": texts}) as recording:
        assert recording.meta.task == "open the jar"
        assert recording.meta.extra["tasks"] == ["open the jar", "pour"]
        assert [list(text.items())[:4] for text in recording.meta.texts] == [
            [("key", "task"), ("text", "open the jar"), ("time_ns", 100_000_000), ("end_ns", 300_000_000)],
            [("key", "task"), ("text", "pour"), ("time_ns", 300_000_000), ("end_ns", 300_000_000)],
        ]


def test_an_instruction_that_stays_is_the_task_and_no_text(tmp_path: Path) -> None:
    with one(tmp_path, **{"steps/language_instruction": ["", "pour", "pour", ""]}) as recording:
        assert (recording.meta.task, recording.meta.texts) == ("pour", [])


def test_facts_of_the_episode_are_its_metadata_and_long_ones_a_topic(tmp_path: Path) -> None:
    more = {
        "steps/language_instruction": [""] * 4,
        "episode_metadata/language_instruction": ["wipe"],
        "episode_metadata/success": [1],
        "episode_metadata/robot": ["ur5"],
        "episode_metadata/camera_matrix": [float(k) for k in range(100)],
        "episode_metadata/blob": [b"\xff\xfe"],
    }
    with one(tmp_path, **more) as recording:
        assert (recording.meta.task, recording.meta.success, recording.meta.robot) == ("wipe", True, "ur5")
        long, blob = "episode_metadata/camera_matrix", "episode_metadata/blob"
        assert recording.topics[long].kind == recording.topics[blob].kind == "other"
        rows = {row.topic: json.loads(row.data)["value"] for row in recording.extras([long, blob])}
        assert rows == {long: [float(k) for k in range(100)], blob: [base64.b64encode(b"\xff\xfe").decode()]}


def test_every_topic_can_be_kept_as_rows_of_json_without_loss(tmp_path: Path) -> None:
    odd = [math.nan, math.inf, -math.inf, 0.1]
    with one(tmp_path, **{"steps/odd": odd, "steps/big": [2**62, -1, 0, -(2**63)]}) as recording:
        assert isinstance(recording, ExtraRecording)
        topics = list(recording.topics)
        declared = recording.extra_topics(topics)
        rows = list(recording.extras(topics))
        assert [(topic.topic, topic.message_encoding) for topic in declared] == [(t, "json") for t in topics]
        values = {t: [json.loads(row.data)["value"] for row in rows if row.topic == t] for t in topics}
        assert values["odd"] == [["NaN"], ["Infinity"], ["-Infinity"], float32([0.1])]
        assert values["big"] == [[2**62], [-1], [0], [-(2**63)]]
        assert values["language_instruction"] == ["put the cup down"] * 4
        assert [base64.b64decode(value) for value in values["observation/top"]] == [
            still(step) for step in range(4)
        ]
        assert [row.time_ns for row in rows] == sorted(row.time_ns for row in rows)
        with pytest.raises(RecordingError, match=r"no topic 'x'; topics here: action, big"):
            list(recording.extras(["x"]))
        with pytest.raises(
            RecordingError, match=r"'language_instruction' \(text\) is neither pictures nor vectors"
        ):
            recording.read(["language_instruction"])


def test_features_json_gives_shapes_that_the_lists_do_not_tell(tmp_path: Path) -> None:
    declare(
        tmp_path,
        pose=("float32", (2, 3)),
        flag=("bool", ()),
        frame=("image", (48, 64, 3)),
        gone=("float32", (2,)),
    )
    values: dict[str, Any] = {
        "steps/pose": [float(k) for k in range(12)],
        "steps/flag": [1, 0],
        "steps/frame": [still(0, "PNG")] * 2,
    }
    with opened(write_records(tmp_path / FILE, [example(values)])) as recording:
        assert recording.topics["pose"].num_messages == 2
        assert recording.topics["flag"].encoding == "bool"
        assert recording.topics["frame"].encoding == "png"
        assert [json.loads(row.data)["value"] for row in recording.extras(["pose"])] == [
            [[0, 1, 2], [3, 4, 5]],
            [[6, 7, 8], [9, 10, 11]],
        ]
        with pytest.raises(
            RecordingError, match=r"topic 'gone' cannot be read: features\.json promises it, the record"
        ):
            recording.times("gone")


def test_a_list_that_is_too_short_keeps_its_own_length_or_is_missing_with_the_reason(tmp_path: Path) -> None:
    declare(tmp_path, a=("float32", (2,)), b=("float32", (3,)), c=("float32", (1,)), d=("float32", (1,)))
    lists = {"steps/a": [0.0] * 8, "steps/b": [0.0] * 11, "steps/c": [0.0] * 4, "steps/d": [0.0] * 3}
    with opened(write_records(tmp_path / FILE, [example(lists)])) as recording:
        assert {name: info.num_messages for name, info in recording.topics.items()} == {
            "a": 4,
            "c": 4,
            "d": 3,
        }
        with pytest.raises(
            RecordingError, match=r"'b' cannot be read: features.json promises 3 values a step, found 11"
        ):
            recording.read(["b"])


def test_lists_that_do_not_go_by_steps_are_kept_whole(tmp_path: Path) -> None:
    odd = {"steps/points": [0.0] * 5, "steps/p/ragged_flat_values": [0.0] * 8, "steps/none": []}
    odd |= {"steps/picture": [0.0] * (4 * 5000)}
    with one(tmp_path, **odd) as recording:
        found = {name: recording.topics[name.removeprefix("steps/")] for name in odd}
        assert [(info.kind, info.num_messages) for info in found.values()] == [
            ("other", n) for n in (1, 1, 0, 4)
        ]
        rows = list(recording.extras(["points", "none"]))
        assert [json.loads(row.data) for row in rows] == [{"value": [0.0] * 5}]


def test_pictures_that_are_none_are_missing_with_the_reason(tmp_path: Path) -> None:
    declare(tmp_path, frame=("image", (48, 64, 3)), is_first=("bool", ()))
    values: dict[str, Any] = {"steps/frame": [b"raw pixels"], "steps/is_first": [1]}
    with (
        opened(write_records(tmp_path / FILE, [example(values)])) as recording,
        pytest.raises(
            RecordingError, match="topic 'frame' cannot be read: topic 'frame': expected a JPEG or PNG"
        ),
    ):
        recording.read(["frame"])


def test_pictures_of_distances_are_no_camera(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 4), 900, np.uint16)).save(buffer, "PNG")
    with one(tmp_path, **{"steps/observation/depth": [buffer.getvalue()] * 4}) as recording:
        info = recording.topics["observation/depth"]
        assert (info.kind, info.encoding, info.num_messages) == ("other", "png of 16 bits", 4)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"a": [1]}, "record 0: expected RLDS features 'steps/…', found a"),
        ({"steps/a": [1, 2]}, r"record 0: nothing tells how many steps it has: no features\.json"),
    ],
)
def test_records_that_are_no_episodes_are_refused(tmp_path: Path, values: Any, reason: str) -> None:
    with pytest.raises(RecordingError, match=reason):
        opened(write_records(tmp_path / FILE, [example(values)]))


def test_an_episode_of_no_steps_has_topics_without_messages(tmp_path: Path) -> None:
    with opened(write_records(tmp_path / FILE, [example(episode(0, 0))])) as recording:
        assert {info.num_messages for info in recording.topics.values()} == {0}


def test_notes_name_records_and_shards_that_the_list_promises(tmp_path: Path) -> None:
    write_records(tmp_path / "1.0.0/set-train.tfrecord-00000-of-00002", [example(episode(0, 4))])
    splits = [{"name": "train", "shardLengths": ["2", "1"]}]
    (tmp_path / "1.0.0/dataset_info.json").write_text(json.dumps({"splits": splits}))
    assert READER.notes(Folder.of(tmp_path)) == [
        "1.0.0/dataset_info.json lists 2 records, 1.0.0/set-train.tfrecord-00000-of-00002 holds 1 whole ones",
        "1.0.0/dataset_info.json lists 1 records in shard 1 of 'train', which is not here",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON at line 1"),
        ('{"splits": [{"shardLengths": [1]}]}', "its splits are malformed: KeyError"),
    ],
)
def test_a_broken_list_of_records_is_a_note(tmp_path: Path, text: str, reason: str) -> None:
    write_records(tmp_path / FILE, [example(episode(0, 4))])
    (tmp_path / "dataset_info.json").write_text(text)
    (note,) = READER.notes(Folder.of(tmp_path))
    assert f"dataset_info.json: {reason}" in note


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "not JSON at line 1"), ('{"featuresDict": 3}', "no description of features as TFDS writes it")],
)
def test_a_broken_features_json_is_named(tmp_path: Path, text: str, reason: str) -> None:
    write_records(tmp_path / FILE, [example(episode(0, 4))])
    (tmp_path / "features.json").write_text(text)
    with pytest.raises(RecordingError, match=rf"features\.json: {reason}"):
        READER.recordings(Folder.of(tmp_path))


def test_other_facts_in_features_json_are_other_input(tmp_path: Path) -> None:
    write_records(tmp_path / FILE, [example(episode(0, 4))])
    before = READER.recordings(Folder.of(tmp_path))[0].facts
    declare(tmp_path, action=("float32", (2,)))
    assert READER.recordings(Folder.of(tmp_path))[0].facts != before


def test_a_folder_without_records_is_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(RecordingError, match=r"expected files \*\.tfrecord or .*, found 1 file \(1 \.txt\)"):
        READER.recordings(Folder.of(tmp_path))


def test_records_in_a_store_are_read_like_local_ones(tmp_path: Path) -> None:
    path = write_records(tmp_path / FILE, [example(episode(3, 4))])
    store = MemoryFileSystem()
    store.pipe(f"/rlds_records/{FILE}", path.read_bytes())
    folder = Folder(store, "/rlds_records")
    (ref,) = READER.recordings(folder)
    with READER.open(folder, ref) as recording:
        assert [float(m.payload[0]) for m in recording.read(["action"])] == [3.5, 4.5, 5.5, 6.5]  # type: ignore[index]


def test_the_real_bridge_records_are_read_whole(shared_data: Path) -> None:
    folder = Folder.of(shared_data / "bridge_rlds_tfrecord")
    reader = RldsReader().configured({"rate_hz": 5}, where="bridge")
    refs = reader.recordings(folder)
    assert len(refs) == 50 and reader.notes(folder) == []
    assert reader.matches(folder.below("1.0.0").files(), folder)
    for ref in (refs[0], refs[49]):
        with reader.open(folder, ref) as recording:
            roles = reader.roles(recording)
            assert [name for name, _ in roles.cameras] == ["image_0", "image_1", "image_2", "image_3"]
            assert (roles.states, roles.actions) == (
                (("state", "observation/state"),),
                (("action", "action"),),
            )
            topics = [topic for pairs in (roles.cameras, roles.states, roles.actions) for _, topic in pairs]
            assert len(list(recording.read(topics))) == 60
            assert recording.times("action")[-1] == 1_800_000_000
            assert recording.meta.task in {
                "put cup from counter or drying rack into sink",
                "turn lever vertical to front",
            }
            assert len(list(recording.extras(list(recording.topics)))) == 130  # type: ignore[attr-defined]
