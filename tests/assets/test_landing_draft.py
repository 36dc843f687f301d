from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from bag_samples import write_bag
from hand_samples import write_hand_video, write_poses
from hypothesis import given
from hypothesis import strategies as st
from recordings import write_aloha, write_lerobot_v21, write_lerobot_v30, write_mcap, write_text
from tf_records import episode, example, write_records

from dyna_assets.derive import DerivedRole
from dyna_assets.errors import RecordingError
from dyna_assets.labels.options import LabelOptions
from dyna_assets.landing.draft import Draft, draft_source
from dyna_assets.landing.profile import (
    ActionRole,
    CameraRole,
    Grid,
    SourceProfile,
    TopicRole,
    VectorRole,
)
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.source_toml import render_draft, render_toml
from dyna_assets.landing.sources import reader_of
from dyna_assets.landing.upload import commit_upload
from dyna_assets.quality import CHECKS
from dyna_assets.quality.registry import Limits
from dyna_train.config import load_config
from dyna_train.errors import ConfigError

SAYS: dict[str, Any] = {"source": "lab", "kind": "teleoperation", "recorded_at": 0}


def drafted(root: Path) -> Draft:
    return draft_source("lab", str(root), Folder.of(root))


def draft(root: Path) -> SourceProfile:
    return drafted(root).profile


def roles(profile: SourceProfile) -> dict[str, dict[str, str]]:
    parts: dict[str, tuple[TopicRole, ...]] = {
        "cameras": profile.cameras,
        "states": profile.states,
        "actions": profile.actions,
    }
    return {part: {role.name: role.topic for role in topics} for part, topics in parts.items()}


def test_a_lerobot_data_set_is_drafted_with_its_fps_and_robot(tmp_path: Path) -> None:
    profile = draft(write_lerobot_v30(tmp_path, [3], fps=15))
    assert (profile.reader, profile.robot, profile.grid.rate_hz) == ("lerobot_v30", "testbot", 15)
    assert roles(profile) == {
        "cameras": {"top": "observation.images.top"},
        "states": {"state": "observation.state"},
        "actions": {"action": "action"},
    }
    assert profile.quiet_period_s == 10


def test_a_raw_mcap_is_drafted_with_its_camera_rate_and_leaders_as_actions(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 6)
    profile = draft(tmp_path)
    assert (profile.reader, profile.grid.rate_hz) == ("mcap", 30)
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
    assert (profile.reader, profile.quiet_period_s) == ("mcap", None)


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
    found = drafted(root)
    assert found.profile.cameras == ()
    assert any(
        note.startswith("topic 'observation.images.top' cannot be read: no file") for note in found.notes
    )


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


