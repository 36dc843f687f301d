"""Checking the files of a shard's uploads against their markers, before anything of them is read."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.rows import EpisodeRow
from dyna_assets.errors import UploadError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.upload import UploadMarker, verify_hashes
from dyna_assets.settings import Settings


@dataclass(frozen=True, slots=True)
class VerifiedUploads:
    """Uploads of the shard, those whose hashes were verified now, and why the others were quarantined."""

    num_uploads: int
    num_verified: int
    quarantined: tuple[str, ...]


def verify_uploads(
    catalog: Catalog, settings: Settings, fresh: Mapping[int, EpisodeRow], *, num_uploads: int
) -> VerifiedUploads:
    """Check every upload of `fresh` (upload id -> one of its episodes), and quarantine those that differ.

    num_uploads: those of the shard.
    """
    with ThreadPoolExecutor(settings.workers) as pool:
        problems = dict(zip(fresh, pool.map(partial(_hash_problem, settings), fresh.values()), strict=True))
    quarantined = []
    for upload_id, problem in problems.items():
        if problem:
            catalog.reject_upload(upload_id, reason=problem)
            quarantined.append(f"{fresh[upload_id].source}: {fresh[upload_id].upload}: {problem}")
    return VerifiedUploads(num_uploads, len(fresh) - len(quarantined), tuple(quarantined))


def _hash_problem(settings: Settings, row: EpisodeRow) -> str:
    folder = Folder.of(row.upload_uri, **settings.storage_options(row.upload_uri))
    try:
        verify_hashes(folder, UploadMarker.model_validate(row.marker))
    except UploadError as error:
        return str(error)
    return ""
