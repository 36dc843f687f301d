"""`dyna-train inspect`, `foxglove-layout` and `rerun`: look at an episode file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dyna_train.errors import BadInput, MissingExtra
from dyna_train.files import local_path

if TYPE_CHECKING:
    from dyna_train.episode.reader import Episode

File = Annotated[str, typer.Argument(help="Episode file, a path or a URI.")]


def inspect(
    file: Annotated[str, typer.Argument(help="Episode file or any other MCAP file, a path or a URI.")],
    sheet: Annotated[
        str | None,
        typer.Option(help="Also draw frames of all cameras and plots of all vectors into this PNG."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Say what an episode file holds, and draw its contact sheet."""
    from dyna_train.look.report import report  # these load av
    from dyna_train.look.summary import as_json as summary_json
    from dyna_train.look.summary import summarize

    target = None if sheet is None else _output(sheet, file)
    summary = summarize(file)
    if as_json:
        typer.echo(json.dumps(summary_json(summary), indent=2, allow_nan=False))
    else:
        Console().print(*report(summary), sep="\n")
    if target is None:
        return
    _draw_sheet(file, target)
    if not as_json:
        typer.echo(f"contact sheet: {target}")


def foxglove_layout(file: File) -> None:
    """Print a Foxglove layout with all cameras and plots of an episode file; import it in Foxglove."""
    from dyna_train.look.foxglove import foxglove_layout as layout_of

    with _open(file, "a layout") as episode:
        typer.echo(json.dumps(layout_of(episode.header), indent=2))


def rerun(
    file: Annotated[str, typer.Argument(help="Episode file, a local path.")],
    save: Annotated[
        str | None, typer.Option(help="Write a Rerun recording (.rrd) instead of opening the viewer.")
    ] = None,
) -> None:
    """Show all cameras and plots of an episode file in Rerun."""
    try:
        from dyna_train.look.rerun_view import save_recording, show_episode
    except ModuleNotFoundError as error:
        if error.name != "rerun":
            raise
        raise MissingExtra.of("rerun", "view", "showing an episode in Rerun") from error
    if not os.path.isfile(file):
        raise BadInput(f"{file}: no such local file; Rerun reads local files, so copy the episode here first")
    target = None if save is None else _output(save, file)
    with _open(file, "plots") as episode:
        if target is None:
            show_episode(episode)
        else:
            save_recording(episode, target)


def _draw_sheet(file: str, sheet: Path) -> None:
    from dyna_train.look.sheet import write_sheet  # loads Pillow
    from dyna_train.look.summary import summarize_episode

    with _open(file, "a contact sheet") as episode:
        write_sheet(episode, summarize_episode(episode), sheet)


def _output(text: str, file: str) -> Path:
    """Where to write. Raises BadInput for a store, and for the episode file itself."""
    target = local_path(text)
    if os.path.isfile(target) and os.path.isfile(file) and os.path.samefile(target, file):
        raise BadInput(f"{text}: the episode file itself; name another place to write to")
    return target


def _open(file: str, purpose: str) -> Episode:
    """The episode file; purpose: what needs one, for errors. Raises BadInput for an MCAP file of another kind."""
    from dyna_train.episode.foreign_episode import ForeignEpisode  # these load av
    from dyna_train.episode.open import open_episode
    from dyna_train.episode.reader import Episode

    opened = open_episode(file)
    if isinstance(opened, Episode):
        return opened
    opened.close()
    if isinstance(opened, ForeignEpisode):
        raise BadInput(
            f"{file}: an episode that another tool rewrote; restore its layout first: dyna-train regroup {file}"
        )
    raise BadInput(f"{file}: not an episode file; {purpose} can be made of an episode file only")