def test_every_topic_of_each_format_gets_a_role_or_is_kept_or_ignored_for_a_reason(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        write(tmp_path / name)
        found = drafted(tmp_path / name)
        uses = {topic: found.profile.use_of(topic) for topic in found.topics}
        assert "unmapped" not in uses.values(), uses
        assert set(found.profile.ignore) == set(found.ignored)
        assert all(found.ignored.values())


def test_what_json_cannot_read_and_counters_are_kept_or_ignored_by_name(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 6)
    found = drafted(tmp_path)
    assert set(found.profile.extra) == {
        "/log",
        "/leader/joint_states.velocity",
        "/leader/joint_states.effort",
    }
    root = write_lerobot_v30(tmp_path / "set", [3])
    assert set(drafted(root).profile.ignore) == {"timestamp", "frame_index", "episode_index"}


def test_a_topic_with_the_letters_of_a_pattern_is_kept_alone(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["action"] = np.zeros((3, 2))
        file["odd[1]*"] = np.zeros((3, 2, 2))
        file["odd1"] = np.zeros((3, 2, 2))
    profile = draft(tmp_path)
    assert profile.extra == ("odd1", "odd[[]1][*]")
    assert profile.use_of("odd[1]*") == "extra" and profile.use_of("odd12") == "unmapped"


def test_documents_beside_the_recordings_are_ignored_and_other_files_are_named(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 3)
    write_text(tmp_path / "README.md", "x")
    write_text(tmp_path / "calibration.yaml", "x")
    found = drafted(tmp_path)
    assert "*.md" in found.profile.ignore and "LICENSE*" not in found.profile.ignore
    assert found.notes == ("1 files are read by nobody, first calibration.yaml; name them under 'ignore'",)


def test_rlds_is_drafted_with_a_rate_that_a_person_has_to_choose(tmp_path: Path) -> None:
    write_records(tmp_path / "a.tfrecord", [example(episode(0, 4))])
    found = drafted(tmp_path)
    assert (found.profile.reader_options, found.choose) == ({}, {"rate_hz": 10.0})
    assert "give the rate at which the steps were recorded as rate_hz" in found.notes[0]
    text = render_draft(found)
    assert "# note: to choose: RLDS keeps no times" in text
    with pytest.raises(ConfigError, match=r"source 'lab': RLDS keeps no times: give the rate"):
        reader_of(SourceProfile.model_validate(tomllib.loads(text)))
    chosen = SourceProfile.model_validate(
        tomllib.loads(text.replace("# rate_hz = 10.0  #", "rate_hz = 5.0  #"))
    )
    assert reader_of(chosen).options == {"rate_hz": 5.0}


def test_where_no_topic_can_have_a_role_the_topics_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["observations/cloud"] = np.zeros((3, 4, 4))
    with pytest.raises(
        RecordingError, match=r"no topic that could be a camera.*topics there: observations/cloud"
    ):
        draft(tmp_path)


def test_a_known_format_further_down_is_named(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a/b/c/run.mcap", 1)
    write_lerobot_v21(tmp_path / "a/set", [1])
    with pytest.raises(
        RecordingError, match=r"Such folders lie deeper: a/b/c \(mcap\), a/set \(lerobot_v21\)$"
    ):
        draft(tmp_path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "mcap": lambda root: write_mcap(root / "a.mcap", 3),
    "aloha": lambda root: write_aloha(root / "a.hdf5", 3),
    "lerobot_v21": lambda root: write_lerobot_v21(root, [3]),
    "lerobot_v30": lambda root: write_lerobot_v30(root, [3]),
    "hands": lambda root: write_poses(write_hand_video(root, 4).parent, "wide.csv", 4),
    "bag": lambda root: write_bag(root / "bag", "db3"),
    "rlds": lambda root: write_records(root / "a.tfrecord", [example(episode(0, 4))]),
}


def test_the_draft_of_each_format_reads_back_equal(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        write(tmp_path / name)
        found = drafted(tmp_path / name)
        path = tmp_path / f"{name}.toml"
        path.write_text(render_draft(found), encoding="utf-8")
        assert load_config(SourceProfile, path) == found.profile


names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,8}\Z")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.floats(-1e6, 1e6)
units = st.one_of(texts, st.lists(texts, min_size=1, max_size=3).map(tuple))
aligns = st.sampled_from(["causal", "nearest"])
ranges = st.one_of(st.none(), st.tuples(numbers, numbers))
plain = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), numbers, texts)
# one of the two: which way a check gets worse decides how both may lie
limits = st.one_of(st.builds(Limits, warn=numbers), st.builds(Limits, reject=numbers), st.just(Limits()))


def named(roles: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(roles, max_size=2, unique_by=lambda role: role.name).map(tuple)


common: dict[str, Any] = dict(name=names, topic=texts, align=aligns, latency_ms=st.floats(-1e4, 1e4))
vector = dict(units=units, range=ranges, confidence=texts)
cameras = named(st.builds(CameraRole, **common))
states = named(
    st.builds(
        VectorRole, **{**common, "align": st.sampled_from(["causal", "nearest", "interpolate"])}, **vector
    )
)
actions = named(st.builds(ActionRole, **common, **vector))
labels = st.builds(
    LabelOptions, captioner=st.from_regex(r"\A[a-z]{1,5}:[A-Z][a-z]{0,5}\Z"), embedder=st.none()
)


def one_role_a_topic(parts: dict[str, Any]) -> bool:
    topics = [role.topic for key in ("cameras", "states", "actions") for role in parts[key]]
    return 0 < len(set(topics)) == len(topics)


def with_reference_and_derived(parts: dict[str, Any], rate_hz: float, max_gap_s: float) -> SourceProfile:
    """A reference camera, and a derived vector of each state, where there are any."""
    reference = parts["cameras"][0].name if parts["cameras"] else ""
    grid = Grid(rate_hz=rate_hz, reference=reference, max_gap_s=max_gap_s)
    derived = tuple(
        DerivedRole(name=f"{role.name}_v", function="velocity", of=(f"state/{role.name}",))
        for role in parts["states"]
    )
    return SourceProfile(grid=grid, derived=derived, **parts)


profiles = st.builds(
    with_reference_and_derived,
    st.fixed_dictionaries(
        dict(
            name=names,
            landing=texts,
            reader=texts,
            quiet_period_s=st.one_of(st.none(), st.floats(0, 1e6)),
            robot=texts,
            task=texts,
            extra=st.lists(texts, max_size=3).map(tuple),
            ignore=st.lists(texts, max_size=3).map(tuple),
            reader_options=st.dictionaries(texts, st.one_of(plain, st.lists(plain, max_size=2)), max_size=2),
            cameras=cameras,
            states=states,
            actions=actions,
            gates=st.dictionaries(st.sampled_from(sorted(CHECKS)), limits, max_size=3),
            labels=labels,
        )
    ).filter(one_role_a_topic),
    st.floats(0.001, 1000),
    st.floats(0.001, 1e6),
)


@given(profile=profiles, note=texts)
def test_any_profile_survives_its_toml_whatever_is_noted_in_it(profile: SourceProfile, note: str) -> None:
    why = dict.fromkeys(profile.ignore, note)
    text = render_toml(profile, why, notes=[note], choose={"rate": 1.0})
    assert SourceProfile.model_validate(tomllib.loads(text)) == profile


def test_the_toml_explains_every_limit(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 3)
    text = render_toml(draft(tmp_path))
    gates = text.split("[gates]\n")[1].split("\n\n")[0].splitlines()
    assert len(gates) == len(CHECKS)
    for line, rule in zip(gates, CHECKS.values(), strict=True):
        assert line.startswith(f'# "{rule.name}" = {{')
        assert rule.unit in line and rule.says in line


def test_a_limit_that_is_uncommented_holds(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 3)
    text = render_toml(draft(tmp_path)).replace('# "camera.dark"', '"camera.dark"')
    profile = SourceProfile.model_validate(tomllib.loads(text))
    assert profile.gates == {"camera.dark": CHECKS["camera.dark"].limits}


def test_a_profile_with_a_name_twice_or_an_unknown_key_is_refused(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 3)
    text = render_toml(draft(tmp_path))
    path = tmp_path / "lab.toml"
    path.write_text(text.replace('"arm_effort"', '"arm_position"'))
    with pytest.raises(ConfigError, match=r"\[\[states\]\] names arm_position more than once"):
        load_config(SourceProfile, path)
    path.write_text(text.replace("max_gap_s", "max_gaps_s"))
    with pytest.raises(ConfigError, match=r"unknown key 'grid\.max_gaps_s'; did you mean 'max_gap_s'\?"):
        load_config(SourceProfile, path)
    path.write_text(text.replace('# "camera.dark"', '"camera.drak"'))
    with pytest.raises(
        ConfigError, match=r"no check is called 'camera\.drak'; did you mean 'camera\.dark'\?"
    ):
        load_config(SourceProfile, path)


def test_a_profile_whose_limits_reject_before_they_warn_is_refused_with_its_file(tmp_path: Path) -> None:
    write_mcap(tmp_path / "a.mcap", 3)
    path = tmp_path / "lab.toml"
    text = render_toml(draft(tmp_path))
    path.write_text(text.replace('# "time.gap" =', '"time.gap" = { warn = 2, reject = 1 } #'))
    with pytest.raises(
        ConfigError, match=r"lab\.toml: .*'time\.gap' gets worse above a limit, .*warn <= reject"
    ):
        load_config(SourceProfile, path)
