"""Uploads by name, and overruling a quarantine: queries within one transaction of `Catalog`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Text, cast, func, or_, select
from sqlalchemy.orm import Session

from dyna_assets.catalog import registration
from dyna_assets.catalog.models import Episode, Source, Upload
from dyna_assets.catalog.registration import RELEASES
from dyna_assets.catalog.rows import NewEpisode, NewUpload, RegisteredUpload
from dyna_assets.catalog.shard_lock import REGISTRATION_LOCK
from dyna_assets.settings import ShardLimits

SINCE = "quarantined_at"
"""Key of `Upload.notes`: when an upload was quarantined, ISO 8601."""


@dataclass(frozen=True, slots=True)
class Release:
    """A person's word against a quarantine. at: ISO 8601. overruled: the reason why the upload was quarantined."""

    by: str
    at: str
    reason: str
    overruled: str


def is_named(text: str) -> ColumnElement[bool]:
    """Of an upload joined with its source: that it has this name, this id, or is 'source: name'."""
    return or_(Upload.name == text, Source.name + ": " + Upload.name == text, cast(Upload.id, Text) == text)


def shards_of(session: Session, upload_id: int) -> set[int]:
    """See `Catalog.upload_shards`."""
    return set(session.scalars(select(Episode.shard_number).where(Episode.upload_id == upload_id).distinct()))


def reject(session: Session, upload_id: int, reason: str, *, now: datetime) -> None:
    """See `Catalog.reject_upload`."""
    registration.reject(session, upload_id, reason)
    upload = session.get_one(Upload, upload_id)
    upload.notes = {**upload.notes, SINCE: now.isoformat()}


def release(
    session: Session,
    source: str,
    upload: NewUpload,
    recordings: Sequence[NewEpisode],
    *,
    by: str,
    reason: str,
    versions: str,
    limits: ShardLimits,
    now: datetime,
) -> RegisteredUpload:
    """See `Catalog.release_upload`."""
    session.execute(select(func.pg_advisory_xact_lock(*REGISTRATION_LOCK)))
    query = select(Upload).join(Source).where(Source.name == source, Upload.name == upload.name)
    known = session.scalars(query).one()
    said = Release(by, now.isoformat(), reason, known.reason)
    earlier = known.notes.get(RELEASES, [])
    known.marker = None  # the person's word stands above it: what is registered now may differ
    session.flush()
    registered = registration.register(
        session, source, upload, recordings, versions=versions, limits=limits, now=now
    )
    known.notes = {**upload.notes, RELEASES: [*earlier, asdict(said)]}
    return registered
