"""Which uploads lie below a landing root: a pure look at one listing.

With a commit marker: every folder that holds `upload.json`. Without one, only where the source has a
quiet period: the root itself if the source's reader knows it, otherwise each first-level folder that it
knows, once nothing in it has changed for that long. Nothing else is read.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal

import fsspec

from dyna_assets.errors import UploadError
from dyna_assets.landing.blind_spots import blind_spots
from dyna_assets.landing.recording import FileInfo, Folder, Reader, RecordingRef, describe_files
from dyna_assets.landing.upload import MARKER, UploadMarker, is_hidden, read_marker

State = Literal["committed", "ready", "arriving", "broken", "ignored"]
"""committed: has a marker that was not read yet. ready: take it. arriving: changed within the quiet period.
broken: its marker cannot be used, quarantine it with `reason`. ignored: not an upload by this source's rules;
`reason` says why."""


@dataclass(frozen=True, slots=True)
class FoundUpload:
    """One upload in a listing. name: path below the root, '.' for the root itself.

    files: relative to the upload's folder, without dot files and without the marker.
    digest: sha256 (hex) of the marker, or of the listing where there is none; equal while nothing changes.
    unseen: paths in it of which the listing tells nothing -> why; see `blind_spots`.
    """

    name: str
    folder: Folder
    files: Mapping[str, FileInfo]
    marker: UploadMarker | None
    digest: str
    state: State = "ready"
    reason: str = ""
    listing: str = ""
    unseen: Mapping[str, str] = field(default_factory=dict)

    @property
    def looks(self) -> str:
        """sha256 (hex) of the listing, marker included: equal as long as nothing needs another look."""
        hidden = [f"{path} {why}" for path, why in self.unseen.items()]
        return _sha256([str(self.state == "arriving"), self.listing or self.digest, *hidden])

    def read(self) -> FoundUpload:
        """Itself, with its marker read if it has one: then 'ready', or 'broken' with the reason."""
        if self.state != "committed":
            return self
        try:
            marker = read_marker(self.folder)
        except UploadError as error:
            return replace(self, state="broken", reason=str(error))
        return self.with_marker(marker)

    def with_marker(self, marker: UploadMarker) -> FoundUpload:
        """Itself as `marker` describes it, ready."""
        return replace(self, marker=marker, digest=_sha256([marker.model_dump_json()]), state="ready")

    @property
    def uri(self) -> str:
        """The address of the upload's folder."""
        return self.folder.uri

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(info.size_bytes for info in self.files.values())

    @property
    def newest_ns(self) -> int:
        """When its youngest file was written or came here, ns since the epoch by the store's clock."""
        return max((max(info.modified_ns, info.arrived_ns) for info in self.files.values()), default=0)

    def input_hash(self, ref: RecordingRef) -> str:
        """sha256 (hex) over the recording's name, facts and files: the marker's hashes, else size and mtime."""
        hashes = self.marker.hashes() if self.marker else {}
        lines = [
            f"{name} {hashes.get(name) or _fingerprint(self.files.get(name))}" for name in sorted(ref.files)
        ]
        return _sha256([ref.name, ref.facts, *lines])


def list_uploads(
    fs: fsspec.AbstractFileSystem,
    root: str,
    *,
    quiet_period_s: float | None,
    now_ns: int,
    reader: Reader,
) -> list[FoundUpload]:
    """All uploads below `root`, ready or not, sorted by name, from one listing; no marker is read.

    now_ns: the present, ns since the epoch. Raises FileNotFoundError if there is no such root.
    """
    listed = {name: info for name, info in Folder(fs, root).files().items() if not is_hidden(name)}
    if not listed and not fs.exists(root):
        raise FileNotFoundError(root)
    marked, unmarked = split_by_marker(listed)
    folder = Folder(fs, root.rstrip("/"))
    found = [_committed(folder, name, files) for name, files in marked.items()]
    if quiet_period_s is None:
        found += _ignored(folder, unmarked)
    else:
        found += [
            _settled(upload, quiet_period_s, now_ns)
            for upload in _unmarked(folder, unmarked, bool(marked), reader)
        ]
    found = _with_unseen(folder, found)
    return sorted((_speakable(upload) for upload in found), key=lambda upload: upload.name)


def _with_unseen(root: Folder, found: list[FoundUpload]) -> list[FoundUpload]:
    """The uploads, each with what the listing does not show of it; the rest of that is 'ignored', and said."""
    by_name = {upload.name: upload for upload in found}
    for path, why in sorted(blind_spots(root).items()):
        above = [path, *(str(place) for place in PurePosixPath(path).parents)]
        owner = next((by_name[place] for place in above if place in by_name), None)
        if owner is None:
            reason = f"{root.at(path)}: {why}. Let this user read it, or take it away"
            by_name[path] = FoundUpload(path, root.below(path), {}, None, _sha256([why]), "ignored", reason)
        else:
            inside = "." if path == owner.name else posixpath.relpath(path, owner.name)
            by_name[owner.name] = replace(owner, unseen={**owner.unseen, inside: why})
    return list(by_name.values())


