"""Dagster's Postgres storages with a connection pool.

Its own open a connection for every operation, some hundred for a run of six steps. Dagster finds these
classes by name in dagster.yaml (see `dyna_assets.instance`). Each overrides `from_config_value`, because
the one it would inherit makes the class that it inherits from, without a word. `optimize_for_webserver`
stays: it sets the statement timeout and a pool of the web server's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster._serdes import ConfigurableClassData
from dagster_postgres import PostgresEventLogStorage, PostgresRunStorage, PostgresScheduleStorage
from dagster_postgres.utils import create_pg_engine, get_token_provider_from_config, pg_url_from_config
from sqlalchemy import Engine

from dyna_assets.catalog.pool import POOL_OPTIONS, leave_inherited_connections


class PooledRunStorage(PostgresRunStorage):
    """Run storage on a pool."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine = _pooled(self)

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> PooledRunStorage:
        """As Dagster makes it from dagster.yaml."""
        return cls(**_arguments(inst_data, config_value))

    def dispose(self) -> None:
        """Close the pool."""
        super().dispose()
        self._engine.dispose()


class PooledEventLogStorage(PostgresEventLogStorage):
    """Event log storage on a pool."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine = _pooled(self)

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> PooledEventLogStorage:
        """As Dagster makes it from dagster.yaml."""
        return cls(**_arguments(inst_data, config_value))

    def dispose(self) -> None:
        """End the event watcher and close the pool."""
        super().dispose()
        self._engine.dispose()


class PooledScheduleStorage(PostgresScheduleStorage):
    """Schedule storage on a pool."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine = _pooled(self)

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> PooledScheduleStorage:
        """As Dagster makes it from dagster.yaml."""
        return cls(**_arguments(inst_data, config_value))

    def dispose(self) -> None:
        """Close the pool."""
        super().dispose()
        self._engine.dispose()


def _pooled(storage: PostgresRunStorage | PostgresEventLogStorage | PostgresScheduleStorage) -> Engine:
    """An engine as the storage made for itself, with a pool."""
    engine = create_pg_engine(
        storage.postgres_url,
        storage._token_provider,
        isolation_level="AUTOCOMMIT",
        connect_args={"application_name": "dagster"},
        **POOL_OPTIONS,
    )
    leave_inherited_connections(engine)
    return engine


def _arguments(inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "inst_data": inst_data,
        "postgres_url": pg_url_from_config(config_value),
        "should_autocreate_tables": config_value.get("should_autocreate_tables", True),
        "token_provider": get_token_provider_from_config(config_value),
    }
