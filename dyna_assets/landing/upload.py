"""The upload protocol: a folder of files, and `upload.json`, written last, which makes it an upload.

Until the marker is there nothing of the folder is read. The marker names every file with its size and
sha256, so that a half-copied or damaged upload is found out. Landed files are never changed: the only
thing this module writes is the marker itself.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from dyna_assets.errors import UploadError
from dyna_assets.landing.recording import FileInfo, Folder, is_local
from dyna_assets.landing.rfc3339 import format_rfc3339, parse_rfc3339_ns
from dyna_assets.names import repeated
from dyna_train.config import Config
from dyna_train.files import publish

MARKER = "upload.json"
SCHEMA = "dyna.upload/1"
"""The newest schema this code knows; older ones stay readable."""

READ_BYTES = 1 << 20
MAX_TEXT = 500
"""Characters of a name: what the catalog's indexes take, at four bytes each."""
MAX_TASK = 1 << 16
"""Characters of a task, which may be a page of instructions; see `catalog_text`."""
FAULTS_SHOWN = 5

Kind = Literal["teleoperation", "policy_rollout", "correction", "human_video", "simulation"]
Outcome = Literal["success", "failure", "unknown"]


class UploadedFile(Config):
    """One file of an upload; path is relative to the upload's folder, '/'-separated."""

    path: str = Field(min_length=1)
    size_bytes: int = Field(ge=0)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class UploadMarker(Config):
    """What `upload.json` says; there `recorded_at` is RFC 3339 with an offset, or int ns since the epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_name: Literal["dyna.upload/1"] = Field(default="dyna.upload/1", alias="schema")
    files: tuple[UploadedFile, ...] = Field(min_length=1)
    source: str = Field(min_length=1, max_length=MAX_TEXT)
    robot: str = Field(default="", max_length=MAX_TEXT)
    task: str = Field(default="", max_length=MAX_TASK)
    recorded_at_ns: int = Field(alias="recorded_at", ge=-(2**63), lt=2**63)
    robot_software_version: str = ""
    kind: Kind
    policy_id: str = ""
    outcome: Outcome = "unknown"
    metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("recorded_at_ns", mode="before")
    @classmethod
    def _to_ns(cls, value: object) -> object:
        return parse_rfc3339_ns(value) if isinstance(value, str) else value

    @field_serializer("recorded_at_ns")
    def _to_rfc3339(self, value: int) -> str:
        return format_rfc3339(value)

    @model_validator(mode="after")
    def _whole(self) -> UploadMarker:
        if self.kind == "policy_rollout" and not self.policy_id:
            raise ValueError("kind 'policy_rollout' needs policy_id: the policy that drove the robot")
        twice = repeated(file.path for file in self.files)
        if twice:
            raise ValueError(f"files lists {', '.join(twice[:FAULTS_SHOWN])} more than once")
        return self

    def hashes(self) -> dict[str, str]:
        """sha256 (hex) of every file by path."""
        return {file.path: file.sha256 for file in self.files}


def commit_upload(
    folder: Folder | str | Path,
    *,
    source: str,
    kind: Kind,
    recorded_at: str | int,
    robot: str = "",
    task: str = "",
    policy_id: str = "",
    outcome: Outcome = "unknown",
    robot_software_version: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> UploadMarker:
    """Hash every file below `folder` and write its marker, last and atomically.

    recorded_at: RFC 3339 with an offset, or int ns since the epoch.
    Raises UploadError if the folder is committed already, is empty, or a link leaves it.
    """
    folder = folder if isinstance(folder, Folder) else Folder.of(folder)
    files = landed_files(folder.files())
    _refuse_commit(folder, files)
    listed = [
        {"path": name, "size_bytes": info.size_bytes, "sha256": sha256_of(folder, name)}
        for name, info in files.items()
    ]
    marker = _validated(
        {
            "schema": SCHEMA,
            "files": listed,
            "source": source,
            "robot": robot,
            "task": task,
            "recorded_at": recorded_at,
            "robot_software_version": robot_software_version,
            "kind": kind,
            "policy_id": policy_id,
            "outcome": outcome,
            "metadata": dict(metadata or {}),
        },
        where=folder.at(MARKER),
    )
    _write_marker(folder, marker)
    return marker


def read_marker(folder: Folder) -> UploadMarker:
    """The marker of `folder`. Raises UploadError if it is missing, no JSON, or breaks the schema."""
    where = folder.at(MARKER)
    try:
        with folder.open(MARKER) as file:
            content = file.read()
    except FileNotFoundError:
        raise UploadError(
            f"{where}: no such file. An upload is committed by writing {MARKER} last; "
            "use commit_upload, or give the source a quiet_period_s"
        ) from None
    return parse_marker(content, where=where)


def parse_marker(content: bytes, *, where: str) -> UploadMarker:
    """Validate the bytes of an `upload.json`. Raises UploadError that starts with `where`."""
    try:
        data = json.loads(content, parse_constant=_refuse_constant)
        unusable = _unusable_text(data)
    except (ValueError, RecursionError) as error:
        raise UploadError(
            f"{where}: not JSON ({error}); {len(content):,} bytes. Write the marker in one piece, last"
        ) from None
    if unusable:
        raise UploadError(f"{where}: {unusable}. Write plain text")
    if not isinstance(data, dict):
        raise UploadError(
            f"{where}: expected a JSON object with 'schema' and 'files', found {type(data).__name__}"
        )
    schema = data.get("schema")
    if schema != SCHEMA:
        raise UploadError(
            f"{where}: schema {schema!r} is unknown; the newest known here is '{SCHEMA}'. "
            "Update this installation, or write the marker in that schema"
        )
    return _validated(data, where=where)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _unusable_text(value: Any, where: str = "") -> str:
    """What is wrong with a text somewhere in `value` that no database can hold; '' if nothing is."""
    if isinstance(value, dict):
        parts = [
            *((key, f"a key in {where or 'it'}") for key in value),
            *((v, f"{where}.{k}") for k, v in value.items()),
        ]
        return next(filter(None, (_unusable_text(part, place.lstrip(".")) for part, place in parts)), "")
    if isinstance(value, list):
        return next(filter(None, (_unusable_text(part, where) for part in value)), "")
    if isinstance(value, str) and not is_storable(value):
        return f"{where}: {value[:40]!r} holds a NUL or half a surrogate pair"
    return ""


def is_storable(text: str) -> bool:
    """True if `text` has neither NUL nor lone surrogates, which PostgreSQL and Arrow refuse."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def catalog_text(text: str) -> str:
    """The text as the catalog's indexes can hold it: a long one cut, with its hash, so that two stay two.

    Only the catalog's names are cut: the marker and every table of the warehouse keep the whole text.
    """
    if len(text) <= MAX_TEXT:
        return text
    mark = f"… {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return text[: MAX_TEXT - len(mark)] + mark


