"""The assets of a shard: one for each step that has its own version, gate or resources."""

# No postponed annotations here: Dagster reads those of an asset's or sensor's parameters as objects.

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from dyna_assets.assets.metadata import episode_metadata, shard_page_metadata, summary_metadata
from dyna_assets.assets.partitions import SHARDS
from dyna_assets.assets.resources import ShardResource
from dyna_assets.shard_run import ShardRun, StepSummary
from dyna_assets.stamps import STEPS

OWNERS = ["team:data-engine"]
MAX_RETRIES = 2
RETRY_DELAY_S = 2.0

RECORDINGS = dg.AssetKey(["landing", "recordings"])
GATE_BEFORE = dg.AssetKey(["landing", "gate_before"])
EPISODES = dg.AssetKey(["episodes", "episode_files"])
GATE_AFTER = dg.AssetKey(["quality", "gate_after"])
LABELS = dg.AssetKey(["labels", "labels"])
MEDIA = dg.AssetKey(["labels", "media"])
UPLOADS = dg.AssetKey(["landing", "uploads"])


AssetBody = Callable[..., Any]


def shard_asset(
    step: str, key: dg.AssetKey, *, deps: list[dg.AssetKey], kinds: set[str], grain: str, **options: Any
) -> Callable[[AssetBody], dg.AssetsDefinition]:
    """An asset over the shards; `grain` says what a row of it is."""

    def define(body: AssetBody) -> dg.AssetsDefinition:
        return dg.asset(
            retried(body),
            key=key,
            deps=deps,
            partitions_def=SHARDS,
            group_name=key.path[0],
            kinds=kinds,
            owners=OWNERS,
            description=grain,
            code_version=STEPS[step].version if step in STEPS else "uploads:1",
            **options,
        )

    return define


def retried(body: AssetBody) -> AssetBody:
    """`body`, done again after an exception: nothing about a single episode raises, so it is infrastructure.

    Not a retry policy of Dagster's, which also does a step again that a person cancelled.
    """

    @functools.wraps(body)
    def once(*args: Any, **kwargs: Any) -> Any:
        with _asking_for_retry():
            return body(*args, **kwargs)

    @functools.wraps(body)
    def stream(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with _asking_for_retry():
            yield from body(*args, **kwargs)

    return stream if inspect.isgeneratorfunction(body) else once


@contextmanager
def _asking_for_retry() -> Iterator[None]:
    try:
        yield
    except (dg.Failure, dg.RetryRequested):
        raise
    except Exception as error:  # the edge of a step; an interrupt is no Exception and passes
        raise dg.RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=RETRY_DELAY_S) from error


@shard_asset(
    "uploads",
    UPLOADS,
    deps=[],
    kinds={"postgres"},
    grain="One row per upload: committed or quiet, hashes verified, or quarantined with the reason.",
)
def uploads(shard: ShardResource) -> dg.MaterializeResult[None]:
    """Verify the checksums of uploads that bring rows nobody has probed yet."""
    if shard.run is None:
        return dg.MaterializeResult(metadata={"num_rows": 0})
    verified = shard.run.verified_uploads
    return dg.MaterializeResult(
        metadata={
            "num_rows": verified.num_uploads,
            "num_verified": verified.num_verified,
            "num_quarantined": len(verified.quarantined),
            "quarantined": dg.MetadataValue.md(
                "\n".join(f"- {line}" for line in verified.quarantined) or "none"
            ),
        }
    )


@shard_asset(
    "recordings",
    RECORDINGS,
    deps=[UPLOADS],
    kinds={"deltalake", "python"},
    grain="One row per recording: topics, clocks, counts and metadata as its container states them.",
)
def recordings(shard: ShardResource) -> dg.MaterializeResult[None]:
    """Probe recordings without decoding a picture."""
    return _result(shard.run, "recordings")


def _gate(key: dg.AssetKey) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        "source_is_healthy",
        asset=key,
        blocking=True,
        description="Stops the shard when more of its rows fail than the profile allows: then the source is broken.",
    )


@shard_asset(
    "gate_before",
    GATE_BEFORE,
    deps=[RECORDINGS],
    kinds={"deltalake"},
    grain="One row per recording before the transform: what each check measured, and what the policy makes of it.",
    check_specs=[_gate(GATE_BEFORE)],
)
def gate_before(shard: ShardResource) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[None]]:
    """Judge what the probe found."""
    yield from _gated(shard.run, "gate_before", GATE_BEFORE)


