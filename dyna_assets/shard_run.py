"""One materialization of a shard: which rows are due, doing them, and writing down the outcome.

Knows nothing of Dagster. A step's function gets one row and returns one result; nothing about a single
episode leaves it as an exception. What does leave is infrastructure: it fails the run, which is retried.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dyna_assets import __version__
from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.rows import EpisodeRow, ShardRow
from dyna_assets.catalog.shard_lock import ShardLock
from dyna_assets.errors import ShardBusy
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.register import recording_name
from dyna_assets.profiles import RunProfile, checks_like
from dyna_assets.progress import report
from dyna_assets.quality.policy import Policy, policy_in_force
from dyna_assets.settings import Settings
from dyna_assets.shard_uploads import VerifiedUploads, verify_uploads
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
    settings_of,
    steps_without,
    wanted_fingerprints,
)
from dyna_assets.steps.pool import results
from dyna_assets.steps.work import Row, StepResult
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import TABLES, VERSION_STAMPS

WRITES: dict[str, tuple[str, ...]] = {
    "recordings": ("recordings", "accounts"),
    "gate_before": ("qc_evidence", "verdicts"),
    "episodes": ("episodes", "gop_tables", "traces", "accounts"),
    "gate_after": ("readbacks", "traces", "qc_evidence", "verdicts"),
    "labels": ("labels", "annotations"),
    "media": ("media",),
}
"""step -> tables it appends to, besides version_stamps."""
GIVEN: dict[str, tuple[str, ...]] = {
    "recordings": (),
    "gate_before": ("recordings",),
    "episodes": ("recordings",),
    "gate_after": ("episodes", "traces"),
    "labels": ("recordings", "episodes", "traces"),
    "media": ("recordings", "episodes", "traces", "qc_evidence"),
}
"""step -> tables whose rows of the episode it is given."""
FLUSH_S = 60.0
"""Results are appended at least this often, so that a killed run has little to do again."""
BLOCK_ROWS = 512
"""Rows are handed to a step in blocks of so many, since what they are given (camera traces) is kept in memory."""

RowStamps = Mapping[int, Mapping[str, Stamp]]
"""episode -> step -> its current stamp"""


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What a step did to a shard; counts are rows. num_failed: rejected or error, over all rows of the shard."""

    step: str
    num_rows: int
    num_due: int
    num_ok: int
    num_rejected: int
    num_errors: int
    num_failed: int
    highest_episode_id: int
    seconds: float
    reasons: tuple[tuple[str, str], ...] = ()
    """(episode name, reason) of the rows that were rejected or failed in this run."""


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
        policy = policy_in_force(self.catalog.active_policy())
        if name == "recordings":
            _ = self.verified_uploads  # whoever selects the steps, nothing unverified is read
        episodes = self._episodes()
        stamps = self._stamps()
        due = [episode for episode in episodes if self._is_due(step, episode, stamps)]
        done: list[StepResult] = []
        for start in range(0, len(due), BLOCK_ROWS):
            block = due[start : start + BLOCK_ROWS]
            num_saved, saved_at = len(done), time.monotonic()
            for result in results(name, self._rows(step, block, stamps, policy), self.settings.workers):
                done.append(result)
                report(name, len(done), len(due))
                if time.monotonic() - saved_at > FLUSH_S:
                    self._append(step, due[num_saved : len(done)], done[num_saved:], stamps, policy)
                    num_saved, saved_at = len(done), time.monotonic()
            self._append(step, due[num_saved : len(done)], done[num_saved:], stamps, policy)
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
        num_uploads = len({row.upload_id for row in episodes})
        return verify_uploads(self.catalog, self.settings, fresh, num_uploads=num_uploads)

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
        """True if the step has to run; a row that all checks looked at is not stale for a run that skips some."""
        return all(
            is_due(
                step,
                stamps.get(episode.id, {}),
                wanted=wanted[episode.source],
                input_hash=episode.input_state,
                redo=self.profile.redo,
            )
            for wanted in (self._wanted, self._wanted_here)
        )

    def _stamps(self) -> RowStamps:
        found: dict[int, dict[str, Stamp]] = {}
        for row in self.warehouse.current("version_stamps", self.shard.number):
            stamp = Stamp(
                row["episode_id"],
                row["step"],
                row["fingerprint"],
                row["input_hash"],
                row["status"],
                row["result_seq"] or row["seq"],  # none: of an older version, where it was always its own
            )
            found.setdefault(stamp.episode_id, {})[stamp.step] = stamp
        return found

    @cached_property
    def _settings(self) -> dict[str, dict[str, Any]]:
        return {name: settings_of(source) for name, source in self.sources.items()}

    @cached_property
    def _skipped(self) -> frozenset[str]:
        """The checks that gates do not run."""
        return checks_like(self.profile.skip_checks)

    @cached_property
    def _steps(self) -> dict[str, Step]:
        """The steps as this run does them."""
        return steps_without(self._skipped)

    @cached_property
    def _wanted(self) -> dict[str, dict[str, str]]:
        """source -> step -> the fingerprint that makes a row current."""
        return {name: wanted_fingerprints(settings) for name, settings in self._settings.items()}

    @cached_property
    def _wanted_here(self) -> dict[str, dict[str, str]]:
        """As `_wanted`, of rows that this run makes."""
        return {name: wanted_fingerprints(settings, self._steps) for name, settings in self._settings.items()}

    def _rows(self, step: Step, due: Sequence[EpisodeRow], stamps: RowStamps, policy: Policy) -> list[Row]:
        given = {table: self._given(table, due, stamps) for table in GIVEN[step.name]}
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
                upstream={table: rows[episode.id] for table, rows in given.items()},
                policy=policy,
                skip_checks=self._skipped,
            )
            for episode in due
        ]

    def _given(self, table: str, due: Sequence[EpisodeRow], stamps: RowStamps) -> dict[int, Any]:
        """episode -> its row of the table, or the list of them: what the newest stamped append brought."""
        writers = [step for step, tables in WRITES.items() if table in tables]
        seqs = {
            episode.id: {
                stamps[episode.id][step].result_seq for step in writers if step in stamps[episode.id]
            }
            for episode in due
        }
        rows = self.warehouse.appended(table, self.shard.number, seqs)
        if not TABLES[table].has_many:
            return {row["episode_id"]: row for row in rows}
        lists: dict[int, list[dict[str, Any]]] = {episode.id: [] for episode in due}
        for row in rows:
            lists[row["episode_id"]].append(row)
        return lists

    def _append(
        self,
        step: Step,
        due: Sequence[EpisodeRow],
        done: Sequence[StepResult],
        stamps: RowStamps,
        policy: Policy,
    ) -> None:
        """Data first, stamps last: a row whose stamp is missing is done again, and the later version holds."""
        if not done:
            return
        self.lock.verify()
        seq = self.catalog.next_seq(self.shard.key)
        if "verdicts" in WRITES[step.name]:
            self._check_policy(policy)
        now_ns = time.time_ns()
        lines = [
            {"result_seq": seq, **self._stamp(step, episode, result, stamps.get(episode.id, {}), now_ns)}
            for episode, result in zip(due, done, strict=True)
        ]
        for name in WRITES[step.name]:
            rows = [row for result in done for row in result.rows.get(name, ())]
            if name == "verdicts":
                rows = [{**row, "evidence_seq": seq} for row in rows]
            self.warehouse.append(TABLES[name], self.shard.number, seq, rows, run_id=self.run_id)
        self.warehouse.append(VERSION_STAMPS, self.shard.number, seq, lines, run_id=self.run_id)

    def _check_policy(self, policy: Policy) -> None:
        """Refuse to write verdicts of a policy that no longer judges; ask after drawing the append's number.

        Whoever applies a policy draws numbers of its own afterwards, so what is written before is seen there.
        """
        if policy_in_force(self.catalog.active_policy()) != policy:
            raise ShardBusy(
                f"shard {self.shard.number}: another policy than {policy.label} was applied while this run "
                "judged. Run the shard again; it does what is left"
            )

    def _stamp(
        self, step: Step, episode: EpisodeRow, result: StepResult, stamps: Mapping[str, Stamp], now_ns: int
    ) -> dict[str, Any]:
        reads = {name: stamps[name].fingerprint for name in step.reads}
        here = self._steps[step.name]
        return {
            "episode_id": episode.id,
            "source": episode.source,
            "name": episode.name,
            "step": step.name,
            "step_version": here.version,
            "fingerprint": fingerprint(here, self._settings[episode.source], reads),
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
        num_failed=sum(status != "ok" for status in statuses.values()),
        highest_episode_id=max((row.id for row in episodes), default=0),
        seconds=seconds,
        reasons=tuple(
            (episode.name, result.reason)
            for episode, result in zip(due, done, strict=True)
            if result.status != "ok"
        ),
    )
