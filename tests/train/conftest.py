"""Episode files that several test files look at; nobody changes them."""

from __future__ import annotations

from pathlib import Path

import doctor_samples
import pytest
from episode_samples import write_painted
from full_episodes import Script, full_script
from look_samples import write_rich


@pytest.fixture(scope="session")
def painted(tmp_path_factory) -> Path:
    """60 painted steps of three cameras and three vectors, without a gap."""
    path = tmp_path_factory.mktemp("painted") / "painted.mcap"
    write_painted(path, 60)
    return path


@pytest.fixture(scope="session")
def full(tmp_path_factory) -> tuple[Script, bytes, bytes]:
    """26 steps with every topic group and with gaps: the episode's script, its bytes, its GOP table."""
    script = full_script(26)
    made = script.write(tmp_path_factory.mktemp("full") / "full.mcap")
    return script, made.path.read_bytes(), made.gop_table


@pytest.fixture(scope="session")
def rich(tmp_path_factory) -> Path:
    """60 steps with whatever an episode may have; see `write_rich`."""
    return write_rich(tmp_path_factory.mktemp("rich") / "rich.mcap")


@pytest.fixture(scope="session")
def rich_episode(tmp_path_factory) -> Path:
    """50 steps with every topic group and one gap, for the doctor; see `doctor_samples.write_rich`."""
    path = tmp_path_factory.mktemp("rich_episode") / "whole.mcap"
    doctor_samples.write_rich(path, gaps={"left.wrist": range(9, 31)})
    return path
