"""Judging everything again: what changes, what stays, and what a kill or a run at the same time leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from catalog_samples import NOW
from judged_rows import DARK, GAP, SOURCE, Lake, gap_policy, toml
from path_house import House
from typer.testing import CliRunner

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.commands import quality as command
from dyna_assets.errors import CurationError, ShardBusy
from dyna_assets.landing.register import utc_now
from dyna_assets.quality import Limits, Measured
from dyna_assets.quality.policy import DEFAULT, DEFAULT_TEXT, Policy
from dyna_assets.quality.regate import Regated, policy_text, regate
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import QC_EVIDENCE, VERDICTS
from dyna_train.errors import ConfigError

STRICT = gap_policy("strict", warn=0.1, reject=0.3)
KEPT = (
    "fingerprint",
    "reads",
    "input_hash",
    "step_version",
    "schema_version",
    "name",
    "source",
    "result_seq",
)
"""Columns of a stamp that judging again must not touch."""


@pytest.fixture
def lake(catalog: Catalog, tmp_path: Path) -> Lake:
    """Two shards: gaps of 0, 0.2, 0.4 and 2 s, all let through, the last with a warning."""
    lake = Lake.make(catalog, Warehouse(str(tmp_path / "lake")), num_shards=2)
    for episode_id, gap_s in enumerate((0.0, 0.2, 0.4, 2.0), 1):
        lake.gap(episode_id, gap_s)
    return lake


def levels(lake: Lake) -> list[str]:
    return [level for _, (level, _) in sorted(lake.verdicts().items())]


def test_a_stricter_policy_rejects_rows_and_says_why_and_leaves_their_stamps_otherwise_alone(
    lake: Lake,
) -> None:
    before = lake.stamps()
    found = lake.regate(STRICT)
    assert levels(lake) == ["pass", "warn", "reject", "reject"]
    assert (found.num_rows, found.num_changed, found.num_admitted, found.num_refused) == (4, 3, 0, 2)
    after = lake.stamps()
    assert [after[number]["status"] for number in range(1, 5)] == ["ok", "ok", "rejected", "rejected"]
    assert after[3]["reason"] == "time.gap: 0.4 s (rejected above 0.3 s)"
    for number in range(1, 5):
        assert {key: after[number][key] for key in KEPT} == {key: before[number][key] for key in KEPT}
    assert after[2] == before[2]  # a warning is no matter for a stamp
    assert (after[3]["profile"], after[3]["run_id"]) == ("regate", "regate")
    assert lake.due() == []


def test_a_milder_policy_lets_rows_through_and_their_shards_get_a_run(lake: Lake) -> None:
    lake.regate(STRICT)
    found = lake.regate(gap_policy("mild", reject=1.0))
    assert levels(lake) == ["pass", "pass", "pass", "reject"]
    assert (found.num_admitted, found.num_refused, lake.due()) == (1, 0, [1])
    assert (lake.stamps()[3]["status"], lake.stamps()[3]["reason"]) == ("ok", "")


def test_what_is_judged_as_before_is_not_written_again(lake: Lake) -> None:
    versions = lake.versions()
    found = lake.regate(gap_policy("same", warn=0.5))
    assert found.num_changed == 0
    assert lake.versions() == versions
    assert lake.verdicts()[4] == ("warn", DEFAULT.label)  # as it was signed
    lake.regate(STRICT)
    versions = lake.versions()
    assert lake.regate(STRICT).num_changed == 0
    assert lake.versions() == versions
    assert len(lake.catalog.policies()) == 2


def test_a_dry_run_counts_and_writes_nothing(lake: Lake) -> None:
    versions = lake.versions()
    found = lake.regate(STRICT, dry_run=True)
    assert (found.num_changed, found.num_refused) == (3, 2)
    assert lake.versions() == versions
    assert lake.catalog.policies() == []
    assert [shard.seq for shard in lake.catalog.shards()] == [4, 4]


def test_counts_say_what_was_checked_and_what_changes(lake: Lake) -> None:
    lake.judged(1, "after", {DARK: [Measured("top", 10.0)], "episode.steps": []})
    found = lake.regate(STRICT)
    checks = {counts.check: counts for counts in found.checks}
    gap, dark, steps = checks[GAP], checks[DARK], checks["episode.steps"]
    assert (gap.num_checked, gap.num_rows, dark.num_checked, dark.num_rows) == (4, 4, 1, 1)
    assert (steps.num_checked, steps.num_rows) == (0, 1)
    assert (gap.warned_before, gap.warned_after, gap.rejected_before, gap.rejected_after) == (1, 1, 0, 2)
    assert (dark.rejected_before, dark.rejected_after) == (1, 1)
    counted = {one.level: (one.episodes_before, one.episodes_after) for one in found.levels}
    assert counted == {
        "pass": (2, 0),
        "warn": (1, 1),
        "reject": (1, 3),
    }  # episode 1 was rejected by its other gate
    assert {one.level: one.hours_after for one in found.levels} == {"pass": 0.0, "warn": 1.0, "reject": 3.0}


def test_a_sources_own_limits_come_first_and_are_looked_up_anew(lake: Lake) -> None:
    lake.gates[SOURCE] = {GAP: Limits(reject=1.0)}
    assert lake.regate(STRICT).num_refused == 1
    lake.gates[SOURCE] = {GAP: Limits(reject=5.0)}
    assert lake.regate(STRICT).num_admitted == 1
    assert levels(lake) == ["pass"] * 4


def test_evidence_without_a_stamp_is_nobodys(lake: Lake) -> None:
    seq = lake.draw(1)  # a run that was killed before it stamped: its data stays behind
    lake.append(QC_EVIDENCE, 1, seq, {"source": SOURCE, "gate": "before", "time_gap": 9.0, "details": "{}"})
    lake.append(
        VERDICTS, 1, seq, {"source": SOURCE, "gate": "before", "evidence_seq": seq, "verdict": "reject"}
    )
    assert lake.regate(STRICT).num_refused == 2
    assert lake.stamps()[1]["status"] == "ok"


def test_a_gate_that_could_not_measure_stays_rejected(lake: Lake) -> None:
    lake.stamp(1, "gate_before", lake.draw(1), status="rejected", reason="recording.readable: cut")
    lake.stamp(2, "gate_before", lake.draw(2), status="error", reason="KeyError")
    assert lake.regate(gap_policy("mild", reject=99.0)).num_rows == 2
    assert [lake.stamps()[number]["status"] for number in (1, 2)] == ["rejected", "error"]


def test_a_row_that_was_measured_anew_is_judged_by_its_new_values(lake: Lake) -> None:
    lake.regate(STRICT)
    lake.gap(3, 0.0, policy=STRICT)
    assert lake.regate(STRICT).num_changed == 0
    assert levels(lake) == ["pass", "warn", "pass", "reject"]


def test_a_name_and_version_mean_the_same_limits_for_good(lake: Lake) -> None:
    lake.regate(STRICT)
    other = gap_policy("strict", reject=9.0)
    with pytest.raises(
        ConfigError, match=r"policy strict@1: other limits were applied .*Give it version = 2"
    ):
        lake.regate(other)
    assert lake.verdicts()[4] == ("reject", "strict@1")
    lake.regate(DEFAULT, text=DEFAULT_TEXT)
    assert levels(lake) == ["pass", "pass", "pass", "warn"]


@pytest.mark.parametrize("version", [1, 2])
def test_nobodys_policy_is_called_default_and_default_is_always_the_built_in_one(
    lake: Lake, version: int
) -> None:
    mine = gap_policy("default", reject=9.0, version=version)
    with pytest.raises(
        ConfigError, match=rf"policy default@{version}: 'default' is the built-in policy.*Give yours another"
    ):
        lake.regate(mine, dry_run=True)
    lake.catalog.apply_policy("default", version, toml(mine), now=NOW)  # as homes from before may have it
    assert policy_text(lake.catalog, "default") == (DEFAULT, DEFAULT_TEXT)
    lake.regate(DEFAULT, text=DEFAULT_TEXT)
    assert policy_text(lake.catalog, "") == (DEFAULT, DEFAULT_TEXT)


class Killed(BaseException):
    """Stands for the end of the process."""


@dataclass(frozen=True)
class Mortal(Warehouse):
    """A warehouse whose process dies at the n-th append across shards: before it, or right after it."""

    lives: list[int] = field(default_factory=lambda: [0])
    dies_after: bool = False

    def append_across(self, *args: Any, **more: Any) -> set[int]:
        self.lives[0] -= 1
        if self.lives[0] < 0 and not self.dies_after:
            raise Killed
        left = super().append_across(*args, **more)
        if self.lives[0] < 0:
            raise Killed
        return left


@pytest.mark.parametrize(("num_before", "dies_after"), [(0, False), (0, True), (1, False), (1, True)])
def test_a_kill_at_any_append_leaves_what_the_same_command_completes(
    lake: Lake, num_before: int, dies_after: bool
) -> None:
    lake.regate(gap_policy("harsh", reject=0.1))
    middle = gap_policy("middle", warn=0.1, reject=0.3, version=7)
    whole = lake.warehouse
    lake.warehouse = Mortal(whole.root, lives=[num_before], dies_after=dies_after)
    with pytest.raises(Killed):
        lake.regate(middle)
    lake.warehouse = whole
    lake.regate(middle)
    assert levels(lake) == ["pass", "warn", "reject", "reject"]
    stamps = lake.stamps()
    assert [stamps[number]["status"] for number in range(1, 5)] == ["ok", "ok", "rejected", "rejected"]
    assert stamps[3]["reason"] == "time.gap: 0.4 s (rejected above 0.1 s)"
    assert lake.due() == [0]
    assert lake.regate(middle).num_changed == 0


class Busy(Catalog):
    """A catalog of a lake in which somebody works just when numbers are drawn, and just after."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def next_seqs(self, numbers: Collection[int]) -> dict[int, int]:
        self.meanwhile()
        return super().next_seqs(numbers)