def landed_files(files: Mapping[str, FileInfo]) -> dict[str, FileInfo]:
    """The files that belong to an upload: all but its marker and dot files (also inside dot folders)."""
    return {name: info for name, info in files.items() if name != MARKER and not is_hidden(name)}


def is_hidden(name: str) -> bool:
    """True if a part of the path starts with a dot."""
    return name.startswith(".") or "/." in name


def check_sizes(marker: UploadMarker, files: Mapping[str, FileInfo], *, where: str = "upload") -> None:
    """Hold the marker against a listing of its folder; reads nothing.

    Raises UploadError naming every fault (the first five): a file that is missing or has another size,
    a path or a link that leaves the folder.
    """
    faults = [fault for file in marker.files if (fault := _size_fault(file, files))]
    _raise_faults(faults, where, "Upload these files again under a new folder name, then its marker")


def verify_hashes(folder: Folder, marker: UploadMarker) -> None:
    """Read every file of the upload once and compare its sha256. Raises UploadError naming every fault."""
    faults = []
    for file in marker.files:
        _refuse_path(file.path, folder.uri)
        try:
            found = sha256_of(folder, file.path)
        except FileNotFoundError:
            faults.append(f"{file.path}: expected {file.size_bytes:,} bytes, found no such file")
            continue
        if found != file.sha256:
            faults.append(f"{file.path}: expected sha256 {file.sha256}, found {found}")
    _raise_faults(faults, folder.uri, "The bytes changed on the way: upload again under a new folder name")


