"""Tables of the catalog: identity and operational facts only; what the pipeline derives lives in Delta.

They have a schema of their own, so that one database URL serves the catalog and Dagster side by side.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Identity,
    MetaData,
    String,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dyna_assets.catalog.rows import ShardState, UploadState

SCHEMA = "catalog"

# Constraints get names by rule: a migration can only change what it can name.
_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Base of all tables."""

    metadata = MetaData(schema=SCHEMA, naming_convention=_NAMES)
    type_annotation_map = {datetime: DateTime(timezone=True), dict[str, Any]: JSONB, list[str]: JSONB}  # noqa: RUF012


class Source(Base):
    """One source of recordings: a robot fleet, a vendor."""

    __tablename__ = "sources"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    landing_uri: Mapped[str]
    reader: Mapped[str]
    added_at: Mapped[datetime]


class Robot(Base):
    """One robot, by the name its recordings give."""

    __tablename__ = "robots"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class Task(Base):
    """One task, by its text."""

    __tablename__ = "tasks"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    text: Mapped[str] = mapped_column(unique=True)


class Shard(Base):
    """One Dagster partition: a set of episodes of one source that are worked on together."""

    __tablename__ = "shards"
    __table_args__ = (CheckConstraint("state IN ('open', 'closed')", name="state"),)

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key: Mapped[str] = mapped_column(unique=True)
    source_id: Mapped[int] = mapped_column(ForeignKey(Source.id), index=True)
    state: Mapped[ShardState] = mapped_column(String)
    versions: Mapped[str]
    num_episodes: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    seq: Mapped[int] = mapped_column(BigInteger)
    revision: Mapped[int] = mapped_column(BigInteger)
    settled_revision: Mapped[int] = mapped_column(BigInteger)
    attempts: Mapped[int]
    opened_at: Mapped[datetime]
    last_added_at: Mapped[datetime]
    closed_at: Mapped[datetime | None]


class Upload(Base):
    """One upload of a source. shard_number: where its latest episodes went."""

    __tablename__ = "uploads"
    __table_args__ = (
        UniqueConstraint("source_id", "name"),
        CheckConstraint("state IN ('registered', 'quarantined')", name="state"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    source_id: Mapped[int] = mapped_column(ForeignKey(Source.id))
    name: Mapped[str]
    uri: Mapped[str]
    state: Mapped[UploadState] = mapped_column(String)
    reason: Mapped[str]
    digest: Mapped[str]
    looks: Mapped[str]
    marker: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    num_files: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str]
    shard_number: Mapped[int | None] = mapped_column(ForeignKey(Shard.number))
    notes: Mapped[dict[str, Any]]
    registered_at: Mapped[datetime]


class Episode(Base):
    """One episode: its identity and what it is made from."""

    __tablename__ = "episodes"
    __table_args__ = (UniqueConstraint("source_id", "name"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True, start=1), primary_key=True)
    source_id: Mapped[int] = mapped_column(ForeignKey(Source.id))
    name: Mapped[str]
    upload_id: Mapped[int] = mapped_column(ForeignKey(Upload.id), index=True)
    shard_number: Mapped[int] = mapped_column(ForeignKey(Shard.number), index=True)
    robot_id: Mapped[int | None] = mapped_column(ForeignKey(Robot.id))
    task_id: Mapped[int | None] = mapped_column(ForeignKey(Task.id))
    files: Mapped[list[str]]
    input_hash: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class Policy(Base):
    """One application of a quality policy; the newest one judges. The same policy may be applied again later."""

    __tablename__ = "policies"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    name: Mapped[str]
    version: Mapped[int]
    text: Mapped[str]
    applied_at: Mapped[datetime]