def test_a_run_that_wrote_meanwhile_is_not_overwritten_and_its_shard_is_judged_once_more(
    lake: Lake, empty_catalog_url: str
) -> None:
    with Busy.open(empty_catalog_url) as busy:
        todo = [lambda: lake.gap(3, 0.25, policy=STRICT)]
        busy.meanwhile = lambda: todo.pop()() if todo else None  # type: ignore[method-assign,assignment]
        quiet, lake.catalog = lake.catalog, busy
        lake.regate(STRICT)
        lake.catalog = quiet
    assert levels(lake) == ["pass", "warn", "warn", "reject"]
    assert lake.stamps()[3]["status"] == "ok"
    assert lake.stamps()[4]["status"] == "rejected"


def test_a_run_judging_by_the_old_policy_in_a_shard_that_nothing_changes_in_is_found(
    lake: Lake, empty_catalog_url: str
) -> None:
    lake.regate(STRICT)
    mild = gap_policy("mild", reject=0.3)
    with Busy.open(empty_catalog_url) as busy:
        todo = [lambda: lake.gap(1, 0.2, policy=STRICT)]
        busy.meanwhile = lambda: todo.pop()() if todo else None  # type: ignore[method-assign,assignment]
        quiet, lake.catalog = lake.catalog, busy
        lake.regate(mild)
        lake.catalog = quiet
    assert levels(lake) == ["pass", "pass", "reject", "reject"]


