"""`dyna-assets quarantine`: what was refused and why, and what a person does about it."""

from __future__ import annotations

import getpass
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dyna_assets.commands.shared import AsJson, find_upload, open_workspace, print_rows, refuse_waiting
from dyna_assets.commands.uploads import landed_now, print_refused, upload_report_of
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
ABOUT_ONE = "all about one of the refused recordings: dyna-assets quarantine explain EPISODE_ID"


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
    """Everything that is wrong with an upload or an episode, and what to do about it.

    Of an upload: which files differ, what was expected and found, and which of its recordings were refused. Of an
    episode: the step that refused it, and every finding of its gates.
    """
    from dyna_assets.look.show import episode_facts

    workspace = open_workspace()
    if any(str(row.id) != name for row in workspace.catalog.find_uploads(name)):
        _print(_of_upload(workspace, find_upload(workspace, name)), as_json)
        return
    if not name.isdecimal():
        refuse_waiting(workspace, name)
    try:
        facts = episode_facts(workspace, name)
    except CurationError as error:
        try:
            find_upload(workspace, name)
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
    from dyna_assets.landing.register import utc_now
    from dyna_assets.stamps import all_versions

    workspace = open_workspace()
    row = find_upload(workspace, name)
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
    from dyna_assets.landing.register import utc_now
    from dyna_assets.stamps import all_versions

    workspace = open_workspace()
    row = find_upload(workspace, name)
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


def _of_upload(workspace: Workspace, row: UploadRow) -> dict[str, Any]:
    from dyna_assets.catalog.registration import RELEASES
    from dyna_assets.landing.quarantine import file_faults

    landed = landed_now(workspace, row)
    report = upload_report_of(workspace, row, landed)
    is_quarantined = row.state == "quarantined"
    name = f"{row.source}: {row.name}"
    faults = [] if landed is None else file_faults(landed)
    return {
        "upload": name,
        "where": row.uri,
        "state": row.state,
        "since": _since(row) if is_quarantined else "",
        "reason": row.reason,
        "released": row.notes.get(RELEASES, []),
        "files": [{"file": path, "expected": expected, "found": there} for path, expected, there in faults],
        "refused": [asdict(line) for line in report.refused],
        "problems": list(report.problems),
        "what to do": WHAT_TO_DO.format(name=name) if is_quarantined else ABOUT_ONE if report.refused else "",
    }


def _of_episode(facts: PageFacts) -> dict[str, Any]:
    return {
        "episode": f"{facts.episode_id}, {facts.where}",
        "state": facts.outcome,
        "reason": "" if facts.failures or facts.findings else facts.headline,
        "steps": [
            {**asdict(failure), "reason": failure.reason.replace(f"{facts.where}: ", "", 1)}
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
                "not checked": ", ".join(gate.unchecked),
            }
            for gate in facts.gates
        ],
        "what to do": _what_to_do(facts),
        "page": f"dyna-assets show {facts.episode_id} --out page.png",
    }


def _what_to_do(facts: PageFacts) -> str:
    """Advice for an episode that is no good; what is wrong with it stands in the reasons themselves."""
    if facts.outcome not in ("reject", "error"):
        return ""
    mend = "mend the recording and upload it under a new name"
    if facts.failures:
        return f"{mend}; after mending a reader or the source's TOML: dyna-assets worker --once"
    return (
        f"{mend}; or, if it is good as it is, change the limits under [gates] of the source's TOML, "
        "then: dyna-assets regate"
    )


def _print(found: dict[str, Any], as_json: bool) -> None:
    """One thing after the other: a table for a list of rows, a line for anything else."""
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for key, value in found.items():
        if key == "refused" and value:
            print_refused(value)
        elif key == "problems":
            typer.echo("".join(f"warning: {problem}\n" for problem in value), nl=False)
        elif isinstance(value, list) and value:
            print_rows(value, as_json, title=key)
        elif value:
            typer.echo(f"{key}: {value}")
