"""What the commands share: the workspace, rows as a table or as JSON, and files to write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from dyna_assets.errors import UploadError
from dyna_train.errors import BadInput
from dyna_train.files import local_path

if TYPE_CHECKING:
    from dyna_assets.catalog.rows import UploadRow
    from dyna_assets.workspace import Workspace

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")]
LEAST, MOST_LINES, LONG_WORD = 20, 4, 40
"""How narrow the last column of a table may be, how many lines a row of it may need, and how long a word of it, in
characters, is surely not broken."""
_GAP = 2
_NUMBER = re.compile(r"[-+\d.,]*( (of|→) [-+\d.,]+)?")


def open_workspace() -> Workspace:
    """The workspace of DYNA_HOME; starts the embedded database if it is not running."""
    from dyna_assets.home import Home
    from dyna_assets.workspace import Workspace

    return Workspace.open(Home.from_env())


def find_upload(workspace: Workspace, text: str) -> UploadRow:
    """The upload of this name, id, or 'source: name'.

    Raises UploadError naming those that match, the nearest, or what an upload waits for that is not registered yet.
    """
    from dyna_assets.landing.quarantine import upload_named

    if not workspace.catalog.find_uploads(text):
        refuse_waiting(workspace, text)
    return upload_named(workspace.catalog, text)


def refuse_waiting(workspace: Workspace, text: str) -> None:
    """Raise UploadError with what an upload waits for that lies in its landing folder, and is not registered yet."""
    from dyna_assets.landing.quarantine import what_it_waits_for
    from dyna_assets.landing.register import utc_now

    waits = what_it_waits_for(workspace.sources(), workspace.settings, text, utc_now())
    if waits:
        raise UploadError(waits)


def file_to_write(text: str) -> Path:
    """Where to write, as --out names it. Raises BadInput for a store's address, a folder, or one that is missing."""
    path = local_path(text)
    if path.is_dir():
        raise BadInput(f"{text}: a folder; name a file in it, for example {path / 'NAME'}")
    if not path.parent.is_dir():
        raise BadInput(f"{text}: there is no folder {path.parent}; make it, or name one that is there")
    return path


def print_rows(
    rows: Sequence[Mapping[str, Any]], as_json: bool, *, title: str, console: Console | None = None
) -> None:
    """The rows below `title`, which all have the keys of the first, or as one JSON object under `title`.

    Numbers and names stand whole however narrow the terminal is: only the last column of a table wraps. Where that
    would make it hard to read, each row is a block of lines instead, without those that are empty.
    """
    if as_json:
        typer.echo(json.dumps({title: rows}, indent=2, default=str))
        return
    console = console or Console()
    if not rows:
        console.print(Text(f"{title}: none"))
        return
    console.print(Text(title, style="bold"))
    cells = [{key: _cell(value) for key, value in row.items()} for row in rows]
    for part in [_table(cells)] if _fits(cells, console.width) else map(_block, cells):
        console.print(part)
        console.print()


def _header(key: str) -> Text:
    return Text(key.replace("_", " "))


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return "" if value is None else f"{value:,.3f}" if isinstance(value, float) else str(value)


def _fits(rows: Sequence[Mapping[str, str]], width: int) -> bool:
    """Whether the rows are readable as a table: every column but the last as wide as what is in it.

    The last one wraps between words, so that a name which stands there is not broken either; a long path may be.
    """
    *others, last = rows[0]
    room = width - sum(_GAP + max(cell_len(key), *(_width(row[key]) for row in rows)) for key in others)
    widest = max(_width(row[last]) for row in rows)
    tallest = max(sum(-(-cell_len(line) // max(room, 1)) for line in row[last].splitlines()) for row in rows)
    longest = max(cell_len(word) for row in rows for word in ("", *row[last].split()))
    least = widest if _is_number(rows, last) else max(min(LEAST, widest), min(LONG_WORD, longest))
    return tallest <= MOST_LINES and room >= least


def _width(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)


def _is_number(rows: Sequence[Mapping[str, str]], key: str) -> bool:
    return all(_NUMBER.fullmatch(row[key]) for row in rows)


def _table(rows: Sequence[Mapping[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    last = list(rows[0])[-1]
    for key in rows[0]:
        justify: JustifyMethod = "right" if _is_number(rows, key) else "left"
        table.add_column(_header(key), justify=justify, no_wrap=key != last, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row.values()))  # not as markup: names may hold brackets
    return table


def _block(row: Mapping[str, str]) -> Table:
    """The row as lines of 'key  value'."""
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for key, value in row.items():
        if value:
            grid.add_row(_header(key), Text(value))
    return grid
