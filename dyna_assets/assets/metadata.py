"""What a person sees of a materialization in Dagster's UI."""

from __future__ import annotations

import base64
from typing import Any

import dagster as dg

from dyna_assets.lake import episode_uri, open_episode
from dyna_assets.look.gather import shard_facts
from dyna_assets.look.image import webp_within
from dyna_assets.look.shard_page import NARROW, draw_shard_page
from dyna_assets.look.sheet import contact_sheet
from dyna_assets.look.show import opener
from dyna_assets.quality.policy import limits_in_force
from dyna_assets.settings import Settings
from dyna_assets.shard_run import ShardRun, StepSummary
from dyna_train.errors import DynaError

ROWS_SHOWN = 50
WORST_SHOWN = 5
PICTURE_BYTES = 36_000
"""48 kB in base64: metadata is stored in the event log and travels with every listing of it."""


def summary_metadata(summary: StepSummary) -> dict[str, Any]:
    """Counts of rows, the time they took, and every row that did not pass with its reason."""
    metadata: dict[str, Any] = {
        "num_rows": summary.num_rows,
        "num_done": summary.num_ok,
        "num_current_before": summary.num_rows - summary.num_due,
        "num_rejected": summary.num_rejected,
        "num_errors": summary.num_errors,
        "highest_episode_id": summary.highest_episode_id,
        "seconds": round(summary.seconds, 3),
    }
    if summary.reasons:
        records = [
            dg.TableRecord({"recording": name, "reason": why}) for name, why in summary.reasons[:ROWS_SHOWN]
        ]
        metadata["not_passed"] = dg.MetadataValue.table(records)
    return metadata


def episode_metadata(run: ShardRun) -> dict[str, Any]:
    """The shard's episode files: a table, the storage per camera-minute, links, one contact sheet."""
    rows = run.warehouse.current("episodes", run.shard.number)
    if not rows:
        return {}
    rows.sort(key=lambda row: (-row["seq"], row["episode_id"]))  # what was made now comes first
    minutes = sum(len(row["cameras"]) * row["duration_s"] / 60 for row in rows)
    records = [
        dg.TableRecord(
            {
                "episode_id": row["episode_id"],
                "recording": row["name"],
                "seconds": round(row["duration_s"], 2),
                "cameras": ", ".join(row["cameras"]),
                "MB": round(row["size_bytes"] / 1e6, 3),
                "raw_MB": round(row["raw_bytes"] / 1e6, 3),
            }
        )
        for row in rows[:ROWS_SHOWN]
    ]
    first = rows[0]
    place = (run.settings, run.shard.key, first["episode_id"], first["content_hash"])
    folder = f"{run.settings.lake}/episodes/{run.shard.key}"
    return {
        "episodes": dg.MetadataValue.table(records),
        "hours": sum(row["duration_s"] for row in rows) / 3600,
        "mb_per_camera_minute": sum(row["size_bytes"] for row in rows) / 1e6 / minutes if minutes else 0.0,
        "folder": _link(folder),
        "example_file": _link(episode_uri(*place)),
        "contact_sheet": dg.MetadataValue.md(_sheet(*place)),
    }


def shard_page_metadata(run: ShardRun) -> dict[str, Any]:
    """How the shard's episodes stand, and its worst ones, as a picture in Markdown."""
    limits_of = limits_in_force(run.catalog.active_policy(), run.sources)
    facts = shard_facts(run.warehouse, run.shard.number, limits_of, most=WORST_SHOWN)
    try:
        picture = webp_within(draw_shard_page(facts, opener(run.settings), NARROW), PICTURE_BYTES)
        text = _picture("worst episodes", "webp", picture)
    except (DynaError, OSError) as error:
        text = f"no picture: {error}"
    return {"worst_episodes": dg.MetadataValue.md(text)}


def _link(uri: str) -> dg.MetadataValue[Any]:
    return dg.MetadataValue.url(uri) if "://" in uri else dg.MetadataValue.path(uri)


def _sheet(settings: Settings, shard_key: str, episode_id: int, content_hash: str) -> str:
    """One episode's contact sheet as Markdown that carries its picture, or why there is none."""
    try:
        with open_episode(settings, shard_key, episode_id, content_hash) as episode:
            jpeg = contact_sheet(episode)
    except (DynaError, OSError) as error:  # the gate after has to say so of the row; a picture must not
        return f"no contact sheet: {error}"
    return _picture("contact sheet", "jpeg", jpeg)


def _picture(name: str, kind: str, data: bytes) -> str:
    return f"![{name}](data:image/{kind};base64,{base64.b64encode(data).decode()})"
