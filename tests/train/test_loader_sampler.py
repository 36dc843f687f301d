from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_corpus import build_manifest
from torch.utils.data import DataLoader

from dyna_train.errors import BadInput
from dyna_train.loader import EpisodeSampler
from dyna_train.loader.sampler import STATE_VERSION
from dyna_train.manifest import Manifest
from dyna_train.world import World


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Manifest:
    return Manifest.open(build_manifest(tmp_path_factory.mktemp("sampler"), lengths=(24, 17, 30)))


def samplers(manifest, world, **options):
    return [EpisodeSampler(manifest, world=World(rank, world), **options) for rank in range(world)]


def global_steps(ranks, num_steps):
    """What all ranks together train on, step by step, in global order; each step is reported."""
    streams = [endless(sampler) for sampler in ranks]
    steps = []
    for _ in range(num_steps):
        batches = [next(stream) for stream in streams]
        steps.append([anchor for places in zip(*batches, strict=True) for anchor in places])
        for sampler in ranks:
            sampler.step()
    return steps


def endless(sampler):
    while True:
        yield from sampler


worlds = st.sampled_from([1, 2, 3, 4, 6, 12])


@settings(max_examples=50)
@given(world=worlds, seed=st.integers(0, 2**32))
def test_an_epoch_visits_every_anchor_at_most_once_and_all_but_the_last_incomplete_batch(
    manifest, world, seed
):
    ranks = samplers(manifest, world, batch_size=12, seed=seed)
    num_batches = len(ranks[0])
    assert num_batches == 71 // 12
    assert ranks[0].num_dropped == 71 % 12
    seen = [anchor for step in global_steps(ranks, num_batches) for anchor in step]
    assert len(seen) == len(set(seen)) == 71 - 71 % 12
    assert set(seen) <= set(range(71))


@settings(max_examples=50)
@given(world=worlds, other=worlds, done=st.integers(0, 20), seed=st.integers(0, 1000))
def test_a_resume_with_another_world_size_continues_the_same_global_order(manifest, world, other, done, seed):
    whole = global_steps(samplers(manifest, 1, batch_size=12, seed=seed), done + 8)
    before = samplers(manifest, world, batch_size=12, seed=seed)
    first = global_steps(before, done)
    state = before[-1].state_dict()
    assert all(sampler.state_dict() == state for sampler in before)
    after = samplers(manifest, other, batch_size=12, seed=seed)
    for sampler in after:
        sampler.load_state_dict(state)
    assert first + global_steps(after, 8) == whole


def test_epochs_differ_and_drop_other_anchors(manifest):
    ranks = samplers(manifest, 1, batch_size=12)
    epochs = [[anchor for step in global_steps(ranks, 5) for anchor in step] for _ in range(3)]
    assert ranks[0].epoch == 3
    assert epochs[0] != epochs[1] != epochs[2]
    assert len({frozenset(epoch) for epoch in epochs}) == 3


def test_what_a_loader_fetched_ahead_is_not_consumed(manifest):
    sampler = EpisodeSampler(manifest, batch_size=4)
    fetched = iter(sampler)
    batches = [next(fetched) for _ in range(6)]
    sampler.step()
    sampler.step()
    resumed = EpisodeSampler(manifest, batch_size=4)
    resumed.load_state_dict(sampler.state_dict())
    assert next(iter(resumed)) == next(iter(sampler)) == batches[2]


def test_prefetching_workers_do_not_move_the_position(manifest):
    sampler = EpisodeSampler(manifest, batch_size=4)
    loader = DataLoader(range(71), batch_sampler=sampler, num_workers=2, prefetch_factor=4)
    expected = global_steps([EpisodeSampler(manifest, batch_size=4)], 5)
    batches = iter(loader)
    for step in range(3):
        assert next(batches).tolist() == expected[step]
        sampler.step()
    del batches
    assert sampler.consumed == 12
    assert next(iter(loader)).tolist() == expected[3]


def test_len_counts_the_batches_left_in_the_epoch(manifest):
    sampler = EpisodeSampler(manifest, batch_size=10)
    assert len(sampler) == len(list(sampler)) == 7
    sampler.step()
    assert len(sampler) == len(list(sampler)) == 6


def test_a_larger_batch_at_the_end_of_an_epoch_begins_the_next(manifest):
    sampler = EpisodeSampler(manifest, batch_size=10)
    for _ in range(6):
        sampler.step()
    larger = EpisodeSampler(manifest, batch_size=20)
    larger.load_state_dict(sampler.state_dict())
    assert (larger.epoch, larger.consumed) == (1, 0)


def test_the_state_is_small_and_far_positions_cost_nothing(manifest):
    huge = SimpleNamespace(num_steps=10**12, sha256="x", path="huge")
    sampler = EpisodeSampler(huge, batch_size=1024)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 7, "consumed": 10**11})
    assert len(next(iter(sampler))) == 1024
    assert len(repr(sampler.state_dict())) < 1024


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": STATE_VERSION + 1}, "the checkpoint has version 2, this run has 1"),
        ({"manifest": "0" * 64}, "the checkpoint has manifest '0000"),
        ({"num_anchors": 70}, "the checkpoint has num_anchors 70, this run has 71"),
        ({"seed": 5}, "the checkpoint has seed 5, this run has 0"),
        ({"consumed": 71}, "epoch 0, consumed 71 is no place in it"),
        ({"epoch": -1}, "epoch -1, consumed 0 is no place in it"),
    ],
)
def test_a_state_of_something_else_is_refused_with_the_reason(manifest, change, message):
    sampler = EpisodeSampler(manifest, batch_size=4)
    with pytest.raises(BadInput, match=f"cannot resume the data position: {message}"):
        sampler.load_state_dict({**sampler.state_dict(), **change})


@pytest.mark.parametrize(
    ("batch_size", "message"),
    [
        (0, "batch_size 0 counts"),
        (7, "multiple of the 2 ranks"),
        (72, "71 anchors cannot fill one batch of 72"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(manifest, batch_size, message):
    with pytest.raises(BadInput, match=message):
        EpisodeSampler(manifest, batch_size=batch_size, world=World(0, 2))
