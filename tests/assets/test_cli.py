"""`dyna-assets` as a person and a script use it: exit codes, JSON, messages; two of the calls are real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from path_house import House
from program import Program
from typer.testing import CliRunner

from dyna_assets.catalog.server import stop_server
from dyna_assets.commands import corpus, quarantine, uploads
from dyna_assets.errors import SetupError, UploadError
from dyna_assets.home import Home
from dyna_assets.ui import check_port_is_free
from dyna_train.errors import DynaError


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dyna_assets.cli", *arguments]
    env = {**os.environ, "DYNA_HOME": str(home), "COLUMNS": "200"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def answer(program: Program, home: Path, *arguments: str) -> Any:
    done = program(home, *arguments, "--json")
    assert done.code == 0, done.errors
    (rows,) = json.loads(done.output).values()
    return rows


def test_a_worker_says_what_it_took_and_what_it_refused_and_ends_with_a_warning(
    house: House, program: Program
) -> None:
    house.simulate(3, faults=["black_camera"])
    home = house.workspace.home.path
    done = run(home, "worker", "--once")
    assert done.returncode == 1, done.stderr
    assert "registered sim: sim-0-000000: 1 new or changed episodes" in done.stdout
    assert re.search(r"rejected: sim: sim-0-000002-black_camera/\S+: camera\.dark: camera", done.stdout)
    assert "shard-000000: done" in done.stdout
    assert program(home, "worker", "--once").code == 0
    (line,) = answer(program, home, "status")
    assert (line["source"], line["num_episodes"], line["num_passed"]) == ("sim", 3, 2)
    (refused,) = answer(program, home, "verdicts")
    assert refused["step"] == "gate_after"
    (made,) = answer(program, home, "curate", "mine", "--where", "source = 'sim'")
    assert made["rows"] == 2
    assert [source["name"] for source in answer(program, home, "source", "list")] == ["sim"]
    failed = run(home, "curate", "mine", "--where", "sucess")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "did you mean 'success'?" in " ".join(failed.stderr.split())
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["worker", "--once", "--profile", "ingest"],
            r"no run profile 'ingest'; profiles are backfill_metadata, ingest_",
        ),
        (["curate", "a/b"], r"key 'name' = 'a/b'"),
        (
            ["source", "add", "no spaces", "."],
            r"source name 'no spaces': expected up to 64 letters.*'no-spaces'",
        ),
        (["demo", "record", "x", "--fault", "black_camra"], r"black_camera"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_exit_code_2(
    house: House, program: Program, arguments: list[str], message: str
) -> None:
    done = program(house.workspace.home.path, *arguments)
    assert done.code == 2, done.errors
    assert re.search(message, done.message), done.errors
    assert "Traceback" not in done.errors


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
def test_wrong_settings_are_named_with_their_file(
    tmp_path: Path, program: Program, text: str, message: str
) -> None:
    (tmp_path / "settings.toml").write_text(text)
    done = program(tmp_path, "status")
    stop_server(Home.at(tmp_path))  # which some of them start before they are refused
    assert done.code == 2, done.errors
    assert re.search(message, done.message), done.errors


def test_a_source_toml_with_an_unknown_reader_or_another_name_is_named(
    house: House, program: Program
) -> None:
    house.simulate(1)
    house.edit_source("sim", 'reader = "mcap"', 'reader = "mcapp"')
    done = program(house.workspace.home.path, "source", "list")
    assert re.search(r"sim\.toml: reader = 'mcapp', expected one of lerobot_v21", done.message)


def test_recording_on_the_command_line_is_deterministic_and_skips_what_is_there(
    tmp_path: Path, program: Program
) -> None:
    options = ("--num", "1", "--seconds", "1", "--seed", "7")
    for folder in ("one", "two", "one"):
        done = program(tmp_path / "home", "demo", "record", str(tmp_path / folder), *options)
        assert done.code == 0, done.errors
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


refused_app = typer.Typer()
refused_app.command("list")(quarantine.list_quarantined)
refused_app.command("explain")(quarantine.explain)
refused_app.command("release")(quarantine.release)
refused_app.command("retry")(quarantine.retry)
refused_app.command("upload")(uploads.upload)
refused_app.command("status")(corpus.status)
refused_app.command("verdicts")(corpus.verdicts)


def ask(house: House, *arguments: str, width: int = 250) -> Any:
    """A command in this process, which saves the start of one."""
    env = {"DYNA_HOME": str(house.workspace.home.path), "COLUMNS": str(width)}
    return CliRunner().invoke(refused_app, arguments, env=env)


def words(done: Any) -> str:
    """What it printed, as if no line had been wrapped."""
    return " ".join(done.stdout.split())


def test_a_refused_upload_is_listed_explained_released_done_and_reported(house: House) -> None:
    house.simulate(2, faults=["bad_checksum"])
    house.run()
    name = "sim-0-000001-bad_checksum"
    (listed,) = json.loads(ask(house, "list", "--json").stdout)["quarantine"]
    assert (listed["source"], listed["upload"], listed["since"][:2]) == ("sim", name, "20")
    assert "expected sha256" in ask(house, "list").stdout

    explained = json.loads(ask(house, "explain", name, "--json").stdout)
    assert "expected sha256" in explained["reason"] and explained["files"] == []
    assert f"dyna-assets quarantine release 'sim: {name}' --reason TEXT" in explained["what to do"]
    report = ask(house, "upload", name)
    assert report.exit_code == 1 and "quarantined: " in report.stdout

    again = ask(house, "retry", name)
    assert again.exit_code == 1 and re.search(
        f"still quarantined: sim: {name}: .*expected sha256", again.stdout
    )
    assert json.loads(ask(house, "list", "--json").stdout)["quarantine"]

    missing = ask(house, "release", name)
    assert missing.exit_code == 2 and "--reason" in missing.stderr
    released = ask(house, "release", name, "--reason", "checked by hand", "--by", "kim")
    assert released.exit_code == 0 and "Its rows are due" in released.stdout
    house.run()
    assert house.curate().totals.num_rows == 2
    (said,) = json.loads(ask(house, "explain", name, "--json").stdout)["released"]
    assert (said["by"], said["reason"]) == ("kim", "checked by hand")

    report = ask(house, "upload", f"sim: {name}", "--json")
    found = json.loads(report.stdout)
    assert (report.exit_code, found["problems"], found["state"]) == (0, [], "registered"), found["problems"]
    assert {line["fate"] for line in found["files"]} == {"marker", "recording"}
    assert " messages in = " in found["balance"]
    assert " messages in = " in ask(house, "upload", name).stdout


def test_refused_recordings_are_explained_by_episode_and_by_upload_each_finding_once(house: House) -> None:
    house.simulate(2, faults=["black_camera", "truncated_file"])
    house.run()
    dark, cut = sorted(house.rows("version_stamps", key="episode_id"), key=lambda row: row["name"])
    for text in (str(dark["episode_id"]), dark["name"], "black_camera/"):
        found = json.loads(ask(house, "explain", text, "--json").stdout)
        assert (found["state"], found["reason"], found["steps"]) == ("reject", "", [])
        (finding,) = [one for one in found["findings"] if one["check"] == "camera.dark"]
        assert (
            finding["verdict"] == "reject" and "is dark" in finding["note"] and "limit" in finding["measured"]
        )
        assert found["gates"][-1]["verdict"] == "reject"
    assert words(ask(house, "explain", dark["name"], width=80)).count("is dark") == 1
    assert words(ask(house, "verdicts", width=80)).count("is dark") == 1
    (line,) = json.loads(ask(house, "status", "--json").stdout)["corpus"]
    checked = f"{line['num_checked']:,} of {line['num_checks']:,}"
    assert f"sim 1 0 0 {checked} size source hours" in words(ask(house, "status", width=80))

    for row, step, reason, topics in (
        (dark, "gate_after", "is dark", "topics"),
        (cut, "recordings", "cut while being recorded", "topics unknown: not readable"),
    ):
        name = row["name"].partition("/")[0]
        report = ask(house, "upload", name, "--json")
        (refused, *_) = json.loads(report.stdout)["refused"]
        assert (refused["name"], refused["step"], refused["status"]) == (row["name"], step, "rejected")
        assert reason in " ".join(refused["reasons"])
        shown = ask(house, "upload", name, width=80)
        assert (report.exit_code, shown.exit_code) == (1, 1) and topics in shown.stdout
        assert words(shown).count(reason) == 1
        explained = ask(house, "explain", name, width=80)
        assert words(explained).count(reason) == 1 and "quarantine explain EPISODE_ID" in explained.stdout


def test_an_upload_that_waits_is_said_to_be_there_and_what_it_waits_for(house: House) -> None:
    source = house.simulate(1)
    waiting = house.landing / "sim" / "later"
    waiting.mkdir()
    (waiting / "a.mcap").write_bytes(b"x")
    for asked in (("upload", "later"), ("explain", "sim: later"), ("retry", "later")):
        done = ask(house, *asked)
        assert isinstance(done.exception, UploadError)
        assert re.search(
            r"upload 'sim: later' is there, but not registered yet: .*no upload\.json here",
            str(done.exception),
        )
    assert source.quiet_period_s is None
    house.edit_source("sim", 'reader = "mcap"', 'reader = "mcap"\nquiet_period_s = 600')
    assert "still arriving: its newest file is" in str(ask(house, "upload", "later").exception)
    assert "the next pass of a worker takes it" in str(ask(house, "upload", "sim-0-000000").exception)


def test_an_upload_that_is_gone_lacks_all_its_files(house: House) -> None:
    house.simulate(1)
    house.workspace.register_landed()
    shutil.rmtree(house.landing / "sim" / "sim-0-000000")
    done = ask(house, "upload", "sim-0-000000")
    assert done.exit_code == 1 and re.search(r"missing +[\w-]+\.mcap \(named by sim-0", done.stdout), (
        done.stdout
    )
    assert "warning: 1 file is not there any more; landed files must stay" in done.stdout
    assert "topics unknown: no recording was read yet" in done.stdout
    assert "1 file is not there any more" in ask(house, "explain", "sim-0-000000").stdout


def test_a_name_that_nothing_has_is_refused_with_the_nearest(full_house: House) -> None:
    done = ask(full_house, "explain", "sim-9-000009")
    assert isinstance(done.exception, DynaError)
    assert re.search(
        r"no upload 'sim-9-000009'\. Nearest: .*sim-0-000000.*; and no episode 'sim-9-000009'\. Nearest: 1 \(sim: ",
        str(done.exception),
    )