def sha256_of(folder: Folder, name: str) -> str:
    """sha256 (hex) of one file, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with folder.open(name) as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _size_fault(file: UploadedFile, files: Mapping[str, FileInfo]) -> str:
    if leaves_folder(file.path):
        return f"{file.path}: expected a path inside the upload's folder, found one that leaves it"
    info = files.get(file.path)
    if info is None:
        return f"{file.path}: expected {file.size_bytes:,} bytes, found no such file"
    if leaves_folder(info.link_to):
        return f"{file.path}: expected a file, found a link to {info.link_to}, outside the upload's folder"
    if info.size_bytes != file.size_bytes:
        return f"{file.path}: expected {file.size_bytes:,} bytes, found {info.size_bytes:,}"
    return ""


def leaves_folder(path: str) -> bool:
    """True for absolute paths, drive letters and anything with a '..' part."""
    parts = path.replace("\\", "/").split("/")
    return path.startswith(("/", "\\")) or ".." in parts or bool(re.match(r"[A-Za-z]:", path))


def _refuse_path(path: str, where: str) -> None:
    if leaves_folder(path):
        _raise_faults(
            [f"{path}: expected a path inside the upload's folder, found one that leaves it"],
            where,
            "Name files relative to the folder that holds upload.json",
        )


def _raise_faults(faults: Iterable[str], where: str, advice: str) -> None:
    faults = list(faults)
    if not faults:
        return
    shown = "; ".join(faults[:FAULTS_SHOWN])
    more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
    raise UploadError(f"{where}: {shown}{more}. {advice}")


def _refuse_commit(folder: Folder, files: Mapping[str, FileInfo]) -> None:
    if folder.exists(MARKER):
        raise UploadError(
            f"{folder.at(MARKER)}: this upload is committed already, and landed files never change. "
            "Put new or corrected files into a folder of their own and commit that"
        )
    if not files:
        raise UploadError(
            f"{folder.uri}: expected the files of an upload, found none. Copy them first, then commit"
        )
    links = [
        f"{name}: a link to {info.link_to}" for name, info in files.items() if leaves_folder(info.link_to)
    ]
    _raise_faults(links, folder.uri, "Links must not leave the upload's folder; copy the files into it")


def _validated(data: dict[str, Any], *, where: str) -> UploadMarker:
    try:
        return UploadMarker.model_validate(data)
    except ValidationError as error:
        faults = [_fault_text(fault) for fault in error.errors()]
    raise UploadError(f"{where}: {'; '.join(faults[:FAULTS_SHOWN])}. The schema is '{SCHEMA}'")


def _fault_text(fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"key '{key}' is missing"
    if fault["type"] == "extra_forbidden":
        return f"unknown key '{key}'; free-form facts belong under 'metadata'"
    found = f" (found {fault['input']!r})" if key and not isinstance(fault["input"], dict) else ""
    return f"{key + ': ' if key else ''}{fault['msg']}{found}"


def _write_marker(folder: Folder, marker: UploadMarker) -> None:
    content = marker.model_dump_json(indent=1, by_alias=True).encode() + b"\n"
    path = posixpath.join(folder.path, MARKER)
    if is_local(folder.fs):
        with publish(path) as part:
            part.write_bytes(content)
    else:
        folder.fs.pipe_file(path, content)  # one PUT: an object appears whole or not at all