def test_a_run_that_drew_its_number_before_and_writes_later_is_refused(lake: Lake) -> None:
    seq = lake.draw(4)
    lake.regate(STRICT)
    with pytest.raises(ShardBusy, match=r"shard 1: table verdicts holds append \d+ already, this one is 5"):
        lake.append(VERDICTS, 4, seq, {"source": SOURCE, "gate": "before", "verdict": "pass"})
    assert levels(lake) == ["pass", "warn", "reject", "reject"]


def test_a_run_that_never_ends_is_given_up_on_and_named(
    lake: Lake, empty_catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dyna_assets.quality.regate.MAX_ROUNDS", 1)
    with Busy.open(empty_catalog_url) as busy:
        busy.meanwhile = lambda: lake.gap(3, 0.4) and None  # type: ignore[method-assign,assignment]
        quiet, lake.catalog = lake.catalog, busy
        with pytest.raises(
            ShardBusy, match=r"policy strict@1 is active, but runs keep writing to 1 shards, first 1"
        ):
            lake.regate(STRICT)
        lake.catalog = quiet
    lake.regate(STRICT)
    assert levels(lake) == ["pass", "warn", "reject", "reject"]


def test_one_commit_a_table_however_many_shards_change(lake: Lake) -> None:
    versions = lake.versions()
    lake.regate(Policy(name="all", version=1, checks={GAP: Limits(reject=-1.0)}))
    assert levels(lake) == ["reject"] * 4
    changed = {table: version - versions[table] for table, version in lake.versions().items()}
    assert {table: num for table, num in changed.items() if num} == {"verdicts": 1, "version_stamps": 1}


def test_a_policy_is_named_by_its_file_or_by_its_name_and_without_one_the_active_one_is_meant(
    lake: Lake, tmp_path: Path
) -> None:
    path = tmp_path / "strict.toml"
    path.write_text(toml(STRICT))
    assert policy_text(lake.catalog, "") == policy_text(lake.catalog, "default") == (DEFAULT, DEFAULT_TEXT)
    assert policy_text(lake.catalog, str(path)) == (STRICT, toml(STRICT))
    lake.regate(STRICT)
    later = gap_policy("strict", reject=0.7, version=2)
    lake.regate(later)
    lake.regate(DEFAULT, text=DEFAULT_TEXT)
    assert policy_text(lake.catalog, "") == (DEFAULT, DEFAULT_TEXT)
    assert policy_text(lake.catalog, "strict") == (later, toml(later))
    with pytest.raises(
        ConfigError, match=r"no policy 'strikt' was applied before; there are default, strict"
    ):
        policy_text(lake.catalog, "strikt")
    with pytest.raises(ConfigError, match=r"absent\.toml: no such file"):
        policy_text(lake.catalog, str(tmp_path / "absent.toml"))


def judge_again(house: House, policy: Policy) -> Regated:
    """As `dyna-assets regate` does it."""
    space = house.workspace
    sources = {name: source.gates for name, source in space.sources().items()}
    return regate(
        space.catalog, space.warehouse, sources, policy, text=toml(policy), run_id="regate", now=utc_now()
    )


def test_an_episode_that_a_policy_refused_is_made_by_the_next_pass_after_another_lets_it_through(
    house: House,
) -> None:
    house.simulate(1)
    harsh = Policy(name="harsh", version=1, checks={"time.duration": Limits(reject=60.0)})
    judge_again(house, harsh)  # before anything is there: it is the active one from then on
    house.run()
    stamp = house.stamps()[1, "gate_before"]
    assert (stamp["status"], house.objects()) == ("rejected", {})
    assert "(rejected below 60 s)" in stamp["reason"]

    found = judge_again(house, Policy(name="short_is_fine", version=1, checks={"time.duration": Limits()}))
    assert found.num_admitted == 1
    assert [shard.number for shard in house.workspace.catalog.due_shards()] == [0]
    house.run()
    assert len(house.objects()) == 1
    assert house.stamps()[1, "gate_before"]["fingerprint"] == stamp["fingerprint"]
    assert house.workspace.catalog.due_shards() == []
    written = house.objects()
    assert house.curate().totals.num_rows == 1

    judge_again(house, Policy(name="bright", version=1, checks={"camera.dark": Limits(reject=256.0)}))
    with pytest.raises(CurationError, match=r"selects 0 of 1 episodes"):
        house.curate()
    judge_again(house, DEFAULT)
    assert house.curate().totals.num_rows == 1
    assert house.objects() == written  # no frame was decoded or encoded again


def test_the_command_prints_what_changes_for_people_and_for_scripts(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.make(house.workspace.catalog, house.workspace.warehouse)
    lake.gap(1, 0.4)
    lake.gap(2, 2.0)
    path = tmp_path / "strict.toml"
    path.write_text(toml(STRICT))
    monkeypatch.setenv("DYNA_HOME", str(house.workspace.home.path))
    app = typer.Typer()
    app.command()(command.regate)

    def said(*arguments: str) -> str:
        result = CliRunner(env={"COLUMNS": "120"}).invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        return result.output

    tried = json.loads(said(str(path), "--dry-run", "--json"))["regate"]
    assert (tried["policy"], tried["num_changed"], tried["dry_run"]) == ("strict@1", 2, True)
    assert levels(lake) == ["pass", "warn"]
    printed = said(str(path))
    (gap,) = [line for line in printed.splitlines() if GAP in line]
    assert re.findall(r"\d (?:of|→) \d", gap) == ["2 of 2", "1 → 0", "0 → 2"]
    assert "2 of 2 verdicts changed" in printed and "2 rows rejected now, 0 no longer" in printed
    assert levels(lake) == ["reject", "reject"]
    again = said("default")
    assert "0 rows rejected now, 2 no longer" in again and "dyna-assets worker --once" in again
