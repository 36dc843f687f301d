"""One materialization of a shard: which rows are due, doing them, and writing down the outcome.

Knows nothing of Dagster. A step's function gets one row and returns one result; nothing about a single
episode leaves it as an exception. What does leave is infrastructure: it fails the run, which is retried.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dyna_assets import __version__
from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.rows import EpisodeRow, ShardRow
from dyna_assets.catalog.shard_lock import ShardLock
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
    has_result,
    is_due,
    is_settled,
    reads_of,
    wanted_fingerprints,
)
from dyna_assets.steps.pool import results
from dyna_assets.steps.work import Row, StepResult
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import TABLES, VERSION_STAMPS

WRITES: dict[str, tuple[str, ...]] = {
    "recordings": ("recordings",),
    "gate_before": ("qc_verdicts",),
    "episodes": ("episodes", "gop_tables"),
    "gate_after": ("readbacks", "qc_verdicts"),
    "labels": ("labels",),
}
"""step -> tables it appends to, besides version_stamps; the first is what steps downstream read."""
FLUSH_S = 60.0
"""Results are appended at least this often, so that a killed run has little to do again."""

RowStamps = Mapping[int, Mapping[str, Stamp]]
"""episode -> step -> its current stamp"""


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
    """(episode name, reason) of the rows that were rejected or failed in this run."""


@dataclass(frozen=True, slots=True)
class VerifiedUploads:
    """Uploads of the shard, those whose hashes were verified now, and why the others were quarantined."""

    num_uploads: int
    num_verified: int
    quarantined: tuple[str, ...]


@dataclass
class ShardRun:
    """A run's hold on one shard, as `shard_session.open_shard` gives it: nobody else works on the shard."""

    catalog: Catalog
    warehouse: Warehouse
    sources: Mapping[str, SourceProfile]
    profile: RunProfile
    shard: ShardRow
    lock: ShardLock
    settings: Settings
    run_id: str

    def run(self, name: str) -> StepSummary:
        """Do `name` for every row of the shard for which it is due, and append the outcome as it comes."""
        began = time.perf_counter()
        step = STEPS[name]
        if name == "recordings":
            _ = self.verified_uploads  # whoever selects the steps, nothing unverified is read
        episodes = self._episodes()
        stamps = self._stamps()
        due = [episode for episode in episodes if self._is_due(step, episode, stamps)]
        done: list[StepResult] = []
        num_saved, saved_at = 0, time.monotonic()
        for result in results(name, self._rows(step, due), self.settings.workers):
            done.append(result)
            report(name, len(done), len(due))
            if time.monotonic() - saved_at > FLUSH_S:
                self._append(step, due[num_saved : len(done)], done[num_saved:], stamps)
                num_saved, saved_at = len(done), time.monotonic()
        self._append(step, due[num_saved:], done[num_saved:], stamps)
        return _summary(step, episodes, due, done, stamps, time.perf_counter() - began)

    @cached_property
    def verified_uploads(self) -> VerifiedUploads:
        """Hashes checked, once a run, of committed uploads that bring rows nobody has probed yet.

        What differs is quarantined: the probe then rejects its rows, and the other uploads go on.
        """
        stamps = self._stamps()
        episodes = self._episodes()
        fresh = {
            row.upload_id: row
            for row in episodes
            if row.marker is not None
            and row.upload_state == "registered"
            and not has_result(stamps.get(row.id, {}).get("recordings"), row.input_state)
        }
        with ThreadPoolExecutor(self.settings.workers) as pool:
            problems = dict(zip(fresh, pool.map(self._hash_problem, fresh.values()), strict=True))
        quarantined = []
        for upload_id, problem in problems.items():
            if problem:
                self.catalog.reject_upload(upload_id, reason=problem)
                quarantined.append(f"{fresh[upload_id].source}: {fresh[upload_id].upload}: {problem}")
        num_uploads = len({row.upload_id for row in episodes})
        return VerifiedUploads(num_uploads, len(fresh) - len(quarantined), tuple(quarantined))

    def settle(self) -> None:
        """Tell the catalog that this run left nothing missing, if that is so for every row it can work on.

        What was registered while it worked leaves the shard due.
        """
        stamps = self._stamps()
        if all(
            is_settled(stamps.get(row.id, {}), wanted=self._wanted[row.source], input_hash=row.input_state)
            for row in self._episodes()
        ):
            self.catalog.settle(self.shard.key, self.shard.revision)

    def _episodes(self) -> list[EpisodeRow]:
        """Rows of the shard whose source is still described; of the others nobody knows how to read them."""
        return [row for row in self.catalog.shard_episodes(self.shard.key) if row.source in self.sources]

    def _is_due(self, step: Step, episode: EpisodeRow, stamps: RowStamps) -> bool:
        return is_due(
            step,
            stamps.get(episode.id, {}),
            wanted=self._wanted[episode.source],
            input_hash=episode.input_state,
            redo=self.profile.redo,
        )

    def _hash_problem(self, row: EpisodeRow) -> str:
        folder = Folder.of(row.upload_uri, **self.settings.storage_options(row.upload_uri))
        try:
            verify_hashes(folder, UploadMarker.model_validate(row.marker))
        except UploadError as error:
            return str(error)
        return ""

    def _stamps(self) -> RowStamps:
        found: dict[int, dict[str, Stamp]] = {}
        keys = ("episode_id", "step", "fingerprint", "input_hash", "status")
        for row in self.warehouse.current("version_stamps", self.shard.number, key="episode_id, step"):
            stamp = Stamp(*(row[key] for key in keys))
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
        if not due:
            return []
        tables = [WRITES[before][0] for before in step.reads]
        upstream = {
            table: {row["episode_id"]: row for row in self.warehouse.current(table, self.shard.number)}
            for table in tables
        }
        return [
            Row(
                episode_id=episode.id,
                name=episode.name,
                recording_name=recording_name(episode.upload, episode.name),
                files=tuple(episode.files),
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

    def _append(
        self, step: Step, due: Sequence[EpisodeRow], done: Sequence[StepResult], stamps: RowStamps
    ) -> None:
        """Data first, stamps last: a row whose stamp is missing is done again, and the later version holds."""
        if not done:
            return
        self.lock.verify()
        seq = self.catalog.next_seq(self.shard.key)
        now_ns = time.time_ns()
        lines = [
            self._stamp(step, episode, result, stamps.get(episode.id, {}), now_ns)
            for episode, result in zip(due, done, strict=True)
        ]
        for name in WRITES[step.name]:
            rows = [row for result in done for row in result.rows.get(name, ())]
            self.warehouse.append(TABLES[name], self.shard.number, seq, rows, run_id=self.run_id)
        self.warehouse.append(VERSION_STAMPS, self.shard.number, seq, lines, run_id=self.run_id)

    def _stamp(
        self, step: Step, episode: EpisodeRow, result: StepResult, stamps: Mapping[str, Stamp], now_ns: int
    ) -> dict[str, Any]:
        reads = {name: stamps[name].fingerprint for name in step.reads}
        return {
            "episode_id": episode.id,
            "source": episode.source,
            "name": episode.name,
            "step": step.name,
            "step_version": step.version,
            "fingerprint": fingerprint(step, self._settings[episode.source], reads),
            "reads": reads_of(step, reads),
            "input_hash": episode.input_state,
            "status": result.status,
            "reason": result.reason,
            "schema_version": SCHEMA_VERSION,
            "pipeline_version": __version__,
            "robot_software_version": result.robot_software_version,
            "profile": self.profile.name,
            "run_id": self.run_id,
            "processed_ns": now_ns,
        }


def _summary(
    step: Step,
    episodes: Sequence[EpisodeRow],
    due: Sequence[EpisodeRow],
    done: Sequence[StepResult],
    stamps: RowStamps,
    seconds: float,
) -> StepSummary:
    before = {
        row.id: stamps[row.id][step.name].status for row in episodes if step.name in stamps.get(row.id, {})
    }
    statuses = before | {result.episode_id: result.status for result in done}
    counts: Counter[str] = Counter(result.status for result in done)
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
            for episode, result in zip(due, done, strict=True)
            if result.status != "ok"
        ),
    )
