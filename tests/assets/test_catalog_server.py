"""The embedded server: shared, restarted, killed, in awkward places, run by root and by others."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import ProgrammingError

from dyna_assets.catalog.account import ServerAccount
from dyna_assets.catalog.server import ensure_server, log_file, running_url, stop_server
from dyna_assets.catalog.socket_folder import make_socket_folder, socket_folder
from dyna_assets.errors import SetupError
from dyna_assets.home import Home

NOBODY = 65534
ENSURE = (
    "import sys; from dyna_assets.home import Home; from dyna_assets.catalog.server import ensure_server\n"
)
ENSURE += "print(ensure_server(Home.at(sys.argv[1])))"


@pytest.fixture
def served() -> Iterator[Callable[[Home], Home]]:
    """Marks a home whose server is to be stopped at the end."""
    homes: list[Home] = []

    def serve(home: Home) -> Home:
        homes.append(home)
        return home

    yield serve
    for home in homes:
        stop_server(home)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home whose data folder is there already; its server may run or not."""
    home = Home.at(tmp_path_factory.mktemp("standing")).prepare()
    ensure_server(home)
    yield home
    stop_server(home)


def ask(url: str, query: str) -> object:
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        result = connection.execute(text(query))
        return result.scalar() if result.returns_rows else None


def server_pid(home: Home) -> int:
    return int((home.postgres / "data" / "postmaster.pid").read_text().split()[0])


def test_data_survives_a_stop_and_the_url_stays(standing: Home) -> None:
    url = ensure_server(standing)
    assert running_url(standing) == url
    ask(url, "CREATE TABLE IF NOT EXISTS kept AS SELECT 7 AS seven")
    assert stop_server(standing) is True
    assert running_url(standing) is None
    assert stop_server(standing) is False
    assert ensure_server(standing) == url
    assert ask(url, "SELECT seven FROM kept") == 7


def test_a_killed_server_starts_again_with_all_that_was_committed(standing: Home) -> None:
    url = ensure_server(standing)
    ask(url, "CREATE TABLE IF NOT EXISTS kept AS SELECT 7 AS seven")
    os.kill(server_pid(standing), signal.SIGKILL)
    assert ensure_server(standing) == url
    assert ask(url, "SELECT seven FROM kept") == 7


def test_a_log_that_has_grown_too_long_begins_anew_under_the_running_server(standing: Home) -> None:
    url, log = ensure_server(standing), log_file(standing)
    old = "an old line\n" * 800_000
    with log.open("a") as stream:
        stream.write(old)
    ensure_server(standing)
    assert log.stat().st_size == 0
    assert log.with_name("server.log.1").read_text().endswith(old)
    with pytest.raises(ProgrammingError, match="no_such_table"):
        ask(url, "SELECT * FROM no_such_table")
    assert re.match(r"\d{4}-.* ERROR:  relation \"no_such_table\" does not exist", log.read_text())


def test_a_process_id_left_by_a_killed_server_and_given_to_another_process_does_no_harm(
    standing: Home,
) -> None:
    url = ensure_server(standing)
    stop_server(standing)
    pid_file = standing.postgres / "data" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{standing.postgres / 'data'}\n1\n5432\n/nowhere\n\n 1 1\nready   \n")
    assert ensure_server(standing) == url
    assert server_pid(standing) != os.getpid()


