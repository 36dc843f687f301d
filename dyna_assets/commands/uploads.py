"""`dyna-assets upload`: where everything of an upload went."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dyna_assets.commands.shared import AsJson, find_upload, open_workspace, print_rows
from dyna_assets.errors import UploadError
from dyna_train.program import Exit

if TYPE_CHECKING:
    from dyna_assets.catalog.rows import UploadRow
    from dyna_assets.landing.discover import FoundUpload
    from dyna_assets.landing.file_fates import Fate
    from dyna_assets.landing.report import UploadReport
    from dyna_assets.workspace import Workspace

SHOWN = 20
"""Files, or recordings, of one kind that are listed one by one."""
_BY: dict[Fate, str] = {"recording": "for", "metadata": "by", "ignored": "by", "missing": "named by"}
"""Fate of a file -> how what caused it is named."""


def upload(
    name: Annotated[str, typer.Argument(help="Name, id, or 'source: name' of an upload.")],
    as_json: AsJson = False,
) -> None:
    """Report on an upload: its files, recordings, tasks and topics, and whether counts in equal counts out.

    Exits 1 if it is quarantined, if a recording of it was refused, or if anything of it is unmapped, read by nobody,
    gone, or not accounted for; 2 if there is no such upload, or it is not registered yet. Recordings that wait for a
    worker are no fault.
    """
    workspace = open_workspace()
    row = find_upload(workspace, name)
    report = upload_report_of(workspace, row, landed_now(workspace, row))
    if as_json:
        about = {"upload": f"{row.source}: {row.name}", "state": row.state, "reason": row.reason}
        typer.echo(json.dumps({**about, **asdict(report), "balance": report.balance}, indent=2))
    else:
        _show(row, report)
    if report.problems or row.state == "quarantined":
        raise typer.Exit(Exit.WARNING)


def landed_now(workspace: Workspace, row: UploadRow) -> FoundUpload | None:
    """The upload as it lies in its landing folder now; None if it is not there any more."""
    from dyna_assets.landing.quarantine import find_landed
    from dyna_assets.landing.register import utc_now

    try:
        return find_landed(workspace.source(row.source), workspace.settings, row, utc_now())
    except UploadError:
        return None


def upload_report_of(workspace: Workspace, row: UploadRow, landed: FoundUpload | None) -> UploadReport:
    """The report on an upload; one that is not there any more lacks all its files. landed: see `landed_now`."""
    from dyna_assets.landing.report import read_rows, upload_report
    from dyna_assets.landing.sources import reader_of

    source = workspace.source(row.source)
    episodes = workspace.catalog.upload_episodes(row.id)
    shards = workspace.catalog.upload_shards(row.id)
    return upload_report(
        {} if landed is None else landed.files,
        None if row.marker is None else [file["path"] for file in row.marker["files"]],
        {episode.id: (episode.name, episode.files) for episode in episodes},
        reader_of(source).metadata,
        source.ignore,
        read_rows(workspace.warehouse, shards, [episode.id for episode in episodes]),
    )


def print_refused(refused: Sequence[Mapping[str, Any]]) -> None:
    """Recordings that were refused, by what; the first of them, and how many more there are."""
    print_rows(refused[:SHOWN], False, title="refused")
    if refused[SHOWN:]:
        typer.echo(f"and {len(refused) - SHOWN:,} more: --json lists all of them\n")


def _show(row: UploadRow, report: UploadReport) -> None:
    typer.echo(f"{row.source}: {row.name}: {row.state}{f': {row.reason}' if row.reason else ''}\n")
    print_rows(file_rows(report), False, title="files")
    print_rows(recording_rows(report), False, title="recordings")
    if report.refused:
        print_refused([asdict(line) for line in report.refused])
    if report.tasks:
        tasks = [{"recordings": f"{count:,}", "task": task} for task, count in report.tasks.items()]
        print_rows(tasks, False, title="tasks")
    if report.notes:
        notes = [{"recordings": f"{count:,}", "note": note} for note, count in report.notes.items()]
        print_rows(notes[:SHOWN], False, title="notes")
    if report.topics:
        print_rows(topic_rows(report), False, title="topics")
    else:
        typer.echo(
            f"topics unknown: {'not readable' if report.num_unreadable else 'no recording was read yet'}\n"
        )
    typer.echo(report.balance)
    for problem in report.problems:
        typer.echo(f"warning: {problem}")


def file_rows(report: UploadReport) -> list[dict[str, Any]]:
    """The files by what became of them; one by one while they are few."""
    counts = Counter(line.fate for line in report.files)
    rows: list[dict[str, Any]] = []
    for fate, count in counts.items():
        lines = [line for line in report.files if line.fate == fate]
        if count <= SHOWN:
            rows += [_file(fate, line.size_bytes, line.path, line.by) for line in lines]
        else:
            size_bytes = sum(line.size_bytes for line in lines)
            rows.append(_file(fate, size_bytes, f"{count:,} files, first {lines[0].path}"))
    return rows


def _file(fate: Fate, size_bytes: int, file: str, by: str = "") -> dict[str, Any]:
    why = f" ({_BY[fate]} {by})" if by else ""
    is_measured = fate not in ("marker", "missing")
    return {"fate": fate, "bytes": f"{size_bytes:,}" if is_measured else "", "file": f"{file}{why}"}


def recording_rows(report: UploadReport) -> list[dict[str, Any]]:
    """The recordings by how far they came; the first of each kind one by one."""
    counts = Counter(line.state for line in report.episodes)
    rows: list[dict[str, Any]] = []
    for state, count in counts.items():
        lines = [line for line in report.episodes if line.state == state]
        rows += [
            {"episode": str(line.episode_id), "state": state, "recording": line.name}
            for line in lines[:SHOWN]
        ]
        if count > SHOWN:
            rows.append({"episode": "", "state": state, "recording": f"and {count - SHOWN:,} more"})
    return rows


def topic_rows(report: UploadReport) -> list[dict[str, Any]]:
    """The topics, each with what became of its messages."""
    return [
        {
            "in": f"{line.num_in:,}",
            "use": line.role or line.use,
            "topic, and what became of its messages": f"{line.topic} ({line.kind}): {line.became}",
        }
        for line in report.topics
    ]
