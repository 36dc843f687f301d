"""Doing a step for one row, in whatever process; whatever is wrong with the episode becomes its result."""

from __future__ import annotations

from collections.abc import Callable

from dyna_assets.errors import bug_text
from dyna_assets.stamps import STEPS, Status
from dyna_assets.steps.gates import gate_after, gate_before
from dyna_assets.steps.labels import label
from dyna_assets.steps.media import make_media
from dyna_assets.steps.pack import pack
from dyna_assets.steps.probe import probe
from dyna_assets.steps.work import Row, StepResult
from dyna_train.errors import DynaError

FUNCTIONS: dict[str, Callable[[Row], StepResult]] = {
    "recordings": probe,
    "gate_before": gate_before,
    "episodes": pack,
    "gate_after": gate_after,
    "labels": label,
    "media": make_media,
}


def attempt(step: str, row: Row) -> StepResult:
    """The step's result; a fault of the episode is a rejection, a fault of ours on odd data an error.

    What raises is infrastructure: the store, the disk, the memory.
    """
    try:
        return FUNCTIONS[step](row)
    except DynaError as error:
        check = getattr(error, "check", "")
        status: Status = "rejected" if STEPS[step].critical else "error"
        return _failed(row, status, f"{check}: {error}" if check else str(error))
    except (OSError, MemoryError):
        raise
    except Exception as error:  # the edge of a row: a bug met by one episode must not cost the others
        return _failed(row, "error", bug_text(error))


def _failed(row: Row, status: Status, reason: str) -> StepResult:
    named = reason if row.recording_name in reason else f"{row.where()}: {reason}"
    return StepResult(row.episode_id, status, named)
