"""Under its final name a file is whole or not there: on a full disk, and wherever the writer is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

# A process may write no file larger than the limit; to the writer that is a disk which is full at that byte.
FULL_DISK = """
import errno, json, os, resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from full_episodes import full_script

folder, script = Path(sys.argv[2]), full_script(40)
made = script.write(folder / "e.mcap")
before = made.path.read_bytes()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
found = []
for limit in (0, 1, 4000, made.size_bytes // 3, made.size_bytes // 2, made.size_bytes - 100, made.size_bytes + 100):
    for name in ("e.mcap", "new.mcap"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
        try:
            script.write(folder / name)
            error = ""
        except OSError as failure:
            error = errno.errorcode[failure.errno]
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        is_kept = (folder / "e.mcap").read_bytes() == before
        found.append([made.size_bytes - limit, name, error, is_kept, sorted(os.listdir(folder))])
print(json.dumps(found))
"""

# The writer is a fork of a process that has imported everything, so that a kill hits the writing.
KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from full_episodes import full_script
from dyna_train.episode.reader import Episode

def state_of(path):
    if not path.exists():
        return "absent"
    with Episode.open(path) as episode:
        frames = [episode.frames(name, script.has_T[topic].nonzero()[0]) for name, topic in names.items()]
        is_whole = [len(part) for part in frames] == [script.has_T[topic].sum() for topic in names.values()]
        return "whole" if is_whole and episode.state_TD.tobytes() == state.tobytes() else "other"

folder, script, rng = Path(sys.argv[2]), full_script(100), random.Random(4)
path, names = folder / "e.mcap", {camera.name: camera.topic for camera in script.header.cameras}
start = time.monotonic()
script.write(path)
most_s = time.monotonic() - start
with Episode.open(path) as episode:
    state = episode.state_TD
path.unlink()
counts = {"absent": 0, "whole": 0, "other": 0}
for delay_s in [0.0, *(rng.uniform(0, 1.3 * most_s) for _ in range(12)), None]:
    child = os.fork()
    if child == 0:
        script.write(path)
        os._exit(0)
    if delay_s is None:  # killed right after the file appeared
        while not path.exists():
            time.sleep(0.001)
    else:
        time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    counts[state_of(path)] += 1
    path.unlink(missing_ok=True)
print(json.dumps(counts))
"""


def run(code: str, folder: Path) -> Any:
    command = [sys.executable, "-c", code, str(HERE), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_disk_that_is_full_at_any_byte_leaves_the_old_file_or_none_and_no_part_of_one(tmp_path):
    pytest.importorskip("resource", reason="this system knows no limit to the size of a file")
    for missing_bytes, name, error, is_kept, listed in run(FULL_DISK, tmp_path):
        assert is_kept, (missing_bytes, name)
        if missing_bytes > 0:
            assert (error, listed) == ("EFBIG", ["e.mcap"]), (missing_bytes, name)
        else:
            assert (error, "new.mcap" in listed) == ("", name == "new.mcap")


def test_a_writer_that_is_killed_at_any_moment_leaves_a_whole_file_or_none(tmp_path):
    counts = run(KILLED, tmp_path)
    assert counts["other"] == 0
    assert counts["absent"] > 0 and counts["whole"] > 0, "the kills fell on one side of the writing's end"
