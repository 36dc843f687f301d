"""`dyna-train manifest` and `recipe`: what training reads, and the small model that shows how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dyna_train.manifest import Manifest
from dyna_train.world import World


def recipe(
    manifest: Annotated[Path, typer.Argument(help="Manifest file that curation wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for metrics, checkpoints and summary; resumes from it.")],
    steps: Annotated[int, typer.Option(help="Optimizer steps, those before a resume included.", min=1)] = 200,
) -> None:
    """Train the small world-action model. More settings: python -m dyna_train.recipe.train CONFIG.toml."""
    from dyna_train.recipe.train import RecipeConfig, train  # torch takes seconds to load

    train(RecipeConfig(manifest=str(manifest), out=str(out), steps=steps), World.from_env())


def manifest(
    file: Annotated[Path, typer.Argument(help="Manifest file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also read every row and compare the hash.")
    ] = False,
) -> None:
    """Say what a manifest holds and where it comes from."""
    opened = Manifest.open(file)
    if verify:
        opened.verify()
    if as_json:
        typer.echo(
            json.dumps({**opened.info.model_dump(mode="json"), **opened.totals.model_dump()}, indent=2)
        )
        return
    Console().print(_summary(opened, verified=verify))


def _summary(manifest: Manifest, *, verified: bool) -> Table:
    info, features = manifest.info, manifest.info.features
    table = Table(title=f"manifest {info.name}".rstrip(), show_header=False, title_justify="left")
    hours = manifest.num_steps / features.rate_hz / 3600
    cameras = ", ".join(f"{name} {camera.width}x{camera.height}" for name, camera in features.cameras.items())
    versions = ", ".join(f"{name} @ {version}" for name, version in info.table_versions.items())
    rows = {
        "rows": f"{manifest.num_rows:,}",
        "steps": f"{manifest.num_steps:,} at {features.rate_hz:g} Hz ({hours:.2f} h)",
        "cameras": cameras or "none",
        "state": f"{len(features.state)} dimensions",
        "action": f"{len(features.action)} dimensions",
        "data sets": ", ".join(manifest.datasets) or "none",
        "tasks": f"{len(manifest.tasks):,}",
        "episode files": info.root,
        "tables": versions or "not recorded",
        "query": info.query or "not recorded",
        "sha256": f"{manifest.sha256} ({'verified' if verified else 'not verified: --verify'})",
    }
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))  # not markup: a query may hold [brackets]
    return table
