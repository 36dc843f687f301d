"""The commands that ask the warehouse: curate, status, verdicts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dyna_assets.commands.shared import AsJson, open_workspace, print_rows


def curate(
    name: Annotated[str, typer.Argument(help="Name of the manifest.")],
    where: Annotated[
        str, typer.Option(help="SQL condition over the corpus, e.g. \"source = 'sim' AND success\".")
    ] = "true",
    include_rejected: Annotated[bool, typer.Option(help="Also episodes that a gate rejected.")] = False,
    min_duration_s: Annotated[
        float, typer.Option(min=0.0, help="Shortest episode to take, in seconds.")
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Build a manifest: one query over the newest version of the warehouse's tables."""
    import duckdb

    from dyna_assets.curation.curate import CurationSpec, curate_into_lake
    from dyna_train.config import parse_config

    asked = {"name": name, "where": where, "passed": not include_rejected, "min_duration_s": min_duration_s}
    spec = parse_config(CurationSpec, asked, where="dyna-assets curate")
    workspace = open_workspace()
    with duckdb.connect() as connection:
        made = curate_into_lake(spec, workspace.warehouse, connection, workspace.settings)
    facts = {
        "manifest": made.uri,
        "rows": made.totals.num_rows,
        "steps": made.totals.num_steps,
        "hours": made.hours,
        "rows_without_gop_table": made.num_without_gops,
    }
    print_rows([{**facts, "seconds": round(made.seconds, 3)}], as_json, title=name)


def status(as_json: AsJson = False) -> None:
    """What the warehouse holds, per source: episodes, how much of them was checked, and their size."""
    from dyna_assets.corpus import summarize

    lines = summarize(open_workspace().warehouse)
    if as_json:
        print_rows([asdict(line) for line in lines], as_json, title="corpus")
        return
    episodes = [
        {
            "source": line.source,
            "episodes": f"{line.num_episodes:,}",
            "passed": f"{line.num_passed:,}",
            "of these warned": f"{line.num_warned:,}",
            "checked of all": f"{line.num_checked:,} of {line.num_checks:,}",
        }
        for line in lines
    ]
    sizes = [
        {
            "source": line.source,
            "hours": line.hours,
            "camera minutes": line.camera_minutes,
            "MB landed": line.raw_mb,
            "MB in episodes": line.episode_mb,
        }
        for line in lines
    ]
    print_rows(episodes, as_json, title="corpus")
    if sizes:
        print_rows(sizes, as_json, title="size")


def verdicts(as_json: AsJson = False) -> None:
    """Every upload and episode that was refused, with the reason."""
    from dyna_assets.corpus import rejections

    workspace = open_workspace()
    uploads = [
        {
            "episode_id": "",
            "source": row.source,
            "name": row.name,
            "step": "landing",
            "status": row.state,
            "reason": row.reason,
        }
        for row in workspace.catalog.quarantined()
    ]
    refused = rejections(workspace.warehouse)
    rows = [*uploads, *map(asdict, refused)]
    if as_json:
        print_rows(rows, as_json, title="refused")
        return
    reasons = [row["reason"] for row in uploads] + [row.reasons for row in refused]
    lines = [
        {
            "episode": str(row["episode_id"]),
            "refused": f"{row['status']} in {row['step']}",
            "name": f"{row['source']}: {row['name']}",
            "reason": reason,
        }
        for row, reason in zip(rows, reasons, strict=True)
    ]
    print_rows(lines, as_json, title="refused")
