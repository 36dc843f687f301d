"""Walking the path from a landing folder to a trained batch, stage by stage; each stage is safe to repeat."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from dyna_assets.assets.manifests import CurationConfig
from dyna_assets.assets.partitions import MANIFESTS
from dyna_assets.corpus import Rejection, SourceSummary, rejections, summarize, warnings
from dyna_assets.curation.curate import READS
from dyna_assets.definitions import build
from dyna_assets.describe import add_source, landing_uri, source_name
from dyna_assets.errors import UploadError
from dyna_assets.instance import open_instance, prepare_instance
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.simulate import record_uploads
from dyna_assets.worker import Drained, drain
from dyna_assets.workspace import Workspace
from dyna_train.errors import DynaError
from dyna_train.files import open_store
from dyna_train.manifest import Manifest, fetch_manifest
from dyna_train.processes import end_with_parent

SIM_SOURCE = "sim"
NUM_UPLOADS = 12
SECONDS = 6.0
FAULTS = ("black_camera", "bad_checksum")
"""Planted in the last uploads, so that the report has something to reject."""
RANKS = 2
ARRIVAL_PATIENCE_S = 60.0


@dataclass
class DemoReport:
    """What the demo did; seconds are wall time."""

    source: str
    seconds: dict[str, float] = field(default_factory=dict)
    registered: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    summary: SourceSummary | None = None
    rejected: list[Rejection] = field(default_factory=list)
    warnings: list[tuple[str, int, str]] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


def run_demo(
    workspace: Workspace, landing: str | None, say: Callable[[str], None], *, steps: int
) -> DemoReport:
    """Walk the whole path for simulated uploads, or for the recordings in `landing`.

    Raises UploadError if nothing in `landing` can be read, CurationError if no episode passes.
    """
    with _one_at_a_time(workspace, say):
        return _run_demo(workspace, landing, say, steps)


def _run_demo(
    workspace: Workspace, landing: str | None, say: Callable[[str], None], steps: int
) -> DemoReport:
    if landing is None:
        source = record_simulated(workspace, say)
    else:
        source = add_source(workspace, source_name(landing_uri(landing)), landing_uri(landing))
    report = DemoReport(source.name)
    prepare_instance(workspace.home, workspace.database_url, workers=workspace.settings.workers)
    definitions = build(workspace.home)
    with open_instance(workspace.home) as instance:
        with _timed(report, "ingest"):
            drained = ingest(workspace, instance, definitions, source, say)
        _note_ingestion(report, workspace, source, drained)
        with _timed(report, "curate"):
            report.manifest = curate_source(workspace, instance, definitions, source)
    with _timed(report, "train"):
        say(f"training {steps} steps on {RANKS} ranks")
        report.training = train(workspace, report.manifest, steps)
    return report


def record_simulated(workspace: Workspace, say: Callable[[str], None]) -> SourceProfile:
    """Record the simulated uploads that are not there yet, and describe their source."""
    landing = workspace.home.landing / SIM_SOURCE
    num_done = itertools.count(1)
    record_uploads(
        landing,
        NUM_UPLOADS,
        seconds=SECONDS,
        faults=FAULTS,
        source=SIM_SOURCE,
        progress=lambda _: say(f"recording: {next(num_done)} of {NUM_UPLOADS}"),
    )
    return add_source(workspace, SIM_SOURCE, str(landing))


def ingest(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    source: SourceProfile,
    say: Callable[[str], None],
) -> Drained:
    """Run the online profile over what landed, waiting for uploads that are still arriving."""
    deadline = time.monotonic() + max(ARRIVAL_PATIENCE_S, 2 * (source.quiet_period_s or 0))
    while True:
        drained = drain(workspace, instance, definitions, "ingest_online")
        if not drained.registration.arriving or time.monotonic() > deadline:
            return drained
        say(
            "waiting for the landing folder to be quiet: "
            + next(iter(drained.registration.arriving.values()))
        )
        time.sleep(1.0)


def curate_source(
    workspace: Workspace, instance: dg.DagsterInstance, definitions: dg.Definitions, source: SourceProfile
) -> dict[str, Any]:
    """The manifest of the source's passing episodes; built only if a table changed since it was."""
    name = f"demo-{source.name}"
    where = "source = '{}'".format(source.name.replace("'", "''"))
    began = time.perf_counter()
    uri = f"{workspace.lake}/manifests/{name}.arrow"
    if not _is_current(workspace, uri, where):
        assert MANIFESTS.name is not None
        instance.add_dynamic_partitions(MANIFESTS.name, [name])
        job = definitions.resolve_job_def("curate")
        config = dg.RunConfig(ops={"manifests__manifest": CurationConfig(where=where)})
        job.execute_in_process(instance=instance, partition_key=name, run_config=config)
    path = _at_hand(workspace, uri)
    manifest = Manifest.open(path)
    return {
        "name": name,
        "path": str(path),
        "rows": manifest.num_rows,
        "steps": manifest.num_steps,
        "sha256": manifest.sha256,
        "build_s": time.perf_counter() - began,
    }


