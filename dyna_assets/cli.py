"""The command line of the asset graph: `dyna-assets`.

Commands import what they need when they run: loading Dagster takes over a second, which `--help` need not pay.
"""

from __future__ import annotations

import typer

from dyna_assets.commands import corpus, demo, labels, quality, quarantine, sources, uploads, worker
from dyna_assets.commands.duplicates import duplicates
from dyna_assets.commands.show import show
from dyna_train.program import run_program

app = typer.Typer(help="From recordings in a landing folder to training manifests.", no_args_is_help=True)
demo_app = typer.Typer(help="The whole path on simulated or on your own recordings.", no_args_is_help=True)
source_app = typer.Typer(help="Sources of recordings.", no_args_is_help=True)
app.add_typer(demo_app, name="demo")
quarantine_app = typer.Typer(help="Uploads that are not read, and why.", no_args_is_help=True)
app.add_typer(source_app, name="source")
app.add_typer(quarantine_app, name="quarantine")

demo_app.command()(demo.record)
demo_app.command()(demo.run)
source_app.command()(sources.probe)
source_app.command()(sources.add)
source_app.command("list")(sources.list_sources)
quarantine_app.command("list")(quarantine.list_quarantined)
quarantine_app.command()(quarantine.explain)
quarantine_app.command()(quarantine.release)
quarantine_app.command()(quarantine.retry)
app.command("worker")(worker.worker)
app.command()(uploads.upload)
app.command()(corpus.curate)
app.command()(corpus.status)
app.command()(corpus.verdicts)
app.command()(quality.regate)
app.command()(labels.drift)
app.command()(duplicates)
app.command()(show)
app.command()(worker.ui)
app.command()(worker.stop)


def main() -> None:
    """Entry point of `dyna-assets`."""
    run_program(app, extra="assets")


if __name__ == "__main__":
    main()
