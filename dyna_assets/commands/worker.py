"""The commands that keep an installation at work: worker, ui, stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dyna_assets.commands.shared import open_workspace
from dyna_train.program import Exit

if TYPE_CHECKING:
    from dyna_assets.worker import Drained
    from dyna_assets.workspace import Workspace


def worker(
    profile: Annotated[str, typer.Option(help="Run profile.")] = "ingest_online",
    skip_check: Annotated[
        list[str] | None,
        typer.Option(help="A quality check, or a pattern, that gates do not run (repeatable)."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One pass, then end.")] = False,
    interval_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds between looks at the landing folders.")
    ] = 1.0,
) -> None:
    """Take what landed and run the shards that are due, in this process.

    What it waits for is said once, and again when it changes.
    """
    import time

    from dyna_assets.definitions import build
    from dyna_assets.instance import open_instance, prepare_instance
    from dyna_assets.worker import drain

    workspace = open_workspace()
    prepare_instance(workspace.home, workspace.database_url, workers=workspace.settings.workers)
    definitions = build(workspace.home)
    with open_instance(workspace.home) as instance:
        said: dict[str, str] = {}
        while True:
            done = drain(
                workspace, instance, definitions, profile, skip_checks=skip_check or (), retry_given_up=once
            )
            waits = done.waits()
            code = _say_what_was_done(workspace, done, [waits[what] for what in waits if what not in said])
            if once:
                raise typer.Exit(code)
            said = waits
            time.sleep(interval_s)


def _say_what_was_done(workspace: Workspace, done: Drained, waits: list[str]) -> Exit:
    """Print what one pass of the worker did, and `waits`; the exit code it deserves."""
    from dyna_assets.corpus import rejections

    found = done.registration
    for upload, count in found.registered.items():
        typer.echo(f"registered {upload}: {count} new or changed episodes")
    for note in found.notes:
        typer.echo(f"note: {note}")
    for name, reason in found.quarantined.items():
        typer.echo(f"quarantined: {name}: {reason}")
    for line in waits:
        typer.echo(line)
    for key, reason in done.failed.items():
        typer.echo(f"failed: {key}: {reason}")
    refused = (
        [row for row in rejections(workspace.warehouse) if row.run_id in done.run_ids] if done.run_ids else []
    )
    for row in refused:
        typer.echo(f"{row.status}: {row.source}: {row.name}: {'; '.join(row.reasons)}")
    for key in done.succeeded:
        typer.echo(f"{key}: done")
    if done.failed or done.given_up or found.unreachable:
        return Exit.FAILURE
    return Exit.WARNING if refused or found.quarantined else Exit.OK


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web server.")] = 3000,
    workspace_file: Annotated[
        Path | None, typer.Option("--workspace", help="A Dagster workspace.yaml.")
    ] = None,
) -> None:
    """Open Dagster on this DYNA_HOME: lineage, launches, metadata."""
    from dyna_assets.ui import serve

    serve(open_workspace(), port=port, workspace_file=workspace_file)


def stop() -> None:
    """Stop the embedded database of this DYNA_HOME."""
    from dyna_assets.catalog.server import stop_server
    from dyna_assets.home import Home

    typer.echo("stopped" if stop_server(Home.from_env()) else "was not running")
