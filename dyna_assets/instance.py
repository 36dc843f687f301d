"""Dagster's instance: its settings file, and how a process opens it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import NullPool, create_engine, func, inspect, select, text

from dyna_assets.catalog.shard_lock import DAGSTER_TABLES_LOCK
from dyna_assets.home import Home

if TYPE_CHECKING:
    from dagster import DagsterInstance

_WHOLE = "dagster tables complete"
_HEADER = """\
# Dagster's settings of this home. dyna-assets writes this file anew when it starts; edit settings.toml instead.
# JSON is YAML.
"""


def write_instance(home: Home, url: str, *, workers: int) -> Path:
    """Write <home>/dagster/dagster.yaml for the database at `url`; untouched if it says the same already.

    workers: processes that work on the rows of one run; runs at a time follow from it. Only the owner may
    read the file, which may hold the database's password. Returns the folder: the value of DAGSTER_HOME.
    """
    path = home.dagster / "dagster.yaml"
    content = _HEADER + json.dumps(instance_settings(home, url, workers=workers), indent=2) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        part = path.with_suffix(f".{os.getpid()}.part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(content)
        part.replace(path)
    return home.dagster


def prepare_instance(home: Home, url: str, *, workers: int) -> Path:
    """`write_instance`, and Dagster's tables made whole; returns the value of DAGSTER_HOME."""
    folder = write_instance(home, url, workers=workers)
    make_tables(home, url)
    return folder


def make_tables(home: Home, url: str) -> None:
    """Make Dagster's tables whole, once: one process at a time, and anew where an earlier one was killed at it.

    Dagster makes them one by one, and takes what a killed process left for an instance of an older version.
    """
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(select(func.pg_advisory_lock(*DAGSTER_TABLES_LOCK)))  # until the connection closes
        if connection.scalar(text("SELECT obj_description('public'::regnamespace)")) == _WHOLE:
            return
        names = set(inspect(connection).get_table_names())
        if "runs" not in names or connection.scalar(text("SELECT count(*) FROM public.runs")) == 0:
            for name in sorted(_dagster_tables() & names):
                connection.execute(text(f'DROP TABLE public."{name}" CASCADE'))
        with open_instance(home) as instance:
            instance.get_runs(limit=1)
            instance.all_instigator_state()
        connection.execute(text(f"COMMENT ON SCHEMA public IS '{_WHOLE}'"))


def _dagster_tables() -> set[str]:
    from dagster._core.storage.event_log.schema import SqlEventLogStorageMetadata
    from dagster._core.storage.runs.schema import RunStorageSqlMetadata
    from dagster._core.storage.schedules.schema import ScheduleStorageSqlMetadata

    metadata = (SqlEventLogStorageMetadata, RunStorageSqlMetadata, ScheduleStorageSqlMetadata)
    return {"alembic_version", *(name for one in metadata for name in one.tables)}


def open_instance(home: Home) -> DagsterInstance:
    """The instance that `write_instance` described; call `dispose` when done, or use it as a context manager.

    Creates Dagster's tables if they are not there.
    """
    from dagster import DagsterInstance  # 1.4 s of imports, which only this function needs

    return DagsterInstance.from_config(str(home.dagster))


def instance_settings(home: Home, url: str, *, workers: int) -> dict[str, Any]:
    """The content of dagster.yaml (pure)."""
    return {
        "run_storage": _storage("PooledRunStorage", url),
        "event_log_storage": _storage("PooledEventLogStorage", url),
        "schedule_storage": _storage("PooledScheduleStorage", url),
        "local_artifact_storage": {
            "module": "dagster._core.storage.root",
            "class": "LocalArtifactStorage",
            "config": {"base_dir": str(home.dagster)},
        },
        "compute_logs": {
            "module": "dagster._core.storage.local_compute_log_manager",
            "class": "LocalComputeLogManager",
            "config": {"base_dir": str(home.dagster / "logs")},
        },
        "run_coordinator": {
            "module": "dagster._core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {
                "max_concurrent_runs": max_concurrent_runs(workers),
                # Two runs never share a shard; the shard's lock does the same for runs that bypass the queue.
                "tag_concurrency_limits": [
                    {"key": "dagster/partition", "limit": 1, "value": {"applyLimitPerUniqueValue": True}}
                ],
                "dequeue_interval_seconds": 1,
            },
        },
        # A killed run is found out, and what it held in the queue is given back.
        "run_monitoring": {
            "enabled": True,
            "start_timeout_seconds": 180,
            "poll_interval_seconds": 30,
            "free_slots_after_run_end_seconds": 300,
        },
        "retention": {
            "sensor": {"purge_after_days": {"skipped": 1, "failure": 30, "success": 7}},
            "schedule": {"purge_after_days": {"skipped": 7, "failure": 30, "success": 30}},
        },
        # Dagster's own events are debug messages; the event log keeps them, a console need not.
        "python_logs": {"python_log_level": "INFO"},
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
    }


def max_concurrent_runs(workers: int) -> int:
    """Runs at a time: a run fills all workers, so a second one only hides the first one's start and end.

    More than a few cost connections to the database and gain nothing.
    """
    return min(8, max(2, workers // 4))


def _storage(name: str, url: str) -> dict[str, Any]:
    return {"module": "dyna_assets.dagster_storage", "class": name, "config": {"postgres_url": url}}
