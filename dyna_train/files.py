"""Files that appear whole or not at all, local or remote, through fsspec."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

from dyna_train.errors import BadInput

_WITHOUT_LINKS = (errno.EPERM, errno.ENOTSUP)  # what file systems without hard links say: FAT, some networks
_ADVICE = {
    errno.ENOSPC: "free space there, or write to another place",
    errno.EDQUOT: "free space there, or write to another place",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or write to another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EROFS: "write to another place",
}


@contextmanager
def publish(path: str | Path, *, is_new: bool = False) -> Iterator[Path]:
    """A temporary local path that becomes `path` on success and vanishes otherwise.

    The file is flushed to disk before the rename and its folder after it, so that a crash at any
    moment leaves the old file or the new one, never a part of either. A process that is killed leaves a
    `.dyna-*.part` beside the target. is_new: never replace a file, not even one that appears meanwhile.
    Raises BadInput if something stands there that must not be replaced, OSError if it cannot be written.
    """
    target = Path(path)
    try:
        _check_target(target, is_new)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Without the target's name in it, which may be as long as a name can be.
        handle, name = tempfile.mkstemp(prefix=".dyna-", suffix=".part", dir=target.parent)
        os.close(handle)
        part = Path(name)
        try:
            yield part
            umask = os.umask(0)
            os.umask(umask)
            part.chmod(0o666 & ~umask)  # mkstemp makes files private; published ones follow the umask
            _fsync(part)
            _place(part, target, is_new)
            _fsync(target.parent)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        error.add_note(f"while writing {target}")
        raise


def local_path(text: str) -> Path:
    """A place to write at, as a user names it. Raises BadInput for the address of a store."""
    if "://" in text or "::" in text:
        raise BadInput(
            f"{text}: cannot write there; name a local path, and copy the finished file to the store"
        )
    return Path(text)


def describe(error: OSError) -> str:
    """What the system refused, where, during what, and what to do, as one line."""
    what = (error.strerror or str(error) or type(error).__name__).rstrip(".")
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    during = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    advice = _ADVICE.get(
        error.errno or 0, "check the path or address, permissions, and for a store the credentials"
    )
    return f"{where}{what}{during}; {advice}"


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


def _check_target(target: Path, is_new: bool) -> None:
    """Refuse what a rename would destroy: renaming onto a device node replaces the node."""
    if not target.name or "\0" in target.name:
        raise BadInput(f"{str(target)!r}: not the name of a file to write")
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "a device or pipe"
        raise BadInput(f"{target}: {kind}; name a file to write")
    if is_new and os.path.lexists(target):
        raise _taken(target)


def _place(part: Path, target: Path, is_new: bool) -> None:
    """Give the finished file its name."""
    if not is_new:
        part.replace(target)
        return
    try:
        os.link(part, target)  # unlike a rename, it never replaces
    except FileExistsError as error:
        raise _taken(target) from error
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        _check_target(target, is_new)  # two writers at the same moment are not told apart there
        part.replace(target)


def _taken(target: Path) -> BadInput:
    return BadInput(f"{target}: exists already; remove it, or write to another place")
