"""The command line of the asset graph: `dyna-assets`.

Commands import what they need when they run: loading Dagster takes over a second, which `--help` need not pay.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dyna_train.program import Exit, run_program

app = typer.Typer(help="From recordings in a landing folder to training manifests.", no_args_is_help=True)
demo_app = typer.Typer(help="The whole path on simulated or on your own recordings.", no_args_is_help=True)
source_app = typer.Typer(help="Sources of recordings.", no_args_is_help=True)
app.add_typer(demo_app, name="demo")
app.add_typer(source_app, name="source")

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")]


def _workspace() -> Any:
    from dyna_assets.home import Home
    from dyna_assets.workspace import Workspace

    return Workspace.open(Home.from_env())


@demo_app.command("record")
def demo_record(
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


@demo_app.command("run")
def demo_run(
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
        workspace = _workspace()
        with listening(lambda what, done, total: status.update(f"{what}: {done} of {total}")):
            report = run_demo(workspace, landing or None, status.update, steps=steps)
    target = workspace.home.path / "demo_report.json"
    with publish(target) as part:
        part.write_text(json.dumps(as_json(report), indent=2) + "\n", encoding="utf-8")
    show(report, workspace, console)


@source_app.command("add")
def source_add(
    name: Annotated[str, typer.Argument(help="Name of the source.")],
    landing: Annotated[
        str, typer.Argument(help="Its landing folder or URL, with at least one recording in it.")
    ],
) -> None:
    """Draft the source's TOML from the recordings in its landing folder."""
    from dyna_assets.describe import add_source, landing_uri, source_path

    workspace = _workspace()
    add_source(workspace, name, landing_uri(landing))
    typer.echo(f"{source_path(workspace, name)}: read it, correct it, then run: dyna-assets worker --once")


@source_app.command("list")
def source_list(as_json: AsJson = False) -> None:
    """The sources there are, and where each lands."""
    sources = _workspace().sources()
    _print(
        [
            {"name": s.name, "reader": s.reader, "landing": s.landing, "rate_hz": s.grid.rate_hz}
            for s in sources.values()
        ],
        as_json,
        title="sources",
    )


@app.command()
def worker(
    profile: Annotated[str, typer.Option(help="Run profile.")] = "ingest_online",
    once: Annotated[bool, typer.Option("--once", help="One pass, then end.")] = False,
    interval_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds between looks at the landing folders.")
    ] = 1.0,
) -> None:
    """Take what landed and run the shards that are due, in this process."""
    import time

    from dyna_assets.definitions import build
    from dyna_assets.instance import open_instance, prepare_instance
    from dyna_assets.worker import drain

    workspace = _workspace()
    prepare_instance(workspace.home, workspace.database_url, workers=workspace.settings.workers)
    definitions = build(workspace.home)
    with open_instance(workspace.home) as instance:
        while True:
            done = drain(workspace, instance, definitions, profile, retry_given_up=once)
            code = _say_what_was_done(workspace, done)
            if once:
                raise typer.Exit(code)
            time.sleep(interval_s)


def _say_what_was_done(workspace: Any, done: Any) -> Exit:
    """Print what one pass of the worker did; the exit code it deserves."""
    from dyna_assets.corpus import rejections

    found = done.registration
    for upload, count in found.registered.items():
        typer.echo(f"registered {upload}: {count} new or changed episodes")
    for title, lines in (
        ("quarantined", found.quarantined),
        ("waiting", found.arriving),
        ("not read", found.ignored),
        ("unreachable", found.unreachable),
        ("failed", done.failed),
    ):
        for name, reason in lines.items():
            typer.echo(f"{title}: {name}: {reason}")
    refused = (
        [row for row in rejections(workspace.warehouse) if row.run_id in done.run_ids] if done.run_ids else []
    )
    for row in refused:
        typer.echo(f"{row.status}: {row.source}: {row.name}: {row.reason}")
    for key in done.succeeded:
        typer.echo(f"{key}: done")
    for key in done.given_up:
        typer.echo(f"{key}: failed too often; mend the cause, then: dyna-assets worker --once")
    if done.failed or done.given_up or found.unreachable:
        return Exit.FAILURE
    return Exit.WARNING if refused or found.quarantined else Exit.OK


@app.command()
def curate(
    name: Annotated[str, typer.Argument(help="Name of the manifest.")],
    where: Annotated[
        str, typer.Option(help="SQL condition over the corpus, e.g. \"source = 'sim' AND success\".")
    ] = "true",
    include_rejected: Annotated[bool, typer.Option(help="Also episodes that a gate rejected.")] = False,
    min_duration_s: Annotated[
        float, typer.Option(min=0.0, help="Shortest episode to take, in seconds.")
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Build a manifest: one query over the newest version of the warehouse's tables."""
    import duckdb

    from dyna_assets.curation.curate import CurationSpec, curate_into_lake
    from dyna_train.config import parse_config

    asked = {"name": name, "where": where, "passed": not include_rejected, "min_duration_s": min_duration_s}
    spec = parse_config(CurationSpec, asked, where="dyna-assets curate")
    workspace = _workspace()
    with duckdb.connect() as connection:
        made = curate_into_lake(spec, workspace.warehouse, connection, workspace.settings)
    facts = {
        "manifest": made.uri,
        "rows": made.totals.num_rows,
        "steps": made.totals.num_steps,
        "hours": made.hours,
        "rows_without_gop_table": made.num_without_gops,
    }
    _print([{**facts, "seconds": round(made.seconds, 3)}], as_json, title=name)


@app.command()
def status(as_json: AsJson = False) -> None:
    """What the warehouse holds, per source."""
    from dyna_assets.corpus import summarize

    _print([asdict(line) for line in summarize(_workspace().warehouse)], as_json, title="corpus")


@app.command()
def verdicts(as_json: AsJson = False) -> None:
    """Every upload and episode that was refused, with the reason."""
    from dyna_assets.corpus import rejections

    workspace = _workspace()
    uploads = [
        {
            "episode_id": "",
            "source": row.source,
            "name": row.name,
            "step": "landing",
            "status": row.state,
            "reason": row.reason,
        }
        for row in workspace.catalog.quarantined()
    ]
    _print([*uploads, *(asdict(row) for row in rejections(workspace.warehouse))], as_json, title="refused")


@app.command()
def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web server.")] = 3000,
    workspace_file: Annotated[
        Path | None, typer.Option("--workspace", help="A Dagster workspace.yaml.")
    ] = None,
) -> None:
    """Open Dagster on this DYNA_HOME: lineage, launches, metadata."""
    from dyna_assets.ui import serve

    serve(_workspace(), port=port, workspace_file=workspace_file)


@app.command()
def stop() -> None:
    """Stop the embedded database of this DYNA_HOME."""
    from dyna_assets.catalog.server import stop_server
    from dyna_assets.home import Home

    typer.echo("stopped" if stop_server(Home.from_env()) else "was not running")


def _print(rows: list[dict[str, Any]], as_json: bool, *, title: str) -> None:
    if as_json:
        typer.echo(json.dumps({title: rows}, indent=2, default=str))
        return
    table = Table(title=title, title_justify="left")
    for column in rows[0] if rows else ("nothing",):
        table.add_column(column)
    for row in rows:
        table.add_row(
            *(f"{value:,.3f}" if isinstance(value, float) else str(value) for value in row.values())
        )
    Console().print(table)


def main() -> None:
    """Entry point of `dyna-assets`."""
    run_program(app, extra="assets")


if __name__ == "__main__":
    main()
