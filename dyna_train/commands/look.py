"""`dyna-train inspect`, `foxglove-layout` and `rerun`: look at an episode file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dyna_train.errors import BadInput, MissingExtra

File = Annotated[str, typer.Argument(help="Episode file, a path or a URI.")]


def inspect(
    file: Annotated[str, typer.Argument(help="Episode file or any other MCAP file, a path or a URI.")],
    sheet: Annotated[
        Path | None,
        typer.Option(help="Also draw frames of all cameras and plots of all vectors into this PNG."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Say what an episode file holds, and draw its contact sheet."""
    from dyna_train.episode.reader import Episode  # these load av and Pillow
    from dyna_train.look.report import report
    from dyna_train.look.sheet import write_sheet
    from dyna_train.look.summary import EpisodeSummary, summarize
    from dyna_train.look.summary import as_json as summary_json

    summary = summarize(file)
    if as_json:
        typer.echo(json.dumps(summary_json(summary), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        Console().print(*report(summary), sep="\n")
    if sheet is None:
        return
    if not isinstance(summary, EpisodeSummary):
        raise BadInput(f"{file}: not an episode file; a contact sheet can be drawn of an episode file only")
    with Episode.open(file) as episode:
        write_sheet(episode, summary, sheet)
    if not as_json:
        typer.echo(f"contact sheet: {sheet}")


def foxglove_layout(file: File) -> None:
    """Print a Foxglove layout with all cameras and plots of an episode file; import it in Foxglove."""
    from dyna_train.episode.reader import Episode
    from dyna_train.look.foxglove import foxglove_layout as layout_of

    with Episode.open(file) as episode:
        typer.echo(json.dumps(layout_of(episode.header), indent=2, ensure_ascii=False))


def rerun(
    file: Annotated[str, typer.Argument(help="Episode file, a local path.")],
    save: Annotated[
        Path | None, typer.Option(help="Write a Rerun recording (.rrd) instead of opening the viewer.")
    ] = None,
) -> None:
    """Show all cameras and plots of an episode file in Rerun."""
    from dyna_train.episode.reader import Episode

    try:
        from dyna_train.look.rerun_view import save_recording, show_episode
    except ModuleNotFoundError as error:
        if error.name != "rerun":
            raise
        raise MissingExtra.of("rerun", "view", "showing an episode in Rerun") from error
    if not Path(file).is_file():
        raise BadInput(f"{file}: no such local file; Rerun reads local files, so copy the episode here first")
    with Episode.open(file) as episode:
        if save is None:
            show_episode(episode)
        else:
            save_recording(episode, save)
