"""The commands that look at episode files from outside: doctor, recover, regroup."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from dyna_train.files import local_path
from dyna_train.program import Exit

if TYPE_CHECKING:
    from dyna_train.doctor.rewrite import Rewritten

Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")]
Out = Annotated[str | None, typer.Option(help="Where to write; must not exist. Default: beside the file.")]


def doctor(
    files: Annotated[list[str], typer.Argument(help="Episode files, or their addresses in a store.")],
    as_json: Json = False,
) -> None:
    """Check that episode files keep every promise of their profile: one line for each fault.

    Exits 0 if they do, 1 with warnings only, 2 with faults.
    """
    from dyna_train.doctor.report import Report, examine  # loads av, to decode

    reports: list[Report] = []
    for file in files:
        reports.append(examine(file))
        for line in () if as_json else reports[-1].lines():
            typer.echo(line)
    if as_json:
        typer.echo(json.dumps({"files": [report.to_dict() for report in reports]}, indent=2))
    levels = {report.level for report in reports}
    if "fault" in levels:
        raise typer.Exit(Exit.FAILURE)
    if "warning" in levels:
        raise typer.Exit(Exit.WARNING)


def recover(
    file: Annotated[str, typer.Argument(help="An episode file that was cut short or damaged.")],
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Save every whole chunk of a damaged episode file in a new one, and say what was lost.

    Exits 0 if nothing was lost, 1 if something was, 2 if nothing could be saved.
    """
    from dyna_train.doctor import recover as recovery  # loads av

    done = recovery.recover(file, local_path(out) if out is not None else None)
    _show(done, as_json)
    if not done.is_whole:
        raise typer.Exit(Exit.WARNING)


def regroup(
    file: Annotated[str, typer.Argument(help="An episode file that another tool rewrote.")],
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Restore the layout of an episode file that another tool rewrote; frames and values stay as they are.

    Exits 0, or 1 if something has no place in an episode file and was left out.
    """
    from dyna_train.doctor import regroup as regrouping  # loads av

    done = regrouping.regroup(file, local_path(out) if out is not None else None)
    _show(done, as_json)
    if done.dropped:
        raise typer.Exit(Exit.WARNING)


def _show(done: Rewritten, as_json: bool) -> None:
    """What was written, as one JSON object or in lines."""
    if as_json:
        typer.echo(json.dumps(done.to_dict(), indent=2))
        return
    for line in done.lines():
        typer.echo(line)
