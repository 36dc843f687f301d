"""The first draft of a source's TOML, from one look at its recordings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from dyna_assets.errors import RecordingError
from dyna_assets.landing.discover import first_level, split_by_marker
from dyna_assets.landing.profile import Grid, SourceProfile, TopicRole, VectorRole
from dyna_assets.landing.recording import Folder, Reader, Recording, RecordingRef
from dyna_assets.landing.sources import detect
from dyna_assets.landing.upload import is_hidden
from dyna_train.config import Config

QUIET_PERIOD_S = 10.0
"""Of a source without commit markers: longer than any pause inside a copy."""

TRIES = 50
"""Recordings to look at before taking one that lacks something."""


def draft_profile(name: str, landing_uri: str, folder: Folder, reader: Reader | None = None) -> SourceProfile:
    """A profile for the source `name` from the first complete recording in `folder`.

    folder: a landing root, or an upload. reader: None finds out which one it is. Without any commit marker
    in the folder the profile gets a quiet period of 10 s.
    Raises RecordingError if nothing is known or nothing can be read.
    """
    files = {path: info for path, info in folder.files().items() if not is_hidden(path)}
    marked, _ = split_by_marker(files)
    uploads = _known(folder, [*marked, *first_level(files)], reader) or [(folder, reader or detect(folder))]
    reader, recording = first_complete(uploads)
    with recording:
        roles = reader.roles(recording)
        meta = recording.meta
    return SourceProfile(
        name=name,
        landing=landing_uri,
        reader=reader.name,
        quiet_period_s=None if marked else QUIET_PERIOD_S,
        robot=meta.robot,
        task=meta.task,
        grid=Grid(rate_hz=roles.rate_hz),
        cameras=tuple(TopicRole(name=role, topic=topic) for role, topic in roles.cameras),
        states=_vectors(roles.states),
        actions=_vectors(roles.actions),
    )


def first_complete(uploads: Sequence[tuple[Folder, Reader]]) -> tuple[Reader, Recording]:
    """The first recording that opens with all its topics, else the first that opens with any; close it.

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
        if recording.topics and not recording.meta.extra.get("missing"):
            return reader, recording
        recording.close()
        partial = partial or (folder, reader, ref)
    if partial is not None:
        folder, reader, ref = partial
        return reader, reader.open(folder, ref)
    raise RecordingError(f"{uploads[0][0].uri}: no recording can be read. The first: {faults[0]}")


def render_toml(profile: SourceProfile) -> str:
    """The profile as commented TOML that `load_config(SourceProfile, path)` reads back to an equal one."""
    lines = [
        f"# Source '{profile.name}', drafted from its recordings. Check the roles and the rate.",
        f"name = {_value(profile.name)}",
        f"landing = {_value(profile.landing)}",
        f"reader = {_value(profile.reader)}",
        *_quiet_period(profile.quiet_period_s),
        "# used where the recordings do not say it themselves",
        f"robot = {_value(profile.robot)}",
        f"task = {_value(profile.task)}",
        *([] if profile.cameras else ["cameras = []"]),
        "",
        "# the common time grid; one step every 1 / rate_hz seconds",
        "[grid]",
        f"rate_hz = {_value(profile.grid.rate_hz)}",
        *_roles("cameras", profile.cameras, "name: in the episode file; topic: in the recordings"),
        *_roles("states", profile.states, "what the robot measures"),
        *_roles("actions", profile.actions, "what the robot is told"),
        *_section("gates", profile.gates, "thresholds of the quality checks"),
        *_section("encoding", profile.encoding, "how episode files are encoded"),
    ]
    return "\n".join(lines) + "\n"


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
            found.append((upload, known))
        if name == "." and found:
            break
    return [(upload, known) for upload, known in found if known.name == found[0][1].name]


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


def _vectors(pairs: Iterable[tuple[str, str]]) -> tuple[VectorRole, ...]:
    return tuple(VectorRole(name=name, topic=topic) for name, topic in pairs)


def _quiet_period(quiet_period_s: float | None) -> list[str]:
    if quiet_period_s is None:
        return ["# an upload is read once its upload.json is there; without one set quiet_period_s = 10.0"]
    return [
        "# without an upload.json, an upload is read once nothing in it has changed for this long",
        f"quiet_period_s = {_value(quiet_period_s)}",
    ]


def _roles(role: str, topics: Sequence[TopicRole], comment: str) -> list[str]:
    lines = ["", f"# {comment}"] if topics else []
    for topic in topics:
        lines += [f"[[{role}]]", f"name = {_value(topic.name)}", f"topic = {_value(topic.topic)}"]
        if isinstance(topic, VectorRole) and topic.units:
            lines.append(f"units = {_value(topic.units)}")
    return lines


def _section(name: str, values: Config, comment: str) -> list[str]:
    """A table of plain values, each with its description."""
    lines = ["", f"# {comment}", f"[{name}]"]
    for key, field in type(values).model_fields.items():
        comment = f"  # {field.description}" if field.description else ""
        value = getattr(values, key)
        if value is not None:  # TOML has no null: what is not set is left out
            lines.append(f"{key} = {_value(value)}{comment}")
    return lines


def _value(value: Any) -> str:
    """A TOML value. JSON's strings are TOML's, but for DEL, which TOML wants escaped."""
    if isinstance(value, tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
