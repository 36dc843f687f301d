"""A source on a real catalog, and its rows through the real step functions, without Dagster around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bag_samples import write_bag
from hand_samples import write_hand_video, write_poses
from recordings import write_aloha, write_lerobot_v21, write_lerobot_v30, write_mcap
from row_samples import row_of
from tf_records import episode, example, write_records

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.rows import EpisodeRow, UploadRow
from dyna_assets.landing.draft import draft_source
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.register import Registration, recording_name, register_landing
from dyna_assets.settings import Settings
from dyna_assets.steps.attempt import attempt
from dyna_assets.steps.work import Row, StepResult

PATH = ("recordings", "gate_before", "episodes", "gate_after")
SAYS: dict[str, Any] = {"source": "lab", "kind": "teleoperation", "recorded_at": 0}
"""What a commit marker of the source says."""


def hands(root: Path) -> None:
    write_poses(write_hand_video(root, 60).parent, "wide.csv", 60)


WRITERS: dict[str, Callable[[Path], object]] = {
    "mcap": lambda root: write_mcap(root / "a.mcap", 30),
    "aloha": lambda root: write_aloha(root / "a.hdf5", 60),
    "v21": lambda root: write_lerobot_v21(root, [30]),
    "v30": lambda root: write_lerobot_v30(root, [30]),
    "hands": hands,
    "db3": lambda root: write_bag(root, "db3", range(60)),
    "rlds": lambda root: write_records(root / "a.tfrecord", [example(episode(0, 30))]),
}
OPTIONS: dict[str, dict[str, Any]] = {"rlds": {"reader_options": {"rate_hz": 10.0}}}
"""What a draft of the format leaves to a person."""


@dataclass
class Lab:
    """Source 'lab' in `landing`, read without a quiet period, or by markers where there are some."""

    catalog: Catalog
    landing: Path
    lake: Path
    source: SourceProfile
    looked: list[Registration] = field(default_factory=list)

    @classmethod
    def of(cls, catalog: Catalog, landing: Path, lake: Path, **changes: Any) -> Lab:
        """A source drafted from what lies in `landing`; changes: to its profile."""
        drafted = draft_source("lab", str(landing), Folder.of(landing)).profile
        quiet = {} if drafted.quiet_period_s is None else {"quiet_period_s": 0.0}
        return cls(catalog, landing, lake, drafted.model_copy(update={**quiet, **changes}))

    @property
    def settings(self) -> Settings:
        return Settings(lake=str(self.lake))

    def register(self) -> Registration:
        """One look at the landing folder."""
        now = datetime.now(UTC)
        done = register_landing(self.catalog, {"lab": self.source}, self.settings, versions="v1", now=now)
        self.looked.append(done)
        return done

    def refusal(self, name: str = ".") -> str:
        """The reason for which the upload is quarantined, as the catalog has it."""
        (row,) = [row for row in self.uploads() if row.name == name]
        assert row.state == "quarantined"
        return row.reason

    def uploads(self) -> list[UploadRow]:
        return self.catalog.uploads("lab")

    def episodes(self) -> list[EpisodeRow]:
        return [row for upload in self.uploads() for row in self.catalog.upload_episodes(upload.id)]

    def row(self, name: str = "") -> Row:
        """The row of the episode of this name, or of the only one."""
        (episode,) = [row for row in self.episodes() if name in ("", row.name)]
        return row_of(
            self.source,
            self.lake,
            episode_id=episode.id,
            name=episode.name,
            recording_name=recording_name(episode.upload, episode.name),
            files=episode.files,
            size_bytes=episode.size_bytes,
            upload_name=episode.upload,
            upload_uri=episode.upload_uri,
            upload_problem=episode.upload_reason if episode.upload_state == "quarantined" else "",
            marker=episode.marker,
        )

    def through(self, row: Row, until: str = "gate_after") -> dict[str, StepResult]:
        """step -> its result, up to the first that is not ok, or `until`."""
        results: dict[str, StepResult] = {}
        tables: dict[str, Sequence[Mapping[str, Any]]] = {}
        for step in PATH[: PATH.index(until) + 1]:
            results[step] = attempt(step, with_upstream(row, tables))
            tables |= results[step].rows
            if results[step].status != "ok":
                break
        return results

    def rejection(self, name: str = "", until: str = "gate_after") -> str:
        """The step that rejects the row, and why."""
        results = self.through(self.row(name), until)
        step, last = list(results.items())[-1]
        assert last.status == "rejected", (step, last)
        return f"{step}: {last.reason}"


def with_upstream(row: Row, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Row:
    """The row with what earlier steps wrote, as a shard's run hands it on."""
    upstream: dict[str, Any] = {
        table: rows[0] for table, rows in tables.items() if table in ("recordings", "episodes")
    }
    upstream["traces"] = tables.get("traces", [])
    return replace(row, upstream=upstream)
