"""From a landing folder to catalog rows: what landed, what is refused, what is still arriving."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy.exc import SQLAlchemyError

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.rows import NewEpisode, NewUpload
from dyna_assets.errors import UploadError
from dyna_assets.landing.discover import FoundUpload, list_uploads
from dyna_assets.landing.file_fates import unread_files
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Reader, RecordingRef
from dyna_assets.landing.sources import reader_of
from dyna_assets.landing.upload import MARKER, catalog_text, check_sizes, leaves_folder, verify_hashes
from dyna_assets.settings import Settings
from dyna_assets.text import sayable
from dyna_train.errors import ConfigError, DynaError
from dyna_train.files import open_store


@dataclass
class Registration:
    """What one look at the landing folders did. Names are '<source>: <upload>'."""

    registered: dict[str, int] = field(default_factory=dict)
    """upload -> episodes that are new or changed"""
    quarantined: dict[str, str] = field(default_factory=dict)
    """upload -> reason"""
    arriving: dict[str, str] = field(default_factory=dict)
    """upload -> how long its files have been quiet"""
    ignored: dict[str, str] = field(default_factory=dict)
    """folder -> why it is no upload by its source's rules"""
    unreachable: dict[str, str] = field(default_factory=dict)
    """source -> why its landing folder could not be looked at"""
    notes: list[str] = field(default_factory=list)
    listing: str = ""
    """digest of everything seen: equal as long as nothing changes"""

    @property
    def num_episodes(self) -> int:
        """Episodes that are new or changed."""
        return sum(self.registered.values())


def register_landing(
    catalog: Catalog,
    sources: Mapping[str, SourceProfile],
    settings: Settings,
    *,
    versions: str,
    now: datetime,
    seen: str = "",
) -> Registration:
    """Look at every source's landing folder once and register what is new.

    versions: the step versions of now, which the rows of a shard share. seen: `listing` of an earlier look; if
    nothing changed since, no marker is read and the catalog is not asked. A fault of one upload quarantines
    it, a landing folder that is gone or cannot be listed is reported; the rest goes on.
    """
    done = Registration()
    found: dict[str, list[FoundUpload]] = {}
    for source in sources.values():
        try:
            found[source.name] = look_at_landing(source, settings, now)
        except FileNotFoundError:
            done.unreachable[source.name] = (
                f"source '{source.name}': its landing folder {source.landing} does not exist. "
                "Create it, or correct 'landing' in its TOML file"
            )
        except ConfigError as error:
            done.unreachable[source.name] = f"{error}"
        except Exception as error:  # the edge of a source: a store that is away must not stop the others
            done.unreachable[source.name] = (
                f"source '{source.name}': its landing folder {source.landing} cannot be listed: {error}. "
                "Check 'landing' in its TOML file and [s3] in settings.toml"
            )
    looks = {name: [_looks(sources[name], upload) for upload in uploads] for name, uploads in found.items()}
    done.listing = hashlib.sha256(repr(looks).encode(errors="surrogateescape")).hexdigest()
    for name, uploads in found.items():
        _note_waiting(sources[name], uploads, done)
        if done.listing != seen:
            _register_source(catalog, sources[name], uploads, settings, versions, now, done)
    return done


def look_at_landing(source: SourceProfile, settings: Settings, now: datetime) -> list[FoundUpload]:
    """The uploads that lie in a source's landing folder. Raises FileNotFoundError if there is no such folder."""
    fs, root = open_store(source.landing, **settings.storage_options(source.landing))
    return list_uploads(
        fs,
        root.rstrip("/"),
        quiet_period_s=source.quiet_period_s,
        now_ns=int(now.timestamp() * 1e9),
        reader=reader_of(source),
    )


def _looks(source: SourceProfile, upload: FoundUpload) -> str:
    """Equal as long as the upload needs no second look; another reader may make sense of what one refused."""
    return f"{source.reader} {upload.looks}"


def _note_waiting(source: SourceProfile, uploads: list[FoundUpload], done: Registration) -> None:
    for upload in uploads:
        if upload.state == "arriving":
            done.arriving[_name(source, upload)] = upload.reason
        elif upload.state == "ignored":
            done.ignored[_name(source, upload)] = upload.reason


def _register_source(
    catalog: Catalog,
    source: SourceProfile,
    uploads: list[FoundUpload],
    settings: Settings,
    versions: str,
    now: datetime,
    done: Registration,
) -> None:
    catalog.add_source(source.name, landing_uri=source.landing, reader=source.reader, now=now)
    known = catalog.known_looks(source.name)
    for upload in uploads:
        looked = known.get(upload.name, "")
        if upload.state in ("arriving", "ignored") or looked == _looks(source, upload):
            continue
        is_touched = looked.startswith(f"{source.reader} ")
        register_upload(
            catalog, source, upload, settings, versions=versions, now=now, done=done, is_touched=is_touched
        )


