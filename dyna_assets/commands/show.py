"""`dyna-assets show`: the page of an episode or of a shard, as a picture."""

from __future__ import annotations

from typing import Annotated

import typer

from dyna_assets.commands.shared import file_to_write, open_workspace
from dyna_train.errors import BadInput


def show(
    out: Annotated[
        str, typer.Option(help="Where to write the picture: a .png or .jpg file in a folder that is there.")
    ],
    episode: Annotated[
        str, typer.Argument(help="Id, 'source: upload/recording', or a part of that name that only one has.")
    ] = "",
    shard: Annotated[str, typer.Option(help="Key of a shard instead: a page that ranks its episodes.")] = "",
    worst: Annotated[int, typer.Option(min=1, max=100, help="Episodes on a shard's page.")] = 12,
) -> None:
    """Draw the page of one episode, or of a shard with its worst episodes first.

    An episode that was rejected before a file was made has a page too.
    """
    if bool(episode) == bool(shard):
        raise BadInput("say which: an EPISODE, or --shard KEY (and not both)")
    from dyna_assets.look.image import picture_path, save_picture  # these load duckdb, av and Pillow
    from dyna_assets.look.show import episode_page, shard_page

    path = picture_path(str(file_to_write(out)))
    workspace = open_workspace()
    page = shard_page(workspace, shard, worst) if shard else episode_page(workspace, episode)
    save_picture(page, path)
    typer.echo(str(path))
