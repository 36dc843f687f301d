"""The command that judges everything again: regate."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dyna_assets.commands.shared import AsJson, open_workspace, print_rows

if TYPE_CHECKING:
    from dyna_assets.quality.regate import Regated


def regate(
    policy: Annotated[
        str,
        typer.Argument(
            help="TOML file of a policy, or the name of one that was applied before ('default' is built in); "
            "without it the active one again, with the sources' present [gates]."
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would change, and write nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge everything again by other limits: no frame is decoded, nothing is measured again.

    The policy becomes the active one. Episodes that it lets through are made by the next pass of the worker;
    manifests stay as they are.
    """
    import uuid

    from dyna_assets.landing.register import utc_now
    from dyna_assets.quality.regate import policy_text
    from dyna_assets.quality.regate import regate as judge_again

    workspace = open_workspace()
    chosen, text = policy_text(workspace.catalog, policy)
    sources = {name: source.gates for name, source in workspace.sources().items()}
    with Console(stderr=True).status(f"judging by {chosen.label}"):
        found = judge_again(
            workspace.catalog,
            workspace.warehouse,
            sources,
            chosen,
            text=text,
            run_id=f"regate-{uuid.uuid4()}",
            now=utc_now(),
            dry_run=dry_run,
        )
    if as_json:
        typer.echo(json.dumps({"regate": {**asdict(found), "dry_run": dry_run}}, indent=2))
    else:
        _show(found, dry_run=dry_run)


def _show(found: Regated, *, dry_run: bool) -> None:
    checks = [
        {
            "check": one.check,
            "checked of all": f"{one.num_checked:,} of {one.num_rows:,}",
            "warned": _change(f"{one.warned_before:,}", f"{one.warned_after:,}"),
            "rejected": _change(f"{one.rejected_before:,}", f"{one.rejected_after:,}"),
        }
        for one in found.checks
    ]
    levels = [
        {
            "verdict": level.level,
            "episodes": _change(f"{level.episodes_before:,}", f"{level.episodes_after:,}"),
            "hours": _change(f"{level.hours_before:,.2f}", f"{level.hours_after:,.2f}"),
        }
        for level in found.levels
    ]
    print_rows(checks, False, title=found.policy)
    print_rows(levels, False, title="episodes")
    written = "would change" if dry_run else "changed"
    typer.echo(
        f"{found.num_changed:,} of {found.num_rows:,} verdicts {written} in {found.seconds:.1f} s: "
        f"{found.num_refused:,} rows rejected now, {found.num_admitted:,} no longer"
    )
    if found.num_admitted and not dry_run:
        typer.echo("Make the episodes that are let through: dyna-assets worker --once")


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"
