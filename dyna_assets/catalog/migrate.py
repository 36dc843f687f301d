"""Bring the catalog's tables up to date."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select, text

from dyna_assets.catalog.models import SCHEMA
from dyna_assets.catalog.shard_lock import MIGRATION_LOCK
from dyna_assets.errors import SetupError


def migrate(engine: Engine) -> None:
    """Apply the migrations that the database lacks; safe to call from many processes at once.

    Raises SetupError if the database is newer than this program.
    """
    config = alembic_config()
    scripts = ScriptDirectory.from_config(config)
    head = scripts.get_current_head()
    with engine.begin() as connection:
        if current_revision(connection) == head:
            return
        connection.execute(select(func.pg_advisory_xact_lock(*MIGRATION_LOCK)))
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
        _check_known(scripts, connection)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def alembic_config() -> Config:
    """Alembic's configuration: the migrations lie in this package."""
    config = Config()
    config.set_main_option("script_location", "dyna_assets.catalog:migrations")
    config.set_main_option("path_separator", "os")
    return config


def current_revision(connection: Connection) -> str | None:
    """Revision of the database's tables; None if there are none."""
    context = MigrationContext.configure(connection, opts={"version_table_schema": SCHEMA})
    return context.get_current_revision()


def _check_known(scripts: ScriptDirectory, connection: Connection) -> None:
    found = current_revision(connection)
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise SetupError(
            f"{connection.engine.url.render_as_string(hide_password=True)}: the catalog's tables are at revision "
            f"{found}, which this version of dyna does not know (its newest: {scripts.get_current_head()}). "
            "Install the newer version that made them"
        )
