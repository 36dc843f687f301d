"""Pooled connections that survive a restart of the server and a fork of the process."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

# A server that was restarted costs a reconnect, not an error; what idles for half an hour is renewed.
POOL_OPTIONS: dict[str, Any] = {
    "pool_size": 2,
    "max_overflow": 8,
    "pool_pre_ping": True,
    "pool_recycle": 1800,
}


def leave_inherited_connections(engine: Engine) -> None:
    """Make a forked child open connections of its own: two processes on one connection garble it."""
    event.listen(engine, "connect", _sign)
    event.listen(engine, "checkout", _check)


def _sign(_connection: Any, record: ConnectionPoolEntry) -> None:
    record.info["pid"] = os.getpid()


def _check(_connection: Any, record: ConnectionPoolEntry, proxy: PoolProxiedConnection) -> None:
    if record.info["pid"] == os.getpid():
        return
    # Dropped, not closed: to close it would end the parent's session.
    record.dbapi_connection = proxy.dbapi_connection = None  # type: ignore[misc]
    raise DisconnectionError("this connection belongs to the parent process")
