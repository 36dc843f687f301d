"""The landing sensor: what landed is registered, and shards with rows to do get one run each."""

# No postponed annotations here: Dagster reads those of an asset's or sensor's parameters as objects.

import itertools
import time
from typing import Any

import dagster as dg

from dyna_assets.assets.partitions import SHARDS, missing_shard_keys
from dyna_assets.assets.resources import WorkspaceResource
from dyna_assets.catalog.rows import MAX_ATTEMPTS, ShardRow
from dyna_assets.landing.register import Registration

MAX_REQUESTS = 20
"""Runs asked for per tick."""
RETRY_S = 600
"""A due shard whose request led to nothing (a cancelled run, a busy lock) is asked for again after so long."""
WAITING = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING]
RUNNING = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def landing_sensor(job: Any) -> dg.SensorDefinition:
    """The sensor that launches `job` (an asset job, resolved or not).

    It is level-triggered: shards whose rows no finished run has read, not only files that are new. The cursor
    is a digest of the listings: while they stay as they are, no marker is read and nothing registered.
    """

    @dg.sensor(
        job=job,
        name="landing",
        minimum_interval_seconds=5,  # the daemon's own floor
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Registers uploads as they are committed and launches one run per shard with rows to do.",
    )
    def landing(context: dg.SensorEvaluationContext, workspace: WorkspaceResource) -> dg.SensorResult:
        space = workspace.open()
        found = space.register_landed(context.cursor or "")
        for name, reason in (found.quarantined | found.unreachable).items():
            context.log.warning(f"{name}: {reason}")
        keys = missing_shard_keys(
            context.instance, space.catalog.highest_shard(), space.settings.shards.key_block
        )
        due = space.catalog.due_shards()
        now_s = time.time()
        wanted = (s for s in due if not s.is_given_up and not is_busy(context.instance, s, now_s))
        requests = [
            dg.RunRequest(partition_key=shard.key, run_key=run_key(shard, now_s))
            for shard in itertools.islice(wanted, MAX_REQUESTS)
        ]
        skip = None if requests else dg.SkipReason(_why_nothing(found, due))
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=skip,
            cursor=found.listing,
            dynamic_partitions_requests=[SHARDS.build_add_request(keys)] if keys else [],
        )

    return landing


def run_key(shard: ShardRow, now_s: float) -> str:
    """One run per state of a shard and, where that led to nothing, per ten minutes."""
    return f"{shard.key}:{shard.revision}:{shard.attempts}:{int(now_s) // RETRY_S}"


def is_busy(instance: dg.DagsterInstance, shard: ShardRow, now_s: float) -> bool:
    """True if a run of the shard will read its newest rows, or has: it waits, or it began after they came.

    Also true for a while after a person cancelled one.
    """
    tags = {"dagster/partition": shard.key}
    if instance.get_runs(filters=dg.RunsFilter(tags=tags, statuses=WAITING), limit=1):
        return True
    running = instance.get_runs(filters=dg.RunsFilter(tags=tags, statuses=RUNNING), limit=10)
    newest = f"{shard.key}:{shard.revision}:"
    if any(run.tags.get("dagster/run_key", "").startswith(newest) for run in running):
        return True
    last = instance.get_run_records(filters=dg.RunsFilter(tags=tags), limit=1)
    was_cancelled = bool(last) and last[0].dagster_run.status == dg.DagsterRunStatus.CANCELED
    return was_cancelled and now_s - (last[0].end_time or 0) < RETRY_S


def _why_nothing(found: Registration, due: list[ShardRow]) -> str:
    given_up = [shard.key for shard in due if shard.is_given_up]
    if given_up:
        return (
            f"runs of {', '.join(given_up[:5])} failed {MAX_ATTEMPTS} times in a row; look at the last one, mend "
            "the cause, and launch ingest_batch for them"
        )
    if due:
        return "what landed is being worked on"
    waiting = [*found.unreachable.values(), *found.arriving.values(), *found.ignored.values()]
    return "nothing to do" + (f"; waiting: {'; '.join(waiting[:5])}" if waiting else "")
