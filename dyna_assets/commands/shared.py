"""What the commands share: the workspace, and rows as a table or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from dyna_assets.workspace import Workspace

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")]


def open_workspace() -> Workspace:
    """The workspace of DYNA_HOME; starts the embedded database if it is not running."""
    from dyna_assets.home import Home
    from dyna_assets.workspace import Workspace

    return Workspace.open(Home.from_env())


def print_rows(rows: list[dict[str, Any]], as_json: bool, *, title: str) -> None:
    """The rows as a table whose columns are the keys of the first, or as one JSON object under `title`."""
    if as_json:
        typer.echo(json.dumps({title: rows}, indent=2, default=str))
        return
    table = Table(title=title, title_justify="left")
    for column in rows[0] if rows else ("nothing",):
        table.add_column(column)
    for row in rows:
        table.add_row(
            *(Text(f"{value:,.3f}" if isinstance(value, float) else str(value)) for value in row.values())
        )
    Console().print(table)
