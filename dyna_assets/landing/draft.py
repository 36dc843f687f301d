"""The first draft of a source's TOML, from one look at its recordings."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from dyna_assets.errors import RecordingError
from dyna_assets.landing.discover import first_level, split_by_marker
from dyna_assets.landing.file_fates import unread_files
from dyna_assets.landing.profile import ActionRole, CameraRole, Grid, SourceProfile, VectorRole
from dyna_assets.landing.recording import (
    ExtraRecording,
    FileInfo,
    Folder,
    Reader,
    Recording,
    RecordingMeta,
    RecordingRef,
    Roles,
    TopicInfo,
)
from dyna_assets.landing.sources import READERS, detect
from dyna_assets.landing.upload import is_hidden, landed_files
from dyna_train.errors import ConfigError

QUIET_PERIOD_S = 10.0
"""Of a source without commit markers: longer than any pause inside a copy."""

TRIES = 50
"""Recordings to look at before taking one that lacks something."""

SHOWN = 5
"""Things of one kind that a note or an error names."""

MOST_FOLDERS = 1000
"""Folders below that are searched for a known format, to say where one lies."""

DOCUMENTS = {
    pattern: "about the data, not of it"
    for pattern in ("*.md", "*.txt", "*.pdf", "LICENSE*", "SHA256SUMS", "*.sha256")
}
"""Files that lie beside recordings everywhere."""

GUESSES: Mapping[str, Mapping[str, Any]] = {"rlds": {"rate_hz": 10.0}}
"""Reader -> options that only a person knows, with values to look with. They do not enter the profile."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A first profile. ignored: why each pattern under `ignore` is there. topics: what the recording looked at holds.

    notes: what a person has to know. choose: options of the reader that a person has to choose before the source can
    be read, with the values that this draft looked with.
    """

    profile: SourceProfile
    ignored: Mapping[str, str]
    topics: Mapping[str, TopicInfo]
    notes: tuple[str, ...] = ()
    choose: Mapping[str, Any] = field(default_factory=dict)


def draft_source(name: str, landing_uri: str, folder: Folder, reader: Reader | None = None) -> Draft:
    """A profile for the source `name` from the first complete recording in `folder`.

    folder: a landing root, or an upload. reader: None finds out which one it is. Without any commit marker
    in the folder the profile gets a quiet period of 10 s. Every topic of the recording and every file beside it
    gets a role, or is kept as extra, or ignored by a rule.
    Raises RecordingError if nothing is known or nothing can be read.
    """
    files = {path: info for path, info in folder.files().items() if not is_hidden(path)}
    marked, _ = split_by_marker(files)
    uploads = _known(folder, [*marked, *first_level(files)], reader)
    if not uploads:
        raise _unknown(folder, files)
    place, reader, recording = first_complete(uploads)
    with recording:
        roles = reader.roles(recording)
        if not _has_roles(roles):
            raise RecordingError(
                f"{place.uri}: no topic that could be a camera, a state or an action; "
                f"topics there: {', '.join(sorted(recording.topics)) or 'none'}"
            )
        extra, ignored = _rest(recording, roles, {**reader.ignores, **DOCUMENTS}, files)
        meta, topics = recording.meta, dict(recording.topics)
    choose = GUESSES.get(reader.name, {})
    profile = SourceProfile(
        name=name,
        landing=landing_uri,
        reader=reader.name,
        quiet_period_s=None if marked else QUIET_PERIOD_S,
        robot=meta.robot,  # and no task: a recording that says none is not about that of another
        extra=extra,
        ignore=tuple(ignored),
        reader_options={key: value for key, value in reader.options.items() if key not in choose},
        grid=Grid(rate_hz=roles.rate_hz),
        cameras=tuple(CameraRole(name=role, topic=topic) for role, topic in roles.cameras),
        states=tuple(
            VectorRole(name=role, topic=topic, confidence=roles.confidence.get(topic, ""))
            for role, topic in roles.states
        ),
        actions=tuple(ActionRole(name=role, topic=topic) for role, topic in roles.actions),
    )
    notes = [*_choices(profile, reader), *_notes(place, reader, profile.ignore, meta)]
    return Draft(profile, ignored, topics, tuple(notes), choose)


def _choices(profile: SourceProfile, reader: Reader) -> list[str]:
    """What the profile still lacks before the source can be read."""
    try:
        reader.configured(profile.reader_options, where="to choose")
    except ConfigError as error:
        return [f"{error}. Then correct rate_hz under [grid] too"]
    return []


def _notes(folder: Folder, reader: Reader, ignore: Sequence[str], meta: RecordingMeta) -> Iterator[str]:
    """What the reader says of the folder, what of the recording cannot be read, and which files nobody reads."""
    yield from reader.notes(folder)
    yield from meta.notes
    for topic, reason in islice(meta.missing.items(), SHOWN):
        yield f"topic '{topic}' cannot be read: {reason}"
    files = landed_files(folder.files())
    unread = unread_files(files, reader.recordings(folder), reader.metadata, ignore)
    if unread:
        yield f"{len(unread)} files are read by nobody, first {unread[0]}; name them under 'ignore'"


def _rest(
    recording: Recording, roles: Roles, known: Mapping[str, str], files: Iterable[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """(topics to keep as extra, patterns to ignore with the reason) for all that has no role."""
    used = {topic for pairs in (roles.cameras, roles.states, roles.actions) for _, topic in pairs}
    used |= set(roles.confidence.values())
    left = [topic for topic in recording.topics if topic not in used]
    names = [*left, *files]
    ignored = {
        pattern: why for pattern, why in known.items() if any(fnmatchcase(name, pattern) for name in names)
    }
    left = [topic for topic in left if not any(fnmatchcase(topic, pattern) for pattern in ignored)]
    if isinstance(recording, ExtraRecording):
        return tuple(_escaped(topic) for topic in left), ignored
    return (), ignored | {_escaped(topic): "this reader cannot keep it" for topic in left}


def _escaped(name: str) -> str:
    """The name as a pattern that matches it alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def first_complete(uploads: Sequence[tuple[Folder, Reader]]) -> tuple[Folder, Reader, Recording]:
    """The first recording that opens with all its topics and has some for roles, else the first that opens; close it.

    Looks at no more than TRIES recordings. Raises RecordingError with the first reason if none opens.
    """
    partial: tuple[Folder, Reader, RecordingRef] | None = None
    faults: list[str] = []
    for folder, reader, ref in islice(_recordings(uploads, faults), TRIES):
        try:
            recording = reader.open(folder, ref)
        except RecordingError as error:
            faults.append(str(error))
            continue
        if not recording.meta.missing and _has_roles(reader.roles(recording)):
            return folder, reader, recording
        recording.close()
        partial = partial or (folder, reader, ref)
    if partial is not None:
        folder, reader, ref = partial
        return folder, reader, reader.open(folder, ref)
    reason = faults[0] if faults else "there is none"
    raise RecordingError(f"{uploads[0][0].uri}: no recording can be read. The first: {reason}")


