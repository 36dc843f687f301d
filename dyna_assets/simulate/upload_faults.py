"""Faults of recorded files and of the marker's list of them."""

from __future__ import annotations

import os
from pathlib import Path

from dyna_assets.simulate.faults import Listing, fault


@fault(Path)
def truncated_file(path: Path, strength: float) -> Path:
    """The recorder loses power: the file ends after 60 % of its bytes (more, if weaker), hashed as it is."""
    os.truncate(path, round(path.stat().st_size * (1 - 0.4 * strength)))
    return path


@fault(tuple)
def missing_file(listing: Listing, strength: float) -> Listing:
    """The second part of a split recording is lost on the way: the marker lists it, the folder lacks it."""
    first = listing[0]
    stem, _, suffix = first.path.rpartition(".")
    return (*listing, first.model_copy(update={"path": f"{stem}_1.{suffix}"}))


@fault(tuple)
def bad_checksum(listing: Listing, strength: float) -> Listing:
    """A file is damaged on the way: its size is as listed, its bytes do not have the listed sha256."""
    damaged = f"{int(listing[0].sha256, 16) ^ 1:064x}"
    return (listing[0].model_copy(update={"sha256": damaged}), *listing[1:])
