"""How an upload enters the catalog, within one transaction of `Catalog`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Text, any_, func, literal, select, update
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.orm import Session

from dyna_assets.catalog.assignment import place
from dyna_assets.catalog.models import Episode, Robot, Shard, Source, Task, Upload
from dyna_assets.catalog.rows import NewEpisode, NewUpload, RegisteredUpload, UploadState
from dyna_assets.catalog.shard_lock import REGISTRATION_LOCK
from dyna_assets.errors import SetupError, UploadError
from dyna_assets.settings import ShardLimits
from dyna_train.episode.address import shard_key

RELEASES = "released"
"""Key of `Upload.notes`: a list of `dyna_assets.catalog.quarantine.Release`, the latest last."""


def register(
    session: Session,
    source: str,
    upload: NewUpload,
    recordings: Sequence[NewEpisode],
    *,
    versions: str,
    limits: ShardLimits,
    now: datetime,
) -> RegisteredUpload:
    """See `Catalog.register_upload`."""
    source_id = _lock_source(session, source)
    known = _find(session, source_id, upload.name)
    if known is not None and known.state == "registered":
        if known.digest == upload.digest:
            known.looks = upload.looks
            return _result(known, num_new=0, num_changed=0)
        _check_immutable(source, upload, known)
    _check_recordings(source, upload, recordings)
    owned = _known_episodes(session, source_id, recordings)
    _check_owner(source, upload, known, owned)
    is_same = all(r.name in owned and _is_current(owned[r.name], r) for r in recordings)
    if known is not None and known.shard_number is not None and not is_same:  # back from quarantine, altered
        _check_immutable(source, upload, known)

    is_back = known is not None and known.state == "quarantined"
    row = _record(session, source_id, upload, known, now, state="registered", reason="")
    changed = _update_changed(owned, recordings)
    due = set(_shards_of(session, row) if is_back else changed)
    new = [recording for recording in recordings if recording.name not in owned]
    if new:
        shard = _take(session, source_id, new, versions=versions, limits=limits, now=now)
        row.shard_number = shard.number
        _add_episodes(session, row, shard, upload, new, now)
        due.discard(shard.number)
    make_due(session, due)
    return _result(row, num_new=len(new), num_changed=len(changed))


def quarantine(session: Session, source: str, upload: NewUpload, reason: str, *, now: datetime) -> int:
    """See `Catalog.quarantine_upload`."""
    source_id = _lock_source(session, source)
    known = _find(session, source_id, upload.name)
    was_in_force = known is not None and known.state == "registered"
    row = _record(session, source_id, upload, known, now, state="quarantined", reason=reason)
    if was_in_force:
        make_due(session, _shards_of(session, row))
    return row.id


def reject(session: Session, upload_id: int, reason: str) -> None:
    """See `Catalog.reject_upload`."""
    upload = session.get_one(Upload, upload_id)
    upload.state, upload.reason = "quarantined", reason


def _lock_source(session: Session, source: str) -> int:
    """Id of the source. From here to the commit no other registration runs."""
    session.execute(select(func.pg_advisory_xact_lock(*REGISTRATION_LOCK)))
    source_id = session.scalar(select(Source.id).where(Source.name == source))
    if source_id is None:
        names = ", ".join(session.scalars(select(Source.name).order_by(Source.name))) or "none"
        raise SetupError(f"source '{source}' is not in the catalog (there: {names}). Add it first")
    return source_id


def _find(session: Session, source_id: int, name: str) -> Upload | None:
    return session.scalar(select(Upload).where(Upload.source_id == source_id, Upload.name == name))


def _check_immutable(source: str, upload: NewUpload, known: Upload) -> None:
    # A release is a person's word for the bytes of that day: it ends with them, and the marker counts again.
    if known.marker is not None and RELEASES not in known.notes:
        raise UploadError(
            f"source '{source}', upload '{upload.name}': its files changed after upload.json said it was complete "
            f"(expected digest {known.digest}, found {upload.digest}). Landed uploads are immutable: "
            "put the new files in an upload of a new name"
        )


def _check_recordings(source: str, upload: NewUpload, recordings: Sequence[NewEpisode]) -> None:
    if not recordings:
        raise UploadError(
            f"source '{source}', upload '{upload.name}': expected at least one recording, found none in its "
            f"{upload.num_files:,} files. Check that the source's reader is the right one"
        )
    name, count = Counter(recording.name for recording in recordings).most_common(1)[0]
    if count > 1:
        raise UploadError(
            f"source '{source}', upload '{upload.name}': expected every recording once, found '{name}' {count} times. "
            "Names are unique within a source: rename it"
        )


def _known_episodes(
    session: Session, source_id: int, recordings: Sequence[NewEpisode]
) -> Mapping[str, Episode]:
    """Those of the recordings that are episodes already, by name."""
    names = literal([recording.name for recording in recordings], ARRAY(Text))
    query = select(Episode).where(Episode.source_id == source_id, Episode.name == any_(names))
    return {episode.name: episode for episode in session.scalars(query)}


def _check_owner(source: str, upload: NewUpload, known: Upload | None, owned: Mapping[str, Episode]) -> None:
    for name, episode in owned.items():
        if known is None or episode.upload_id != known.id:
            raise UploadError(
                f"source '{source}', upload '{upload.name}': recording '{name}' came before, with another upload "
                f"(episode {episode.id}). Names are unique within a source: rename it, or land it under another source"
            )


def _record(
    session: Session,
    source_id: int,
    upload: NewUpload,
    known: Upload | None,
    now: datetime,
    *,
    state: UploadState,
    reason: str,
) -> Upload:
    """The upload's row, new or brought up to date; it has its id."""
    row = known if known is not None else Upload(source_id=source_id, name=upload.name, registered_at=now)
    row.uri, row.digest, row.looks = upload.uri, upload.digest, upload.looks
    row.state, row.reason = state, reason
    if (
        upload.marker is not None
    ):  # once there was one, the upload is immutable, whatever became of its marker
        row.marker = dict(upload.marker)
    row.num_files, row.size_bytes = upload.num_files, upload.size_bytes
    row.kind, row.notes = upload.kind, dict(upload.notes)
    session.add(row)
    session.flush()
    return row


