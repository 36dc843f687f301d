"""Files that appear whole or not at all, local or remote, through fsspec."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec


@contextmanager
def publish(path: str | Path) -> Iterator[Path]:
    """A temporary local path that becomes `path` on success and vanishes otherwise.

    The file is flushed to disk before the rename and its folder after it, so that a crash at any
    moment leaves the old file or the new one, never a part of either.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)  # mkstemp makes files private; published ones follow the umask
        _fsync(part)
        part.replace(target)
        _fsync(target.parent)
    finally:
        part.unlink(missing_ok=True)


def open_store(uri: str | Path, **options: Any) -> tuple[fsspec.AbstractFileSystem, str]:
    """The filesystem of `uri` and the path inside it; a plain path is a local one."""
    fs, path = fsspec.core.url_to_fs(str(uri), **options)
    return fs, path


def put_file(local: str | Path, uri: str, **options: Any) -> None:
    """Copy a finished local file to `uri` so that it appears there whole.

    Locally by a rename within the target's folder; object stores make an upload visible at its end.
    """
    fs, path = open_store(uri, **options)
    if "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol):
        with publish(path) as part:
            shutil.copyfile(local, part)
    else:
        fs.put_file(str(local), path)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
