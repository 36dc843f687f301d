"""Holding a shard: its lock, and the count of runs that began and did not finish."""

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
"""How long a run waits for another one of the same shard; then it fails, and the shard stays due."""


@contextmanager
def open_shard(
    workspace: Workspace, key: str, profile: RunProfile, *, run_id: str
) -> Iterator[ShardRun | None]:
    """A run's hold on shard `key`; None if nothing was ever given to that shard.

    A run that could settle a due shard counts as an attempt until it does. Raises ShardBusy if another run
    keeps the shard.
    """
    with shard_lock(workspace.database_url, shard_number(key), wait_s=WAIT_S) as lock:
        shard = workspace.catalog.shard(key)
        if shard is None:
            yield None
            return
        _sweep(workspace, key)
        if shard.is_due and profile.is_complete:
            workspace.catalog.add_attempt(key)
        yield ShardRun(
            catalog=workspace.catalog,
            warehouse=workspace.warehouse,
            sources=workspace.sources(),
            profile=profile,
            shard=shard,
            lock=lock,
            settings=workspace.settings,
            run_id=run_id,
        )


def _sweep(workspace: Workspace, key: str) -> None:
    """Remove what a killed run left half-written; under the shard's lock nobody else writes there."""
    if "://" in workspace.lake:
        return
    lake = Path(workspace.lake)
    for part in (*lake.glob(f"episodes/{key}/.*.part"), *lake.glob(f"media/{key}/*/.*.part")):
        part.unlink(missing_ok=True)
