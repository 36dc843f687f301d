"""Sources, robots, tasks, uploads, shards, episodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SCHEMA = "catalog"


def upgrade() -> None:
    _names("robots", "name")
    _names("tasks", "text")
    op.create_table(
        "sources",
        sa.Column("id", sa.Integer, sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("landing_uri", sa.String, nullable=False),
        sa.Column("reader", sa.String, nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sources"),
        sa.UniqueConstraint("name", name="uq_sources_name"),
        schema=SCHEMA,
    )
    _shards()
    _uploads()
    _episodes()


def downgrade() -> None:
    for table in ("episodes", "uploads", "shards", "sources", "tasks", "robots"):
        op.drop_table(table, schema=SCHEMA)


def _names(table: str, column: str) -> None:
    op.create_table(
        table,
        sa.Column("id", sa.Integer, sa.Identity(always=True), nullable=False),
        sa.Column(column, sa.String, nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        sa.UniqueConstraint(column, name=f"uq_{table}_{column}"),
        schema=SCHEMA,
    )


def _shards() -> None:
    op.create_table(
        "shards",
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("source_id", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("versions", sa.String, nullable=False),
        sa.Column("num_episodes", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("settled_revision", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_added_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('open', 'closed')", name=op.f("ck_shards_state")),
        _refers("shards", "source_id", "sources.id"),
        sa.PrimaryKeyConstraint("number", name="pk_shards"),
        sa.UniqueConstraint("key", name="uq_shards_key"),
        schema=SCHEMA,
    )
    op.create_index("ix_shards_source_id", "shards", ["source_id"], schema=SCHEMA)


def _uploads() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        sa.Column("source_id", sa.Integer, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("uri", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("looks", sa.String, nullable=False),
        sa.Column("marker", JSONB, nullable=True),
        sa.Column("num_files", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("shard_number", sa.Integer, nullable=True),
        sa.Column("notes", JSONB, nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("state IN ('registered', 'quarantined')", name=op.f("ck_uploads_state")),
        _refers("uploads", "shard_number", "shards.number"),
        _refers("uploads", "source_id", "sources.id"),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
        sa.UniqueConstraint("source_id", "name", name="uq_uploads_source_id_name"),
        schema=SCHEMA,
    )


def _episodes() -> None:
    op.create_table(
        "episodes",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True, start=1), nullable=False),
        sa.Column("source_id", sa.Integer, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("upload_id", sa.BigInteger, nullable=False),
        sa.Column("shard_number", sa.Integer, nullable=False),
        sa.Column("robot_id", sa.Integer, nullable=True),
        sa.Column("task_id", sa.Integer, nullable=True),
        sa.Column("files", JSONB, nullable=False),
        sa.Column("input_hash", sa.String, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        _refers("episodes", "robot_id", "robots.id"),
        _refers("episodes", "shard_number", "shards.number"),
        _refers("episodes", "source_id", "sources.id"),
        _refers("episodes", "task_id", "tasks.id"),
        _refers("episodes", "upload_id", "uploads.id"),
        sa.PrimaryKeyConstraint("id", name="pk_episodes"),
        sa.UniqueConstraint("source_id", "name", name="uq_episodes_source_id_name"),
        schema=SCHEMA,
    )
    for column in ("shard_number", "upload_id"):
        op.create_index(f"ix_episodes_{column}", "episodes", [column], schema=SCHEMA)


def _refers(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{SCHEMA}.{target}"], name=f"fk_{table}_{column}")
