"""Rerun, an independent reader, opens our files: its command line in real processes, offline."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from episode_samples import CAMERAS, VECTORS, write_painted

RERUN = Path(sys.executable).with_name("rerun")


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("episode") / "painted.mcap"
    write_painted(path, 50)
    return path


def rerun(home: Path, *arguments: str | Path) -> str:
    if not RERUN.is_file():
        pytest.skip(f"no rerun command at {RERUN}; it comes with the dev extra")
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "NO_COLOR": "1"}
    done = subprocess.run(
        [RERUN, *arguments], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rerun_checks_every_topic_without_an_issue(path, tmp_path):
    report = rerun(tmp_path, "mcap", "check", "--full", path)
    lines = {
        line.split()[3]: line.split() for line in report.splitlines() if "/" in line and line.startswith("ok")
    }
    assert set(lines) == {track.topic for track in (*CAMERAS, *VECTORS)}
    assert all(words[-1] == "—" for words in lines.values()), report


def test_rerun_counts_our_messages_and_compressions(path, tmp_path):
    report = rerun(tmp_path, "mcap", "info", path)
    assert "foxglove.CompressedVideo" in report and "dyna.JointVector" in report
    assert any(line.split()[:2] == ["Messages", "300"] for line in report.splitlines()), report


def test_rerun_converts_cameras_to_video_streams_and_vectors_to_values(path, tmp_path):
    converted = tmp_path / "painted.rrd"
    rerun(tmp_path, "mcap", "convert", path, "-o", converted)
    printed = rerun(tmp_path, "rrd", "print", "-vv", converted)
    assert "VideoStream:sample" in printed
    for track in (*CAMERAS, *VECTORS):
        assert track.topic.lstrip("/").split("/")[1] in printed
