"""Uploads and recordings for the tests of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.rows import NewEpisode, NewUpload, RegisteredUpload
from dyna_assets.settings import ShardLimits

NOW = datetime.fromisoformat("2026-11-29T12:00:00+00:00")
LIMITS = ShardLimits(max_episodes=4, max_bytes=1000, quiet_s=60)


def recordings(*names: str, input_hash: str = "h", size_bytes: int = 10) -> list[NewEpisode]:
    return [
        NewEpisode(name=name, files=(f"{name}.hdf5",), input_hash=input_hash, size_bytes=size_bytes)
        for name in names
    ]


def upload(name: str, *, digest: str = "d", has_marker: bool = True) -> NewUpload:
    return NewUpload(
        name=name,
        uri=f"/landing/lab/{name}",
        digest=digest,
        num_files=1,
        size_bytes=10,
        kind="teleoperation",
        marker={"version": 1} if has_marker else None,
        robot="so101",
        task="fold a towel",
    )


def register(
    catalog: Catalog,
    new: NewUpload,
    episodes: Sequence[NewEpisode],
    *,
    versions: str = "v1",
    after_s: float = 0,
    limits: ShardLimits = LIMITS,
) -> RegisteredUpload:
    """Register at NOW + after_s."""
    now = NOW + timedelta(seconds=after_s)
    return catalog.register_upload("lab", new, episodes, versions=versions, limits=limits, now=now)
