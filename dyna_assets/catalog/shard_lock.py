"""One run at a time per shard, also for runs that bypass Dagster's queue.

A session advisory lock on a connection of its own: it is free at the moment its holder dies. It needs a
direct connection to the server; a pooler in transaction mode would lose it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError

from dyna_assets.errors import ShardBusy

# Advisory locks are pairs of 32-bit numbers; 'dyna' keeps ours apart from those of other users of a database.
SHARD_LOCK_CLASS = 0x64796E61
REGISTRATION_LOCK = (SHARD_LOCK_CLASS + 1, 0)
MIGRATION_LOCK = (SHARD_LOCK_CLASS + 1, 1)
DAGSTER_TABLES_LOCK = (SHARD_LOCK_CLASS + 1, 2)

_LOCK_NOT_AVAILABLE = "55P03"


@dataclass(frozen=True, slots=True)
class ShardLock:
    """A lock that is held."""

    shard_number: int
    connection: Connection

    def verify(self) -> None:
        """Raise ShardBusy if the lock was lost (its connection broke); call before anything that must not race."""
        try:
            self.connection.execute(text("SELECT 1"))
        except OperationalError as error:
            raise ShardBusy(
                f"shard {self.shard_number}: the lock was lost, its database connection broke ({error.orig}). "
                "Run the shard again; it does what is left"
            ) from None


@contextmanager
def shard_lock(url: str, shard_number: int, *, wait_s: float = 60.0) -> Iterator[ShardLock]:
    """Hold shard `shard_number` exclusively, waiting up to wait_s for a run that has it.

    Raises ShardBusy, naming the holder, when the wait is over.
    """
    name = f"dyna shard {shard_number} by process {os.getpid()} on {socket.gethostname()}"
    engine = create_engine(
        url,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",  # no transaction stays open for the length of a run
        connect_args={"application_name": name[:63], "connect_timeout": 10},
    )
    with engine.connect() as connection:
        _acquire(connection, shard_number, wait_s)
        yield ShardLock(shard_number, connection)


def _acquire(connection: Connection, shard_number: int, wait_s: float) -> None:
    lock = {"class": SHARD_LOCK_CLASS, "shard": shard_number}
    # Of a holder whose machine died nothing is heard: ask, and free the lock within a minute.
    connection.execute(
        text("SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3")
    )
    connection.execute(text(f"SET lock_timeout = {max(1, int(wait_s * 1000))}"))
    try:
        connection.execute(text("SELECT pg_advisory_lock(:class, :shard)"), lock)
    except DBAPIError as error:
        if getattr(error.orig, "pgcode", None) != _LOCK_NOT_AVAILABLE:
            raise
        raise ShardBusy(
            f"shard {shard_number}: waited {wait_s:g} s, still held by {_holder(connection, lock)}. "
            "Let that run finish or end it, then run the shard again"
        ) from None


def _holder(connection: Connection, lock: dict[str, int]) -> str:
    """Who holds the lock, in words."""
    query = text(
        "SELECT a.application_name, a.pid, a.backend_start FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
        "WHERE l.locktype = 'advisory' AND l.granted AND l.classid = :class AND l.objid = :shard "
        "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    row = connection.execute(query, lock).one_or_none()
    if row is None:
        return "a run that has just ended"
    return (
        f"'{row.application_name}' (server process {row.pid}) since {row.backend_start:%Y-%m-%d %H:%M:%S %Z}"
    )
