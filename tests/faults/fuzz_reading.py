"""Reads mutated files for `test_fuzz_sources`, in processes that may die.

A server: one line in ("<kind> <first seed> <end seed> <seconds>"), one line of JSON out, see `Outcome`. Each request
is done by a fork of this process with a bound on its memory and an alarm, so that a crash, a hang or a bomb
costs only that fork; the server goes on with the next seed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import av
from fuzz_samples import MARKER, PACKED, RECORD, TOML, WRITERS, mutated
from recordings import write_mcap
from row_samples import row_of

from dyna_assets.landing.draft import draft_source
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import CodedRecording, ExtraRecording, Folder, Reader, Recording
from dyna_assets.landing.source_toml import render_toml
from dyna_assets.landing.sources import reader_of
from dyna_assets.landing.upload import commit_upload, landed_files, parse_marker
from dyna_assets.steps.attempt import attempt
from dyna_train.config import load_config
from dyna_train.errors import DynaError

MORE_MEMORY_BYTES = 2 << 30
"""Address space beyond what the libraries take when they are loaded. What is read is some kilobytes."""
HANG_S = 15
MOST_MESSAGES = 300
MOST_RECORDINGS = 3


@dataclass
class Outcome:
    """Of a request. faults: seed -> what went wrong in a way it may not. died: seed -> the signal that ended it."""

    num_done: int = 0
    num_refused: int = 0
    faults: dict[int, str] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)


# Reading


def read_everything(reader: Reader, folder: Folder) -> None:
    """As registration, draft and steps do. Raises DynaError if it cannot be read, and nothing else."""
    reader.matches(landed_files(folder.files()), folder)
    reader.notes(folder)
    for ref in reader.recordings(folder)[:MOST_RECORDINGS]:
        with reader.open(folder, ref) as recording:
            reader.roles(recording)
            for topic in recording.topics:
                for act in (_read_topic, _keep_topic):
                    refusal_of(lambda: act(recording, topic))  # noqa: B023


def _read_topic(recording: Recording, topic: str) -> None:
    recording.times(topic)
    for _ in islice(recording.read([topic]), MOST_MESSAGES):
        pass
    coded = recording.coded(topic) if isinstance(recording, CodedRecording) else None
    for _ in islice(coded.packets() if coded else (), MOST_MESSAGES):
        pass


def _keep_topic(recording: Recording, topic: str) -> None:
    assert isinstance(recording, ExtraRecording)
    recording.extra_topics([topic])
    for _ in islice(recording.extras([topic]), MOST_MESSAGES):
        pass


def refusal_of(act: Callable[[], object]) -> str:
    """Why it is refused, '' if it is not. Any other error passes."""
    try:
        act()
    except DynaError as error:
        assert len(str(error)) > 20, f"says too little: {error}"
        return str(error)
    return ""


def probe(source: SourceProfile, root: Path) -> None:
    """The first steps of every recording; whatever is wrong must have become a rejection."""
    for ref in reader_of(source).recordings(Folder.of(root))[:MOST_RECORDINGS]:
        about = {"name": ref.name, "recording_name": ref.name, "files": ref.files, "upload_uri": str(root)}
        row = row_of(source, root, **about)
        result = attempt("recordings", row)
        if result.status == "ok":
            result = attempt(
                "gate_before", replace(row, upstream={"recordings": result.rows["recordings"][0]})
            )
        assert result.status != "error", result.reason


class Planted:
    """Stands in for a reader with a fault, which shows at the first seed; so that the watch is known to see it."""

    def __init__(self, kind: str, root: Path) -> None:
        self._fault = kind.removeprefix("planted-")

    def run(self, seed: int) -> bool:
        if seed == 0:
            getattr(self, self._fault)()
        return False

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def hang(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        hashlib.pbkdf2_hmac("sha256", b"in a library", b"", 1 << 30)

    def bomb(self) -> None:
        bytearray(2 * MORE_MEMORY_BYTES)

    def error(self) -> None:
        raise KeyError("planted")


class Fuzz:
    """The sample of one kind, and what is done with a mutation of it."""

    def __init__(self, kind: str, root: Path) -> None:
        self._kind, self._root = kind, root
        root.mkdir()
        self._write()
        self._files = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
        if kind == "tfrecord-inside":
            self._files = dict.fromkeys(self._files, RECORD)
        self._put = PACKED.get(kind, Path.write_bytes)
        refusal = refusal_of(lambda: self._act(next(iter(self._files.values()))))
        assert not refusal, f"the sample itself is refused: {refusal}"

    def run(self, seed: int) -> bool:
        """True if the mutation is refused."""
        chance = random.Random(f"{self._kind} {seed}")
        path = chance.choice(list(self._files))
        changed = mutated(self._files[path], chance)
        self._put(path, changed)
        try:
            return bool(refusal_of(lambda: self._act(changed)))
        finally:
            self._put(path, self._files[path])

    def _write(self) -> None:
        if self._kind in WRITERS:
            WRITERS[self._kind](self._root)
        else:
            write_mcap(self._root / "a.mcap", 4)
            commit_upload(
                self._root, source="lab", kind="teleoperation", recorded_at=0, metadata={"a": [1, "b"]}
            )
            (self._root / "a.mcap").unlink()
        if self._kind == TOML:
            content = (self._root / MARKER).read_bytes()
            (self._root / MARKER).unlink()
            assert content
            write_mcap(self._root / "a.mcap", 4)
            text = render_toml(draft_source("lab", "x", Folder.of(self._root)).profile)
            (self._root / "a.mcap").unlink()
            (self._root / TOML).write_text(text, encoding="utf-8")
        elif self._kind in WRITERS:
            self._source = drafted(self._root)

    def _act(self, changed: bytes) -> None:
        if self._kind == MARKER:
            parse_marker(changed, where=MARKER)
        elif self._kind == TOML:
            load_config(SourceProfile, self._root / TOML)
        else:
            probe(self._source, self._root)
            read_everything(reader_of(self._source), Folder.of(self._root))


def drafted(root: Path) -> SourceProfile:
    draft = draft_source("lab", str(root), Folder.of(root))
    return draft.profile.model_copy(
        update={"reader_options": {**draft.profile.reader_options, **draft.choose}}
    )


# The server


def serve(lines: Iterator[str]) -> None:
    av.logging.set_level(None)
    with tempfile.TemporaryDirectory(prefix="dyna-fuzz-") as name:
        for line in lines:
            kind, first, end, seconds = line.split()
            root = Path(name) / kind
            outcome = answer(kind, root, range(int(first), int(end)), float(seconds))
            print(json.dumps(asdict(outcome)), flush=True)


def answer(kind: str, root: Path, seeds: range, seconds: float) -> Outcome:
    """All seeds of a kind, or as many as there is time for; after a death on with the next one."""
    outcome, ends_at = Outcome(), time.monotonic() + seconds
    while seeds and time.monotonic() < ends_at:
        seeds = _forked(kind, root.with_name(f"{kind}-{seeds.start}"), seeds, ends_at, outcome)
    return outcome


def _forked(kind: str, root: Path, seeds: range, ends_at: float, outcome: Outcome) -> range:
    """Work in a fork until it dies or ends; the seeds that are left."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _work(kind, root, seeds, ends_at, write_end)
    os.close(write_end)
    last = seeds.start - 1
    with os.fdopen(read_end) as reports:
        for line in reports:
            number, what, text = json.loads(line)
            last = max(last, number)
            outcome.num_done += what == "done"
            outcome.num_refused += what == "done" and text == "refused"
            if what == "fault":
                outcome.faults[number] = text
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return seeds[len(seeds) :]
    ended = os.waitstatus_to_exitcode(status)
    outcome.died[last] = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
    return range(last + 1, seeds.stop)


def _work(kind: str, root: Path, seeds: range, ends_at: float, report_to: int) -> None:
    """The fork's life; never returns."""

    def say(*report: object) -> None:
        os.write(report_to, json.dumps(report).encode() + b"\n")

    try:
        fuzz = (Planted if kind.startswith("planted-") else Fuzz)(kind, root)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MORE_MEMORY_BYTES,) * 2)
        for seed in seeds:
            if time.monotonic() > ends_at:
                break
            say(seed, "begin", "")
            signal.setitimer(
                signal.ITIMER_REAL, HANG_S
            )  # nobody handles it: it ends even what is in a library
            try:
                is_refused = fuzz.run(seed)
                say(seed, "done", "refused" if is_refused else "read")
            except BaseException:
                say(seed, "fault", traceback.format_exc()[-3000:])
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    serve(iter(sys.stdin.readline, ""))
