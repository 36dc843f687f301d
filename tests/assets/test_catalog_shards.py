"""Shards: how they fill and close, when they are due, and the law of their assignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from catalog_samples import LIMITS, NOW, recordings, register, upload
from hypothesis import given, settings
from hypothesis import strategies as st

from dyna_assets.catalog.assignment import place
from dyna_assets.catalog.catalog import Catalog
from dyna_assets.catalog.rows import shard_number
from dyna_assets.settings import ShardLimits
from dyna_train.episode.address import shard_key


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """A catalog with the source 'lab'."""
    catalog.add_source("lab", landing_uri="/landing/lab", reader="aloha", now=NOW)
    return catalog


def add(catalog: Catalog, name: str, num: int = 1, *, size_bytes: int = 10, **more: object) -> str:
    """Register an upload of `num` recordings; the key of its shard."""
    episodes = recordings(*(f"{name}/{i}" for i in range(num)), size_bytes=size_bytes)
    return register(catalog, upload(name), episodes, **more).shard_key  # type: ignore[arg-type]


def states(catalog: Catalog) -> list[tuple[str, int]]:
    return [(shard.state, shard.num_episodes) for shard in catalog.shards()]


def test_uploads_fill_the_open_shard_until_it_is_full(catalog: Catalog) -> None:
    assert [add(catalog, f"u{i}", 2) for i in range(3)] == ["shard-000000", "shard-000000", "shard-000001"]
    assert states(catalog) == [("closed", 4), ("open", 2)]


def test_an_upload_is_not_divided(catalog: Catalog) -> None:
    assert [add(catalog, "u1", 3), add(catalog, "u2", 2)] == ["shard-000000", "shard-000001"]
    assert states(catalog) == [("closed", 3), ("open", 2)]


def test_an_upload_over_the_limit_has_a_shard_of_its_own(catalog: Catalog) -> None:
    assert [add(catalog, "u1"), add(catalog, "u2", 9), add(catalog, "u3")] == [
        "shard-000000",
        "shard-000001",
        "shard-000002",
    ]
    assert states(catalog) == [("closed", 1), ("closed", 9), ("open", 1)]


def test_bytes_fill_a_shard_too(catalog: Catalog) -> None:
    keys = [add(catalog, f"u{i}", size_bytes=size) for i, size in enumerate((600, 300, 200, 1000))]
    assert keys == ["shard-000000", "shard-000000", "shard-000001", "shard-000002"]
    assert [shard.size_bytes for shard in catalog.shards()] == [900, 200, 1000]


def test_a_quiet_hour_closes_a_shard(catalog: Catalog) -> None:
    keys = [add(catalog, f"u{i}", after_s=after_s) for i, after_s in enumerate((0, 60, 121))]
    assert keys == ["shard-000000", "shard-000000", "shard-000001"]
    first = catalog.shards()[0]
    assert (first.opened_at, first.last_added_at) == (NOW, NOW + timedelta(seconds=60))
    assert first.closed_at == NOW + timedelta(seconds=121)


def test_another_step_version_closes_a_shard(catalog: Catalog) -> None:
    keys = [add(catalog, f"u{i}", versions=versions) for i, versions in enumerate(("v1", "v1", "v2"))]
    assert keys == ["shard-000000", "shard-000000", "shard-000001"]
    assert [shard.versions for shard in catalog.shards()] == ["v1", "v2"]


def test_a_shard_is_due_until_a_run_has_read_its_last_change(catalog: Catalog) -> None:
    key = add(catalog, "u1")
    (due,) = catalog.due_shards()
    add(catalog, "u2")  # while the run works
    catalog.settle(key, due.revision)
    (still,) = catalog.due_shards()
    catalog.settle(key, still.revision)
    assert catalog.due_shards() == []
    catalog.settle(key, due.revision)  # an older run ends last
    assert catalog.due_shards() == []
    catalog.mark_all_due([shard_number(key)])
    assert [shard.is_due for shard in catalog.shards()] == [True]


def test_attempts_count_until_a_run_settles(catalog: Catalog) -> None:
    key = add(catalog, "u1")
    assert [catalog.add_attempt(key), catalog.add_attempt(key)] == [1, 2]
    catalog.settle(key, 1)
    assert catalog.add_attempt(key) == 1


def test_materializations_are_numbered_from_one(catalog: Catalog) -> None:
    key = add(catalog, "u1")
    assert [catalog.next_seq(key), catalog.next_seq(key)] == [1, 2]


def test_a_shard_that_nothing_was_given_to_is_empty(catalog: Catalog) -> None:
    assert catalog.highest_shard() is None
    assert catalog.shard("shard-000007") is None
    assert catalog.shard_episodes("shard-000007") == []
    with pytest.raises(KeyError, match="shard-000007: no such shard in the catalog"):
        catalog.next_seq("shard-000007")
    add(catalog, "u1")
    assert catalog.highest_shard() == 0


@pytest.mark.parametrize("key", ["shard-7", "7", "shard-00000x", "shard--00001", "shard-0000007", ""])
def test_a_key_of_another_form_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"'{key}' is not a shard key; expected the form 'shard-000007'"):
        shard_number(key)


@given(st.integers(0, 10**8), st.integers(0, 10**8))
def test_keys_and_numbers_are_the_same_thing(one: int, other: int) -> None:
    assert shard_number(shard_key(one)) == one
    if max(one, other) < 10**6:
        assert (shard_key(one) < shard_key(other)) == (one < other)


@dataclass
class Shard:
    """A shard as `place` sees it."""

    versions: str
    last_added_at: datetime
    groups: list[tuple[int, int]]

    @property
    def num_episodes(self) -> int:
        return sum(num for num, _ in self.groups)

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.groups)


groups = st.lists(
    st.tuples(st.integers(1, 7), st.integers(0, 1500), st.integers(0, 100), st.sampled_from("ab")),
    max_size=40,
)


@given(groups)
def test_every_group_is_in_one_shard_in_order_and_the_limits_hold(
    arrivals: list[tuple[int, int, int, str]],
) -> None:
    shards: list[Shard] = []
    is_open = False
    now = NOW
    for num, size, wait_s, versions in arrivals:
        now += timedelta(seconds=wait_s)
        current = shards[-1] if is_open else None
        placement = place(current, num, size, versions=versions, limits=LIMITS, now=now)
        if placement.opens_next:
            shards.append(Shard(versions, now, []))
        assert shards[-1].versions == versions
        assert (now - shards[-1].last_added_at).total_seconds() <= LIMITS.quiet_s
        shards[-1].groups.append((num, size))
        shards[-1].last_added_at = now
        is_open = not placement.closes
        is_full = shards[-1].num_episodes >= LIMITS.max_episodes or shards[-1].size_bytes >= LIMITS.max_bytes
        assert is_open != is_full
    assert [group for shard in shards for group in shard.groups] == [(n, s) for n, s, _, _ in arrivals]
    for shard in shards:
        fits = shard.num_episodes <= LIMITS.max_episodes and shard.size_bytes <= LIMITS.max_bytes
        assert fits or len(shard.groups) == 1


@settings(max_examples=8)
@given(sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 400)), min_size=1, max_size=6))
def test_the_catalog_keeps_that_law(new_database: Callable[[], str], sizes: list[tuple[int, int]]) -> None:
    limits = ShardLimits(max_episodes=4, max_bytes=1000)
    with Catalog.open(new_database()) as catalog:
        catalog.add_source("lab", landing_uri="/landing/lab", reader="aloha", now=NOW)
        for i, (num, size) in enumerate(sizes):
            add(catalog, f"u{i}", num, size_bytes=size, limits=limits)
        shards = catalog.shards()
        held = [catalog.shard_episodes(shard.key) for shard in shards]
    assert [shard.number for shard in shards] == list(range(len(shards)))
    names = [episode.name for episodes in held for episode in episodes]
    assert names == [f"u{i}/{k}" for i, (num, _) in enumerate(sizes) for k in range(num)]
    for shard, episodes in zip(shards, held, strict=True):
        assert shard.num_episodes == len(episodes)
        assert shard.size_bytes == sum(episode.size_bytes for episode in episodes)
        fits = shard.num_episodes <= limits.max_episodes and shard.size_bytes <= limits.max_bytes
        assert fits or len({episode.upload for episode in episodes}) == 1


def test_numbers_for_many_shards_are_drawn_at_once_and_never_twice(catalog: Catalog) -> None:
    keys = [add(catalog, f"u{i}", 4) for i in range(3)]
    assert catalog.next_seq(keys[1]) == 1
    assert catalog.next_seqs([0, 1]) == {0: 1, 1: 2}
    assert catalog.next_seqs([]) == {}
    assert [catalog.next_seq(key) for key in keys] == [2, 3, 1]


def test_marking_many_shards_due_asks_again_for_those_that_were_given_up(catalog: Catalog) -> None:
    keys = [add(catalog, f"u{i}", 4) for i in range(3)]
    for key in keys:
        catalog.add_attempt(key)
        catalog.settle(key, 1)
    assert catalog.due_shards() == []
    catalog.mark_all_due([0, 2])
    catalog.mark_all_due([])
    assert [(shard.number, shard.attempts) for shard in catalog.due_shards()] == [(0, 0), (2, 0)]


def test_the_policy_that_was_applied_last_is_the_active_one(catalog: Catalog) -> None:
    assert catalog.active_policy() is None
    catalog.apply_policy("strict", 1, "name = 'strict'", now=NOW)
    catalog.apply_policy("strict", 1, "name = 'strict'", now=NOW + timedelta(hours=1))
    catalog.apply_policy("default", 1, "", now=NOW)
    catalog.apply_policy("strict", 1, "name = 'strict'", now=NOW)
    assert [row.name for row in catalog.policies()] == ["strict", "default", "strict"]
    active = catalog.active_policy()
    assert active is not None
    assert (active.name, active.version, active.text, active.applied_at) == (
        "strict",
        1,
        "name = 'strict'",
        NOW,
    )
