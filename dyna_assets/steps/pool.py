"""Doing a step for many rows: a process pool, and what happens when one of its processes dies."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

from dyna_assets.landing.sources import MAY_CRASH
from dyna_assets.steps.attempt import attempt
from dyna_assets.steps.work import Row, StepResult
from dyna_train.processes import leave_interrupts_to_parent

LIGHT = {"gate_before"}
"""Steps that only look at rows: not worth a process."""
READING = {"recordings", "episodes"}
"""Steps that open recordings."""


def results(step: str, rows: Sequence[Row], num_workers: int) -> Iterator[StepResult]:
    """The results of `step`, in the order of `rows`, as they come.

    If a process dies (killed for its memory, crashed in a library), nobody knows by which of the rows under way:
    these are done one by one, each in a process of its own, and the one that dies again gets an error. A single row,
    or worker, needs no process, unless the row's reader may crash.
    """
    num_workers, left = min(num_workers, len(rows)), rows
    may_crash = step in READING and any(row.source.reader in MAY_CRASH for row in rows)
    if step in LIGHT or (num_workers <= 1 and not may_crash):
        yield from (attempt(step, row) for row in rows)
        return
    while left:
        num_done = 0
        try:
            with _pool(num_workers) as pool:
                for result in pool.map(partial(attempt, step), left):
                    num_done += 1
                    yield result
        except BrokenProcessPool:
            # rows are begun in order; what was done, but not yet handed over, is lost with the pool
            end = num_done + 2 * num_workers
            yield from (_alone(step, row) for row in left[num_done:end])
            num_done = end
        left = left[num_done:]


def _alone(step: str, row: Row) -> StepResult:
    try:
        with _pool(1) as pool:
            return pool.submit(attempt, step, row).result()
    except BrokenProcessPool:
        reason = (
            f"{row.where()}: its process died in step '{step}', twice, the second time with nothing beside it. Either "
            "a library crashed on damaged files: record or upload them again. Or it needs more memory than there is: "
            "lower 'workers' in settings.toml, then run the shard again"
        )
        return StepResult(row.episode_id, "error", reason)


def _pool(num_workers: int) -> ProcessPoolExecutor:
    # spawn: a fork of a process with threads (Dagster's, Arrow's) may deadlock.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(num_workers, mp_context=context, initializer=leave_interrupts_to_parent)
