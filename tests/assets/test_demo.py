"""`make demo`, from the command line, on simulated and on real recordings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import Program
from recordings import write_aloha, write_mcap

from dyna_assets.catalog.server import stop_server
from dyna_assets.demo.path import FAULTS, NUM_UPLOADS, SIM_SOURCE
from dyna_assets.home import Home
from dyna_assets.simulate import record_uploads


@pytest.fixture
def demo_home(tmp_path: Path) -> Iterator[Home]:
    home = Home.at(tmp_path / "a home")
    yield home
    stop_server(home)


def demo(home: Home, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dyna_assets.cli", "demo", "run", "--steps", "4", *options]
    env = {**os.environ, "DYNA_HOME": str(home.path), "COLUMNS": "160"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def report_of(home: Home, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((home.path / "demo_report.json").read_text())
    return found


def test_the_demo_walks_the_whole_path_and_a_second_time_changes_nothing(demo_home: Home) -> None:
    # uploads that are there already are left as they are: these are shorter and smaller than those it records
    record_uploads(
        demo_home.landing / SIM_SOURCE,
        NUM_UPLOADS,
        seconds=1.5,
        size=(96, 128),
        faults=FAULTS,
        source=SIM_SOURCE,
    )
    done = demo(demo_home)
    report = report_of(demo_home, done)
    assert report["summary"]["num_passed"] == report["manifest"]["rows"] == 10
    assert list(report["quarantined"]) == ["sim-0-000011-bad_checksum"]
    assert {row["name"].split("/")[0] for row in report["rejected"]} >= {"sim-0-000010-black_camera"}
    assert report["summary"]["episode_mb"] < report["summary"]["raw_mb"] / 2
    assert report["training"]["ranks"] == 2
    for words in ("MB per camera-minute", "samples/s on 2 ranks", "loss", "make ui", "demo_report.json"):
        assert words in done.stdout
    lake = {path: path.stat().st_mtime_ns for path in (demo_home.lake).rglob("*") if path.is_file()}
    again = report_of(demo_home, demo(demo_home))
    assert again["manifest"]["sha256"] == report["manifest"]["sha256"]
    assert {path: path.stat().st_mtime_ns for path in (demo_home.lake).rglob("*") if path.is_file()} == lake


@pytest.mark.slow
def test_the_demo_trains_on_a_robot_that_stands_still_and_warns_of_it(
    demo_home: Home, shared_data: Path
) -> None:
    done = demo(demo_home, "--landing", str(shared_data / "so101_sim_lerobot_v30"))
    report = report_of(demo_home, done)
    assert report["manifest"]["rows"] == 6
    assert report["rejected"] == []
    assert {check for check, _, _ in report["warnings"]} >= {"state.moves"}


@pytest.mark.slow
def test_the_demo_trains_on_a_real_humanoid_and_names_the_episode_without_video(
    demo_home: Home, shared_data: Path
) -> None:
    report = report_of(demo_home, demo(demo_home, "--landing", str(shared_data / "g1_inspire_lerobot_v21")))
    assert report["manifest"]["rows"] == 12
    assert [row["name"] for row in report["rejected"]] == ["episode_000000"]
    assert any("87 of 100 listed episodes have no file here" in note for note in report["notes"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hdf5", "mcap"])
def test_the_demo_takes_a_flat_folder_of_files(demo_home: Home, tmp_path: Path, kind: str) -> None:
    for number in range(3):
        write = write_aloha if kind == "hdf5" else write_mcap
        write(tmp_path / "mine" / f"{number}.{kind}", 90)
    report = report_of(demo_home, demo(demo_home, "--landing", str(tmp_path / "mine")))
    assert report["manifest"]["rows"] == 3


def test_the_demo_says_what_is_wrong_with_a_landing_folder(
    demo_home: Home, tmp_path: Path, program: Program
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("hello")
    expected = {
        "nowhere": "nowhere: no such folder; expected one with recordings",
        "empty": "empty: the landing folder is empty. Put recordings into it",
        "texts": "Found 1 file (1 .txt), for example notes.txt",
    }
    for name, words in expected.items():
        done = program(demo_home.path, "demo", "run", "--landing", str(tmp_path / name))
        assert done.code == 2
        assert words in done.message
        assert "Traceback" not in done.message
