"""The quality checks on planted faults: precision, recall and the weakest fault found per check, and false alarms.

Faults of every kind are planted at several strengths, in uploads of the simulator (recorded with the fault, read as any
upload is), in real LeRobot episodes (in what was read of them) and in episode files. `benchmarks/_faults.py` says
from which strength on a fault has to be found, and up to which it must not be reported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from benchmarks._faults import IN_FILES, REAL, SIMULATED
from benchmarks._footage import SHARED_DATA
from benchmarks._quality_cases import Case, made_cases, real_cases, simulated_cases
from benchmarks.harness import Figure, Report, main
from dyna_assets.quality import CHECKS
from dyna_train.errors import BadInput

WITH_PICTURES = ("g1/episode_000010", "g1/episode_000029", "so101/episode_000004")
"""Faults of pictures are planted in these, since each costs the decoding and the looking at of all frames."""
BAR = 0.98


def build(
    data: Path = SHARED_DATA,
    *,
    num_good: int = 12,
    seeds: Sequence[int] = (0, 1),
    episodes: int | None = None,
    faults: Collection[str] | None = None,
) -> Report:
    """num_good: simulated uploads without a fault. seeds: of the faulty ones. episodes: of each real set, None for all.

    faults: those that are planted, None for all.

    Raises BadInput if the recordings are absent.
    """
    if not data.is_dir():
        raise BadInput(f"the real recordings are not at {data}")
    in_sim, in_real, in_files = (
        [planted for planted in kind if faults is None or planted.fault in faults]
        for kind in (SIMULATED, REAL, IN_FILES)
    )
    with tempfile.TemporaryDirectory(prefix="dyna-bench-") as scratch:
        cases = [
            *simulated_cases(in_sim, Path(scratch), num_good=num_good, seeds=seeds),
            *real_cases(in_real, data, episodes=episodes, with_pictures=WITH_PICTURES),
            *made_cases(in_files, data, Path(scratch)),
        ]
    return Report("quality", tuple(figures_of(cases)), tuple(notes_of(cases)))


def figures_of(cases: Sequence[Case]) -> list[Figure]:
    """Over all checks, then check by check."""
    precisions = {name: precision(cases, name) for name in CHECKS}
    recalls = {name: recall(cases, name) for name in CHECKS}
    found = sum(case.is_found for case in cases if case.must_be_found)
    must = [case for case in cases if case.must_be_found]
    alarms = [alarm for case in cases for alarm in case.false_alarms]
    reports = sum(len(case.reported) for case in cases)
    good = [case for case in cases if case.planted is None]
    real = [case for case in good if case.lerobot is not None]
    noticed = [case for case in must if case.lerobot is not None]
    return [
        Figure("precision", 1 - len(alarms) / max(reports, 1), "share", BAR, 1.0, direction=">="),
        Figure("recall", found / max(len(must), 1), "share", BAR, 1.0, direction=">="),
        Figure("precision_of_worst_check", min(precisions.values()), "share", BAR, 1.0, direction=">="),
        Figure("recall_of_worst_check", min(recalls.values()), "share", BAR, 1.0, direction=">="),
        Figure("real_good_rejected", sum(bool(case.rejected) for case in real), "episodes", 0, 0),
        Figure("good_rejected", sum(bool(case.rejected) for case in good), "episodes", 0, 0),
        Figure(
            "recall_in_lerobot_episodes",
            sum(case.is_found for case in noticed) / max(len(noticed), 1),
            "share",
            BAR,
            1.0,
            {"LeRobot": sum(bool(case.lerobot) for case in noticed) / max(len(noticed), 1)},
            direction=">=",
        ),
        Figure("checks_without_a_fault", len(CHECKS.keys() - {c.finds for c in cases}), "checks", 0, 0),
        *(figure for name in CHECKS for figure in _of_check(cases, name, precisions[name], recalls[name])),
    ]


def precision(cases: Sequence[Case], check: str) -> float:
    """Of the recordings that a check reports, those with a fault that it may report; 1 if it reports none."""
    reports = [case for case in cases if check in case.reported]
    return 1 - sum(check in case.false_alarms for case in reports) / max(len(reports), 1)


def recall(cases: Sequence[Case], check: str) -> float:
    """Of the faults that a check has to find, those that it finds; 0 if none was planted for it."""
    must = [case for case in cases if case.finds == check and case.must_be_found]
    return sum(case.is_found for case in must) / len(must) if must else 0.0


def weakest_found(cases: Sequence[Case], check: str) -> float:
    """The least strength from which on the check finds its faults in every recording; 1 if only the strongest."""
    planted = [case for case in cases if case.finds == check]
    missed = [case.strength for case in planted if not case.is_found]
    return min((case.strength for case in planted if case.strength > max(missed, default=0.0)), default=1.0)


def _of_check(cases: Sequence[Case], check: str, exact: float, found: float) -> Iterator[Figure]:
    planted = [case for case in cases if case.finds == check and case.must_be_found]
    heard = [case for case in planted if case.lerobot is not None]
    peers = {}
    if heard:
        peers = {"LeRobot": sum(bool(case.lerobot) for case in heard) / len(heard)}
    yield Figure(f"{check}.precision", exact, "share", BAR, 1.0, direction=">=")
    yield Figure(f"{check}.recall", found, "share", BAR, 1.0, peers, direction=">=")
    yield Figure(f"{check}.weakest", weakest_found(cases, check), "strength")


def notes_of(cases: Sequence[Case]) -> Iterator[str]:
    """What the figures have to be read with, and every case that is not as it should be."""
    good = [case for case in cases if case.planted is None]
    warned = {case.name: sorted(case.reported) for case in good if case.reported}
    yield (
        f"{len(cases)} recordings: {len(good)} good ones, {len(cases) - len(good)} with a fault, "
        f"{sum(case.must_be_found for case in cases)} of them at a strength that has to be found."
    )
    yield "strength: 0 to 1, what it means stands with each fault (dyna_assets.simulate, benchmarks/_real_faults.py)."
    yield (
        "precision counts warnings, too: a report is wrong if the recording has no fault that may set off the check, "
        "or one so weak that a person would call the recording good. A report that is true of a recording as it is "
        "(a robot that stands still all the time) is not wrong."
    )
    yield "LeRobot: its documented checks at load (0.6.1), in benchmarks/_lerobot_checks.py, on its own episodes only."
    for name, checks in warned.items():
        yield f"good, and reported: {name}: {', '.join(checks)}"
    for case in cases:
        if case.must_be_found and not case.is_found:
            yield f"not found: {case.name} by {case.finds}"
        for alarm in sorted(case.false_alarms):
            yield f"false alarm: {case.name} by {alarm}"


if __name__ == "__main__":
    main(build)
