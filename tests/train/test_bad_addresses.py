"""Addresses that lead to no episode file, and places where nothing can be written: one message, exit 2."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from episode_samples import write_painted
from typer.testing import CliRunner

from dyna_train.cli import app
from dyna_train.doctor.recover import recover
from dyna_train.doctor.regroup import regroup
from dyna_train.episode.reader import Episode
from dyna_train.errors import BadInput, DynaError, EpisodeError
from dyna_train.files import local_path, publish

COMMANDS = ("inspect", "foxglove-layout", "rerun", "plan", "doctor", "recover", "regroup")
LAST = "from dyna_train.cli import main; main()"
AS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def strange(tmp_path_factory, painted) -> Path:
    """folder.mcap/, loop.mcap -> itself, pipe.mcap (a FIFO), good.mcap"""
    root = tmp_path_factory.mktemp("strange")
    (root / "folder.mcap").mkdir()
    (root / "loop.mcap").symlink_to("loop.mcap")
    os.mkfifo(root / "pipe.mcap")
    shutil.copy(painted, root / "good.mcap")
    return root


def addresses(root: Path) -> dict[str, str]:
    return {
        "nothing": "",
        "here": ".",
        "folder": f"{root}/folder.mcap",
        "under a file": f"{root}/good.mcap/x.mcap",
        "loop": f"{root}/loop.mcap",
        "pipe": f"{root}/pipe.mcap",
        "device": "/dev/null",
        "long": f"{root}/{'n' * 300}.mcap",
        "nul": f"{root}/a\0b.mcap",
        "unknown protocol": "foo://bar/x.mcap",
        "refused": "http://127.0.0.1:9/x.mcap",
        "no archive": f"zip://a::{root}/good.mcap",
        "absent archive": f"zip://a::{root}/b",
        "absent in memory": "memory://absent.mcap",
        "no address": "::",
    }


KINDS = tuple(addresses(Path()))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_command_refuses_an_address_that_leads_to_no_file(strange, tmp_path, kind, command):
    out = ["--out", str(tmp_path / "new.mcap")] if command in ("recover", "regroup") else []
    done = CliRunner().invoke(app, [command, *out, "--", addresses(strange)[kind]])
    if command == "doctor":
        assert (done.exit_code, done.exception.__class__) == (2, SystemExit)
        assert "file" in done.stdout
    else:
        assert isinstance(done.exception, DynaError | OSError) or done.exit_code == 2, done.exception
        assert not (tmp_path / "new.mcap").exists()


@pytest.mark.parametrize("command", ["recover", "regroup"])
@pytest.mark.parametrize("file", ["", ".", "/"])
def test_what_has_no_name_has_no_place_beside_it_either(command, file):
    done = CliRunner().invoke(app, [command, "--", file])
    with pytest.raises(BadInput, match="not a file; expected an episode file"):
        raise done.exception


def test_one_bad_address_is_a_finding_of_its_own_and_the_other_files_are_reported(strange):
    good = str(strange / "good.mcap")
    bad = list(addresses(strange).values())
    done = CliRunner().invoke(app, ["doctor", "--json", good, *bad, good])
    assert done.exit_code == 2
    reports = json.loads(done.stdout)["files"]
    assert [report["ok"] for report in reports] == [True, *[False] * len(bad), True]
    assert {fault["check"] for report in reports for fault in report["faults"]} == {"file"}


def test_a_store_that_fails_is_an_oserror_since_it_says_nothing_of_the_episode():
    class Refused(Exception):
        """As the libraries of stores raise: of no common kind."""

    class Away(fsspec.AbstractFileSystem):
        def cat_file(self, path, start=None, end=None, **options):
            raise Refused("no credentials")

    with pytest.raises(OSError, match=r"b/x\.mcap: its store answered Refused: no credentials"):
        Episode.open("b/x.mcap", Away())


def test_an_absent_file_says_to_check_the_path_first(tmp_path):
    with pytest.raises(
        EpisodeError, match="no such episode file; check the path; in training, that manifest"
    ):
        Episode.open(tmp_path / "absent.mcap")


@pytest.mark.skipif(AS_ROOT, reason="root may read every file")
def test_a_file_without_permission_says_so(strange, tmp_path):
    shutil.copy(strange / "good.mcap", tmp_path / "secret.mcap")
    (tmp_path / "secret.mcap").chmod(0)
    with pytest.raises(EpisodeError, match="no permission to read it"):
        Episode.open(tmp_path / "secret.mcap")


def ran(*args: str | Path, limit: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-c", LAST, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **env},
        preexec_fn=small_files if limit else None,
    )


def outputs(root: Path) -> dict[str, str]:
    (root / "plain").write_text("x")
    (root / "folder").mkdir()
    (root / "pipe").exists() or os.mkfifo(root / "pipe")
    return {
        "proc": "/proc/x.out",
        "under a file": f"{root}/plain/x.out",
        "folder": f"{root}/folder",
        "pipe": f"{root}/pipe",
        "nothing": "",
        "too long": f"{root}/{'s' * 256}",
        "store": "s3://bucket/x.out",
        "memory": "memory://x.out",
    }


WRITERS = (("inspect", "--sheet"), ("rerun", "--save"), ("recover", "--out"), ("regroup", "--out"))


@pytest.mark.parametrize(("command", "option"), WRITERS)
def test_a_place_where_nothing_can_be_written_is_one_error_and_leaves_nothing(
    painted, tmp_path, monkeypatch, command, option
):
    if command == "rerun":
        pytest.importorskip("rerun", reason="rerun comes with the view extra")
    monkeypatch.chdir(tmp_path)
    places = outputs(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for place in places.values():
        done = CliRunner().invoke(app, [command, str(painted), option, place])
        assert isinstance(done.exception, BadInput | OSError), (place, done.exception)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(("command", "option"), WRITERS)
def test_a_full_disk_is_one_message_and_leaves_nothing(painted, tmp_path, command, option):
    if command == "rerun":
        pytest.importorskip("rerun", reason="rerun comes with the view extra")
    target = tmp_path / "out"
    done = ran(command, painted, option, target, limit=5000)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, []), done.stderr
    assert f"File too large, while writing {target}; raise the limit" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_of_255_bytes_can_be_written(tmp_path):
    with publish(tmp_path / ("n" * 255)) as part:
        part.write_text("whole")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("n" * 255, "whole")]


@pytest.mark.parametrize("option", ["--sheet", "--save"])
def test_the_episode_file_itself_is_never_the_place_to_write_to(painted, option):
    before = painted.read_bytes()
    command = "inspect" if option == "--sheet" else "rerun"
    if command == "rerun":
        pytest.importorskip("rerun", reason="rerun comes with the view extra")
    done = CliRunner().invoke(app, [command, str(painted), option, str(painted)])
    with pytest.raises(BadInput, match="the episode file itself"):
        raise done.exception
    assert painted.read_bytes() == before


def test_the_address_of_a_store_is_no_place_to_write_to():
    with pytest.raises(BadInput, match=r"s3://bucket/x\.mcap: cannot write there; name a local path"):
        local_path("s3://bucket/x.mcap")


def test_a_new_file_never_replaces_one_that_appeared_meanwhile(tmp_path):
    target = tmp_path / "new.mcap"
    with pytest.raises(BadInput, match=r"new\.mcap: exists already"), publish(target, is_new=True) as part:
        part.write_text("mine")
        target.write_text("theirs")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("new.mcap", "theirs")]


@pytest.mark.parametrize("rewrite", [recover, regroup])
def test_of_two_writers_to_one_place_the_second_is_refused(tmp_path, monkeypatch, rewrite):
    source, target = tmp_path / "a.mcap", tmp_path / "b.mcap"
    write_painted(source, 12)
    place = os.fsync

    def other_first(handle: int) -> None:  # the other one publishes while this one flushes
        target.write_text("theirs")
        place(handle)

    monkeypatch.setattr(os, "fsync", other_first)
    with pytest.raises(BadInput, match=r"b\.mcap: exists already"):
        rewrite(source, target)
    assert target.read_text() == "theirs"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no /dev/full")
@pytest.mark.parametrize("args", [("inspect",), ("inspect", "--json"), ("doctor",), ("foxglove-layout",)])
def test_output_that_cannot_be_printed_is_one_message(painted, args):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", LAST, *args, painted], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("args", [("inspect",), ("inspect", "--json"), ("doctor",)])
def test_a_closed_pipe_is_no_error_to_speak_of(painted, args):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", LAST, *args, painted], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("args", [("inspect",), ("inspect", "--json"), ("doctor",), ("foxglove-layout",)])
def test_a_terminal_that_knows_ascii_only_gets_the_rest_as_escapes(painted, tmp_path, args):
    path = tmp_path / "größe \udcff.mcap"
    shutil.copy(painted, path)
    done = ran(*args, path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    if args[-1] in ("--json", "foxglove-layout"):
        json.loads(done.stdout)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--rate", "1e300"), r"--rate is 1e\+300 Hz; a layout can be planned for up to 1,000 Hz"),
        (("--rate", "1e9"), "--rate is 1e\\+09 Hz"),
        (("--size", "99999999999x99999999"), "--size 99999999999x99999999: expected at most 16384 pixels"),
        (("--size", f"{'9' * 5000}x9"), "expected at most 16384 pixels a side"),
    ],
)
def test_a_plan_for_more_than_any_robot_has_is_refused(args, message):
    done = CliRunner().invoke(app, ["plan", *args])
    with pytest.raises(BadInput, match=message):
        raise done.exception


def test_a_plan_for_more_cameras_than_any_robot_has_is_refused():
    done = CliRunner().invoke(app, ["plan", "--cameras", "10000000"])
    assert done.exit_code == 2
    assert "be less than or equal to 1000" in done.stderr
