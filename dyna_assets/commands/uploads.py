"""`dyna-assets upload`: where everything of an upload went."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dyna_assets.commands.shared import AsJson, open_workspace, print_rows
from dyna_train.program import Exit

if TYPE_CHECKING:
    from dyna_assets.catalog.rows import UploadRow
    from dyna_assets.landing.report import UploadReport
    from dyna_assets.workspace import Workspace

SHOWN = 20
"""Files, or recordings, of one kind that are listed one by one."""


def upload(
    name: Annotated[str, typer.Argument(help="Name, id, or 'source: name' of an upload.")],
    as_json: AsJson = False,
) -> None:
    """Report on an upload: its files, recordings, tasks and topics, and whether counts in equal counts out.

    Exits 1 if something of it is unmapped, read by nobody, gone, or not accounted for.
    """
    from dyna_assets.landing.quarantine import upload_named

    workspace = open_workspace()
    row = upload_named(workspace.catalog, name)
    report = _report(workspace, row)
    if as_json:
        about = {"upload": f"{row.source}: {row.name}", "state": row.state, "reason": row.reason}
        typer.echo(json.dumps({**about, **asdict(report), "balance": report.balance}, indent=2))
    else:
        _show(row, report)
    if report.problems or row.state == "quarantined":
        raise typer.Exit(Exit.WARNING)


def _report(workspace: Workspace, row: UploadRow) -> UploadReport:
    from dyna_assets.landing.quarantine import find_landed
    from dyna_assets.landing.register import utc_now
    from dyna_assets.landing.report import read_rows, upload_report
    from dyna_assets.landing.sources import reader_of

    source = workspace.source(row.source)
    landed = find_landed(source, workspace.settings, row, utc_now())
    episodes = workspace.catalog.upload_episodes(row.id)
    shards = workspace.catalog.upload_shards(row.id)
    listed = None if row.marker is None else [file["path"] for file in row.marker["files"]]
    return upload_report(
        landed.files,
        listed,
        {episode.id: (episode.name, episode.files) for episode in episodes},
        reader_of(source).metadata,
        source.ignore,
        read_rows(workspace.warehouse, shards, [episode.id for episode in episodes]),
    )


def _show(row: UploadRow, report: UploadReport) -> None:
    typer.echo(f"{row.source}: {row.name}: {row.state}{f': {row.reason}' if row.reason else ''}")
    print_rows(_files(report), False, title="files")
    print_rows(_episodes(report), False, title="recordings")
    if report.tasks:
        tasks = [{"task": task, "recordings": count} for task, count in report.tasks.items()]
        print_rows(tasks, False, title="tasks")
    print_rows(_topics(report), False, title="topics")
    typer.echo(report.balance)
    for problem in report.problems:
        typer.echo(f"warning: {problem}")


def _files(report: UploadReport) -> list[dict[str, Any]]:
    """The files by what became of them; one by one while they are few."""
    counts = Counter(line.fate for line in report.files)
    rows: list[dict[str, Any]] = []
    for fate, count in counts.items():
        lines = [line for line in report.files if line.fate == fate]
        if count <= SHOWN:
            rows += [
                {"fate": fate, "file": line.path, "bytes": f"{line.size_bytes:,}", "by": line.by}
                for line in lines
            ]
        else:
            first = f"{count:,} files, first {lines[0].path}"
            rows.append(_file(fate, first, sum(line.size_bytes for line in lines)))
    return rows


def _file(fate: str, file: str, size_bytes: int, by: str = "") -> dict[str, Any]:
    return {"fate": fate, "file": file, "bytes": f"{size_bytes:,}", "by": by}


def _episodes(report: UploadReport) -> list[dict[str, Any]]:
    counts = Counter(line.state for line in report.episodes)
    rows: list[dict[str, Any]] = []
    for state, count in counts.items():
        lines = [line for line in report.episodes if line.state == state]
        rows += [
            {"episode": str(line.episode_id), "name": line.name, "state": state, "reason": line.reason}
            for line in lines[:SHOWN]
        ]
        if count > SHOWN:
            more = f"and {count - SHOWN:,} more"
            rows.append({"episode": "", "name": more, "state": state, "reason": ""})
    return rows


def _topics(report: UploadReport) -> list[dict[str, Any]]:
    return [
        {
            "topic": line.topic,
            "kind": line.kind,
            "use": line.role or line.use,
            "in": f"{line.num_in:,}",
            "used": f"{line.num_used:,}",
            "outside": f"{line.num_outside:,}",
            "surplus": f"{line.num_surplus:,}",
            "left out": f"{line.num_left_out:,}",
            "not made": f"{line.num_unmade:,}",
            "": "" if line.num_in == line.num_out else "?",
        }
        for line in report.topics
    ]
