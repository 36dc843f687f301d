"""The commands about sources of recordings: probe, add, list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from dyna_assets.commands.shared import AsJson, file_to_write, open_workspace, print_rows

if TYPE_CHECKING:
    from dyna_assets.landing.draft import Draft
    from dyna_assets.landing.recording import TopicInfo

Landing = Annotated[str, typer.Argument(help="Its landing folder or URL, with at least one recording in it.")]


def probe(
    folder: Annotated[str, typer.Argument(help="Folder or URL with recordings of whatever kind.")],
    name: Annotated[str, typer.Option(help="Name of the source; default: the folder's.")] = "",
    out: Annotated[str, typer.Option(help="Write the TOML to this file; must not exist.")] = "",
    as_json: AsJson = False,
) -> None:
    """Look at an unknown folder: what is in it, and a first draft of the source's TOML.

    Needs no installation: nothing is registered, and nothing is written but what --out names.
    """
    from dyna_assets.describe import landing_uri, look_at, source_name
    from dyna_assets.landing.source_toml import render_draft
    from dyna_train.files import publish

    path = file_to_write(out) if out else None
    landing = landing_uri(folder)
    draft = look_at(name or source_name(landing), landing)
    text = render_draft(draft)
    if as_json:
        typer.echo(json.dumps(_as_json(draft), indent=2))
        return
    _show(draft, Console(stderr=True))
    if path is None:
        typer.echo(text, nl=False)
        return
    with publish(path, is_new=True) as part:
        part.write_text(text, encoding="utf-8")
    typer.echo(f"{path}: read it, correct it, and put it into the 'sources' folder of DYNA_HOME")


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
            {"name": s.name, "reader": s.reader, "rate_hz": s.grid.rate_hz, "landing": s.landing}
            for s in sources.values()
        ],
        as_json,
        title="sources",
    )


def _show(draft: Draft, console: Console) -> None:
    profile = draft.profile
    rows = [
        {
            "kind": info.kind,
            "messages": f"{info.num_messages:,}",
            "becomes": _becomes(draft, topic),
            "topic": f"{topic}{_form(info)}",
        }
        for topic, info in draft.topics.items()
    ]
    print_rows(rows, False, title=f"{profile.landing}: {profile.reader}", console=console)
    for note in draft.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)


def _form(info: TopicInfo) -> str:
    """' (640x480 jpeg)', ' ([7] float32)'."""
    size = f"{info.width}x{info.height}" if info.width else f"[{len(info.names)}]" if info.names else ""
    said = " ".join(filter(None, (size, info.encoding)))
    return f" ({said})" if said else ""


def _becomes(draft: Draft, topic: str) -> str:
    """The role a topic gets, by its name in the episode file, or what else becomes of it."""
    profile = draft.profile
    roles = {role.topic: f"{role.role} {role.name}" for role in profile.topic_roles}
    return roles.get(topic) or profile.use_of(topic)


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
