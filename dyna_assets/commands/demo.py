"""The commands that show the whole path: demo record, demo run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dyna_assets.commands.shared import open_workspace


def record(
    landing: Annotated[Path, typer.Argument(help="Landing folder; each upload becomes a folder in it.")],
    num: Annotated[int, typer.Option(min=1, help="Uploads to record.")] = 12,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of each recording in seconds.")] = 6.0,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same bytes.")] = 0,
    start: Annotated[int, typer.Option(min=0, help="Number of the first upload.")] = 0,
    fault: Annotated[
        list[str] | None, typer.Option(help="Plant this fault (repeatable; cycles over uploads).")
    ] = None,
    source: Annotated[str, typer.Option(help="Source name in the commit markers.")] = "sim",
) -> None:
    """Record simulated bimanual teleoperation: two arms, three cameras, raw ROS 2 MCAP with commit markers."""
    from rich.progress import Progress

    from dyna_assets.simulate import record_uploads

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("recording", total=num)
        recorded = record_uploads(
            landing,
            num,
            seed=seed,
            start=start,
            seconds=seconds,
            faults=fault or (),
            source=source,
            progress=lambda *_: bar.advance(task),
        )
    for upload in recorded:
        planted = f", planted fault: {upload.fault}" if upload.fault else ""
        typer.echo(f"{upload.path}: success {upload.success}{planted}")


def run(
    landing: Annotated[
        str, typer.Option(help="Folder or URL with recordings; without it, simulated ones.")
    ] = "",
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps to train.")] = 60,
) -> None:
    """Record (or take LANDING), ingest, curate, train on two ranks, report."""
    from dyna_assets.demo.path import run_demo
    from dyna_assets.demo.report import as_json, show
    from dyna_assets.progress import listening
    from dyna_train.files import publish

    console = Console()
    with console.status("starting the database") as status:
        workspace = open_workspace()
        with listening(lambda what, done, total: status.update(f"{what}: {done} of {total}")):
            report = run_demo(workspace, landing or None, status.update, steps=steps)
    target = workspace.home.path / "demo_report.json"
    with publish(target) as part:
        part.write_text(json.dumps(as_json(report), indent=2) + "\n", encoding="utf-8")
    show(report, workspace, console)