def register_upload(
    catalog: Catalog,
    source: SourceProfile,
    listed: FoundUpload,
    settings: Settings,
    *,
    versions: str,
    now: datetime,
    done: Registration,
    is_touched: bool = False,
) -> None:
    """Register one upload that is committed or ready, or quarantine it; `done` learns of it.

    is_touched: it was registered, and its files look otherwise now, or a person asks; their hashes, if it has any, are
    looked at again.
    """
    upload, name = listed.read(), _name(source, listed)
    try:
        _check_marker(source, upload, is_touched)
        episodes, notes = recordings_of(source, upload)
        new = as_new(source, upload, {"reader": notes})
        registered = catalog.register_upload(
            source.name, new, episodes, versions=versions, limits=settings.shards, now=now
        )
    except (OSError, SQLAlchemyError):
        raise  # the store or the database, not the upload
    except Exception as error:  # the edge of an upload: whatever is odd about it must not stop the others
        reason = str(error) if isinstance(error, DynaError) else f"{upload.uri}: {error!r}"
        reason = sayable(reason).replace("\0", "\N{REPLACEMENT CHARACTER}")
        since = {"quarantined_at": now.isoformat()}
        catalog.quarantine_upload(source.name, as_new(source, upload, since), reason=reason, now=now)
        done.quarantined[name] = reason
        return
    done.notes += [f"{name}: {note}" for note in notes]
    done.registered[name] = registered.num_new_episodes + registered.num_changed_episodes


def _check_marker(source: SourceProfile, upload: FoundUpload, is_touched: bool) -> None:
    if upload.unseen:
        path, why = next(iter(upload.unseen.items()))
        raise UploadError(
            f"{upload.folder.at(path)}: {why}; so nobody knows what the upload holds ({len(upload.unseen)} such). "
            "Let this user read it, or put a copy in its place"
        )
    if upload.state == "broken":
        raise UploadError(upload.reason)
    if upload.marker is None:
        return
    check_sizes(upload.marker, upload.files, where=upload.uri)
    if upload.marker.source != source.name:
        raise UploadError(
            f"{upload.uri}: its marker names source '{upload.marker.source}', but it landed in the folder of "
            f"'{source.name}' ({source.landing}). Move it to its own source's folder"
        )
    if is_touched:
        verify_hashes(upload.folder, upload.marker)


def recordings_of(source: SourceProfile, upload: FoundUpload) -> tuple[list[NewEpisode], list[str]]:
    """(the upload's recordings, what a person should know of it), from names and metadata only.

    Raises UploadError if a link leaves the folder or there is no recording, RecordingError if metadata is unreadable.
    """
    reader = reader_of(source)
    folder = upload.folder.limited_to(upload.marker.hashes() if upload.marker else upload.files)
    linked = [name for name, info in upload.files.items() if leaves_folder(info.link_to)]
    if linked:
        raise UploadError(
            f"{upload.uri}: {linked[0]} is a link to {upload.files[linked[0]].link_to}, outside the upload's folder; "
            "expected files. Copy what it leads to"
        )
    refs = reader.recordings(folder)
    if not refs:
        raise UploadError(f"{upload.uri}: reader '{source.reader}' finds no recording in it")
    shares = Counter(name for ref in refs for name in ref.files)
    episodes = [
        NewEpisode(
            name=episode_name(upload.name, ref.name),
            files=ref.files,
            input_hash=upload.input_hash(ref),
            # a file that several recordings are read from counts for each with its share
            size_bytes=sum(
                upload.files[name].size_bytes // shares[name] for name in ref.files if name in upload.files
            ),
        )
        for ref in refs
    ]
    return episodes, [*reader.notes(folder), *_file_notes(source, reader, upload, refs, folder.only or ())]


def _file_notes(
    source: SourceProfile,
    reader: Reader,
    upload: FoundUpload,
    refs: Sequence[RecordingRef],
    belonging: Collection[str],
) -> Iterator[str]:
    """What lies in the folder and is not read."""
    unlisted = sorted(set(upload.files) - set(belonging))
    if unlisted:
        yield f"{len(unlisted)} files are not in {MARKER} and were not read, first {unlisted[0]}"
    files = set(upload.files) & set(belonging)
    unread = unread_files(files, refs, reader.metadata, source.ignore)
    if unread:
        yield f"{len(unread)} files are read by nobody, first {unread[0]}; name them under the source's 'ignore'"


def episode_name(upload: str, recording: str) -> str:
    """The source's own name of an episode, unique in the source: the recording's, below its upload's."""
    return recording if upload == "." else f"{upload}/{recording}"


def recording_name(upload: str, episode: str) -> str:
    """The inverse of `episode_name`: what the reader calls it."""
    return episode if upload == "." else episode.removeprefix(f"{upload}/")


def as_new(source: SourceProfile, upload: FoundUpload, notes: Mapping[str, object]) -> NewUpload:
    """The upload as the catalog takes it."""
    marker = upload.marker
    return NewUpload(
        name=upload.name,
        uri=upload.uri,
        digest=upload.digest,
        looks=_looks(source, upload),
        num_files=len(upload.files),
        size_bytes=upload.size_bytes,
        kind=marker.kind if marker else "",
        marker=marker.model_dump(mode="json", by_alias=True) if marker else None,
        robot=catalog_text((marker.robot if marker else "") or source.robot),
        task=catalog_text((marker.task if marker else "") or source.task),
        notes=notes,
    )


def _name(source: SourceProfile, upload: FoundUpload) -> str:
    return f"{source.name}: {upload.name}"


def utc_now() -> datetime:
    """The present, with its time zone."""
    return datetime.now(UTC)
