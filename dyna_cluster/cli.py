"""The command line of the cluster side: `dyna-cluster`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dyna_cluster.launch import launch as launch_job
from dyna_train.program import run_program

app = typer.Typer(help="Keep training jobs running on the nodes they have.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps commands named, however few they are."""


@app.command()
def launch(
    argv: Annotated[list[str], typer.Argument(help="After --: a script or -m MODULE, and its arguments.")],
    ranks: Annotated[int, typer.Option(help="Processes on this node.", min=1)],
    max_restarts: Annotated[int, typer.Option(help="Starts after the first one.", min=0)] = 2,
    progress: Annotated[
        Path | None,
        typer.Option(help="Folder of checkpoints; a failed job that left a new one restarts."),
    ] = None,
) -> None:
    """Run a job with torchrun; restart it after a failure as long as it wrote a newer checkpoint."""
    end = launch_job(argv, ranks=ranks, max_restarts=max_restarts, progress=progress)
    if end.interrupted_by:
        raise typer.Exit(128 + end.interrupted_by)


def main() -> None:
    """Entry point of `dyna-cluster`."""
    run_program(app)


if __name__ == "__main__":
    main()
