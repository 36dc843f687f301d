"""Drift: a session that differs from its robot's others is found, and nothing else raises an alarm."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from label_samples import g1_trajectories, g1_view, trace_of
from numpy.typing import NDArray
from typer.testing import CliRunner

from dyna_assets.commands.labels import drift
from dyna_assets.home import Home
from dyna_assets.labels import LABELLERS, annotate
from dyna_assets.labels.drift import MIN_EPISODES, MIN_SESSIONS, Session, compare, find_alarms, read_sessions
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import ANNOTATIONS, RECORDINGS
from dyna_assets.workspace import Workspace
from dyna_train.episode.tracks import CameraTrack

NUM_SESSIONS = 10
DAY_NS = 86_400_000_000_000
FIRST_NS = 1_700_006_400_000_000_000  # 2023-11-15, midnight
ARMS = {f"action/{side}_arm→state/{side}_arm" for side in ("left", "right")}
HANDS = {f"action/{side}_hand→state/{side}_hand" for side in ("left", "right")}
Rows = list[list[dict[str, Any]]]
"""Annotations of each episode."""


def annotated(shared_data: Path, state_TD: NDArray[np.float32], action_TD: NDArray[np.float32]) -> list[Any]:
    return list(annotate(g1_view(shared_data, state_TD, action_TD), {"lag": LABELLERS["lag"]}).rows)


@cache
def good(shared_data: Path) -> tuple[list[Any], ...]:
    return tuple(annotated(shared_data, *pair) for pair in g1_trajectories(shared_data))


def sessions_of(shared_data: Path) -> list[list[int]]:
    """The real episodes in ten sessions, by episode index."""
    return [part.tolist() for part in np.array_split(np.arange(len(good(shared_data))), NUM_SESSIONS)]


def planted(shared_data: Path, session: int, *, frames: int = 0, joint: int = 0, offset: float = 0.0) -> Rows:
    """All episodes, those of one session with the state `frames` late and one joint beside its command."""
    rows = list(good(shared_data))
    for index in sessions_of(shared_data)[session]:
        state_TD, action_TD = g1_trajectories(shared_data)[index]
        state_TD = state_TD.copy()
        state_TD[:, joint] -= offset
        if frames > 0:
            state_TD, action_TD = state_TD[:-frames], action_TD[frames:]
        elif frames < 0:
            state_TD, action_TD = state_TD[-frames:], action_TD[:frames]
        rows[index] = annotated(shared_data, state_TD, action_TD)
    return rows


def fill(warehouse: Warehouse, shared_data: Path, rows: Rows, *, seq: int = 1, robot: str = "g1") -> None:
    """Recordings of ten days and their annotations."""
    recordings, annotations = [], []
    for day, episodes in enumerate(sessions_of(shared_data)):
        for index in episodes:
            facts = {"source": "lab", "upload": f"u{index}", "robot": robot}
            recordings.append({"episode_id": index, "start_ns": FIRST_NS + day * DAY_NS + index, **facts})
            annotations += [{"episode_id": index, **row} for row in rows[index]]
    warehouse.append(RECORDINGS, 0, seq, recordings, run_id="r")
    warehouse.append(ANNOTATIONS, 0, seq, annotations, run_id="r")


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path / "tables"))
    made.create()
    return made


def test_ten_sessions_of_a_healthy_robot_raise_no_alarm(warehouse: Warehouse, shared_data: Path) -> None:
    fill(warehouse, shared_data, list(good(shared_data)))
    sessions = read_sessions(warehouse)
    assert {one.session for one in sessions} == {f"2023-11-{15 + day}" for day in range(10)}
    assert find_alarms(sessions) == []
    assert len(compare(sessions)) >= 4 * NUM_SESSIONS
    assert max(abs(one.z) for one in compare(sessions)) < 3  # far from the limit, not just below it


@pytest.mark.parametrize(("session", "frames"), [(0, 10), (4, -10), (9, 10)])
def test_a_shift_of_ten_frames_in_one_session_is_found_and_nothing_else(
    warehouse: Warehouse, shared_data: Path, session: int, frames: int
) -> None:
    fill(warehouse, shared_data, planted(shared_data, session, frames=frames))
    alarms = find_alarms(read_sessions(warehouse))
    assert {one.session.session for one in alarms} == {f"2023-11-{15 + session}"}
    assert {one.session.key for one in alarms} == {"lag"}
    assert ARMS <= {one.session.subject for one in alarms} <= ARMS | HANDS
    for one in alarms:
        if one.session.subject in ARMS:  # hands close on things, and scatter more
            assert one.session.value - one.baseline == pytest.approx(1e3 * frames / 30, abs=20)


@pytest.mark.parametrize(("session", "joint"), [(2, "kRightElbow"), (9, "kRightShoulderPitch")])
def test_an_offset_of_five_degrees_in_one_session_is_found_and_nothing_else(
    warehouse: Warehouse, shared_data: Path, session: int, joint: str
) -> None:
    number = {"kRightShoulderPitch": 7, "kRightElbow": 10}[joint]
    fill(warehouse, shared_data, planted(shared_data, session, joint=number, offset=np.deg2rad(5)))
    (alarm,) = find_alarms(read_sessions(warehouse))
    assert (alarm.session.session, alarm.session.key) == (f"2023-11-{15 + session}", "offset")
    assert alarm.session.subject == f"state/body/{joint}"
    assert alarm.session.value - alarm.baseline == pytest.approx(np.deg2rad(5), abs=0.03)


def with_camera(shared_data: Path, index: int, late_steps: int) -> list[Any]:
    """A real episode, and a camera whose picture changes with the arm's speed, late_steps later."""
    state_TD, action_TD = g1_trajectories(shared_data)[index]
    fast_T = np.linalg.norm(np.gradient(state_TD[:, :14], axis=0), axis=1)
    noise_T = np.random.default_rng(index).normal(1, 0.3, len(fast_T))
    sample = g1_view(shared_data, state_TD, action_TD)
    seen = replace(
        sample,
        header=replace(sample.header, cameras=(CameraTrack("head", 64, 48),)),
        traces={"head": trace_of(0.2 + np.abs(20 * np.roll(fast_T, late_steps) * noise_T))},
        capture_ns={**sample.capture_ns, "/camera/head/video": sample.capture_ns["/state/body"]},
    )
    return list(annotate(seen, {"lag": LABELLERS["lag"]}).rows)


