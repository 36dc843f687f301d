from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import write_aloha, write_lerobot_v21, write_lerobot_v30, write_mcap, write_text

from dyna_assets.errors import RecordingError
from dyna_assets.landing.draft import draft_profile, render_toml
from dyna_assets.landing.profile import Grid, SourceProfile, TopicRole, VectorRole
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.upload import commit_upload
from dyna_train.config import load_config
from dyna_train.errors import ConfigError

SAYS: dict[str, Any] = {"source": "lab", "kind": "teleoperation", "recorded_at": 0}


def draft(root: Path) -> SourceProfile:
    return draft_profile("lab", str(root), Folder.of(root))


def roles(profile: SourceProfile) -> dict[str, dict[str, str]]:
    parts: dict[str, tuple[TopicRole, ...]] = {
        "cameras": profile.cameras,
        "states": profile.states,
        "actions": profile.actions,
    }
    return {part: {role.name: role.topic for role in topics} for part, topics in parts.items()}


def test_a_lerobot_data_set_is_drafted_with_its_fps_robot_and_task(tmp_path: Path) -> None:
    profile = draft(write_lerobot_v30(tmp_path, [3], fps=15))
    assert (profile.reader, profile.robot, profile.task, profile.grid.rate_hz) == (
        "lerobot_v30",
        "testbot",
        "stack the cups",
        15,
    )
    assert roles(profile) == {
        "cameras": {"top": "observation.images.top"},
        "states": {"state": "observation.state"},
        "actions": {"action": "action"},
    }
    assert profile.quiet_period_s == 10


def test_a_raw_mcap_is_drafted_with_its_camera_rate_and_leaders_as_actions(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 6)
    profile = draft(tmp_path)
    assert (profile.reader, profile.grid.rate_hz) == ("mcap_ros2", 30)
    assert roles(profile) == {
        "cameras": {"top": "/top/image/compressed"},
        "states": {"arm_position": "/arm/joint_states.position", "arm_effort": "/arm/joint_states.effort"},
        "actions": {"leader_position": "/leader/joint_states.position"},
    }


def test_aloha_is_drafted_with_all_it_measures(tmp_path: Path) -> None:
    write_aloha(tmp_path / "a.hdf5", 3, fps=50)
    assert roles(draft(tmp_path)) == {
        "cameras": {
            "cam_high": "observations/images/cam_high",
            "cam_left_wrist": "observations/images/cam_left_wrist",
        },
        "states": {
            "qpos": "observations/qpos",
            "effort": "observations/effort",
            "qvel": "observations/qvel",
        },
        "actions": {"action": "action"},
    }


def test_committed_uploads_below_a_landing_root_need_no_quiet_period(tmp_path: Path) -> None:
    write_mcap(tmp_path / "day/run1/a.mcap", 3)
    commit_upload(tmp_path / "day/run1", **SAYS)
    profile = draft(tmp_path)
    assert (profile.reader, profile.quiet_period_s) == ("mcap_ros2", None)


def test_a_broken_first_upload_is_passed_over(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a/a.mcap", 3)
    (tmp_path / "a/a.mcap").write_bytes((tmp_path / "a/a.mcap").read_bytes()[:100])
    write_text(tmp_path / "b/notes.txt", "x")
    write_mcap(tmp_path / "c/a.mcap", 3)
    assert draft(tmp_path).cameras[0].name == "top"


def test_a_complete_recording_is_preferred_and_a_partial_one_is_better_than_none(tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path, [3, 3])
    videos = root / "videos/chunk-000/observation.images.top"
    (videos / "episode_000000.mp4").unlink()
    assert len(draft(root).cameras) == 1
    (videos / "episode_000001.mp4").unlink()
    assert draft(root).cameras == ()


def test_where_nothing_can_be_read_the_first_reason_is_given(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 1).write_bytes(b"abc")
    with pytest.raises(
        RecordingError, match=r"no recording can be read\. The first: .*a\.mcap: byte 0: expected"
    ):
        draft(tmp_path)


def test_a_folder_of_text_files_is_refused(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "x")
    with pytest.raises(RecordingError, match=r"no known recording format\. .*Found 1 file \(1 \.txt\)"):
        draft(tmp_path)


def test_the_draft_of_each_format_reads_back_equal(tmp_path: Path) -> None:
    write_mcap(tmp_path / "one/a.mcap", 3)
    write_aloha(tmp_path / "two/a.hdf5", 3)
    write_lerobot_v21(tmp_path / "three", [3])
    for name in ("one", "two", "three"):
        profile = draft(tmp_path / name)
        path = tmp_path / f"{name}.toml"
        path.write_text(render_toml(profile), encoding="utf-8")
        assert load_config(SourceProfile, path) == profile


names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,8}\Z")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
units = st.one_of(texts, st.lists(texts, min_size=1, max_size=3).map(tuple))
vectors = st.lists(
    st.builds(VectorRole, name=names, topic=texts, units=units), max_size=2, unique_by=lambda r: r.name
)


def one_role_a_topic(parts: dict[str, Any]) -> bool:
    topics = [role.topic for key in ("cameras", "states", "actions") for role in parts[key]]
    return len(set(topics)) == len(topics)


profiles = (
    st.fixed_dictionaries(
        dict(
            name=names,
            landing=texts,
            reader=texts,
            quiet_period_s=st.one_of(st.none(), st.floats(0, 1e6)),
            robot=texts,
            task=texts,
            grid=st.builds(Grid, rate_hz=st.floats(0.001, 1000)),
            cameras=st.lists(
                st.builds(TopicRole, name=names, topic=texts), max_size=2, unique_by=lambda r: r.name
            ).map(tuple),
            states=vectors.map(tuple),
            actions=vectors.map(tuple),
        )
    )
    .filter(one_role_a_topic)
    .map(lambda parts: SourceProfile(**parts))
)


@given(profile=profiles)
def test_any_profile_survives_its_toml(profile: SourceProfile) -> None:
    assert SourceProfile.model_validate(tomllib.loads(render_toml(profile))) == profile


def test_the_toml_explains_every_threshold(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 3)
    text = render_toml(draft(tmp_path))
    gates = text.split("[gates]\n")[1].split("\n\n")[0].splitlines()
    assert len(gates) == 9 and all("  # " in line for line in gates)


def test_a_profile_with_a_name_twice_or_an_unknown_key_is_refused(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 3)
    text = render_toml(draft(tmp_path))
    path = tmp_path / "lab.toml"
    path.write_text(text.replace('"arm_effort"', '"arm_position"'))
    with pytest.raises(ConfigError, match=r"\[\[states\]\] names arm_position more than once"):
        load_config(SourceProfile, path)
    path.write_text(text.replace("max_gap_s", "max_gaps_s"))
    with pytest.raises(ConfigError, match=r"unknown key 'gates\.max_gaps_s'; did you mean 'max_gap_s'\?"):
        load_config(SourceProfile, path)
    path.write_text(text.replace("max_drop_share = 0.2", "max_drop_share = 20"))
    with pytest.raises(ConfigError, match=r"key 'gates\.max_drop_share' = 20: .* less than or equal to 1"):
        load_config(SourceProfile, path)
