"""Run a training job on this node with torchrun, and start it again for as long as it moves forward."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dyna_train.errors import DynaError
from dyna_train.processes import end_with_parent

GRACE_S = 20.0  # from the first signal to the kill; torchrun itself gives its ranks 30 s
POLL_S = 0.2
MARK = "DYNA_LAUNCH_ID"  # in the environment of every process of a job, whoever started it


class JobFailed(DynaError):
    """A job failed, and starting it again would not help."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job that did not fail: how often it was started, and the signal that ended it, or 0."""

    attempts: int
    interrupted_by: int = 0


def torchrun_command(argv: Sequence[str], ranks: int) -> list[str]:
    """The command that runs `argv` (a script or -m MODULE, and its arguments) on `ranks` processes."""
    # --standalone picks a free port; the loopback address spares a look-up of this machine's own name.
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    return [*run, f"--nproc-per-node={ranks}", "--max-restarts=0", *argv]


def launch(
    argv: Sequence[str],
    *,
    ranks: int,
    max_restarts: int = 2,
    progress: Path | None = None,
    say: Callable[[str], None] = print,
) -> JobEnd:
    """Run `argv` on `ranks` processes until it succeeds or SIGINT or SIGTERM, passed on, ends it.

    A failed job is started again, `max_restarts` times at most, if the folder `progress` holds a newer file
    than at its last start. No process of the job outlives this call, which must come from the main thread.
    Raises JobFailed saying why the job is not started again.
    """
    command = torchrun_command(argv, ranks)
    attempt = 0
    while True:
        attempt += 1
        before, began = newest_file(progress), time.monotonic()
        code, interrupted_by = _run(command, ranks)
        if interrupted_by or code == 0:
            return JobEnd(attempt, interrupted_by)
        ended = f"attempt {attempt} ended with exit code {code} after {time.monotonic() - began:.0f} s"
        after = newest_file(progress)
        obstacle = _obstacle(before, after, progress, attempt, max_restarts)
        if obstacle:
            raise JobFailed(f"{ended}; {obstacle}. The job's own error stands above")
        say(f"{ended}; it moved forward to {after[1] if after else ''}: restart {attempt} of {max_restarts}")


def newest_file(folder: Path | None) -> tuple[int, str] | None:
    """(modified in ns, name) of the newest file in `folder`; hidden ones, being written, do not count."""
    if folder is None or not folder.is_dir():
        return None
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    return max(((path.stat().st_mtime_ns, path.name) for path in files), default=None)


def _obstacle(
    before: tuple[int, str] | None,
    after: tuple[int, str] | None,
    progress: Path | None,
    attempt: int,
    max_restarts: int,
) -> str:
    """Why a failed job is not started again; '' if it is."""
    if progress is None:
        return (
            "not started again, as nothing says that it would get further: give --progress DIR of checkpoints"
        )
    if after is None or (before is not None and after <= before):
        newest = f"the newest is still {after[1]}" if after else "there is none"
        return f"not started again: it left no newer checkpoint in {progress} ({newest})"
    if attempt > max_restarts:
        return f"it moved forward to {after[1]}, but its {max_restarts} restarts are used up (--max-restarts)"
    return ""


def _run(command: Sequence[str], ranks: int) -> tuple[int, int]:
    """Run `command` to its end: (exit code, signal that we were sent or 0)."""
    mark = uuid.uuid4().hex
    caught: list[int] = []
    with _catching(caught):
        process = subprocess.Popen(
            command,
            env=_environment(mark, ranks),
            start_new_session=True,
            preexec_fn=partial(end_with_parent, os.getpid()),
        )
        try:
            return _wait(process, caught), next(iter(caught), 0)
        finally:
            _kill_all(mark, process)


def _wait(process: subprocess.Popen[bytes], caught: Sequence[int]) -> int:
    """Wait for `process`, passing on the first signal caught; the second one, or GRACE_S, ends the wait."""
    deadline_s: float | None = None
    while True:
        if caught and deadline_s is None:
            process.send_signal(caught[0])
            deadline_s = time.monotonic() + GRACE_S
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if deadline_s is not None and (len(caught) > 1 or time.monotonic() > deadline_s):
                return -signal.SIGKILL  # what the caller does to it now


@contextmanager
def _catching(caught: list[int]) -> Iterator[None]:
    """SIGINT and SIGTERM go into `caught` and do nothing else."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {one: signal.signal(one, lambda number, frame: caught.append(number)) for one in signals}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _environment(mark: str, ranks: int) -> dict[str, str]:
    """Ours, the job's mark, and what torchrun and gloo would otherwise guess worse for one node."""
    guesses = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // ranks))}
    if sys.platform == "linux":
        guesses["GLOO_SOCKET_IFNAME"] = "lo"
    return {**guesses, **os.environ, MARK: mark}


def _kill_all(mark: str, process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a job. Ranks sit in sessions of their own, so the mark finds them, not a group."""
    while left := _marked(mark):
        for pid in left:
            _kill(pid)
        process.poll()
        time.sleep(0.02)
    process.kill()
    process.wait()


def _marked(mark: str) -> list[int]:
    """Living processes with `mark` in their environment; none where there is no /proc."""
    needle = f"{MARK}={mark}".encode()
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if needle in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (PermissionError, ProcessLookupError, FileNotFoundError):
        return b""  # somebody else's, or gone since the listing


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
