"""The command line of the training side: `dyna-train`."""

from __future__ import annotations

import typer

from dyna_train.commands import look
from dyna_train.commands.doctor import doctor, recover, regroup
from dyna_train.commands.plan import plan
from dyna_train.commands.training import manifest, recipe
from dyna_train.program import run_program

app = typer.Typer(help="Manifests, episode files and the recipe that trains on them.", no_args_is_help=True)


app.command()(look.inspect)
app.command("foxglove-layout")(look.foxglove_layout)
app.command()(look.rerun)
app.command()(plan)
app.command()(doctor)
app.command()(recover)
app.command()(regroup)
app.command()(recipe)
app.command()(manifest)


@app.callback()
def _group() -> None:
    """Keeps commands named, however few they are."""


def main() -> None:
    """Entry point of `dyna-train`."""
    run_program(app)


if __name__ == "__main__":
    main()
