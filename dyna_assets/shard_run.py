"""One materialization of a shard: which rows are due, doing them, and writing down the outcome.

Knows nothing of Dagster. A step's function gets one row and returns one result; nothing about a single
episode leaves it as an exception. What does leave is infrastructure: it fails the run, which is retried.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from dyna_assets import __version__
from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.rows import EpisodeRow, ShardRow
from dyna_assets.errors import UploadError
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.register import recording_name
from dyna_assets.landing.upload import UploadMarker, verify_hashes
from dyna_assets.profiles import RunProfile
from dyna_assets.progress import report
from dyna_assets.settings import Settings
from dyna_assets.stamps import (
    SCHEMA_VERSION,
    STEPS,
    Stamp,
    Step,
    fingerprint,
    is_done,
    is_due,
    wanted_fingerprints,
)
from dyna_assets.steps.attempt import attempt
from dyna_assets.steps.work import Row, StepResult
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import TABLES, VERSION_STAMPS

WRITES: dict[str, tuple[str, ...]] = {
    "recordings": ("recordings",),
    "gate_before": ("qc_verdicts",),
    "episodes": ("episodes",),
    "gate_after": ("qc_verdicts",),
    "labels": ("labels",),
}
"""step -> tables it appends to, besides version_stamps."""
LIGHT = {"gate_before", "labels"}
"""Steps that only look at rows: not worth a process."""


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What a step did to a shard; counts are rows. `failed` = rejected or error, over all rows of the shard."""

    step: str
    num_rows: int
    num_due: int
    num_ok: int
    num_rejected: int
    num_errors: int
    failed: int
    highest_episode_id: int
    seconds: float
    reasons: tuple[tuple[str, str], ...] = ()
    """(recording, reason) of the rows that were rejected or failed in this run."""


@dataclass(frozen=True, slots=True)
class VerifiedUploads:
    """Uploads of the shard, those whose hashes were verified now, and why the others were quarantined."""

    num_uploads: int
    num_verified: int
    quarantined: tuple[str, ...]


