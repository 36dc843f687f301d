"""Walking the path from a landing folder to a trained batch, stage by stage; each stage is safe to repeat."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from dyna_assets.assets.manifests import CurationConfig
from dyna_assets.assets.partitions import MANIFESTS
from dyna_assets.corpus import Rejection, SourceSummary, rejections, summarize, warnings
from dyna_assets.curation.curate import READS
from dyna_assets.definitions import build
from dyna_assets.errors import UploadError
from dyna_assets.instance import open_instance, write_instance
from dyna_assets.landing.draft import draft_profile, render_toml
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.upload import is_hidden
from dyna_assets.simulate import record_uploads
from dyna_assets.worker import Drained, drain
from dyna_assets.workspace import Workspace
from dyna_train.config import load_config
from dyna_train.errors import DynaError
from dyna_train.files import open_store, publish
from dyna_train.manifest import Manifest

SIM_SOURCE = "sim"
NUM_UPLOADS = 12
SECONDS = 6.0
FAULTS = ("black_camera", "bad_checksum")
"""Planted in the last uploads, so that the report has something to reject."""
TRAIN_STEPS = 60
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
    workspace: Workspace, landing: str | None, say: Callable[[str], None], *, steps: int = TRAIN_STEPS
) -> DemoReport:
    """Walk the whole path for simulated uploads, or for the recordings in `landing`.

    Raises UploadError if nothing in `landing` can be read, CurationError if no episode passes.
    """
    source = record_simulated(workspace, say) if landing is None else add_landing(workspace, landing)
    report = DemoReport(source.name)
    write_instance(workspace.home, workspace.database_url, workers=workspace.settings.workers)
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


def add_landing(workspace: Workspace, landing: str) -> SourceProfile:
    """The source for somebody's own recordings, named after their folder."""
    path = landing if "://" in landing else str(Path(landing).expanduser().resolve())
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.rstrip("/").rpartition("/")[2]).strip("-.") or "landing"
    return add_source(workspace, name, path)


def add_source(workspace: Workspace, name: str, landing: str) -> SourceProfile:
    """Draft the source's TOML from the recordings themselves, unless a person has one already.

    Raises UploadError if the folder is missing or empty, RecordingError if no reader knows what it holds.
    """
    path = workspace.home.sources / f"{name}.toml"
    if path.exists():
        source = load_config(SourceProfile, path)
        if source.landing != landing:
            raise UploadError(
                f"{path}: source '{name}' lands in {source.landing}, not in {landing}. "
                "Rename the folder, or change 'landing' in that file"
            )
        return source
    profile = draft_source(workspace, name, landing)
    with publish(path) as part:
        part.write_text(render_toml(profile), encoding="utf-8")
    return load_config(SourceProfile, path)


def draft_source(workspace: Workspace, name: str, landing: str) -> SourceProfile:
    """A first source profile from what lies in `landing`: the folder itself, or the first folder that is known."""
    fs, root = open_store(landing, **workspace.settings.storage_options(landing))
    if not fs.isdir(root):
        raise UploadError(f"{landing}: no such folder; expected one with recordings")
    folder = Folder(fs, root.rstrip("/"))
    if not any(not is_hidden(path) for path in folder.files()):
        raise UploadError(
            f"{landing}: the landing folder is empty. Put recordings into it (a LeRobot data set, ALOHA .hdf5 "
            "files, ROS 2 .mcap files), or run `make demo` without LANDING to see it with simulated ones"
        )
    return draft_profile(name, landing, folder)


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
    path = Path(f"{workspace.lake}/manifests/{name}.arrow")
    if not _is_current(workspace, path, where):
        assert MANIFESTS.name is not None
        instance.add_dynamic_partitions(MANIFESTS.name, [name])
        job = definitions.resolve_job_def("curate")
        config = dg.RunConfig(ops={"manifests__manifest": CurationConfig(where=where)})
        job.execute_in_process(instance=instance, partition_key=name, run_config=config)
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
    out.mkdir(parents=True, exist_ok=True)
    log = out / "train.log"
    with log.open("ab") as sink:
        ended = subprocess.run(command, stdout=sink, stderr=subprocess.STDOUT, check=False)
    if ended.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise DynaError(f"training ended with exit code {ended.returncode}; the end of {log}:\n{tail}")
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
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
    if drained.failed:
        lines = "\n".join(f"  {key}: {why}" for key, why in drained.failed.items())
        raise DynaError(f"runs failed; the rest is done and a further run goes on from there:\n{lines}")
    if not uploads:
        still = [*drained.registration.arriving.values(), *drained.registration.ignored.values()]
        raise UploadError(f"{source.landing}: no upload was taken. {' '.join(still) or 'It holds none'}")


def _is_current(workspace: Workspace, path: Path, where: str) -> bool:
    """True if the manifest at `path` was built by this condition from the newest version of every table."""
    if not path.exists():
        return False
    info = Manifest.open(path).info
    newest = {table: workspace.warehouse.pin(table).version for table in READS}
    return info.table_versions == newest and f"({where})" in info.query


@contextmanager
def _timed(report: DemoReport, stage: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    report.seconds[stage] = time.perf_counter() - began
