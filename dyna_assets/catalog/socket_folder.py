"""Where the embedded server's Unix socket lives: a private folder with a short name.

A socket's path has at most 107 bytes (103 on a Mac), which a home folder easily exceeds.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from dyna_assets.catalog.account import ServerAccount
from dyna_assets.errors import SetupError


def socket_folder(data: Path) -> Path:
    """The folder for the server of the data folder `data`, under the system's temporary folder.

    The name stays the same over restarts, so that clients find the server again. It is made of the path and
    of the identity that PostgreSQL gave the data: a copy of the data, or new data in the old place, has a
    socket of its own, whatever server still runs for the other.
    """
    identity = (data / "global" / "pg_control").read_bytes()[:8]
    name = hashlib.sha256(os.fsencode(data) + identity).hexdigest()[:12]
    return Path(min((tempfile.gettempdir(), "/tmp"), key=len)) / f"dyna-{name}"


def make_socket_folder(data: Path, account: ServerAccount) -> Path:
    """Create the folder, or take the one that is there; only `account` (and root) can enter it.

    Raises SetupError if somebody else made it: whoever owns it could put his own server there.
    """
    folder = socket_folder(data)
    try:
        folder.mkdir(mode=0o700)
        account.own(folder)
    except FileExistsError:
        _check_private(folder, account)
    except OSError as error:
        raise SetupError(
            f"{folder}: the folder of the database's socket cannot be created: {error.strerror}. "
            "Set TMPDIR to a folder that can be written"
        ) from None
    return folder


def _check_private(folder: Path, account: ServerAccount) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != account.uid or status.st_mode & 0o077:
        raise SetupError(
            f"{folder}: expected a folder of user id {account.uid} with mode 700 for the database's socket, "
            f"found {stat.filemode(status.st_mode)} of user id {status.st_uid}. Remove it and try again"
        )
