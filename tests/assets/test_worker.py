"""The worker that looks on and on: what it says, and what it does not repeat."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from path_house import House

from dyna_assets.landing.register import Registration
from dyna_assets.worker import Drained


def write_loose(folder: Path) -> None:
    """A folder that is no upload: nobody commits it."""
    folder.mkdir(parents=True)
    (folder / "readme.txt").write_text("hello")


def test_what_a_worker_waits_for_is_said_once_and_again_when_it_changes(house: House) -> None:
    house.simulate(1)
    (marker,) = (house.landing / "sim").rglob("upload.json")
    marker.unlink()
    command = [sys.executable, "-m", "dyna_assets.cli", "worker", "--interval-s", "0.1"]
    env = {**os.environ, "DYNA_HOME": str(house.workspace.home.path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        try:
            first = worker.stdout.readline()
            time.sleep(1)  # some looks more
            write_loose(house.landing / "sim" / "later")
            second = worker.stdout.readline()
            (house.landing / "sim" / "later" / "more.txt").write_text("hello")
            third = worker.stdout.readline()
            worker.send_signal(signal.SIGINT)
            worker.wait(timeout=60)
            rest = worker.stdout.read()
        finally:
            worker.kill()  # a test that fails must not wait for it
    assert first.startswith(f"not read: sim: {marker.parent.name}: ")
    assert second.startswith("not read: sim: later: ") and "found 1 file" in second
    assert third.startswith("not read: sim: later: ") and "found 2 files" in third
    assert (rest, worker.returncode) == ("", 130)


def test_an_upload_that_still_arrives_is_one_wait_while_its_seconds_run_on() -> None:
    looks = [Drained(Registration(arriving={"lab: day1": f"its newest file is {s} s old"})) for s in (1, 2)]
    one, other = (done.waits() for done in looks)
    assert one.keys() == other.keys() == {"waiting: lab: day1"}
    assert other["waiting: lab: day1"] == "waiting: lab: day1: its newest file is 2 s old"


def test_shards_that_were_given_up_and_sources_that_are_away_are_waits_too() -> None:
    done = Drained(Registration(unreachable={"lab": "no such folder"}), given_up=["shard-000003"])
    assert list(done.waits()) == [
        "unreachable: lab: no such folder",
        "shard-000003: failed too often; mend the cause, then: dyna-assets worker --once",
    ]
