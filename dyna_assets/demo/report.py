"""The demo's report: on the screen for a person, and as JSON for a script."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dyna_assets.demo.path import DemoReport
from dyna_assets.workspace import Workspace

REASONS_SHOWN = 6


def as_json(report: DemoReport) -> dict[str, Any]:
    """Everything the report knows, as plain data."""
    return asdict(report)


def show(report: DemoReport, workspace: Workspace, console: Console) -> None:
    """Print the report."""
    parts: list[RenderableType] = [_figures(report)]
    if report.rejected or report.quarantined:
        parts.append(_refusals(report))
    if report.warnings or report.notes:
        parts.append(_warnings(report))
    parts.append(_next_steps(report, workspace))
    console.print(Panel(Group(*parts), title=f"dyna demo: {report.source}", title_align="left"))


def _figures(report: DemoReport) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    summary, training, manifest = report.summary, report.training, report.manifest
    rejected = {row.episode_id for row in report.rejected}
    if summary is not None and summary.camera_minutes:
        table.add_row(
            "episodes",
            f"{summary.num_episodes + len(rejected - _with_file(report))} in, {summary.num_passed} passed "
            f"({summary.num_warned} of them with a warning), {len(rejected)} rejected, "
            f"{len(report.quarantined)} uploads quarantined",
        )
        table.add_row(
            "storage",
            f"{summary.episode_mb / summary.camera_minutes:.2f} MB per camera-minute, "
            f"raw {summary.raw_mb / summary.camera_minutes:.2f} (measured over {summary.camera_minutes:.1f} "
            f"camera-minutes, {summary.hours:.3f} h)",
        )
    table.add_row(
        "manifest",
        f"{manifest['rows']:,} rows, {manifest['steps']:,} steps, {manifest['build_s']:.2f} s",
    )
    table.add_row(
        "loading and training", f"{training['samples_per_s']:.1f} samples/s on {training['ranks']} ranks"
    )
    table.add_row(
        "loss", f"{training['loss_first']:.4f} -> {training['loss_last']:.4f} in {training['steps']} steps"
    )
    table.add_row("time", ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items()))
    return table


def _with_file(report: DemoReport) -> set[int]:
    """Rejected episodes that have an episode file all the same: the gate after the transform refused them."""
    return {row.episode_id for row in report.rejected if row.step == "gate_after"}


def _refusals(report: DemoReport) -> Table:
    table = Table(title="not in the manifest", title_justify="left", expand=True)
    for column in ("refused", "why"):
        table.add_column(column, overflow="fold")
    for name, reason in list(report.quarantined.items())[:REASONS_SHOWN]:
        table.add_row(f"upload {name}", Text(reason))
    shown = [row for row in report.rejected if not row.is_of_upload]
    for row in shown[:REASONS_SHOWN]:
        table.add_row(row.name, Text(row.reason))
    if len(shown) > REASONS_SHOWN:
        table.add_row("...", f"{len(shown) - REASONS_SHOWN} more: dyna-assets verdicts")
    return table


def _warnings(report: DemoReport) -> Table:
    table = Table("warning", "episodes", title="worth a look", title_justify="left", expand=True)
    table.add_column("for example", overflow="fold")
    for check, num_episodes, reason in report.warnings:
        table.add_row(check, str(num_episodes), Text(reason))
    for note in report.notes:
        table.add_row("source", "", Text(note))
    return table


def _next_steps(report: DemoReport, workspace: Workspace) -> Table:
    table = Table(
        show_header=False, box=None, padding=(0, 2), title="where to look next", title_justify="left"
    )
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_row("the asset graph, with contact sheets", "make ui")
    table.add_row("how the source is read (edit it)", str(workspace.home.sources / f"{report.source}.toml"))
    table.add_row("the episode files, for any MCAP viewer", f"{workspace.lake}/episodes")
    table.add_row("the manifest", f"dyna-train manifest {report.manifest['path']}")
    table.add_row("the training run", report.training["out"])
    table.add_row("this report as JSON", str(workspace.home.path / "demo_report.json"))
    return table