@shard_asset(
    "episodes",
    EPISODES,
    deps=[GATE_BEFORE],
    kinds={"mcap", "deltalake"},
    grain="One row per episode: its MCAP file with H.264 cameras and joint vectors on one time grid.",
)
def episode_files(shard: ShardResource) -> dg.MaterializeResult[None]:
    """Align, derive, encode and pack in one pass."""
    if shard.run is None:
        return dg.MaterializeResult(metadata={"num_rows": 0})
    summary = shard.run.run("episodes")
    return dg.MaterializeResult(metadata={**summary_metadata(summary), **episode_metadata(shard.run)})


@shard_asset(
    "gate_after",
    GATE_AFTER,
    deps=[EPISODES],
    kinds={"deltalake"},
    grain="One row per episode after the transform: what each check measured in the file, and the policy's verdict.",
    check_specs=[_gate(GATE_AFTER)],
)
def gate_after(shard: ShardResource) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[None]]:
    """Judge what the episode file shows; the shard's last critical step."""
    yield from _gated(shard.run, "gate_after", GATE_AFTER)
    # Also where the check above stops the shard: its rows have their verdicts, nothing is left to do.
    if shard.run is not None:
        shard.run.settle()


@shard_asset(
    "labels",
    LABELS,
    deps=[GATE_AFTER],
    kinds={"deltalake"},
    grain="One row per episode: task and success; and what the labellers found, from state and camera traces.",
    output_required=False,
)
def labels(context: dg.AssetExecutionContext, shard: ShardResource) -> Iterator[dg.MaterializeResult[None]]:
    """Not critical: a failure is logged, yields nothing, and leaves its rows to the next run."""
    yield from _uncritical(context, shard.run, "labels")


@shard_asset(
    "media",
    MEDIA,
    deps=[GATE_AFTER],
    kinds={"jpeg", "h264"},
    grain="One row per picture or film of an episode: thumbnail, contact sheet, page, preview.",
    output_required=False,
)
def media(context: dg.AssetExecutionContext, shard: ShardResource) -> Iterator[dg.MaterializeResult[None]]:
    """Not critical, as labels."""
    yield from _uncritical(context, shard.run, "media")


SHARD_ASSETS = [uploads, recordings, gate_before, episode_files, gate_after, labels, media]
ASSET_OF = {
    "recordings": RECORDINGS,
    "gate_before": GATE_BEFORE,
    "episodes": EPISODES,
    "gate_after": GATE_AFTER,
    "labels": LABELS,
    "media": MEDIA,
}
"""step -> its asset"""


def _result(run: ShardRun | None, step: str) -> dg.MaterializeResult[None]:
    if run is None:
        return dg.MaterializeResult(metadata={"num_rows": 0})
    return dg.MaterializeResult(metadata=summary_metadata(run.run(step)))


def _uncritical(
    context: dg.AssetExecutionContext, run: ShardRun | None, step: str
) -> Iterator[dg.MaterializeResult[None]]:
    try:
        result = _result(run, step)
    except Exception:  # the edge of a non-critical step: whatever it is, the run goes on
        context.log.exception(
            f"{step} failed; episodes are not affected, and the rows stay due for the next run"
        )
        return
    yield result


def _gated(
    run: ShardRun | None, step: str, key: dg.AssetKey
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[None]]:
    if run is None:
        yield dg.AssetCheckResult(check_name="source_is_healthy", asset_key=key, passed=True)
        yield dg.MaterializeResult(asset_key=key, metadata={"num_rows": 0})
        return
    summary = run.run(step)
    worst = shard_page_metadata(run) if step == "gate_after" else {}
    yield dg.MaterializeResult(asset_key=key, metadata={**summary_metadata(summary), **worst})
    yield _health(run, summary, key)


def _health(run: ShardRun, summary: StepSummary, key: dg.AssetKey) -> dg.AssetCheckResult:
    profile = run.profile
    share = summary.num_failed / max(summary.num_rows, 1)
    broken = summary.num_failed >= profile.min_failed_rows and share > profile.max_failed_share
    return dg.AssetCheckResult(
        check_name="source_is_healthy",
        asset_key=key,
        passed=not broken,
        metadata={
            "failed_rows": summary.num_failed,
            "failed_share": share,
            "max_failed_share": profile.max_failed_share,
            "reasons": dg.MetadataValue.md(
                "\n".join(f"- {name}: {why}" for name, why in summary.reasons) or "none"
            ),
        },
    )