def _speakable(upload: FoundUpload) -> FoundUpload:
    """The upload, or 'ignored' if a name in it is no UTF-8: neither catalog nor tables can hold such a name."""
    wrong = [name for name in (upload.name, *upload.files) if not _is_text(name)]
    if not wrong:
        return upload
    shown = os.fsencode(wrong[0])
    return replace(
        upload,
        name=upload.name if _is_text(upload.name) else os.fsencode(upload.name).decode("utf-8", "replace"),
        state="ignored",
        reason=f"{len(wrong)} file names are not UTF-8, the first is {shown!r}. Rename them and upload again",
    )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def split_by_marker(
    listed: Mapping[str, FileInfo],
) -> tuple[dict[str, dict[str, FileInfo]], dict[str, FileInfo]]:
    """(files of each folder that holds a marker, by folder name; the files outside of all of them).

    A file belongs to the deepest marked folder above it.
    """
    names = {posixpath.dirname(name) for name in listed if posixpath.basename(name) == MARKER}
    marked: dict[str, dict[str, FileInfo]] = {name: {} for name in sorted(names)}
    rest = {}
    for path, info in listed.items():
        owner = _owner(path, names)
        if owner is None:
            rest[path] = info
        else:
            relative = posixpath.relpath(path, owner or ".")
            marked[owner][relative] = _rebased(info, owner)
    return {name or ".": files for name, files in marked.items()}, rest


def _owner(path: str, names: set[str]) -> str | None:
    folder = posixpath.dirname(path)
    while folder not in names:
        if not folder:
            return None
        folder = posixpath.dirname(folder)
    return folder


def _rebased(info: FileInfo, folder: str) -> FileInfo:
    """The same file seen from `folder`: only a link's target changes its relative name."""
    if not info.link_to or folder in ("", "."):
        return info
    return FileInfo(info.size_bytes, info.modified_ns, posixpath.relpath(info.link_to, folder))


def _committed(root: Folder, name: str, files: dict[str, FileInfo]) -> FoundUpload:
    payload = {path: info for path, info in files.items() if path != MARKER}
    listing = _listing_digest(files)
    return FoundUpload(name, root.below(name), payload, None, listing, "committed", listing=listing)


def _unmarked(root: Folder, files: Mapping[str, FileInfo], marked: bool, reader: Reader) -> list[FoundUpload]:
    """Uploads without a marker: the root, or each first-level folder, that `reader` knows."""
    if files and not marked and reader.matches(files, root):
        return [FoundUpload(".", root, dict(files), None, _listing_digest(files))]
    groups = first_level(files)
    loose = groups.pop(".", {})
    found = [_matched(root, name, group, reader) for name, group in groups.items()]
    if loose and reader.matches(loose, root):
        return [*found, FoundUpload(".", root, loose, None, _listing_digest(loose))]
    return found


def _matched(root: Folder, name: str, files: dict[str, FileInfo], reader: Reader) -> FoundUpload:
    folder = root.below(name)
    upload = FoundUpload(name, folder, files, None, _listing_digest(files))
    if reader.matches(files, folder):
        return upload
    reason = f"{folder.uri}: holds no recording of reader '{reader.name}'; found {describe_files(files)}"
    return replace(upload, state="ignored", reason=reason)


def _settled(upload: FoundUpload, quiet_period_s: float, now_ns: int) -> FoundUpload:
    age_s = (now_ns - upload.newest_ns) / 1e9
    if upload.state != "ready" or age_s >= quiet_period_s:
        return upload
    reason = (
        f"{upload.uri}: still arriving: its newest file is {age_s:.1f} s old, expected {quiet_period_s:g} s"
    )
    return replace(upload, state="arriving", reason=reason)


def _ignored(root: Folder, files: Mapping[str, FileInfo]) -> list[FoundUpload]:
    """Folders that wait for a marker. They are listed so that a person can be told, and never read."""
    return [
        FoundUpload(
            name,
            root.below(name),
            group,
            None,
            _listing_digest(group),
            "ignored",
            f"{root.below(name).uri}: no {MARKER} here, and the source sets no quiet_period_s; "
            f"found {describe_files(group)}. Write one (dyna_assets.landing.upload.commit_upload), or set "
            "quiet_period_s in the source's TOML",
        )
        for name, group in first_level(files).items()
    ]


def first_level(files: Mapping[str, FileInfo]) -> dict[str, dict[str, FileInfo]]:
    """Files by first-level folder, names relative to it; '.' holds the files directly in the root."""
    groups: dict[str, dict[str, FileInfo]] = {}
    for path, info in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            groups.setdefault(name, {})[rest] = _rebased(info, name)
        else:
            groups.setdefault(".", {})[path] = info
    return groups


def _listing_digest(files: Mapping[str, FileInfo]) -> str:
    return _sha256(f"{name} {_fingerprint(info)}" for name, info in sorted(files.items()))


def _fingerprint(info: FileInfo | None) -> str:
    return f"{info.size_bytes} {info.modified_ns}" if info else "missing"


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()
