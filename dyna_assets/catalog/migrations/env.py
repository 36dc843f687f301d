"""Alembic's entry: migrate on the connection and in the transaction that `migrate` hands over."""

from alembic import context

from dyna_assets.catalog.models import SCHEMA, Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    version_table_schema=SCHEMA,
    include_schemas=True,
    include_name=lambda name, kind, _parents: kind != "schema" or name == SCHEMA,
)
context.run_migrations()
