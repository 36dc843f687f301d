"""Migrations: they lead to the models, from any number of processes, and never from the future."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import NullPool, create_engine, text

from dyna_assets.catalog.migrate import alembic_config, current_revision, migrate
from dyna_assets.catalog.models import SCHEMA, Base
from dyna_assets.errors import SetupError


def test_the_migrations_lead_to_the_models(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=NullPool)
    migrate(engine)
    options = {
        "version_table_schema": SCHEMA,
        "include_schemas": True,
        "include_name": lambda name, kind, _parents: kind != "schema" or name == SCHEMA,
        "compare_server_default": True,
    }
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


def test_every_migration_can_be_undone(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=NullPool)
    migrate(engine)
    with engine.begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    with engine.connect() as connection:
        query = text(
            "SELECT count(*) FROM pg_tables WHERE schemaname = :schema AND tablename <> 'alembic_version'"
        )
        assert connection.scalar(query, {"schema": SCHEMA}) == 0
    migrate(engine)


def test_many_processes_may_migrate_at_once(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=NullPool)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, [engine] * 4))
    with engine.connect() as connection:
        assert current_revision(connection) == "0002"


def test_a_database_from_a_newer_version_is_refused(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=NullPool)
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.alembic_version SET version_num = '9999'"))
    with pytest.raises(
        SetupError, match=r"tables are at revision 9999, which this version of dyna does not know"
    ):
        migrate(engine)


def test_the_migrations_are_in_the_package() -> None:
    folder = files("dyna_assets.catalog") / "migrations"
    assert (folder / "env.py").is_file()
    assert any(file.name.endswith(".py") for file in (folder / "versions").iterdir())
