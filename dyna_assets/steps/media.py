"""Step `media`: small pictures and a film of an episode, beside its file in the lake, for people and lists."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dyna_assets.look.facts import EpisodeRows, PageFacts, facts_of
from dyna_assets.look.image import jpeg_within, png_within
from dyna_assets.look.media_kinds import KINDS, media_path
from dyna_assets.look.page import draw_page
from dyna_assets.look.preview import plan_preview, preview_pictures, write_preview
from dyna_assets.look.sheet import contact_sheet
from dyna_assets.quality.evidence import measured_of
from dyna_assets.quality.policy import judge, limits_by
from dyna_assets.steps.work import Row, StepResult
from dyna_train.episode.reader import Episode
from dyna_train.files import put_file

THUMBNAIL_BYTES = 10_000
PAGE_BYTES = 400_000


def make_media(row: Row) -> StepResult:
    """Make all media of the row's episode file, then put them into the lake, where each appears whole.

    Reads the vectors and some GOPs. Raises EpisodeError for a damaged file, of which no medium is kept, and OSError if
    the lake refuses: then no row names those that lie there already, and the next attempt gives them the same names.
    """
    content_hash = row.upstream["episodes"]["content_hash"]
    with tempfile.TemporaryDirectory(prefix="dyna-media-") as scratch:
        with row.open_episode() as episode:
            files = build_media(episode, page_of(row), Path(scratch))
        rows = [_put(row, content_hash, kind, file) for kind, file in files.items()]
    return StepResult(row.episode_id, "ok", rows={"media": rows})


def build_media(episode: Episode, facts: PageFacts, folder: Path) -> dict[str, Path]:
    """Every kind as a file in `folder`."""
    files = {kind: folder / f"{kind}.{suffix}" for kind, (_, suffix) in KINDS.items()}
    plan = plan_preview(episode.num_steps, episode.layout.gop)
    shown = write_preview(files["preview"], preview_pictures(episode, plan), plan.fps)
    files["thumbnail"].write_bytes(jpeg_within(shown[len(shown) // 2], THUMBNAIL_BYTES))
    files["sheet"].write_bytes(contact_sheet(episode))
    files["page"].write_bytes(png_within(draw_page(episode, facts), PAGE_BYTES))
    return files


def page_of(row: Row) -> PageFacts:
    """What the row's page says: its evidence, judged by the row's policy."""
    evidence = row.upstream["qc_evidence"]
    rows = EpisodeRows(
        recording=row.upstream["recordings"],
        episode=row.upstream["episodes"],
        evidence=evidence,
        verdicts=[_verdict(row, kept) for kept in evidence],
        traces=row.upstream["traces"],
    )
    return facts_of(row.episode_id, row.source.name, row.name, rows, limits_by(row.policy, row.source.gates))


def _verdict(row: Row, evidence: Mapping[str, Any]) -> dict[str, Any]:
    gate = evidence["gate"]
    return {
        "gate": gate,
        **asdict(judge(row.policy, row.source.gates, gate, measured_of(evidence["details"]))),
    }


def _put(row: Row, content_hash: str, kind: str, file: Path) -> dict[str, Any]:
    path = media_path(row.shard_key, row.episode_id, content_hash, kind)
    uri = f"{row.settings.lake}/{path}"
    put_file(file, uri, **row.settings.storage_options(uri))
    return {
        "episode_id": row.episode_id,
        "content_hash": content_hash,
        "kind": kind,
        "path": path,
        "size_bytes": file.stat().st_size,
    }
