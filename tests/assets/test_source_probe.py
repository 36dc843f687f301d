"""`dyna-assets source probe`: what it says of real folders and of simulated ones, as a table, as TOML and as JSON."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from recordings import write_lerobot_v21, write_mcap, write_text
from typer.testing import CliRunner

from dyna_assets.cli import app
from dyna_assets.describe import look_at
from dyna_assets.errors import RecordingError, UploadError
from dyna_assets.landing.profile import SourceProfile
from dyna_train.errors import BadInput


@dataclass(frozen=True)
class Expected:
    """What a draft of a real folder is: its reader, roles by name, the rate, and what its notes say."""

    reader: str
    cameras: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    rate_hz: float = 30.0
    extra: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    choose: dict[str, Any] = field(default_factory=dict)


PROBED = {
    "bridge_rlds_tfrecord": Expected(
        "rlds",
        ("image_0", "image_1", "image_2", "image_3"),
        ("state",),
        ("action",),
        rate_hz=10.0,
        extra=("discount", "is_terminal", "language_embedding", "reward"),
        ignored=("is_first", "is_last", "language_instruction"),
        notes=("to choose: RLDS keeps no times",),
        choose={"rate_hz": 10.0},
    ),
    "g1_inspire_lerobot_v21": Expected(
        "lerobot_v21",
        ("cam_high",),
        ("state",),
        ("action",),
        ignored=("timestamp", "frame_index", "index", "episode_index", "task_index"),
        notes=("87 of 100 listed episodes have no file here", "1 of 100 listed episodes lack a file"),
    ),
    "human_hand_video": Expected(
        "hand_video", ("video",), notes=("1 of 1 videos have no pose file", "no pose file: a camera alone")
    ),
    "so101_sim_lerobot_v30": Expected(
        "lerobot_v30",
        ("wrist",),
        ("state",),
        ("action",),
        ignored=("timestamp", "frame_index", "index", "episode_index", "task_index"),
    ),
    "tricky_video": Expected(
        "hand_video",
        ("video",),
        rate_hz=25.0,
        notes=("21 of 21 videos have no pose file", "no pose file: a camera alone"),
    ),
    "rosbag2_bags/rosbag2_py/test/resources/mcap": Expected(
        "rosbag2", states=("b_basictypes",), rate_hz=500.0, extra=("a_empty",)
    ),
}
REFUSED = {
    "g1_inspire_state_only": r"no recording can be read\. The first: .*meta/episodes\.jsonl: no such file",
    "rosbag2_bags/rosbag2_py/test/resources/sqlite3": r"no topic that could be a camera, a state or an action; topics",
    "neon_multirate_clocks": r"no known recording format\. Looked for lerobot_v21: .* Found \d+ files \(",
    "rosbag2_bags": r"no known recording format\. .*lie deeper: ros2bag/test/resources/empty_bag \(rosbag2\), .*, …$",
}
DOCUMENTS = {"*.md", "*.txt", "LICENSE*", "SHA256SUMS"}


def test_the_table_has_a_verdict_for_every_folder_of_the_real_recordings(shared_data: Path) -> None:
    folders = {path.name for path in shared_data.iterdir() if path.is_dir()}
    assert folders == {name.split("/")[0] for name in (*PROBED, *REFUSED)}


@pytest.mark.parametrize("name", list(PROBED))
def test_a_real_folder_is_drafted_as_expected(shared_data: Path, name: str) -> None:
    expected = PROBED[name]
    draft = look_at("lab", str(shared_data / name))
    profile = draft.profile
    assert (profile.reader, profile.grid.rate_hz) == (expected.reader, expected.rate_hz)
    for part in ("cameras", "states", "actions"):
        assert tuple(role.name for role in getattr(profile, part)) == getattr(expected, part)
    assert profile.extra == expected.extra
    assert tuple(pattern for pattern in profile.ignore if pattern not in DOCUMENTS) == expected.ignored
    assert len(draft.notes) == len(expected.notes), draft.notes
    for note, start in zip(draft.notes, expected.notes, strict=True):
        assert re.match(start, note), note
    assert draft.choose == expected.choose
    assert "unmapped" not in {profile.use_of(topic) for topic in draft.topics}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_real_folder_that_cannot_be_read_is_refused_with_the_reason(shared_data: Path, name: str) -> None:
    with pytest.raises(RecordingError, match=REFUSED[name]):
        look_at("lab", str(shared_data / name))


def probe(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["source", "probe", *arguments], env={"COLUMNS": "200"})


def test_the_toml_goes_to_stdout_and_the_table_beside_it(tmp_path: Path) -> None:
    write_mcap(tmp_path / "kitchen 2/a.mcap", 3)
    done = probe(str(tmp_path / "kitchen 2"))
    assert done.exit_code == 0
    assert SourceProfile.model_validate(tomllib.loads(done.stdout)).name == "kitchen-2"
    for line in ("/top/image/compressed", "camera top", "action leader_position", "extra"):
        assert line in done.stderr


def test_the_json_form_says_what_becomes_of_every_topic(tmp_path: Path) -> None:
    write_lerobot_v21(tmp_path, [3])
    write_text(tmp_path / "calib.yaml", "x")
    done = probe(str(tmp_path), "--name", "lab", "--json")
    found = json.loads(done.stdout)
    assert SourceProfile.model_validate(found["source"]).name == "lab"
    assert {topic["topic"]: topic["becomes"] for topic in found["topics"]} == {
        "observation.images.top": "camera top",
        "observation.state": "state state",
        "action": "action action",
        "timestamp": "ignored",
        "frame_index": "ignored",
        "episode_index": "ignored",
    }
    assert set(found["ignored"]) == {"timestamp", "frame_index", "episode_index"}
    assert found["notes"] == ["1 files are read by nobody, first calib.yaml; name them under 'ignore'"]
    assert found["choose"] == {}


def test_out_writes_a_new_file_and_never_another(tmp_path: Path) -> None:
    write_mcap(tmp_path / "set/a.mcap", 3)
    out = tmp_path / "set.toml"
    assert "read it, correct it" in probe(str(tmp_path / "set"), "--out", str(out)).stdout
    written = out.read_text()
    done = probe(str(tmp_path / "set"), "--out", str(out))
    assert isinstance(done.exception, BadInput) and "exists already" in str(done.exception)
    assert out.read_text() == written


def test_out_in_a_folder_that_is_not_there_is_refused_before_anything_is_looked_at(tmp_path: Path) -> None:
    done = probe(str(tmp_path / "absent"), "--out", str(tmp_path / "no/set.toml"))
    assert isinstance(done.exception, BadInput)
    assert re.search(r"no/set\.toml: there is no folder .*/no; make it", str(done.exception))
    assert list(tmp_path.iterdir()) == []


def test_brackets_in_names_are_no_markup(tmp_path: Path) -> None:
    write_text(tmp_path / "[bold]x", "x")
    write_mcap(tmp_path / "a.mcap", 3)
    assert "first [bold]x; name them" in probe(str(tmp_path)).stderr


def test_an_empty_an_absent_and_an_unknown_folder_say_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/.hidden").write_text("x")
    write_text(tmp_path / "unknown/a.txt", "x")
    for name, kind, message in (
        ("empty", UploadError, "the landing folder is empty. Put recordings into it"),
        ("absent", UploadError, "no such folder; expected one with recordings"),
        ("unknown", RecordingError, "no known recording format. Looked for lerobot_v21"),
    ):
        done = probe(str(tmp_path / name))
        assert isinstance(done.exception, kind) and message in str(done.exception)
