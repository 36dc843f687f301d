"""Doing a step for many rows: a process pool, and what happens when one of its processes dies."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

from dyna_assets.steps.attempt import attempt
from dyna_assets.steps.work import Row, StepResult
from dyna_train.processes import leave_interrupts_to_parent

LIGHT = {"gate_before"}
"""Steps that only look at rows: not worth a process."""


def results(step: str, rows: Sequence[Row], num_workers: int) -> Iterator[StepResult]:
    """The results of `step`, in the order of `rows`, as they come.

    If a process dies (killed for its memory, crashed in a codec), nobody knows by which row: those that are
    left are done one by one, each in a process of its own, and the one that dies again gets an error.
    """
    num_workers = min(num_workers, len(rows))
    if num_workers <= 1 or step in LIGHT:
        yield from (attempt(step, row) for row in rows)
        return
    num_done = 0
    try:
        with _pool(num_workers) as pool:
            for result in pool.map(partial(attempt, step), rows):
                num_done += 1
                yield result
    except BrokenProcessPool:
        for row in rows[num_done:]:
            yield _alone(step, row)


def _alone(step: str, row: Row) -> StepResult:
    try:
        with _pool(1) as pool:
            return pool.submit(attempt, step, row).result()
    except BrokenProcessPool:
        reason = f"{row.where()}: its process died in step '{step}': out of memory, or a crash in a codec"
        return StepResult(row.episode_id, "error", reason)


def _pool(num_workers: int) -> ProcessPoolExecutor:
    # spawn: a fork of a process with threads (Dagster's, Arrow's) may deadlock.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(num_workers, mp_context=context, initializer=leave_interrupts_to_parent)