def test_a_camera_ten_frames_late_in_one_session_is_found_and_nothing_else(
    warehouse: Warehouse, shared_data: Path
) -> None:
    late = {index: 12 for index in sessions_of(shared_data)[7]}
    rows = [with_camera(shared_data, index, late.get(index, 2)) for index in range(len(good(shared_data)))]
    fill(warehouse, shared_data, rows)
    (alarm,) = find_alarms(read_sessions(warehouse))
    assert (alarm.session.session, alarm.session.subject) == ("2023-11-22", "state→camera/head")
    assert alarm.session.value - alarm.baseline == pytest.approx(333, abs=15)


def test_only_the_newest_labels_of_an_episode_count(warehouse: Warehouse, shared_data: Path) -> None:
    fill(warehouse, shared_data, planted(shared_data, 3, frames=10), seq=1)
    fill(warehouse, shared_data, list(good(shared_data)), seq=2)
    assert find_alarms(read_sessions(warehouse)) == []


def test_each_robot_has_its_own_baseline(warehouse: Warehouse, shared_data: Path) -> None:
    fill(warehouse, shared_data, list(good(shared_data)), robot="")
    assert {one.robot for one in read_sessions(warehouse)} == {"lab"}
    assert read_sessions(warehouse, "other") == []
    assert len(read_sessions(warehouse, "lab")) == len(read_sessions(warehouse))


def test_without_a_wall_clock_an_upload_is_a_session(warehouse: Warehouse) -> None:
    facts = {"source": "lab", "upload": "u1", "robot": "g1", "start_ns": 5}
    lag = {"labeller": "lag", "status": "ok", "subject": "a→b", "key": "lag", "value": 100.0, "unit": "ms"}
    warehouse.append(RECORDINGS, 0, 1, [{"episode_id": k, **facts} for k in range(3)], run_id="r")
    warehouse.append(ANNOTATIONS, 0, 1, [{"episode_id": k, **lag} for k in range(3)], run_id="r")
    assert read_sessions(warehouse) == [Session("g1", "a→b", "lag", "ms", "upload u1", 100.0, 0.0, 3)]