def train(workspace: Workspace, manifest: dict[str, Any], steps: int) -> dict[str, Any]:
    """The small recipe on two ranks, restarted from its newest checkpoint if a rank dies."""
    out = workspace.home.runs / f"{manifest['name']}-{manifest['sha256'][:12]}"
    recipe = ["-m", "dyna_train.cli", "recipe", manifest["path"], "--out", str(out), "--steps", str(steps)]
    launch = [sys.executable, "-m", "dyna_cluster.cli", "launch", "--ranks", str(RANKS)]
    command = [*launch, "--progress", str(out / "checkpoints"), "--", *recipe]
    finished = out / "summary.json"
    if finished.exists() and json.loads(finished.read_text())["steps"] >= steps:
        return {**json.loads(finished.read_text()), "out": str(out)}
    out.mkdir(parents=True, exist_ok=True)
    log = out / "train.log"
    with log.open("ab") as sink:
        ended = subprocess.run(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            check=False,
            # boto, s3fs and delta-rs all read the store's place and keys from these
            env={**os.environ, **workspace.settings.s3.delta_options()},
            preexec_fn=partial(end_with_parent, os.getpid()),
        )
    if ended.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise DynaError(f"training ended with exit code {ended.returncode}; the end of {log}:\n{tail}")
    summary: dict[str, Any] = json.loads(finished.read_text())
    return {**summary, "out": str(out)}


def _note_ingestion(
    report: DemoReport, workspace: Workspace, source: SourceProfile, drained: Drained
) -> None:
    """Put what the ingestion left behind for this source into the report. Raises DynaError if a run failed."""
    uploads = workspace.catalog.uploads(source.name)
    report.quarantined = {row.name: row.reason for row in uploads if row.state == "quarantined"}
    report.registered = drained.registration.registered
    report.notes = [note for row in uploads for note in row.notes.get("reader", [])]
    report.rejected = [row for row in rejections(workspace.warehouse) if row.source == source.name]
    report.warnings = warnings(workspace.warehouse, source.name)
    summaries = {summary.source: summary for summary in summarize(workspace.warehouse)}
    report.summary = summaries.get(source.name)
    if source.name in drained.registration.unreachable:
        raise UploadError(drained.registration.unreachable[source.name])
    if drained.failed:
        lines = "\n".join(f"  {key}: {why}" for key, why in drained.failed.items())
        raise DynaError(f"runs failed; the rest is done and a further run goes on from there:\n{lines}")
    if not uploads:
        still = [*drained.registration.arriving.values(), *drained.registration.ignored.values()]
        raise UploadError(f"{source.landing}: no upload was taken. {' '.join(still) or 'It holds none'}")


def _at_hand(workspace: Workspace, uri: str) -> Path:
    """The manifest as a local file, which training maps into memory, its GOP tables beside it."""
    if "://" not in uri:
        return Path(uri)
    fs, remote = open_store(uri, **workspace.settings.storage_options(uri))
    return fetch_manifest(fs, remote, workspace.home.runs / uri.rpartition("/")[2])


def _is_current(workspace: Workspace, uri: str, where: str) -> bool:
    """True if the manifest at `uri` was built by this condition from the newest version of every table."""
    fs, path = open_store(uri, **workspace.settings.storage_options(uri))
    if not fs.exists(path):
        return False
    info = Manifest.open(_at_hand(workspace, uri)).info
    newest = {table: workspace.warehouse.pin(table).version for table in READS}
    return info.table_versions == newest and f"\nWHERE {where}\n" in info.query


@contextmanager
def _one_at_a_time(workspace: Workspace, say: Callable[[str], None]) -> Iterator[None]:
    """Two demos of one home would record and train into the same folders: the second waits."""
    with (workspace.home.path / "demo.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another demo on {workspace.home.path}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _timed(report: DemoReport, stage: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    report.seconds[stage] = time.perf_counter() - began
