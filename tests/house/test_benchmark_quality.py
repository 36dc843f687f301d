"""The benchmark of the quality checks runs, knows all of them, and counts what it finds as it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks._faults import IN_FILES, REAL, SIMULATED, Planted
from benchmarks._quality_cases import Case
from benchmarks._real_faults import FAULTS
from benchmarks.quality import build, figures_of, precision, recall, weakest_found
from dyna_assets.quality import CHECKS
from dyna_assets.simulate import fault_names
from dyna_train.errors import BadInput

UPLOAD_FAULTS = {"truncated_file", "missing_file", "bad_checksum"}
DARK = Planted("dark_camera", "camera.dark", 0.5, 0.2, also=("camera.flat",))


def case(strength: float, *reported: str, planted: Planted | None = DARK) -> Case:
    return Case("x", planted, strength, frozenset(reported), frozenset())


def test_every_check_has_a_fault_that_it_must_find_and_every_fault_a_check() -> None:
    planted = (*SIMULATED, *REAL, *IN_FILES)
    assert {fault.finds for fault in planted} == set(CHECKS)
    assert {name for fault in planted for name in fault.also} <= set(CHECKS)
    assert {fault.fault for fault in SIMULATED} == set(fault_names()) - UPLOAD_FAULTS
    assert {fault.fault for fault in REAL} == set(FAULTS)
    assert all(max(fault.strengths) >= fault.must > fault.harmless or fault.must == 0 for fault in planted)


def test_a_report_is_false_without_a_fault_or_of_a_harmless_one_and_true_of_what_follows_from_it() -> None:
    assert case(0.1, "camera.dark").false_alarms == {"camera.dark"}
    assert case(0.3, "camera.dark", "camera.flat").false_alarms == set()
    assert case(1.0, "camera.glitch").false_alarms == {"camera.glitch"}
    assert case(1.0, "camera.dark", planted=None).false_alarms == {"camera.dark"}
    known = Case(
        "x", None, 1.0, frozenset({"state.moves"}), frozenset(), true_of_it=frozenset({"state.moves"})
    )
    assert known.false_alarms == set()


def test_precision_recall_and_the_weakest_fault_found_are_of_one_check() -> None:
    cases = [
        case(0.3),
        case(0.5),
        case(0.7, "camera.dark"),
        case(1.0, "camera.dark"),
        case(0.1, "camera.dark"),
    ]
    assert precision(cases, "camera.dark") == pytest.approx(2 / 3)
    assert recall(cases, "camera.dark") == pytest.approx(2 / 3)
    assert weakest_found(cases, "camera.dark") == 0.7
    assert precision(cases, "camera.flat") == 1
    assert recall(cases, "camera.flat") == 0
    figures = {figure.key: figure for figure in figures_of(cases)}
    assert figures["recall"].value == pytest.approx(2 / 3)
    assert figures["recall_of_worst_check"].ok is False


def test_a_small_run_finds_what_it_plants_and_nothing_in_good_recordings(shared_data: Path) -> None:
    faults = ("black_camera", "frozen_joint", "nan_state", "lost_steps", "slow_video")
    report = build(shared_data, num_good=1, seeds=(0,), episodes=1, faults=faults)
    figures = {figure.key: figure for figure in report.figures}
    for check in ("camera.dark", "state.frozen_joint", "vector.finite", "episode.steps", "video.clock"):
        assert figures[f"{check}.recall"].value == 1
        assert figures[f"{check}.precision"].value == 1
    assert figures["real_good_rejected"].value == figures["good_rejected"].value == 0
    assert figures["precision"].value == figures["recall"].value == 1
    assert figures["vector.finite.recall"].peers == {"LeRobot": 0}
    assert figures["video.clock.recall"].peers == {"LeRobot": 1}


def test_without_the_recordings_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the real recordings are not at .*none"):
        build(tmp_path / "none")
