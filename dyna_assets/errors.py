"""Errors of the asset graph, on top of `dyna_train.errors`.

    DynaError
    ├── ShardBusy            another run holds the shard: retry the run
    └── BadInput
        ├── UploadError      an upload breaks the landing protocol: it is quarantined
        ├── RecordingError   a recording cannot be read as what it claims to be: its row is rejected
        ├── CurationError    a question to the warehouse that cannot be answered
        └── SetupError       this machine or its configuration cannot run the asset graph

Anything else that leaves a step (an unreachable store, a full disk) is infrastructure: it fails the
run, which is retried, and costs no episode its verdict.
"""

import traceback

from dyna_train.errors import BadInput, DynaError


class ShardBusy(DynaError):
    """Another run holds the shard, or the lock was lost. Not the episodes' fault: retry the run."""


class UploadError(BadInput):
    """An upload breaks the landing protocol."""


class RecordingError(BadInput):
    """A recording cannot be read: its row is rejected.

    `check` names the fault as quality checks are named. Some are those checks (time.monotonic, time.duration,
    topics.present); others are only ever found while reading: recording.readable, recording.complete,
    video.decodable, video.times, time.overlap, time.reference_rate, signals.derived, upload.unchanged.
    """

    def __init__(self, message: str, *, check: str = "recording.readable") -> None:
        super().__init__(message)
        self.check = check


class CurationError(BadInput):
    """A curation request cannot be answered."""


class SetupError(BadInput):
    """This machine or its configuration cannot run the asset graph."""


def bug_text(error: Exception) -> str:
    """An error that was not made for people: its kind, its words, and the line it comes from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.name}, line {last.lineno} of {last.filename})"