def week(values: list[float], num_episodes: int = 8, spread: float = 5.0, unit: str = "ms") -> list[Session]:
    return [
        Session("g1", "a→b", "lag", unit, f"day {day}", value, spread, num_episodes)
        for day, value in enumerate(values)
    ]


def test_one_episode_or_a_few_never_raise_an_alarm() -> None:
    sessions = week([100.0] * 6)
    wild = replace(sessions[0], value=900.0, num_episodes=MIN_EPISODES - 1)
    assert find_alarms([wild, *sessions[1:]]) == []
    assert [one.session for one in find_alarms([replace(wild, num_episodes=MIN_EPISODES), *sessions[1:]])]


def test_a_robot_with_few_sessions_has_no_baseline() -> None:
    assert compare(week([900.0] + [100.0] * (MIN_SESSIONS - 1))) == []
    assert len(find_alarms(week([900.0] + [100.0] * MIN_SESSIONS))) == 1


def test_a_small_change_is_nobodys_business_however_quiet_the_robot() -> None:
    assert find_alarms(week([100.0] * 6 + [119.0], spread=0.0)) == []
    assert len(find_alarms(week([100.0] * 6 + [130.0], spread=0.0))) == 1
    assert find_alarms(week([0.5] * 6 + [1.4], spread=0.0, unit="deg")) == []
    assert len(find_alarms(week([0.5] * 6 + [5.5], spread=0.0, unit="deg"))) == 1


def test_a_session_that_scatters_must_differ_more() -> None:
    assert find_alarms(week([100.0] * 6 + [180.0], spread=60.0)) == []
    assert len(find_alarms(week([100.0] * 6 + [180.0], spread=6.0))) == 1


@given(
    values=st.lists(st.floats(90, 110), min_size=MIN_SESSIONS + 1, max_size=12),
    at=st.integers(0, 11),
    shift=st.sampled_from([-333.0, 333.0]),
    scale=st.floats(0.5, 2),
)
def test_an_alarm_names_the_shifted_session_alone_wherever_it_stands(
    values: list[float], at: int, shift: float, scale: float
) -> None:
    values = [scale * value for value in values]
    at %= len(values)
    values[at] += shift
    assert [one.session.session for one in find_alarms(week(values))] == [f"day {at}"]


def test_an_alarm_says_who_when_what_and_how_much() -> None:
    (alarm,) = find_alarms(week([100.0] * 6 + [433.0]))
    assert alarm.says.startswith(
        "g1, day 6: lag of a→b is 433 ms over 8 episodes, 100 in its other sessions (+"
    )


def test_the_command_shows_all_sessions_and_exits_with_a_warning_if_one_differs(
    home: Home, postgres_url: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.settings.write_text(f"database_url = {json.dumps(postgres_url)}\n")
    monkeypatch.setenv("DYNA_HOME", str(home.path))
    app = typer.Typer()
    app.command()(drift)
    workspace = Workspace.open(home)
    fill(workspace.warehouse, shared_data, list(good(shared_data)), seq=1)
    quiet = CliRunner().invoke(app, ["--robot", "g1"])
    assert quiet.exit_code == 0, quiet.output
    assert "sessions have others of their robot to compare with" in quiet.output
    fill(workspace.warehouse, shared_data, planted(shared_data, 6, frames=10), seq=2)
    workspace.catalog.close()
    loud = CliRunner().invoke(app, ["--json"])
    assert loud.exit_code == 1, loud.output
    rows = json.loads(loud.output)["drift"]
    alarms = [row for row in rows if row["alarm"]]
    assert {row["subject"] for row in alarms} >= ARMS and {row["session"] for row in alarms} == {"2023-11-21"}
    assert [abs(row["z"]) for row in rows] == sorted((abs(row["z"]) for row in rows), reverse=True)
    assert "alarm: g1, 2023-11-21: lag of action/" in CliRunner().invoke(app, []).output