def test_processes_that_come_at_once_share_one_server_which_outlives_them(
    home: Home, served: Callable[[Home], Home]
) -> None:
    served(home)
    command = [sys.executable, "-c", ENSURE, str(home.path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    urls = {process.communicate(timeout=60)[0].strip() for process in running}
    assert urls == {running_url(home)}
    assert log_file(home).read_text().count("ready to accept connections") == 1


def test_a_process_killed_while_it_starts_the_server_leaves_nothing_in_the_way(
    home: Home, served: Callable[[Home], Home]
) -> None:
    served(home)
    first = subprocess.Popen([sys.executable, "-c", ENSURE, str(home.path)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (home.postgres / "data.part").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    first.kill()
    first.wait()
    assert ask(ensure_server(home), "SELECT 1") == 1


def test_a_home_removed_under_its_server_gives_a_new_one(
    home: Home, served: Callable[[Home], Home], tmp_path: Path
) -> None:
    old_url = ensure_server(served(home))
    gone = home.path.rename(tmp_path / "gone")
    assert running_url(home) is None
    new_url = ensure_server(home)
    assert new_url != old_url
    assert ask(new_url, "SELECT 1") == 1
    stop_server(Home.at(gone))


def test_a_path_longer_than_a_socket_may_have_is_no_obstacle(
    tmp_path: Path, served: Callable[[Home], Home]
) -> None:
    home = Home.at(tmp_path / ("deep " * 12) / ("in 'the' woods " * 6)).prepare()
    assert len(str(home.path)) > 107
    assert ask(ensure_server(served(home)), "SELECT 1") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's server is he himself")
def test_roots_server_reaches_a_home_that_only_root_may_enter_and_opens_nothing(
    tmp_path: Path, served: Callable[[Home], Home]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    home = Home.at(closed / "home").prepare()
    modes = {folder: folder.stat().st_mode for folder in (home.postgres, *home.postgres.parents)}
    url = ensure_server(served(home))
    assert ask(url, "SELECT 1") == 1
    assert {folder: folder.stat().st_mode for folder in modes} == modes
    status = Path(f"/proc/{server_pid(home)}/status").read_text()
    assert "Uid:\t0" not in status


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_runs_the_server_as_himself(tmp_path: Path) -> None:
    """The interpreter may lie where only root reads, so the other user keeps root's right to read, not to write."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    drop += ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search", "--"]
    program = (
        "import sys; from dyna_assets.home import Home; from dyna_assets.catalog.server import *\n"
        "home = Home.at(sys.argv[1]).prepare(); print(ensure_server(home) == running_url(home), stop_server(home))"
    )
    done = subprocess.run(
        [*drop, sys.executable, "-c", program, str(own / "home")], capture_output=True, text=True, cwd=own
    )
    if "cannot" in done.stderr and "capabilit" in done.stderr:
        pytest.skip(f"root has no such capability here: {done.stderr.strip()}")
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")
    assert (own / "home" / "postgres" / "data").stat().st_uid == NOBODY


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
@pytest.mark.parametrize("dropped", ["dac_override", "setuid", "chown"])
def test_a_root_that_may_not_do_what_root_may_is_refused_by_capability(home: Home, dropped: str) -> None:
    program = ENSURE.replace("print(", "\ntry: print(") + "\nexcept Exception as error: print(error)"
    command = ["setpriv", f"--bounding-set=-{dropped}", sys.executable, "-c", program, str(home.path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"here it lacks {dropped}. Run as an ordinary user, or set database_url" in said


def test_only_the_owner_of_the_server_reaches_its_socket(standing: Home) -> None:
    ensure_server(standing)
    status = socket_folder(standing.postgres / "data").stat()
    assert stat.S_IMODE(status.st_mode) == 0o700


def test_a_socket_folder_that_somebody_else_could_enter_is_refused(standing: Home) -> None:
    ensure_server(standing)
    stop_server(standing)
    data = standing.postgres / "data"
    folder = make_socket_folder(data, ServerAccount.of_this_machine())
    folder.chmod(0o755)
    with pytest.raises(
        SetupError, match=r"expected a folder of user id \d+ with mode 700 .* found drwxr-xr-x"
    ):
        ensure_server(standing)
    folder.chmod(0o700)


def test_no_port_is_listened_on_and_change_capture_is_possible(postgres_server: str) -> None:
    assert ask(postgres_server, "SHOW listen_addresses") == ""
    assert ask(postgres_server, "SHOW wal_level") == "logical"
    assert int(str(ask(postgres_server, "SHOW max_connections"))) >= 100


def test_settings_of_other_postgres_tools_in_the_environment_change_nothing(
    standing: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "/nowhere", "PGUSER": "x", "PGDATA": "/nowhere"}.items():
        monkeypatch.setenv(name, value)
    assert ask(ensure_server(standing), "SELECT current_user") == "dyna"


def test_data_of_another_version_is_refused_by_name(home: Home) -> None:
    data = home.postgres / "data"
    data.mkdir()
    (data / "PG_VERSION").write_text("17\n")
    with pytest.raises(
        SetupError, match=r"expected a data folder of PostgreSQL 18, found one of PostgreSQL 17"
    ):
        ensure_server(home)


def test_a_server_that_cannot_start_says_why_and_where_its_log_is(standing: Home) -> None:
    ensure_server(standing)
    stop_server(standing)
    configuration = standing.postgres / "data" / "postgresql.conf"
    before = configuration.read_text()
    configuration.write_text(before + "no_such_setting = 1\n")
    with pytest.raises(
        SetupError, match=r"(?s)'pg_ctl' failed with exit code 1.*server\.log.*no_such_setting"
    ):
        ensure_server(standing)
    configuration.write_text(before)


def test_a_server_whose_socket_a_cleaner_took_away_is_replaced(
    home: Home, served: Callable[[Home], Home]
) -> None:
    ensure_server(served(home))
    folder = socket_folder(home.postgres / "data")
    for socket in folder.iterdir():
        socket.unlink()
    folder.rmdir()
    assert ask(ensure_server(home), "SELECT 1") == 1
