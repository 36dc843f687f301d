"""`dyna-assets quarantine`: what was refused and why, and what a person does about it."""

from __future__ import annotations

import getpass
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dyna_assets.commands.shared import AsJson, open_workspace, print_rows
from dyna_assets.errors import CurationError, UploadError
from dyna_train.program import Exit

if TYPE_CHECKING:
    from dyna_assets.catalog.rows import UploadRow
    from dyna_assets.look.facts import PageFacts
    from dyna_assets.workspace import Workspace

Upload = Annotated[str, typer.Argument(help="Name, id, or 'source: name' of an upload.")]
NEXT = "Its rows are due: the next pass of a worker, or `dyna-assets worker --once`, does them"
WHAT_TO_DO = (
    "mend what is wrong and it is looked at anew by itself; after mending a reader or a source's TOML: "
    "dyna-assets quarantine retry '{name}'; if the upload is good as it is: "
    "dyna-assets quarantine release '{name}' --reason TEXT"
)


def list_quarantined(as_json: AsJson = False) -> None:
    """Every upload that cannot be used, since when, and why."""
    rows = [
        {"source": row.source, "upload": row.name, "since": _since(row), "reason": row.reason}
        for row in open_workspace().catalog.quarantined()
    ]
    print_rows(rows, as_json, title="quarantine")


def explain(
    name: Annotated[str, typer.Argument(help="An upload by its name, or an episode by its name or id.")],
    as_json: AsJson = False,
) -> None:
    """The whole reason: which files differ, what was expected and found, and what to do.

    Of an episode: the step that refused it, and every finding of its gates.
    """
    workspace = open_workspace()
    if any(str(row.id) != name for row in workspace.catalog.find_uploads(name)):
        _print(_of_upload(workspace, name), as_json)
        return
    try:
        facts = _episode_facts(workspace, name)
    except CurationError as error:
        from dyna_assets.landing.quarantine import upload_named

        try:
            upload_named(workspace.catalog, name)
        except UploadError as also:
            raise UploadError(f"{also}; and {error}") from None
        raise
    _print(_of_episode(facts), as_json)


def release(
    name: Upload,
    reason: Annotated[str, typer.Option(help="Why the upload is good as it is; kept with your name.")],
    by: Annotated[str, typer.Option(help="Who says so; default: who is logged in.")] = "",
) -> None:
    """Overrule a quarantine: the upload is registered as it lies there now."""
    from dyna_assets.landing.quarantine import release as overrule
    from dyna_assets.landing.quarantine import upload_named
    from dyna_assets.landing.register import utc_now
    from dyna_assets.stamps import all_versions

    workspace = open_workspace()
    row = upload_named(workspace.catalog, name)
    registered = overrule(
        workspace.catalog,
        workspace.source(row.source),
        workspace.settings,
        row,
        by=by or getpass.getuser(),
        reason=reason,
        versions=all_versions(),
        now=utc_now(),
    )
    changed = registered.num_new_episodes + registered.num_changed_episodes
    typer.echo(f"released {row.source}: {row.name}: {changed} new or changed episodes. {NEXT}")


def retry(name: Upload) -> None:
    """Look at a quarantined upload anew, at its hashes too. Exit code 1 if it is still wrong."""
    from dyna_assets.landing.quarantine import retry as look_again
    from dyna_assets.landing.quarantine import upload_named
    from dyna_assets.landing.register import utc_now
    from dyna_assets.stamps import all_versions

    workspace = open_workspace()
    row = upload_named(workspace.catalog, name)
    source = workspace.source(row.source)
    done = look_again(
        workspace.catalog, source, workspace.settings, row, versions=all_versions(), now=utc_now()
    )
    for upload, reason in done.quarantined.items():
        typer.echo(f"still quarantined: {upload}: {reason}")
    for upload, count in done.registered.items():
        typer.echo(f"registered {upload}: {count} new or changed episodes. {NEXT}")
    for note in done.notes:
        typer.echo(f"note: {note}")
    if done.quarantined:
        raise typer.Exit(Exit.WARNING)


def _since(row: UploadRow) -> str:
    from dyna_assets.catalog.quarantine import SINCE

    return str(row.notes.get(SINCE) or row.registered_at.isoformat())[:19].replace("T", " ")


def _of_upload(workspace: Workspace, name: str) -> dict[str, Any]:
    from dyna_assets.catalog.quarantine import RELEASES
    from dyna_assets.landing.quarantine import file_faults, find_landed, upload_named
    from dyna_assets.landing.register import utc_now

    row = upload_named(workspace.catalog, name)
    found: dict[str, Any] = {
        "upload": f"{row.source}: {row.name}",
        "where": row.uri,
        "state": row.state,
        "since": _since(row) if row.state == "quarantined" else "",
        "reason": row.reason,
        "released": row.notes.get(RELEASES, []),
        "files": [],
    }
    try:
        landed = find_landed(workspace.source(row.source), workspace.settings, row, utc_now())
        found["files"] = [
            {"file": path, "expected": expected, "found": there}
            for path, expected, there in file_faults(landed)
        ]
    except UploadError as error:
        found["now"] = str(error)
    if row.state == "quarantined":
        found["what to do"] = WHAT_TO_DO.format(name=f"{row.source}: {row.name}")
    return found


def _episode_facts(workspace: Workspace, text: str) -> PageFacts:
    from dyna_assets.look.find import find_episode
    from dyna_assets.look.gather import page_facts
    from dyna_assets.look.limits import limits_of_sources
    from dyna_assets.quality.policy import policy_in_force

    policy = policy_in_force(workspace.catalog.active_policy())
    number = find_episode(workspace.warehouse, text)
    return page_facts(workspace.warehouse, number, limits_of_sources(policy, workspace.sources()))


def _of_episode(facts: PageFacts) -> dict[str, Any]:
    return {
        "episode": f"{facts.episode_id}, {facts.where}",
        "state": facts.outcome,
        "reason": facts.headline,
        "steps": [
            {"step": failure.step, "status": failure.status, "reason": failure.reason}
            for failure in facts.failures
        ],
        "findings": [
            {
                "check": finding.check,
                "verdict": finding.severity,
                "subject": finding.subject,
                "measured": finding.measured,
                "note": finding.note,
            }
            for finding in facts.findings
        ],
        "gates": [
            {
                "gate": gate.gate,
                "policy": gate.policy,
                "verdict": gate.verdict,
                "checked": f"{gate.num_checked} of {gate.num_checks}",
            }
            for gate in facts.gates
        ],
        "what to do": "mend the recording and upload it under a new name; or change the limits under [gates] of the "
        "source's TOML and run: dyna-assets regate. Its page: dyna-assets show "
        f"{facts.episode_id} --out page.png",
    }


def _print(found: dict[str, Any], as_json: bool) -> None:
    """One thing after the other: a table for a list, a line for anything else."""
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for key, value in found.items():
        if isinstance(value, list) and value:
            print_rows(value, as_json, title=key)
        elif value:
            typer.echo(f"{key}: {value}")
