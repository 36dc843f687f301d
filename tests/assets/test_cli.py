"""`dyna-assets` as a person and a script use it: real processes, exit codes, JSON, messages."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from path_house import House

from dyna_assets.errors import SetupError
from dyna_assets.ui import check_port_is_free


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dyna_assets.cli", *arguments]
    env = {**os.environ, "DYNA_HOME": str(home), "COLUMNS": "200"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def answer(home: Path, *arguments: str) -> Any:
    done = run(home, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    (rows,) = json.loads(done.stdout).values()
    return rows


def test_a_worker_says_what_it_took_and_what_it_refused_and_ends_with_a_warning(house: House) -> None:
    house.simulate(3, faults=["black_camera"])
    home = house.workspace.home.path
    done = run(home, "worker", "--once")
    assert done.returncode == 1, done.stderr
    assert "registered sim: sim-0-000000: 1 new or changed episodes" in done.stdout
    assert re.search(r"rejected: sim: sim-0-000002-black_camera/\S+: camera\.dark: camera", done.stdout)
    assert "shard-000000: done" in done.stdout
    assert run(home, "worker", "--once").returncode == 0
    (line,) = answer(home, "status")
    assert (line["source"], line["num_episodes"], line["num_passed"]) == ("sim", 3, 2)
    (refused,) = answer(home, "verdicts")
    assert refused["step"] == "gate_after"
    (made,) = answer(home, "curate", "mine", "--where", "source = 'sim'")
    assert made["rows"] == 2
    assert [source["name"] for source in answer(home, "source", "list")] == ["sim"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["worker", "--once", "--profile", "ingest"],
            r"no run profile 'ingest'; profiles are backfill_metadata, ingest_",
        ),
        (["curate", "a/b"], r"key 'name' = 'a/b'"),
        (["curate", "mine", "--where", "sucess"], r"did you mean 'success'\?"),
        (
            ["source", "add", "no spaces", "."],
            r"source name 'no spaces': expected up to 64 letters.*'no-spaces'",
        ),
        (["demo", "record", "x", "--fault", "black_camra"], r"black_camera"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_exit_code_2(
    house: House, arguments: list[str], message: str
) -> None:
    done = run(house.workspace.home.path, *arguments)
    assert done.returncode == 2, done.stderr
    assert re.search(message, " ".join(done.stderr.split())), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lakes = 'x'", r"settings\.toml: unknown key 'lakes'; did you mean 'lake'\?"),
        ("[s3]\nendpoint = 'x'", r"unknown key 's3\.endpoint'; did you mean 'endpoint_url'\?"),
        ("workers = 0", r"key 'workers' = 0"),
        ("workers = true", r"key 'workers' = True"),
        ("database_url = 'mysql://host/x'", r"expected a URL like postgresql://user@host/database"),
        ("database_url = ''", r"expected a URL like postgresql://user@host/database"),
        ("lake = 'gs://foo/bar'", r"expected a folder or s3://bucket/prefix"),
        (
            "lake = 's3://none/x'\n[s3]\nendpoint_url = 'http://127.0.0.1:1'\nregion_name = 'x'\n"
            "aws_access_key_id = 'k'\naws_secret_access_key = 's'\nmax_attempts = 1",
            r"lake s3://none/x: its tables cannot be created or opened.*Check 'lake' and \[s3\] in",
        ),
        ("lake = [", r"settings\.toml: not valid TOML"),
        ("database_url = 'postgresql://nobody@127.0.0.1:1/none'", r"the catalog's database cannot be used"),
    ],
)
def test_wrong_settings_are_named_with_their_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "settings.toml").write_text(text)
    done = run(tmp_path, "status")
    assert done.returncode == 2, done.stderr
    assert re.search(message, " ".join(done.stderr.split())), done.stderr


def test_a_source_toml_with_an_unknown_reader_or_another_name_is_named(house: House) -> None:
    house.simulate(1)
    house.edit_source("sim", 'reader = "mcap_ros2"', 'reader = "mcap_ros3"')
    done = run(house.workspace.home.path, "source", "list")
    assert re.search(
        r"sim\.toml: reader = 'mcap_ros3', expected one of lerobot_v21", " ".join(done.stderr.split())
    )


def test_recording_on_the_command_line_is_deterministic_and_skips_what_is_there(tmp_path: Path) -> None:
    options = ("--num", "1", "--seconds", "1", "--seed", "7")
    for folder in ("one", "two", "one"):
        done = run(tmp_path / "home", "demo", "record", str(tmp_path / folder), *options)
        assert done.returncode == 0, done.stderr
    first, second = (sorted((tmp_path / folder).rglob("*.mcap")) for folder in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_port_in_use_is_named_beside_one_that_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=rf"127\.0\.0\.1:{port}: .* make ui PORT=\d+") as caught:
            check_port_is_free(port)
    (free,) = re.findall(r"PORT=(\d+)", str(caught.value))
    check_port_is_free(int(free))
