"""What the corpus says of its episodes: verdicts, what was checked, and which stretches of them are taken."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from judged_rows import DARK, EPISODES, GAP, SOURCE, Lake, checked_by, episode_row, gap_policy, shard_of

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.corpus import rejections, summarize, warnings
from dyna_assets.curation.curate import CORPUS, READS, Curated, CurationSpec, curate
from dyna_assets.errors import CurationError
from dyna_assets.quality import CHECKS, Limits, Measured
from dyna_assets.quality.policy import Policy
from dyna_assets.warehouse.store import Warehouse, fetch
from dyna_assets.warehouse.tables import QC_EVIDENCE, VERDICTS
from dyna_train.manifest import Manifest


@pytest.fixture
def lake(catalog: Catalog, tmp_path: Path) -> Lake:
    return Lake.make(catalog, Warehouse(str(tmp_path / "lake")), num_shards=4)


def made(lake: Lake, episode_id: int, *, gap_s: float = 0.0, **facts: Any) -> None:
    """An episode that went all the way."""
    lake.stamp(episode_id, "recordings", lake.draw(episode_id))
    lake.gap(episode_id, gap_s)
    seq = lake.draw(episode_id)
    lake.append(EPISODES, episode_id, seq, episode_row(episode_id, **facts))
    lake.stamp(episode_id, "episodes", seq)
    bright = [Measured("top", 200.0), Measured("wrist", 30.0, "wrist is dim")]
    lake.judged(episode_id, "after", {DARK: bright}, reads="episodes=fingerprint of episodes")


def curated(lake: Lake, path: Path, **asked: Any) -> Curated:
    with duckdb.connect() as connection:
        spec = CurationSpec(name="test", **asked)
        return curate(spec, lake.warehouse, connection, path, lake=lake.warehouse.root)


def stretches(lake: Lake, path: Path, **asked: Any) -> list[tuple[int, int, int]]:
    """(episode, start, steps) of every row of the manifest."""
    manifest = Manifest.open(curated(lake, path, **asked).uri)
    return [(row.episode_id, row.start_step, row.num_steps) for row in manifest.rows()]


def corpus(lake: Lake, columns: str) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        for table in READS:
            lake.warehouse.view(connection, lake.warehouse.pin(table))
        return fetch(connection, f"SELECT {columns} FROM ({CORPUS}) ORDER BY episode_id")


def test_an_episode_says_what_warned_and_how_much_was_checked(lake: Lake) -> None:
    made(lake, 1)
    made(lake, 2, gap_s=0.7)
    columns = "passed, num_rejects, num_warnings, rejections, warnings, num_checked, num_checks"
    first, second = corpus(lake, columns)
    assert first == {
        "passed": True,
        "num_rejects": 0,
        "num_warnings": 1,
        "rejections": [],
        "warnings": [DARK],
        "num_checked": 2,
        "num_checks": len(CHECKS),
    }
    assert second["warnings"] == [GAP, DARK]
    (summary,) = summarize(lake.warehouse)
    assert (summary.num_episodes, summary.num_passed, summary.num_warned) == (2, 2, 2)
    assert (summary.num_checked, summary.num_checks) == (4, 2 * len(CHECKS))


def test_warnings_come_with_what_one_of_their_episodes_showed(lake: Lake) -> None:
    made(lake, 1)
    made(lake, 2, gap_s=0.7)
    assert warnings(lake.warehouse, SOURCE) == [
        (DARK, 2, "wrist is dim"),
        (GAP, 1, "/top: nothing for 0.7 s"),
    ]
    assert warnings(lake.warehouse, "another") == []


def test_a_policy_decides_what_is_curated_and_older_manifests_stay(lake: Lake, tmp_path: Path) -> None:
    made(lake, 1)
    made(lake, 2, gap_s=0.7)
    before = tmp_path / "before.arrow"
    assert stretches(lake, before) == [(1, 0, 100), (2, 0, 100)]
    kept = before.read_bytes()
    lake.regate(gap_policy("strict", reject=0.5))
    assert stretches(lake, tmp_path / "after.arrow") == [(1, 0, 100)]
    assert stretches(lake, tmp_path / "rejected.arrow", passed=False, where="num_rejects > 0") == [
        (2, 0, 100)
    ]
    (refused,) = rejections(lake.warehouse)
    assert (refused.step, refused.reason) == (
        "gate_before",
        "time.gap: /top: nothing for 0.7 s (rejected above 0.5 s)",
    )
    lake.regate(gap_policy("mild", reject=5.0))
    assert stretches(lake, tmp_path / "again.arrow") == [(1, 0, 100), (2, 0, 100)]
    assert before.read_bytes() == kept


def test_each_reason_stands_with_its_own_note_and_a_policy_and_back_gives_the_first_reasons(
    lake: Lake,
) -> None:
    strict = Policy(
        name="strict",
        version=1,
        checks={name: Limits(reject=0.5) for name in (GAP, "time.jitter", "time.action_gap")},
    )
    found = {
        GAP: [Measured("top", 0.7, "/top: nothing for 0.7 s; (rejected twice) before")],
        "time.jitter": [Measured("top", 0.8)],  # says nothing of it
        "time.action_gap": [Measured("a", 0.1), Measured("b", 0.9, "/b: holds for 0.9 s")],
    }
    lake.judged(1, "before", found, strict)
    (first,) = rejections(lake.warehouse)
    assert set(re.findall(r"(time\.\w+): ", first.reason)) == set(found)
    lake.regate(gap_policy("mild", reject=5.0))
    assert rejections(lake.warehouse) == []
    lake.regate(strict)
    (again,) = rejections(lake.warehouse)
    assert again.reason == first.reason
    assert [reason.partition(": ")[0] for reason in again.reasons] == [GAP, "time.action_gap", "time.jitter"]
    assert "; ".join(again.reasons) == again.reason
    assert rejections(lake.warehouse, shard=shard_of(1)) == [again]
    assert "time.action_gap: /b: holds for 0.9 s (rejected above 0.5 " in again.reason


def test_a_verdict_about_evidence_that_nothing_stamps_does_not_count(lake: Lake) -> None:
    made(lake, 1)
    seq = lake.draw(1)  # a run that was killed before its stamps
    about = {"source": SOURCE, "gate": "before"}
    lake.append(QC_EVIDENCE, 1, seq, {**about, "details": "{}"})
    lake.append(VERDICTS, 1, seq, {**about, "evidence_seq": seq, "verdict": "reject", "rejected": [GAP]})
    assert corpus(lake, "passed, num_rejects") == [{"passed": True, "num_rejects": 0}]


def test_an_episode_that_no_gate_judged_did_not_pass(lake: Lake, tmp_path: Path) -> None:
    lake.append(EPISODES, 1, lake.draw(1), episode_row(1))
    assert corpus(lake, "passed, num_checked") == [{"passed": False, "num_checked": 0}]
    with pytest.raises(CurationError, match=r"selects 0 of 1 episodes \(0 of them passed the gates\)"):
        curated(lake, tmp_path / "m.arrow")


def test_a_manifest_has_a_row_for_each_valid_stretch_that_is_long_enough(lake: Lake, tmp_path: Path) -> None:
    made(lake, 1, valid_starts=[5, 40, 60], valid_ends=[10, 40, 100])
    made(lake, 2)  # as older rows, without the columns: valid all over
    made(lake, 3, valid_starts=[], valid_ends=[], state_mean=[], state_m2=[], state_min=[], state_max=[])
    path = tmp_path / "m.arrow"
    assert stretches(lake, path) == [(1, 5, 5), (1, 60, 40), (2, 0, 100)]
    found = curated(lake, path, min_duration_s=1.0)
    assert (found.totals.num_rows, found.totals.num_steps) == (2, 140)
    assert found.hours == pytest.approx(14 / 3600)
    with pytest.raises(CurationError, match=r"selects 0 of 3 episodes"):
        curated(lake, path, min_duration_s=10.5)


def test_statistics_count_every_episode_once_however_many_stretches_it_has(
    lake: Lake, tmp_path: Path
) -> None:
    made(
        lake,
        1,
        valid_starts=[0, 50],
        valid_ends=[40, 100],
        state_mean=[1.0],
        state_min=[0.0],
        state_max=[2.0],
    )
    made(lake, 2, state_mean=[4.0], state_min=[3.0], state_max=[9.0])
    state = curated(lake, tmp_path / "m.arrow").info.statistics.state
    weighted = (90 * 1.0 + 100 * 4.0) / 190  # by their valid steps
    assert (state.min, state.max) == ((0.0,), (9.0,))
    assert state.mean == pytest.approx((weighted,))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_episodes_with_values_that_are_no_numbers_are_named_and_the_condition_that_is_given_leaves_them_out(
    lake: Lake, tmp_path: Path, value: float
) -> None:
    made(lake, 1, state_mean=[3.0])
    for episode_id in range(2, 9):
        made(lake, episode_id, name=f"run {episode_id}", state_mean=[value], state_m2=[math.nan])
    path = tmp_path / "m.arrow"
    message = (
        r"7 of the selected episodes have states or actions that are no numbers .* first 2 \(lab: run 2\), .*"
        r"6 \(lab: run 6\); .*dyna-assets regate default"
    )
    with pytest.raises(CurationError, match=message) as caught:
        curated(lake, path)
    (condition,) = re.findall(r'--where "(.*)"', str(caught.value))
    found = curated(lake, path, where=condition)
    assert (found.totals.num_rows, found.info.statistics.state.mean) == (1, (3.0,))


def test_a_gate_counts_all_checks_of_its_own(lake: Lake) -> None:
    made(lake, 1)
    counts = {row["gate"]: (row["num_checked"], row["num_checks"]) for row in lake.current("verdicts")}
    assert counts == {"before": (1, len(checked_by("before"))), "after": (1, len(checked_by("after")))}
