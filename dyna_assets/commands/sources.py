"""The commands about sources of recordings: probe, add, list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dyna_assets.commands.shared import AsJson, open_workspace, print_rows

if TYPE_CHECKING:
    from dyna_assets.landing.draft import Draft

Landing = Annotated[str, typer.Argument(help="Its landing folder or URL, with at least one recording in it.")]


def probe(
    folder: Annotated[str, typer.Argument(help="Folder or URL with recordings of whatever kind.")],
    name: Annotated[str, typer.Option(help="Name of the source; default: the folder's.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the TOML to this file; must not exist.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at an unknown folder: what is in it, and a first draft of the source's TOML.

    Needs no installation: nothing is registered, and nothing is written but what --out names.
    """
    from dyna_assets.describe import landing_uri, look_at, source_name
    from dyna_assets.landing.source_toml import render_draft
    from dyna_train.files import publish

    landing = landing_uri(folder)
    draft = look_at(name or source_name(landing), landing)
    text = render_draft(draft)
    if as_json:
        typer.echo(json.dumps(_as_json(draft), indent=2))
        return
    _show(draft, Console(stderr=True))
    if out is None:
        typer.echo(text, nl=False)
        return
    with publish(out, is_new=True) as part:
        part.write_text(text, encoding="utf-8")
    typer.echo(f"{out}: read it, correct it, and put it into the 'sources' folder of DYNA_HOME")


def add(name: Annotated[str, typer.Argument(help="Name of the source.")], landing: Landing) -> None:
    """Draft the source's TOML from the recordings in its landing folder."""
    from dyna_assets.describe import add_source, landing_uri, source_path

    workspace = open_workspace()
    add_source(workspace, name, landing_uri(landing))
    typer.echo(f"{source_path(workspace, name)}: read it, correct it, then run: dyna-assets worker --once")


def list_sources(as_json: AsJson = False) -> None:
    """The sources there are, and where each lands."""
    sources = open_workspace().sources()
    print_rows(
        [
            {"name": s.name, "reader": s.reader, "landing": s.landing, "rate_hz": s.grid.rate_hz}
            for s in sources.values()
        ],
        as_json,
        title="sources",
    )


def _show(draft: Draft, console: Console) -> None:
    profile = draft.profile
    table = Table(title=f"{profile.landing}: {profile.reader}", title_justify="left")
    for column in ("topic", "kind", "encoding", "messages", "becomes"):
        table.add_column(column, justify="right" if column == "messages" else "left")
    for topic, info in draft.topics.items():
        size = f"{info.width}x{info.height} " if info.width else f"[{len(info.names)}] " if info.names else ""
        cells = (topic, info.kind, f"{size}{info.encoding}", f"{info.num_messages:,}", _becomes(draft, topic))
        table.add_row(*map(Text, cells))  # not as markup: names may hold brackets
    console.print(table)
    for note in draft.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)


def _becomes(draft: Draft, topic: str) -> str:
    """The role a topic gets, by its name in the episode file, or what else becomes of it."""
    profile = draft.profile
    for kind, roles in (("camera", profile.cameras), ("state", profile.states), ("action", profile.actions)):
        for role in roles:
            if topic == role.topic:
                return f"{kind} {role.name}"
    return profile.use_of(topic)


def _as_json(draft: Draft) -> dict[str, object]:
    return {
        "source": draft.profile.model_dump(mode="json"),
        "ignored": dict(draft.ignored),
        "notes": list(draft.notes),
        "choose": dict(draft.choose),
        "topics": [
            {
                "topic": topic,
                "kind": info.kind,
                "encoding": info.encoding,
                "num_messages": info.num_messages,
                "becomes": _becomes(draft, topic),
            }
            for topic, info in draft.topics.items()
        ],
    }
