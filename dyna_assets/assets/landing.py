"""The landing sensor: what landed is registered, and shards with rows to do get one run each."""

# No postponed annotations here: Dagster reads those of an asset's or sensor's parameters as objects.

from typing import Any

import dagster as dg

from dyna_assets.assets.partitions import SHARDS, missing_shard_keys
from dyna_assets.assets.resources import WorkspaceResource
from dyna_assets.catalog.rows import ShardRow
from dyna_assets.landing.register import Registration, register_landing, utc_now

MAX_ATTEMPTS = 3
"""Runs of a shard that may fail in a row before the sensor leaves it to a person."""
MAX_REQUESTS = 20
"""Runs asked for per tick."""
WAITING = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]


def landing_sensor(job: Any) -> dg.SensorDefinition:
    """The sensor that launches `job` (an asset job, resolved or not).

    It is level-triggered: shards whose rows no finished run has read, not only files that are new. The cursor
    is a digest of the listings, so that an unchanged landing folder costs no query.
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
        found = register_landing(
            space.catalog, space.sources(), space.settings, now=utc_now(), seen=context.cursor or ""
        )
        for upload, reason in found.quarantined.items():
            context.log.warning(f"quarantined {upload}: {reason}")
        keys = missing_shard_keys(
            context.instance, space.catalog.highest_shard(), space.settings.shards.key_block
        )
        requests = [
            dg.RunRequest(partition_key=shard.key, run_key=run_key(shard))
            for shard in space.catalog.due_shards()
            if shard.attempts < MAX_ATTEMPTS and not is_waiting(context.instance, shard.key)
        ][:MAX_REQUESTS]
        skip = None if requests else dg.SkipReason(_why_nothing(found))
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=skip,
            cursor=found.listing,
            dynamic_partitions_requests=[SHARDS.build_add_request(keys)] if keys else [],
        )

    return landing


def run_key(shard: ShardRow) -> str:
    """One run per state of a shard: a failed run's retry and later uploads get keys of their own."""
    return f"{shard.key}:{shard.revision}:{shard.attempts}"


def is_waiting(instance: dg.DagsterInstance, key: str) -> bool:
    """True if a run of the shard waits to start: it has not read its rows yet, and will read the new ones."""
    waiting = dg.RunsFilter(tags={"dagster/partition": key}, statuses=WAITING)
    return bool(instance.get_runs(filters=waiting, limit=1))


def _why_nothing(found: Registration) -> str:
    if found.registered:
        return "what landed waits for a run that is queued"
    waiting = [*found.arriving.values(), *found.ignored.values()]
    return "nothing to do" + (f"; waiting: {'; '.join(waiting[:5])}" if waiting else "")