def _has_roles(roles: Roles) -> bool:
    return bool(roles.cameras or roles.states or roles.actions)


def _known(folder: Folder, names: Sequence[str], reader: Reader | None) -> list[tuple[Folder, Reader]]:
    """The folder itself, or else the folders below it, that hold a known format (`reader`'s, if given)."""
    found = []
    for name in dict.fromkeys([".", *names]):
        upload = folder.below(name)
        try:
            known = detect(upload)
        except RecordingError:
            continue  # not every folder of a landing root is an upload
        if reader is None or reader.name == known.name:
            options = {**known.options, **GUESSES.get(known.name, {})}
            found.append((upload, known.configured(options, where=f"draft for {upload.uri}")))
        if name == "." and found:
            break
    return [(upload, known) for upload, known in found if known.name == found[0][1].name]


def _unknown(folder: Folder, files: Mapping[str, FileInfo]) -> RecordingError:
    """Why there is nothing to draft, and where below the folder there is."""
    try:
        detect(folder)
    except RecordingError as error:
        below = list(islice(_known_below(folder, files), SHOWN + 1))
        shown = ", ".join(f"{name} ({reader})" for name, reader in below[:SHOWN])
        more = ", …" if len(below) > SHOWN else ""
        return RecordingError(f"{error}. Such folders lie deeper: {shown}{more}" if below else str(error))
    return RecordingError(f"{folder.uri}: holds no recording of the given reader")


def _known_below(folder: Folder, files: Mapping[str, FileInfo]) -> Iterator[tuple[str, str]]:
    """(folder, reader) of the folders further down that hold a known format."""
    places: dict[str, dict[str, FileInfo]] = {}
    for path, info in landed_files(files).items():
        place = posixpath.dirname(path)
        while place and len(places) < MOST_FOLDERS:
            places.setdefault(place, {})[posixpath.relpath(path, place)] = info
            place = posixpath.dirname(place)
    found: list[str] = []
    for place, inside in sorted(places.items()):
        if any(place.startswith(f"{above}/") for above in found):
            continue  # a part of what was found
        known = next((r for r in READERS.values() if r.matches(inside, folder.below(place))), None)
        if known is not None:
            found.append(place)
            yield place, known.name


def _recordings(
    uploads: Sequence[tuple[Folder, Reader]], faults: list[str]
) -> Iterator[tuple[Folder, Reader, RecordingRef]]:
    for folder, reader in uploads:
        try:
            refs = reader.recordings(folder)
        except RecordingError as error:
            faults.append(str(error))
            continue
        yield from ((folder, reader, ref) for ref in refs)
