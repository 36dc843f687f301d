"""Runs that are really killed: nothing is lost, nothing is done twice, nothing is half there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import pytest
from sqlalchemy import NullPool, create_engine, text

from dyna_assets.catalog.server import ensure_server, stop_server
from dyna_assets.curation.curate import CurationSpec, curate
from dyna_assets.describe import add_source
from dyna_assets.home import Home
from dyna_assets.instance import open_instance, prepare_instance
from dyna_assets.simulate import record_uploads
from dyna_assets.workspace import Workspace
from dyna_train.episode.reader import Episode
from dyna_train.manifest import Manifest

NUM_UPLOADS = 4


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    home = Home.at(tmp_path / "home")
    workspace = Workspace.open(home)
    record_uploads(home.landing / "sim", NUM_UPLOADS, seconds=1.0, size=(96, 128))
    add_source(workspace, "sim", str(home.landing / "sim"))
    yield workspace
    workspace.catalog.close()
    stop_server(home)


def start_worker(workspace: Workspace) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dyna_assets.cli", "worker", "--once"]
    env = {**os.environ, "DYNA_HOME": str(workspace.home.path)}
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def assert_whole(workspace: Workspace, out: Path, where: str = "true") -> None:
    """Every upload is one passing episode, its file is there and whole, and nothing else lies about."""
    with duckdb.connect() as connection:
        made = curate(
            CurationSpec(name="all", where=where), workspace.warehouse, connection, out, lake=workspace.lake
        )
    assert made.totals.num_rows == NUM_UPLOADS
    manifest = Manifest.open(out)
    for row in range(NUM_UPLOADS):
        with Episode.open(manifest.episode_uri(row)) as episode:
            assert episode.frames("cam_top", [episode.header.num_steps - 1]).shape[0] == 1
    assert len({row.episode_id for row in manifest.rows()}) == NUM_UPLOADS
    assert not list(Path(workspace.lake).rglob("*.part"))
    assert workspace.catalog.due_shards() == []


def children_of(group: int) -> list[str]:
    found = subprocess.run(["ps", "-eo", "pgid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line for line in found.splitlines() if line.split()[0] == str(group)]
    return [line for line in lines if "<defunct>" not in line]  # dead, and nobody's child to reap here


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def has_rows(workspace: Workspace, table: str) -> bool:
    """Whether something was appended to the table, which is made empty."""
    return (Path(workspace.lake) / "tables" / table / "_delta_log" / f"{1:020}.json").exists()


MOMENTS: dict[str, Callable[[Workspace], bool]] = {
    "registered": lambda workspace: bool(workspace.catalog.due_shards()),
    "read": lambda workspace: has_rows(workspace, "recordings"),
    "being encoded": lambda workspace: any(Path(workspace.lake).rglob("*.mcap*")),
    "labelled": lambda workspace: has_rows(workspace, "labels"),
}


def test_a_worker_killed_at_several_moments_leaves_a_state_that_the_next_one_completes(
    workspace: Workspace, tmp_path: Path
) -> None:
    for moment in MOMENTS.values():
        worker = start_worker(workspace)
        wait_until(partial(moment, workspace))
        worker.kill()
        worker.communicate()
    workers = [start_worker(workspace) for _ in range(2)]  # the second waits, and finds nothing left
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert_whole(workspace, tmp_path / "all.arrow")


def test_ctrl_c_ends_the_worker_soon_and_leaves_no_process(workspace: Workspace, tmp_path: Path) -> None:
    record_uploads(
        workspace.home.landing / "sim", 1, start=NUM_UPLOADS - 1, seconds=6.0, size=(120, 160), seed=1
    )
    worker = start_worker(workspace)
    made = Path(workspace.lake) / "episodes"
    wait_until(lambda: len(list(made.rglob("*.mcap"))) == NUM_UPLOADS)  # and the long one is being encoded
    os.killpg(worker.pid, signal.SIGINT)
    output, _ = worker.communicate(timeout=15)
    assert worker.returncode == 130, output
    wait_until(lambda: children_of(worker.pid) == [], seconds=10)
    worker = start_worker(workspace)
    output, _ = worker.communicate()
    assert worker.returncode == 0, output
    assert_whole(workspace, tmp_path / "all.arrow", where="duration_s < 5")  # the long one has another size


def test_a_database_killed_in_the_middle_of_a_run_costs_only_time(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.home.settings.write_text("workers = 1\n")  # it is not about processes
    worker = start_worker(workspace)
    wait_until(partial(MOMENTS["read"], workspace))
    pid = (workspace.home.postgres / "data" / "postmaster.pid").read_text().splitlines()[0]
    os.kill(int(pid), signal.SIGKILL)
    worker.communicate()
    ensure_server(workspace.home)
    worker = start_worker(workspace)
    output, _ = worker.communicate()
    assert worker.returncode == 0, output
    assert_whole(workspace, tmp_path / "all.arrow")


def test_a_process_killed_while_dagsters_tables_are_made_leaves_nothing_in_the_way(
    workspace: Workspace,
) -> None:
    engine = create_engine(workspace.database_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:  # what such a kill leaves: some of the tables, and no version
        connection.execute(text("CREATE TABLE public.runs (id bigint)"))
        connection.execute(text("CREATE TABLE public.event_logs (id bigint)"))
    prepare_instance(workspace.home, workspace.database_url, workers=1)
    with open_instance(workspace.home) as instance:
        assert instance.get_runs() == []
        assert not instance.has_dynamic_partition("shards", "shard-000000")
