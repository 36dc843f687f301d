"""Dagster's instance on our server: it constructs, it is pooled, and its settings are accepted."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.run_coordinator import QueuedRunCoordinator
from sqlalchemy import Engine, NullPool, QueuePool, create_engine, text

from dyna_assets.dagster_storage import PooledEventLogStorage, PooledRunStorage, PooledScheduleStorage
from dyna_assets.home import Home
from dyna_assets.instance import max_concurrent_runs, open_instance, write_instance


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One home for all tests of this file."""
    return Home.at(tmp_path_factory.mktemp("dagster")).prepare()


@pytest.fixture(scope="module")
def url(new_database: Callable[[], str]) -> str:
    """One database for all tests of this file."""
    return new_database()


@pytest.fixture
def instance(home: Home, url: str) -> Iterator[dg.DagsterInstance]:
    """An instance with pools of its own."""
    write_instance(home, url, workers=2)
    with open_instance(home) as instance:
        yield instance


def storages(instance: dg.DagsterInstance) -> list[Any]:
    return [instance.run_storage, instance.event_log_storage, instance.schedule_storage]


def engines(instance: dg.DagsterInstance) -> list[Engine]:
    return [storage._engine for storage in storages(instance)]


def six_steps() -> dg.JobDefinition:
    @dg.asset
    def step_0() -> None: ...

    assets = [step_0]
    for number in range(1, 6):

        @dg.asset(name=f"step_{number}", deps=[assets[-1]])
        def step() -> None: ...

        assets.append(step)
    job = dg.define_asset_job("six", executor_def=dg.in_process_executor)
    return dg.Definitions(assets=assets, jobs=[job]).resolve_job_def("six")


def num_sessions(url: str) -> int:
    """Sessions that were ever opened on the database (an open one may be counted late, an ended one is)."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        query = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
        return int(connection.scalar(text(query)) or 0)


def test_dagster_gives_our_storages_on_a_pool(instance: dg.DagsterInstance) -> None:
    assert type(instance.run_storage) is PooledRunStorage
    assert type(instance.event_log_storage) is PooledEventLogStorage
    assert type(instance.schedule_storage) is PooledScheduleStorage
    assert [type(engine.pool) for engine in engines(instance)] == [QueuePool] * 3


def test_a_storage_made_again_from_its_description_is_ours_too(instance: dg.DagsterInstance) -> None:
    """As in the process of a run."""
    with dg.DagsterInstance.from_ref(instance.get_ref()) as other:
        assert [type(engine.pool) for engine in engines(other)] == [QueuePool] * 3


def sessions_of_a_run(instance: dg.DagsterInstance, url: str) -> int:
    """How many sessions a run of six steps opens, once everything is warm."""
    job = six_steps()
    assert job.execute_in_process(instance=instance).success
    before = num_sessions(url)
    assert job.execute_in_process(instance=instance).success
    return num_sessions(url) - before


def test_a_run_of_six_steps_opens_few_sessions(instance: dg.DagsterInstance, url: str) -> None:
    assert sessions_of_a_run(instance, url) < 10


def test_dagsters_own_storages_still_open_a_session_per_operation(
    instance: dg.DagsterInstance, url: str, tmp_path: Path
) -> None:
    """When this fails, Dagster has learned to pool, and ours can go."""
    (tmp_path / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_url: '{url}'}}}}")
    with dg.DagsterInstance.from_config(str(tmp_path)) as stock:
        assert sessions_of_a_run(stock, url) > 50


def test_the_web_servers_settings_still_apply(instance: dg.DagsterInstance) -> None:
    for storage in storages(instance):
        storage.optimize_for_webserver(statement_timeout=1234, pool_recycle=60, max_overflow=2)
    for engine in engines(instance):
        assert isinstance(engine.pool, QueuePool)
        with engine.connect() as connection:
            assert connection.scalar(text("SHOW statement_timeout")) == "1234ms"


def test_the_end_of_an_instance_closes_its_connections(instance: dg.DagsterInstance) -> None:
    def num_open() -> int:
        return sum(engine.pool.checkedin() for engine in engines(instance))  # type: ignore[attr-defined]

    instance.get_runs()
    assert num_open() > 0
    instance.dispose()
    assert num_open() == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # 3.12 warns of forks beside threads
def test_a_forked_child_uses_connections_of_its_own(instance: dg.DagsterInstance) -> None:
    def process_ids() -> list[int]:
        found = []
        for engine in engines(instance):
            with engine.connect() as connection:
                found.append(connection.scalar(text("SELECT pg_backend_pid()")))
        return found

    mine = process_ids()
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(process_ids()))
    child.start()
    child.join(30)
    assert set(answers.get()).isdisjoint(mine)
    assert process_ids() == mine


def test_one_run_at_a_time_per_shard_is_queued(instance: dg.DagsterInstance) -> None:
    assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
    queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_concurrent_runs == 2
    assert queue.tag_concurrency_limits == [
        {"key": "dagster/partition", "limit": 1, "value": {"applyLimitPerUniqueValue": True}}
    ]
    assert instance.run_coordinator.dequeue_interval_seconds == 1
    assert instance.run_monitoring_enabled
    assert not instance.telemetry_enabled


def test_what_runs_leave_behind_is_in_the_home(instance: dg.DagsterInstance, home: Home) -> None:
    assert instance.storage_directory().startswith(str(home.dagster))
    assert instance.root_directory == str(home.dagster)


def test_the_settings_file_is_the_owners_and_rewritten_only_when_it_differs(tmp_path: Path) -> None:
    home = Home.at(tmp_path).prepare()
    path = write_instance(home, "postgresql://dyna:secret@db/dyna", workers=2) / "dagster.yaml"
    first = path.stat()
    assert stat.S_IMODE(first.st_mode) == 0o600
    write_instance(home, "postgresql://dyna:secret@db/dyna", workers=2)
    assert path.stat().st_mtime_ns == first.st_mtime_ns
    write_instance(home, "postgresql://dyna:other@db/dyna", workers=2)
    settings = yaml.safe_load(path.read_text())
    assert settings["run_storage"]["config"] == {"postgres_url": "postgresql://dyna:other@db/dyna"}
    assert os.listdir(home.dagster) == ["dagster.yaml"]


def test_the_catalog_and_the_settings_file_need_no_dagster() -> None:
    program = "import sys, dyna_assets.instance, dyna_assets.catalog.catalog; print('dagster' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(("workers", "runs"), [(1, 2), (2, 2), (16, 4), (256, 8)])
def test_runs_at_a_time_follow_from_the_workers(workers: int, runs: int) -> None:
    assert max_concurrent_runs(workers) == runs
