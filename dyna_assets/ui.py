"""Dagster's UI and daemon on this home."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from dyna_assets.errors import SetupError
from dyna_assets.instance import prepare_instance
from dyna_assets.workspace import Workspace

HOST = "127.0.0.1"


def serve(workspace: Workspace, *, port: int, workspace_file: Path | None) -> None:
    """Become `dagster dev`. Raises SetupError if the port is taken."""
    check_port_is_free(port)
    home = prepare_instance(workspace.home, workspace.database_url, workers=workspace.settings.workers)
    where = ["-w", str(workspace_file)] if workspace_file else ["-m", "dyna_assets.definitions"]
    env = {**os.environ, "DAGSTER_HOME": str(home), "DYNA_HOME": str(workspace.home.path)}
    command = [sys.executable, "-m", "dagster", "dev", *where, "-h", HOST, "-p", str(port)]
    os.execvpe(command[0], command, env)


def check_port_is_free(port: int) -> None:
    """Raise SetupError naming a port that is free if `port` is not."""
    with socket.socket() as probe:
        # as Dagster's web server does: a port in TIME_WAIT is free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            with socket.socket() as other:
                other.bind((HOST, 0))
                free = other.getsockname()[1]
            raise SetupError(
                f"{HOST}:{port}: {error.strerror}; expected a free port. Use another: make ui PORT={free}, "
                f"or dyna-assets ui --port {free}"
            ) from None