def _update_changed(owned: Mapping[str, Episode], recordings: Sequence[NewEpisode]) -> list[int]:
    """Update episodes whose input is another one now; the shard number of each."""
    shards = []
    for recording in recordings:
        episode = owned.get(recording.name)
        if episode is None or _is_current(episode, recording):
            continue
        episode.input_hash, episode.files = recording.input_hash, list(recording.files)
        episode.size_bytes = recording.size_bytes
        shards.append(episode.shard_number)
    return shards


def _is_current(episode: Episode, recording: NewEpisode) -> bool:
    return (episode.input_hash, tuple(episode.files)) == (recording.input_hash, recording.files)


def _take(
    session: Session,
    source_id: int,
    new: Sequence[NewEpisode],
    *,
    versions: str,
    limits: ShardLimits,
    now: datetime,
) -> Shard:
    """The source's shard that takes the new episodes, with them counted in."""
    size_bytes = sum(recording.size_bytes for recording in new)
    is_open = (Shard.source_id == source_id, Shard.state == "open")
    shard = session.scalar(select(Shard).where(*is_open).with_for_update())
    placement = place(shard, len(new), size_bytes, versions=versions, limits=limits, now=now)
    if shard is None or placement.opens_next:
        if shard is not None:
            shard.state, shard.closed_at = "closed", now
        shard = _open(session, source_id, versions, now)
    shard.num_episodes += len(new)
    shard.size_bytes += size_bytes
    shard.revision += 1
    shard.attempts = 0
    shard.last_added_at = now
    if placement.closes:
        shard.state, shard.closed_at = "closed", now
    session.flush()
    return shard


def _open(session: Session, source_id: int, versions: str, now: datetime) -> Shard:
    highest = session.scalar(select(func.max(Shard.number)))
    number = 0 if highest is None else highest + 1
    shard = Shard(number=number, key=shard_key(number), source_id=source_id, state="open", versions=versions)
    shard.num_episodes = shard.size_bytes = shard.seq = shard.revision = shard.settled_revision = 0
    shard.attempts = 0
    shard.opened_at = shard.last_added_at = now
    session.add(shard)
    return shard


def _add_episodes(
    session: Session, row: Upload, shard: Shard, upload: NewUpload, new: Sequence[NewEpisode], now: datetime
) -> None:
    shared = {
        "source_id": row.source_id,
        "upload_id": row.id,
        "shard_number": shard.number,
        "robot_id": _robot_id(session, upload.robot),
        "task_id": _task_id(session, upload.task),
        "created_at": now,
    }
    rows = [
        {"name": r.name, "files": list(r.files), "input_hash": r.input_hash, "size_bytes": r.size_bytes}
        | shared
        for r in new
    ]
    # Asked for in order, ids count up in the order of the recordings; unasked, that is left to the server.
    session.execute(insert(Episode).returning(Episode.id, sort_by_parameter_order=True), rows)


def _robot_id(session: Session, name: str) -> int | None:
    if not name:
        return None
    session.execute(insert(Robot).values(name=name).on_conflict_do_nothing())
    return session.scalar(select(Robot.id).where(Robot.name == name))


def _task_id(session: Session, text: str) -> int | None:
    if not text:
        return None
    session.execute(insert(Task).values(text=text).on_conflict_do_nothing())
    return session.scalar(select(Task.id).where(Task.text == text))


def _shards_of(session: Session, upload: Upload) -> Sequence[int]:
    query = select(Episode.shard_number).where(Episode.upload_id == upload.id)
    return session.scalars(query.distinct()).all()


def make_due(session: Session, shards: Collection[int]) -> None:
    """See `Catalog.mark_all_due`."""
    if shards:
        change = update(Shard).where(Shard.number.in_(shards)).values(revision=Shard.revision + 1, attempts=0)
        session.execute(change.execution_options(synchronize_session=False))


def _result(row: Upload, *, num_new: int, num_changed: int) -> RegisteredUpload:
    if row.shard_number is None:  # only a quarantined upload has no shard
        raise AssertionError(f"upload {row.id} is registered and has no shard")
    return RegisteredUpload(
        upload_id=row.id,
        shard_key=shard_key(row.shard_number),
        num_new_episodes=num_new,
        num_changed_episodes=num_changed,
    )
