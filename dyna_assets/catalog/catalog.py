"""The catalog: which uploads exist, which episodes they hold, which shard each belongs to.

Every method is one transaction and returns plain values. Registrations happen one after another
(an advisory lock held until commit), so episode ids become visible in the order in which they count up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, Integer, Select, any_, create_engine, func, literal, select, update
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import sessionmaker

from dyna_assets.catalog import quarantine, registration
from dyna_assets.catalog.migrate import migrate
from dyna_assets.catalog.models import Episode, Policy, Robot, Shard, Source, Task, Upload
from dyna_assets.catalog.pool import POOL_OPTIONS, leave_inherited_connections
from dyna_assets.catalog.rows import (
    EpisodeRow,
    NewEpisode,
    NewUpload,
    PolicyRow,
    RegisteredUpload,
    ShardRow,
    SourceRow,
    UploadRow,
    shard_number,
)
from dyna_assets.errors import SetupError
from dyna_assets.settings import ShardLimits


class Catalog:
    """Open with `Catalog.open(url)`; safe to share between threads. Close it, or use it as a context manager."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._begin = sessionmaker(engine).begin

    @classmethod
    def open(cls, url: str) -> Catalog:
        """Connect to the PostgreSQL database at `url` and bring its tables up to date.

        Raises SetupError if the database cannot be reached.
        """
        identity = {"application_name": "dyna catalog", "connect_timeout": 10}
        engine = create_engine(url, connect_args=identity, **POOL_OPTIONS)
        leave_inherited_connections(engine)
        try:
            migrate(engine)
        except OperationalError as error:
            engine.dispose()
            where = engine.url.render_as_string(hide_password=True)
            raise SetupError(
                f"{where}: the catalog's database cannot be used: {error.orig}. "
                "Start it, or correct database_url in settings.toml"
            ) from None
        return cls(engine)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Sources

    def add_source(self, name: str, *, landing_uri: str, reader: str, now: datetime) -> SourceRow:
        """Add a source, or update where it lands and how it is read."""
        added = insert(Source).values(name=name, landing_uri=landing_uri, reader=reader, added_at=now)
        changes = {"landing_uri": added.excluded.landing_uri, "reader": added.excluded.reader}
        with self._begin() as session:
            upsert = added.on_conflict_do_update(index_elements=[Source.name], set_=changes).returning(Source)
            return _source(session.scalars(upsert).one())

    def sources(self) -> list[SourceRow]:
        """All sources by name."""
        with self._begin() as session:
            return [_source(row) for row in session.scalars(select(Source).order_by(Source.name))]

    # Uploads

    def known_looks(self, source: str) -> dict[str, str]:
        """`looks` by name of every upload of `source`, quarantined ones too; empty for an unknown source."""
        query = select(Upload.name, Upload.looks).join(Source).where(Source.name == source)
        with self._begin() as session:
            return {name: looks for name, looks in session.execute(query)}

    def register_upload(
        self,
        source: str,
        upload: NewUpload,
        recordings: Sequence[NewEpisode],
        *,
        versions: str,
        limits: ShardLimits,
        now: datetime,
    ) -> RegisteredUpload:
        """Record an upload with its recordings and give the new ones, all together, to a shard.

        The same upload again changes nothing. One without a marker may have grown or changed: new recordings
        are added, changed ones updated, and the shards of both become due. `versions` are the step versions
        of now, one string.

        Raises UploadError if the upload has a marker and changed after it landed, has no recordings, or names
        a recording that another upload of the source brought; SetupError for an unknown source.
        """
        with self._begin() as session:
            return registration.register(
                session, source, upload, recordings, versions=versions, limits=limits, now=now
            )

    def quarantine_upload(self, source: str, upload: NewUpload, reason: str, *, now: datetime) -> int:
        """Record that an upload cannot be used, and why. Returns its id.

        Episodes that it already has keep their shard, which becomes due, so that their rows learn of it.
        Raises SetupError for an unknown source.
        """
        with self._begin() as session:
            return registration.quarantine(session, source, upload, reason, now=now)

    def reject_upload(self, upload_id: int, *, reason: str) -> None:
        """As `quarantine_upload`, for the run that found the fault: it reads its rows again, so nothing becomes due.

        Raises sqlalchemy's NoResultFound for an unknown id.
        """
        with self._begin() as session:
            quarantine.reject(session, upload_id, reason, now=datetime.now(UTC))

    def release_upload(
        self,
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
        """As `register_upload`, of a quarantined upload that a person overrules: its rows become due.

        by, reason: who did so and why; kept in the upload's notes with the reason that was overruled.
        """
        with self._begin() as session:
            return quarantine.release(
                session,
                source,
                upload,
                recordings,
                by=by,
                reason=reason,
                versions=versions,
                limits=limits,
                now=now,
            )

    def find_uploads(self, text: str) -> list[UploadRow]:
        """Uploads whose name, id, or 'source: name' is `text`."""
        with self._begin() as session:
            return [_upload(*row) for row in session.execute(_uploads().where(quarantine.is_named(text)))]

    def upload_episodes(self, upload_id: int) -> list[EpisodeRow]:
        """Episodes of an upload by id."""
        query = _episodes().where(Episode.upload_id == upload_id).order_by(Episode.id)
        with self._begin() as session:
            return [_episode(*row) for row in session.execute(query)]

    def upload_shards(self, upload_id: int) -> set[int]:
        """Numbers of the shards that hold episodes of an upload."""
        with self._begin() as session:
            return quarantine.shards_of(session, upload_id)

    def uploads(self, source: str | None = None) -> list[UploadRow]:
        """Uploads in the order of registration, of one source or of all."""
        query = _uploads() if source is None else _uploads().where(Source.name == source)
        with self._begin() as session:
            return [_upload(*row) for row in session.execute(query)]

    def quarantined(self) -> list[UploadRow]:
        """Uploads that cannot be used, with their reasons."""
        with self._begin() as session:
            rows = session.execute(_uploads().where(Upload.state == "quarantined"))
            return [_upload(*row) for row in rows]

    # Shards

    def shard(self, key: str) -> ShardRow | None:
        """The shard `key`; None if no episode was ever given to it (its key may be registered ahead of need)."""
        with self._begin() as session:
            shard = session.get(Shard, shard_number(key))
            return None if shard is None else _shard(shard)

    def shards(self) -> list[ShardRow]:
        """All shards by number."""
        with self._begin() as session:
            return [_shard(shard) for shard in session.scalars(select(Shard).order_by(Shard.number))]

    def due_shards(self) -> list[ShardRow]:
        """Shards with rows that no finished run has read, by number; those given up included."""
        query = select(Shard).where(Shard.revision > Shard.settled_revision).order_by(Shard.number)
        with self._begin() as session:
            return [_shard(shard) for shard in session.scalars(query)]

    def highest_shard(self) -> int | None:
        """Number of the newest shard; None before the first."""
        with self._begin() as session:
            return session.scalar(select(func.max(Shard.number)))

    def shard_episodes(self, key: str) -> list[EpisodeRow]:
        """Episodes of a shard by id; empty if it has none."""
        query = _episodes().where(Episode.shard_number == shard_number(key)).order_by(Episode.id)
        with self._begin() as session:
            return [_episode(*row) for row in session.execute(query)]

    def settle(self, key: str, revision: int) -> None:
        """Say that a run finished which had read the shard at `revision` (`ShardRow.revision`, read before the rows).

        What was registered while the run worked leaves the shard due. Forgets failed attempts.
        """
        settled = func.greatest(Shard.settled_revision, func.least(revision, Shard.revision))
        self._change_shard(key, settled_revision=settled, attempts=0)

    def mark_all_due(self, numbers: Collection[int]) -> None:
        """Ask for another run of each of these shards, also of those that were given up."""
        with self._begin() as session:
            registration.make_due(session, numbers)

    def add_attempt(self, key: str) -> int:
        """Count a run of the due shard that begins; settling forgets it. Returns the count."""
        return self._change_shard(key, attempts=Shard.attempts + 1).attempts

    def next_seq(self, key: str) -> int:
        """Number of the materialization that starts now, from 1. Draw it under the shard's lock."""
        return self._change_shard(key, seq=Shard.seq + 1).seq

    def next_seqs(self, numbers: Collection[int]) -> dict[int, int]:
        """As `next_seq` for many shards in one statement, without their locks: shard -> its number.

        A run of such a shard that drew its number before is refused when it appends after this one.
        """
        draw = update(Shard).where(Shard.number == any_(literal(list(numbers), ARRAY(Integer))))
        with self._begin() as session:
            drawn = session.execute(draw.values(seq=Shard.seq + 1).returning(Shard.number, Shard.seq))
            return {number: seq for number, seq in drawn}

    def _change_shard(self, key: str, **values: Any) -> ShardRow:
        change = update(Shard).where(Shard.number == shard_number(key)).values(values).returning(Shard)
        with self._begin() as session:
            shard = session.scalars(change).one_or_none()
            if shard is None:
                raise KeyError(f"{key}: no such shard in the catalog; no episode was ever given to it")
            return _shard(shard)

    # Policies

    def apply_policy(self, name: str, version: int, text: str, *, now: datetime) -> None:
        """From now on, shard runs judge by this policy. Applying the active one again changes nothing."""
        with self._begin() as session:
            active = session.scalar(_policies().limit(1))
            if active is None or (active.name, active.version, active.text) != (name, version, text):
                session.add(Policy(name=name, version=version, text=text, applied_at=now))

    def active_policy(self) -> PolicyRow | None:
        """The policy that was applied last; None if none ever was."""
        return next(iter(self.policies(1)), None)

    def policies(self, num: int | None = None) -> list[PolicyRow]:
        """The policies that were applied, the last one first; all, or only the last `num`."""
        with self._begin() as session:
            return [
                PolicyRow(name=row.name, version=row.version, text=row.text, applied_at=row.applied_at)
                for row in session.scalars(_policies().limit(num))
            ]


# Outer joins give None where there is no partner, which the types of `Select` cannot say.


def _uploads() -> Select[Any]:
    joined = select(Upload, Source.name, Shard.key).join(Source, Upload.source_id == Source.id)
    joined = joined.outerjoin(Shard, Upload.shard_number == Shard.number)
    return joined.order_by(Upload.id)


def _episodes() -> Select[Any]:
    query = select(Episode, Upload, Source.name, Robot.name, Task.text)
    query = query.join(Upload, Episode.upload_id == Upload.id).join(Source, Episode.source_id == Source.id)
    return query.outerjoin(Robot).outerjoin(Task)


def _policies() -> Select[tuple[Policy]]:
    return select(Policy).order_by(Policy.id.desc())


def _source(row: Source) -> SourceRow:
    return SourceRow(
        id=row.id, name=row.name, landing_uri=row.landing_uri, reader=row.reader, added_at=row.added_at
    )


def _upload(row: Upload, source: str, shard: str | None) -> UploadRow:
    return UploadRow(
        id=row.id,
        source=source,
        name=row.name,
        uri=row.uri,
        state=row.state,
        reason=row.reason,
        digest=row.digest,
        marker=row.marker,
        num_files=row.num_files,
        size_bytes=row.size_bytes,
        kind=row.kind,
        shard_key=shard,
        notes=row.notes,
        registered_at=row.registered_at,
    )


def _shard(row: Shard) -> ShardRow:
    return ShardRow(
        number=row.number,
        key=row.key,
        state=row.state,
        versions=row.versions,
        num_episodes=row.num_episodes,
        size_bytes=row.size_bytes,
        seq=row.seq,
        revision=row.revision,
        settled_revision=row.settled_revision,
        attempts=row.attempts,
        opened_at=row.opened_at,
        last_added_at=row.last_added_at,
        closed_at=row.closed_at,
    )


def _episode(
    episode: Episode, upload: Upload, source: str, robot: str | None, task: str | None
) -> EpisodeRow:
    return EpisodeRow(
        id=episode.id,
        name=episode.name,
        source=source,
        upload_id=upload.id,
        upload=upload.name,
        upload_uri=upload.uri,
        upload_state=upload.state,
        upload_reason=upload.reason,
        upload_kind=upload.kind,
        marker=upload.marker,
        files=tuple(episode.files),
        input_hash=episode.input_hash,
        size_bytes=episode.size_bytes,
        robot=robot or "",
        task=task or "",
    )
