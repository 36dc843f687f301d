"""What a run of a shard gives its steps and writes: policies, checks that are skipped, rows of killed runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from judged_rows import gap_policy, toml
from path_house import House

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.errors import ShardBusy
from dyna_assets.landing.register import utc_now
from dyna_assets.profiles import profile_named
from dyna_assets.quality import CHECKS
from dyna_assets.shard_run import GIVEN, WRITES, ShardRun
from dyna_assets.shard_session import open_shard
from dyna_assets.stamps import STEPS
from dyna_assets.warehouse.tables import QC_EVIDENCE, RECORDINGS, TABLES


@contextmanager
def run_of(house: House, *, skip: tuple[str, ...] = ()) -> Iterator[ShardRun]:
    """A run of the first shard that redoes what is stale."""
    profile = profile_named("ingest_batch", skip_checks=skip)
    with open_shard(house.workspace, "shard-000000", profile, run_id="a run") as run:
        assert run is not None
        yield run


@pytest.fixture
def landed(house: House) -> House:
    """A house with one recording that was registered, and probed by nobody."""
    house.simulate(1)
    house.workspace.register_landed()
    return house


def test_every_step_writes_known_tables_and_is_given_what_earlier_steps_wrote() -> None:
    assert set(WRITES) == set(GIVEN) == set(STEPS)
    written: set[str] = set()
    for step in STEPS:
        assert set(GIVEN[step]) <= written, step
        written |= set(WRITES[step])
    assert written | {"version_stamps"} == set(TABLES)


class Replaced(Catalog):
    """A catalog in which another policy is applied just when a run is about to write."""

    def next_seq(self, key: str) -> int:
        policy = gap_policy("another", reject=9.0)
        self.apply_policy(policy.name, policy.version, toml(policy), now=utc_now())
        return super().next_seq(key)


def test_verdicts_of_a_policy_that_was_replaced_meanwhile_are_refused_and_judged_again(landed: House) -> None:
    with run_of(landed) as run, Replaced.open(landed.workspace.database_url) as replaced:
        run.run("recordings")
        quiet, run.catalog = run.catalog, replaced
        with pytest.raises(
            ShardBusy, match=r"another policy than default@1 was applied while this run judged"
        ):
            run.run("gate_before")
        assert landed.rows("verdicts") == []
        run.catalog = quiet
        assert run.run("gate_before").num_ok == 1
    (verdict,) = landed.rows("verdicts")
    assert verdict["policy"] == "another@1"
    assert verdict["evidence_seq"] == verdict["seq"] == landed.stamps()[1, "gate_before"]["result_seq"]


def test_checks_that_a_run_skips_are_not_checked_and_the_next_full_run_makes_up_for_it(landed: House) -> None:
    before = [rule for rule in CHECKS.values() if rule.gate == "before"]
    with run_of(landed, skip=("time.*",)) as run:
        run.run("recordings")
        run.run("gate_before")
    (skipped,) = landed.rows("qc_evidence")
    assert all(skipped[rule.column] is None for rule in before if rule.name.startswith("time."))
    assert skipped["topics_present"] == 0
    assert "time.gap" not in landed.stamps()[1, "gate_before"]["step_version"]
    with run_of(landed, skip=("time.*",)) as run:
        assert run.run("gate_before").num_due == 0
    with run_of(landed) as run:
        assert run.run("gate_before").num_due == 1
    (checked,) = landed.rows("qc_evidence")
    assert checked["time_gap"] is not None
    (verdict,) = landed.rows("verdicts")
    assert verdict["num_checks"] == len(before)
    with run_of(landed, skip=("time.*",)) as run:
        assert run.run("gate_before").num_due == 0  # more was checked than this run would


def test_a_step_is_given_the_row_that_its_stamp_is_about_and_not_a_newer_one_of_a_killed_run(
    landed: House,
) -> None:
    with run_of(landed) as run:
        run.run("recordings")
        seq = run.catalog.next_seq("shard-000000")
        killed = {"episode_id": 1, "source": "sim", "facts": "not even JSON"}
        run.warehouse.append(RECORDINGS, 0, seq, [killed], run_id="killed")
        assert run.run("gate_before").num_ok == 1
    assert landed.workspace.warehouse.pin(QC_EVIDENCE.name).num_rows == 1