@dataclass
class ShardRun:
    """The materialization `seq` of one shard, held by one run at a time (under the shard's lock)."""

    catalog: Catalog
    warehouse: Warehouse
    sources: Mapping[str, SourceProfile]
    profile: RunProfile
    shard: ShardRow
    seq: int
    settings: Settings
    run_id: str

    def run(self, name: str) -> StepSummary:
        """Do `name` for every row of the shard for which it is due, and append the outcome."""
        began = time.perf_counter()
        step = STEPS[name]
        episodes = self.catalog.shard_episodes(self.shard.key)
        stamps = self._stamps()
        due = [
            episode
            for episode in episodes
            if is_due(
                step,
                stamps.get(episode.id, {}),
                wanted=self._wanted[episode.source],
                input_hash=episode.input_hash,
                redo=self.profile.redo,
            )
        ]
        results = []
        for result in self._results(name, self._rows(step, due)):
            results.append(result)
            report(name, len(results), len(due))
        self._append(step, due, results, stamps)
        return self._summary(step, episodes, due, results, stamps, time.perf_counter() - began)

    def verify_uploads(self) -> VerifiedUploads:
        """Check the hashes of committed uploads that bring rows nobody has probed yet; quarantine what differs.

        The upload's rows are then rejected by the probe, and the other uploads go on.
        """
        stamps = self._stamps()
        episodes = self.catalog.shard_episodes(self.shard.key)
        fresh = {
            row.upload_id: row for row in episodes if not is_done(stamps.get(row.id, {}).get("recordings"))
        }
        quarantined, num_verified = [], 0
        for row in fresh.values():
            if row.marker is None or row.upload_state == "quarantined":
                continue
            folder = Folder.of(row.upload_uri, **self.settings.storage_options(row.upload_uri))
            try:
                verify_hashes(folder, UploadMarker.model_validate(row.marker))
                num_verified += 1
            except UploadError as error:
                self.catalog.reject_upload(row.upload_id, reason=str(error))
                quarantined.append(f"{row.source}: {row.upload}: {error}")
        return VerifiedUploads(len({row.upload_id for row in episodes}), num_verified, tuple(quarantined))

    def settle(self) -> None:
        """Tell the catalog that all rows the shard had when this run began went through every critical step."""
        self.catalog.settle(self.shard.key, self.shard.revision)

    def _stamps(self) -> dict[int, dict[str, Stamp]]:
        """episode -> step -> its current stamp."""
        found: dict[int, dict[str, Stamp]] = {}
        shard = self.shard.number
        for row in self.warehouse.current("version_stamps", shard, key="episode_id, step"):
            stamp = Stamp(
                *(row[key] for key in ("episode_id", "step", "fingerprint", "input_hash", "status"))
            )
            found.setdefault(stamp.episode_id, {})[stamp.step] = stamp
        return found

    @cached_property
    def _settings(self) -> dict[str, dict[str, Any]]:
        return {name: source.model_dump(mode="json") for name, source in self.sources.items()}

    @cached_property
    def _wanted(self) -> dict[str, dict[str, str]]:
        """source -> step -> the fingerprint that makes a row current."""
        return {name: wanted_fingerprints(settings) for name, settings in self._settings.items()}

    def _rows(self, step: Step, due: Sequence[EpisodeRow]) -> list[Row]:
        upstream: dict[str, dict[int, Any]] = {}
        shard = self.shard.number
        for before in step.reads:
            table = WRITES[before][0]
            upstream[table] = (
                {row["episode_id"]: row for row in self.warehouse.current(table, shard)} if due else {}
            )
        return [
            Row(
                episode_id=episode.id,
                name=episode.name,
                recording_name=recording_name(episode.upload, episode.name),
                files=tuple(episode.files),
                input_hash=episode.input_hash,
                size_bytes=episode.size_bytes,
                upload_name=episode.upload,
                upload_uri=episode.upload_uri,
                upload_problem=episode.upload_reason if episode.upload_state == "quarantined" else "",
                marker=episode.marker,
                source=self.sources[episode.source],
                shard_key=self.shard.key,
                settings=self.settings,
                pipeline_version=__version__,
                upstream={table: rows[episode.id] for table, rows in upstream.items()},
            )
            for episode in due
        ]

    def _results(self, name: str, rows: list[Row]) -> Iterator[StepResult]:
        work = partial(attempt, name)
        num_workers = min(self.settings.workers, len(rows))
        if num_workers <= 1 or name in LIGHT:
            yield from map(work, rows)
            return
        # spawn: a fork of a process with threads (Dagster's, Arrow's) may deadlock.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(num_workers, mp_context=context) as pool:
            yield from pool.map(work, rows)

    def _append(
        self,
        step: Step,
        due: Sequence[EpisodeRow],
        results: Sequence[StepResult],
        stamps: Mapping[int, Mapping[str, Stamp]],
    ) -> None:
        """Data first, stamps last: a row whose stamp is missing is done again, and the later version holds."""
        shard = self.shard.number
        for table in WRITES[step.name]:
            lines = [line for result in results for line in result.rows.get(table, ())]
            self.warehouse.append(TABLES[table], shard, self.seq, lines, step=step.name, run_id=self.run_id)
        now_ns = time.time_ns()
        lines = [
            {
                "episode_id": episode.id,
                "source": episode.source,
                "name": episode.name,
                "step": step.name,
                "step_version": step.version,
                "fingerprint": fingerprint(
                    step,
                    self._settings[episode.source],
                    {name: stamps[episode.id][name].fingerprint for name in step.reads},
                ),
                "input_hash": episode.input_hash,
                "status": result.status,
                "reason": result.reason,
                "schema_version": SCHEMA_VERSION,
                "pipeline_version": __version__,
                "robot_software_version": result.robot_software_version,
                "profile": self.profile.name,
                "run_id": self.run_id,
                "processed_ns": now_ns,
            }
            for episode, result in zip(due, results, strict=True)
        ]
        self.warehouse.append(VERSION_STAMPS, shard, self.seq, lines, step=step.name, run_id=self.run_id)

    def _summary(
        self,
        step: Step,
        episodes: Sequence[EpisodeRow],
        due: Sequence[EpisodeRow],
        results: Sequence[StepResult],
        stamps: Mapping[int, Mapping[str, Stamp]],
        seconds: float,
    ) -> StepSummary:
        statuses = {
            row.id: stamps[row.id][step.name].status
            for row in episodes
            if step.name in stamps.get(row.id, {})
        } | {result.episode_id: result.status for result in results}
        counts = Counter(result.status for result in results)
        return StepSummary(
            step=step.name,
            num_rows=len(episodes),
            num_due=len(due),
            num_ok=counts["ok"],
            num_rejected=counts["rejected"],
            num_errors=counts["error"],
            failed=sum(status != "ok" for status in statuses.values()),
            highest_episode_id=max((row.id for row in episodes), default=0),
            seconds=seconds,
            reasons=tuple(
                (episode.name, result.reason)
                for episode, result in zip(due, results, strict=True)
                if result.status != "ok"
            ),
        )
