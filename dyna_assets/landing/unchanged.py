"""Seeing that landed files were replaced while they were read."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, is_local

_STATE = ("size", "mtime", "created", "LastModified", "ETag", "VersionId")
"""What stores say of a file that a write changes: of local files ('created' is when its inode changed), of objects."""


def folder_state(folder: Folder, files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """file -> what its store says of it now, () where it is gone: equal as long as nobody wrote to it.

    A file that was put in the place of another is another one, also with the same size and modification time.
    """
    found = {}
    for name in files:
        path = posixpath.join(folder.path, name)
        folder.fs.invalidate_cache(path)
        try:
            info = folder.fs.info(os.path.realpath(path) if is_local(folder.fs) else path)
        except FileNotFoundError:
            info = {}
        found[name] = tuple(f"{key} {info[key]}" for key in _STATE if key in info)
    return found


def refuse_changed(folder: Folder, before: Mapping[str, tuple[str, ...]]) -> None:
    """Raise RecordingError if a file is not what it was when `before` was taken by `folder_state`."""
    after = folder_state(folder, before)
    changed = [name for name, state in before.items() if after[name] != state]
    if changed:
        raise RecordingError(
            f"{folder.at(changed[0])}: replaced while it was read: it was {_said(before[changed[0]])}, now it is "
            f"{_said(after[changed[0]])}. Landed files must stay as they are: upload the new ones under a new name",
            check="upload.unchanged",
        )


def _said(state: Sequence[str]) -> str:
    return ", ".join(state) or "gone"
