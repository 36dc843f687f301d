"""Quarantined uploads: looked at again, explained, or released by a person who knows better.

A release makes the files as they are now the upload: what its marker says of them is corrected in the catalog (the
landed marker stays as it is), so that later checks hold them against what was released. It stands until the files or
the source's reader change; then the upload is looked at anew.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.rows import RegisteredUpload, UploadRow
from dyna_assets.errors import UploadError
from dyna_assets.landing.discover import FoundUpload
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.register import (
    Registration,
    as_new,
    look_at_landing,
    recordings_of,
    register_upload,
)
from dyna_assets.landing.upload import UploadedFile, leaves_folder, sha256_of
from dyna_assets.settings import Settings

SHOWN = 5


def upload_named(catalog: Catalog, text: str) -> UploadRow:
    """The upload of this name, id, or 'source: name'. Raises UploadError naming those that match, or the nearest."""
    found = catalog.find_uploads(text)
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(f"'{row.source}: {row.name}'" for row in found[:SHOWN])
        raise UploadError(f"'{text}' is the name of {len(found)} uploads: {shown}. Say which")
    names = [f"{row.source}: {row.name}" for row in catalog.uploads()]
    near = difflib.get_close_matches(text, [*names, *(name.partition(": ")[2] for name in names)], SHOWN, 0.4)
    there = f"Nearest: {', '.join(near)}" if near else f"There are {len(names):,} uploads"
    raise UploadError(f"no upload '{text}'. {there}")


def what_it_waits_for(
    sources: Mapping[str, SourceProfile], settings: Settings, text: str, now: datetime
) -> str:
    """Of an upload that lies in a landing folder and is not registered yet: what it waits for; '' if there is none.

    text: its name, or 'source: name'.
    """
    for source in sources.values():
        try:
            found = look_at_landing(source, settings, now)
        except FileNotFoundError:
            continue
        for upload in found:
            if text in (upload.name, f"{source.name}: {upload.name}"):
                waits = upload.reason or "the next pass of a worker takes it, or: dyna-assets worker --once"
                return f"upload '{source.name}: {upload.name}' is there, but not registered yet: {waits}"
    return ""


def find_landed(source: SourceProfile, settings: Settings, row: UploadRow, now: datetime) -> FoundUpload:
    """The upload as it lies in its landing folder now. Raises UploadError if it is not there (any more)."""
    try:
        found = look_at_landing(source, settings, now)
    except FileNotFoundError:
        found = []
    upload = next((upload for upload in found if upload.name == row.name), None)
    if upload is None:
        raise UploadError(f"{row.uri}: this upload is not there any more; landed files must stay")
    return upload


def retry(
    catalog: Catalog,
    source: SourceProfile,
    settings: Settings,
    row: UploadRow,
    *,
    versions: str,
    now: datetime,
) -> Registration:
    """Look at a quarantined upload anew, at its hashes too, which a run may have found wrong.

    Raises UploadError if it is not quarantined, not there, or still arriving.
    """
    upload = _waiting(source, settings, row, now)
    done = Registration()
    register_upload(catalog, source, upload, settings, versions=versions, now=now, done=done, is_touched=True)
    return done


def release(
    catalog: Catalog,
    source: SourceProfile,
    settings: Settings,
    row: UploadRow,
    *,
    by: str,
    reason: str,
    versions: str,
    now: datetime,
) -> RegisteredUpload:
    """Register a quarantined upload although something is wrong with it; who, when and why is kept.

    What its marker lists and is not there is left out. Raises UploadError if it is not quarantined or not there, and
    RecordingError or UploadError where no word helps: its reader cannot read it, it leaves its folder, or its
    recordings have the names of others.
    """
    if not reason.strip():
        raise UploadError("a release needs a reason: say why the upload is good, for those who come after")
    upload = as_it_is(_waiting(source, settings, row, now))
    episodes, notes = recordings_of(source, upload)
    return catalog.release_upload(
        source.name,
        as_new(source, upload, {"reader": notes}),
        episodes,
        by=by,
        reason=reason,
        versions=versions,
        limits=settings.shards,
        now=now,
    )


def as_it_is(listed: FoundUpload) -> FoundUpload:
    """The upload with a marker that is true of its files; without one where its marker cannot be read."""
    upload = listed.read()
    if upload.marker is None:
        return replace(upload, state="ready", reason="")
    there = [
        file.path
        for file in upload.marker.files
        if file.path in upload.files and not leaves_folder(file.path)
    ]
    if not there:
        raise UploadError(f"{upload.uri}: none of the files that its marker lists is there")
    files = tuple(
        UploadedFile(
            path=path, size_bytes=upload.files[path].size_bytes, sha256=sha256_of(upload.folder, path)
        )
        for path in there
    )
    return upload.with_marker(upload.marker.model_copy(update={"files": files}))


def file_faults(upload: FoundUpload) -> Iterator[tuple[str, str, str]]:
    """(file, expected, found) for every listed file that is not as its marker says; hashes are not looked at."""
    marker = upload.read().marker
    for file in marker.files if marker else ():
        info = upload.files.get(file.path)
        if leaves_folder(file.path):
            yield file.path, "a path inside the upload's folder", "one that leaves it"
        elif info is None:
            yield file.path, f"{file.size_bytes:,} bytes", upload.unseen.get(file.path, "no such file")
        elif leaves_folder(info.link_to):
            yield file.path, "a file", f"a link to {info.link_to}"
        elif info.size_bytes != file.size_bytes:
            yield file.path, f"{file.size_bytes:,} bytes", f"{info.size_bytes:,} bytes"


def _waiting(source: SourceProfile, settings: Settings, row: UploadRow, now: datetime) -> FoundUpload:
    if row.state != "quarantined":
        raise UploadError(f"upload '{row.source}: {row.name}' is not quarantined, it is {row.state}")
    upload = find_landed(source, settings, row, now)
    if upload.state in ("arriving", "ignored"):
        raise UploadError(upload.reason)
    return upload
