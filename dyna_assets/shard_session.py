"""Holding a shard: its lock, its materialization number, and telling the catalog how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dyna_assets.catalog.rows import shard_number
from dyna_assets.catalog.shard_lock import shard_lock
from dyna_assets.profiles import RunProfile
from dyna_assets.shard_run import ShardRun
from dyna_assets.workspace import Workspace

WAIT_S = 60.0
"""How long a run waits for another one of the same shard; then it fails and is retried."""


@contextmanager
def open_shard(
    workspace: Workspace, key: str, profile: RunProfile, *, run_id: str
) -> Iterator[ShardRun | None]:
    """A run's hold on shard `key`; None if nothing was ever given to that shard.

    The run counts as an attempt until it settles the shard at the revision it began with; what was
    registered meanwhile leaves the shard due. Raises ShardBusy if another run keeps it.
    """
    with shard_lock(workspace.database_url, shard_number(key), wait_s=WAIT_S):
        shard = workspace.catalog.shard(key)
        if shard is None:
            yield None
            return
        _sweep(workspace, key)
        workspace.catalog.add_attempt(key)
        yield ShardRun(
            catalog=workspace.catalog,
            warehouse=workspace.warehouse,
            sources=workspace.sources(),
            profile=profile,
            shard=shard,
            seq=workspace.catalog.next_seq(key),
            settings=workspace.settings,
            run_id=run_id,
        )


def _sweep(workspace: Workspace, key: str) -> None:
    """Remove what a killed run left half-written; under the shard's lock nobody else writes there."""
    if "://" not in workspace.lake:
        for part in Path(workspace.lake, "episodes", key).glob(".*.part"):
            part.unlink(missing_ok=True)
