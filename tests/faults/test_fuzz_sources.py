"""Mutated files of every format are refused or read: no crash, no hang, no unbounded memory, no other error.

Seeds are fixed: a failure names its kind and seed, and `Fuzz(kind, folder).run(seed)` of `fuzz_reading` repeats it.
DYNA_FUZZ_SECONDS=600 goes on for so long with as many seeds as that takes.

What "no crash" means for HDF5: its C library is not made for hostile files and may end its process. So nothing of an
HDF5 file is read where uploads are registered: the reader lists names only. Steps read it in processes of `steps.pool`,
where a death costs the row that caused it, with a single worker or row too. Here such a death is counted, and may be
one of a hundred at most (seen: one of some thousands); of every other format none may be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

KINDS = (
    "mcap-cdr", "mcap-plain", "mcap-protobuf", "mcap-json", "mcap-h264", "lerobot-v21", "lerobot-v30", "hdf5",
    "bag-db3", "bag-mcap", "tfrecord", "tfrecord-inside", "hands-csv", "hands-json", "hands-parquet", "upload.json",
    "source.toml",
)  # fmt: skip
NUM_SEEDS, MOST_S = 30, 10.0
"""Of each kind: mutations, and seconds after which no further one is begun."""
MAY_DIE = {"hdf5": 0.01}
"""Share of mutations that may end the process that reads them."""

FOLDER = Path(__file__).parent


class Server:
    """The process that reads; see `fuzz_reading`."""

    def __init__(self, pipe_in: IO[str], pipe_out: IO[str]) -> None:
        self._in, self._out = pipe_in, pipe_out

    def ask(self, kind: str, num_seeds: int, seconds: float) -> dict[str, Any]:
        print(kind, 0, num_seeds, seconds, file=self._in, flush=True)
        answer: dict[str, Any] = json.loads(self._out.readline())
        return answer


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    root = FOLDER.parents[1]
    places = [
        str(root),
        str(FOLDER),
        str(root / "tests/assets"),
        *os.environ.get("PYTHONPATH", "").split(":"),
    ]
    command = [sys.executable, str(FOLDER / "fuzz_reading.py")]
    env = {**os.environ, "PYTHONPATH": ":".join(filter(None, places)), "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield Server(process.stdin, process.stdout)
        process.stdin.close()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files_are_refused_or_read_and_nothing_else(server: Server, kind: str) -> None:
    longer_s = float(os.environ.get("DYNA_FUZZ_SECONDS", 0)) / len(KINDS)
    found = server.ask(kind, 10**9 if longer_s else NUM_SEEDS, longer_s or MOST_S)
    assert found["faults"] == {}, "\n".join(
        f"{kind}, seed {seed}:\n{text}" for seed, text in found["faults"].items()
    )
    num_tried = found["num_done"] + len(found["died"])
    assert num_tried > 0 and found["num_refused"] > 0
    assert len(found["died"]) <= MAY_DIE.get(kind, 0) * num_tried, f"{kind}: seed -> signal: {found['died']}"


@pytest.mark.parametrize(
    ("kind", "died", "fault"),
    [
        ("planted-crash", {"0": "SIGSEGV"}, ""),
        ("planted-hang", {"0": "SIGALRM"}, ""),
        ("planted-bomb", {}, "MemoryError"),
        ("planted-error", {}, "KeyError: 'planted'"),
    ],
)
def test_the_watch_sees_what_it_is_for(server: Server, kind: str, died: dict[str, str], fault: str) -> None:
    found = server.ask(kind, 2, MOST_S)
    assert found["died"] == died
    assert [text.strip().splitlines()[-1] for text in found["faults"].values()] == ([fault] if fault else [])
    assert found["num_done"] == 1  # it went on with the next one
