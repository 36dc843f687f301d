from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dyna_cluster.launch import MARK, JobFailed, launch, newest_file, torchrun_command

# A job writes its pid into `pids`, so that a test can look for what is left of it.
HELLO = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
(folder / f"rank-{rank}-of-{size}-{os.getpid()}").touch()
"""


@pytest.fixture
def pids(tmp_path) -> Path:
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


@pytest.fixture
def script(tmp_path):
    """Write a job: HELLO and then `body`."""

    def write(body: str) -> str:
        path = tmp_path / "job.py"
        path.write_text(HELLO + body)
        return str(path)

    return write


def wait_for(condition, what: str, limit_s: float = 60):
    deadline_s = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"no {what} within {limit_s} s"
        time.sleep(0.05)
    return found


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def start(pids, tmp_path):
    """Start the command line on a job; gives it, and every process below it, once all ranks run."""
    started: list[subprocess.Popen[bytes]] = []

    def run(script: str, num_ranks: int = 2) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
        command = [
            sys.executable,
            "-m",
            "dyna_cluster.cli",
            "launch",
            "--ranks",
            str(num_ranks),
            "--",
            script,
        ]
        with (tmp_path / "output").open("wb") as output:
            process = subprocess.Popen([*command, str(pids)], stdout=output, stderr=output)
        started.append(process)
        wait_for(lambda: len(list(pids.glob("rank-*"))) == num_ranks, "ranks")
        below = psutil.Process(process.pid).children(recursive=True)
        assert len(below) == num_ranks + 1
        return process, below

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_a_job_runs_on_all_its_ranks_and_ends_well(script, pids):
    end = launch([script(""), str(pids)], ranks=2)
    assert (end.attempts, end.interrupted_by) == (1, 0)
    assert sorted(path.name.rsplit("-", 1)[0] for path in pids.iterdir()) == ["rank-0-of-2", "rank-1-of-2"]
    assert MARK not in os.environ


def test_a_failed_job_starts_again_while_it_moves_forward_and_stops_when_it_does_not(script, pids, tmp_path):
    # the first start leaves a checkpoint and fails, the second fails in the same place
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    job = script(f"""
checkpoint = pathlib.Path({str(checkpoints)!r}) / "step-1.pt"
if not checkpoint.exists():
    checkpoint.touch()
sys.exit(5)
""")
    said: list[str] = []
    with pytest.raises(
        JobFailed, match=r"attempt 2 ended with exit code 1 after .*left no newer checkpoint in .*step-1\.pt"
    ):
        launch([job, str(pids)], ranks=1, max_restarts=5, progress=checkpoints, say=said.append)
    (line,) = said
    assert "attempt 1 ended with exit code 1" in line
    assert "moved forward to step-1.pt: restart 1 of 5" in line
    assert len(list(pids.iterdir())) == 2


def test_ctrl_c_reaches_every_rank_and_leaves_no_process(start, script):
    process, below = start(script("time.sleep(600)"))
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 128 + signal.SIGINT
    assert alive(below) == []


def test_a_rank_that_ignores_signals_dies_at_the_second_one(start, script, pids):
    body = "import signal\nfor number in (2, 15): signal.signal(number, signal.SIG_IGN)\n(folder / 'deaf-0').touch()\n"
    process, below = start(script(body + "time.sleep(600)"), num_ranks=1)
    wait_for((pids / "deaf-0").exists, "deaf rank")
    process.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert alive(below)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert alive(below) == []


def test_killing_the_launcher_ends_the_job(start, script):
    process, below = start(script("time.sleep(600)"))
    process.kill()
    process.wait()
    wait_for(lambda: not alive(below), "end of the job")


def test_killing_torchrun_is_a_failure_that_leaves_no_orphan(start, script, tmp_path):
    process, below = start(script("time.sleep(600)"))
    (torchrun,) = psutil.Process(process.pid).children()
    torchrun.kill()
    assert process.wait(30) == 2
    output = (tmp_path / "output").read_text()
    assert "attempt 1 ended with exit code -9" in output
    assert "give --progress DIR of checkpoints" in output
    assert "Traceback" not in output
    assert alive(below) == []


def test_restarts_are_limited_even_while_the_job_moves_forward(script, pids, tmp_path):
    job = script(f"pathlib.Path({str(tmp_path)!r}, 'step-1.pt').touch(); sys.exit(5)")
    (tmp_path / "old.pt").touch()
    with pytest.raises(JobFailed, match=r"moved forward to step-1\.pt, but its 0 restarts are used up"):
        launch([job, str(pids)], ranks=1, max_restarts=0, progress=tmp_path)


def test_the_newest_file_is_no_hidden_one_and_no_folder(tmp_path):
    assert newest_file(None) is None
    assert newest_file(tmp_path / "absent") is None
    (tmp_path / "folder").mkdir()
    for time_ns, name in enumerate(["b.pt", "a.pt", ".c.pt.part"]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(time_ns, time_ns))
    assert newest_file(tmp_path) == (1, "a.pt")


def test_a_module_and_its_flags_pass_through_to_torchrun():
    command = torchrun_command(["-m", "package.module", "--flag", "x"], ranks=3)
    assert command[-4:] == ["-m", "package.module", "--flag", "x"]
    assert "--nproc-per-node=3" in command


def test_the_command_line_asks_for_what_is_missing():
    command = [sys.executable, "-m", "dyna_cluster.cli", "launch", "--", "x.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--ranks" in done.stderr
