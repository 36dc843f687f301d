"""Steps, their versions, and which rows of a shard are missing or stale (pure).

A *step* is what a row goes through; it carries a version for each part that can change on its own. A
row's *stamp* for a step says from which input it was made, how that ended, and by what: a fingerprint of
everything that decides the step's output, that is its versions, the settings of the source that it reads,
and the fingerprints of the steps whose output it reads. So a bumped version makes stale exactly that step
and what depends on it, and a changed input everything that was made from it. Limits of checks decide no output:
a gate measures, and what its values are worth is judged anew without measuring again (`dyna_assets.quality.regate`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from dyna_assets.derive import DERIVED
from dyna_assets.labels import labeller_versions
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.look.media_kinds import media_versions
from dyna_assets.quality import check_versions

SCHEMA_VERSION = 2
"""Of the warehouse's rows; raised when a column changes its meaning."""

Redo = Literal["missing", "missing_or_stale"]
Status = Literal["ok", "rejected", "error"]

OF_ITS_UPLOAD = "upload quarantined: "
"""How the reason of a recording begins that was not looked at, as its whole upload is refused."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a row.

    versions: part -> version, raised by hand when the output of that part changes.
    settings: the keys of the source profile that the output depends on; ignores: keys of the tables under them that
    it does not depend on.
    reads: steps whose output it reads; their change makes it stale.
    needs: steps that must not have rejected the row, but whose change does not redo this one.
    critical: False if its failure must not fail a run, nor keep an episode from training.
    """

    name: str
    versions: Mapping[str, int]
    settings: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    critical: bool = True

    @property
    def version(self) -> str:
        """The versions as one readable word, e.g. 'align:1 encode:1 pack:1'."""
        return " ".join(f"{part}:{number}" for part, number in sorted(self.versions.items()))


_TOPICS = ("cameras", "states", "actions")
STEPS: dict[str, Step] = {
    step.name: step
    for step in (
        Step(
            "recordings",
            {"probe": 3},
            settings=("reader", "reader_options", "grid", *_TOPICS, "extra", "ignore", "robot", "task"),
            ignores=("align", "latency_ms"),
        ),
        Step("gate_before", check_versions("before"), reads=("recordings",)),
        Step(
            "episodes",
            {"align": 3, "derive": 1, "encode": 2, "pack": 3},
            settings=("grid", "encoding", *_TOPICS, "derived", "extra", "ignore"),
            reads=("recordings",),
            needs=("gate_before",),
        ),
        Step("gate_after", check_versions("after"), reads=("episodes",)),
        Step(
            "labels",
            {"labels": 2, **labeller_versions()},
            settings=("labels",),
            reads=("recordings", "episodes"),
            needs=("gate_before",),
            critical=False,
        ),
        Step("media", media_versions(), reads=("episodes",), needs=("gate_before",), critical=False),
    )
}
"""Every step by name, in an order in which each comes after what it reads."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the warehouse knows of one row and one step.

    input_hash: of what the row was made from. result_seq: of the append that holds what the step made.
    """

    episode_id: int
    step: str
    fingerprint: str
    input_hash: str
    status: Status
    result_seq: int = 0


def steps_without(checks: Collection[str], steps: Mapping[str, Step] = STEPS) -> dict[str, Step]:
    """The steps as they are when these checks are not run: their versions then decide nothing."""
    return {
        name: replace(step, versions={part: v for part, v in step.versions.items() if part not in checks})
        for name, step in steps.items()
    }


def settings_of(source: SourceProfile) -> dict[str, Any]:
    """The source profile as plain data, each derived signal with the version of its function.

    So a new version of a function concerns those sources that use it.
    """
    settings = source.model_dump(mode="json")
    for role in settings["derived"]:
        role["version"] = DERIVED[role["function"]].version
    return settings


def fingerprint(step: Step, settings: Mapping[str, Any], reads: Mapping[str, str]) -> str:
    """Sixteen hex digits over the step's versions, its settings, and the fingerprints of what it read.

    settings: `settings_of` the source; the step takes the keys that concern it.
    reads: at least the steps that `step` reads, name -> fingerprint.
    """
    parts = {
        "step": step.name,
        "version": step.version,
        "settings": {key: _without(settings[key], step.ignores) for key in step.settings},
        "reads": {name: reads[name] for name in step.reads},
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _without(value: Any, keys: Collection[str]) -> Any:
    """The setting without these keys of its tables, which may stand in a list."""
    if isinstance(value, Mapping):
        return {key: inner for key, inner in value.items() if key not in keys}
    return [_without(inner, keys) for inner in value] if isinstance(value, list | tuple) else value


def reads_of(step: Step, fingerprints: Mapping[str, str]) -> str:
    """What a step read, as it stands in the stamp: 'recordings=0123456789abcdef'."""
    return " ".join(f"{name}={fingerprints[name]}" for name in step.reads)


def wanted_fingerprints(settings: Mapping[str, Any], steps: Mapping[str, Step] = STEPS) -> dict[str, str]:
    """step -> the fingerprint a row must carry to be current under these source settings."""
    wanted: dict[str, str] = {}
    for step in steps.values():
        wanted[step.name] = fingerprint(step, settings, wanted)
    return wanted


def all_versions(steps: Mapping[str, Step] = STEPS) -> str:
    """All step versions as one line: what a shard notes as its versions at birth."""
    return "; ".join(f"{step.name} {step.version}" for step in steps.values())


def has_result(stamp: Stamp | None, input_hash: str) -> bool:
    """True if the step came to a result for this very input: made, or rejected for a reason."""
    return stamp is not None and stamp.status != "error" and stamp.input_hash == input_hash


def is_current(stamp: Stamp | None, wanted: str, input_hash: str) -> bool:
    """True if that result was also made by the versions and settings wanted now."""
    return stamp is not None and has_result(stamp, input_hash) and stamp.fingerprint == wanted


def is_due(
    step: Step, stamps: Mapping[str, Stamp], *, wanted: Mapping[str, str], input_hash: str, redo: Redo
) -> bool:
    """True if `step` has to run for a row with these stamps (step -> stamp).

    A row is not due while a step it builds on has no result for its input, has rejected the row, or (when
    stale rows are redone) is stale itself: redoing it first is the only order in which the stamp tells the
    truth. wanted: step -> fingerprint wanted now for the row's source.
    """
    for name in (*step.reads, *step.needs):
        before = stamps.get(name)
        if before is None or before.status != "ok" or before.input_hash != input_hash:
            return False
    stamp = stamps.get(step.name)
    if redo == "missing":
        return not has_result(stamp, input_hash)
    if not all(is_current(stamps[name], wanted[name], input_hash) for name in step.reads):
        return False
    return not is_current(stamp, wanted[step.name], input_hash)


def is_settled(stamps: Mapping[str, Stamp], *, wanted: Mapping[str, str], input_hash: str) -> bool:
    """True if no critical step is missing for the row: it went all the way, or was rejected on it."""
    return not any(
        is_due(step, stamps, wanted=wanted, input_hash=input_hash, redo="missing")
        for step in STEPS.values()
        if step.critical
    )
