"""The warm worker: takes what landed and runs the shards that are due, in this process.

It uses the same assets, jobs and instance as Dagster's daemon, without its queue and process starts
(0.2 s a run instead of about 4 s); the shard's lock keeps the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import dagster as dg

from dyna_assets.assets.partitions import SHARDS, missing_shard_keys
from dyna_assets.landing.register import Registration
from dyna_assets.profiles import profile_named
from dyna_assets.workspace import Workspace


@dataclass
class Drained:
    """What one pass of the worker did."""

    registration: Registration
    succeeded: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """shard -> what its run ended with"""
    run_ids: set[str] = field(default_factory=set)
    given_up: list[str] = field(default_factory=list)
    """shards that failed too often and are left to a person"""

    def waits(self) -> dict[str, str]:
        """What was left for later -> a line that says so. The line of an arriving upload counts its seconds."""
        found = self.registration
        waits = {f"waiting: {name}": f"waiting: {name}: {reason}" for name, reason in found.arriving.items()}
        lines = [f"not read: {name}: {reason}" for name, reason in found.ignored.items()]
        lines += [f"unreachable: {name}: {reason}" for name, reason in found.unreachable.items()]
        lines += [
            f"{key}: failed too often; mend the cause, then: dyna-assets worker --once"
            for key in self.given_up
        ]
        return waits | {line: line for line in lines}


def drain(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    defs: dg.Definitions,
    profile: str,
    *,
    skip_checks: Sequence[str] = (),
    retry_given_up: bool = True,
) -> Drained:
    """Register what landed, then run `profile` once for each shard it concerns.

    A profile that only does what is missing runs on the shards with rows nobody read yet, any other on all.
    skip_checks: quality checks, or patterns of them, that gates do not run. retry_given_up: also shards that failed
    too often; False where nobody looks on and a loop would go on.
    """
    chosen = profile_named(profile, skip_checks=skip_checks)
    done = Drained(workspace.register_landed())
    register_keys(workspace, instance)
    due = workspace.catalog.due_shards()
    if not retry_given_up:
        done.given_up = [shard.key for shard in due if shard.is_given_up]
    fresh = [shard for shard in due if shard.key not in done.given_up]
    job = defs.resolve_job_def(profile)
    shard_config = {"profile": chosen.name, "skip_checks": list(skip_checks)}
    config = {"resources": {"shard": {"config": shard_config}}}
    for shard in fresh if chosen.redo == "missing" else workspace.catalog.shards():
        result = job.execute_in_process(
            instance=instance, partition_key=shard.key, raise_on_error=False, run_config=config
        )
        if _was_interrupted(result):
            raise KeyboardInterrupt
        done.run_ids.add(result.run_id)
        if result.success:
            done.succeeded.append(shard.key)
        else:
            done.failed[shard.key] = _why(result)
    return done


def register_keys(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    """Register the keys of the newest shard's block, if they are not yet."""
    keys = missing_shard_keys(
        instance, workspace.catalog.highest_shard(), workspace.settings.shards.key_block
    )
    if keys:
        assert SHARDS.name is not None
        instance.add_dynamic_partitions(SHARDS.name, keys)


def _was_interrupted(result: dg.ExecuteInProcessResult) -> bool:
    """True if Ctrl-C ended the run: Dagster makes a failure of it."""
    failures = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    return any(
        error is not None and "DagsterExecutionInterruptedError" in str(error.cls_name) for error in failures
    )


def _why(result: dg.ExecuteInProcessResult) -> str:
    """The first failure of a run, in a line or two."""
    reason = "the run ended without a word; look at it in the UI"
    for event in result.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            cause = error.cause or error if error else None
            return f"{event.step_key}: {cause.message.strip() if cause else 'no message'}"
        if event.is_failure and event.message:
            reason = event.message
    return reason
