from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dyna_train.loader.order import NUM_ROUNDS, Permutation

seeds = st.integers(0, 2**64 - 1)


@given(size=st.integers(1, 5000), seed=seeds, epoch=st.integers(0, 1000))
@example(size=1, seed=0, epoch=0)
@example(size=2, seed=0, epoch=0)
@example(size=4096, seed=0, epoch=0)
@example(size=4097, seed=0, epoch=0)
def test_every_index_appears_exactly_once_for_any_size(size, seed, epoch):
    indices = Permutation.of(size, seed=seed, epoch=epoch)(np.arange(size))
    assert np.array_equal(np.sort(indices), np.arange(size))


@given(size=st.integers(1, 2**63 - 1), seed=seeds, data=st.data())
def test_domains_up_to_63_bits_stay_inside_and_distinct(size, seed, data):
    positions = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=50, unique=True))
    indices = Permutation.of(size, seed=seed)(np.array(positions, dtype=np.int64))
    assert indices.dtype == np.int64
    assert indices.min() >= 0 and indices.max() < size
    assert len(set(indices.tolist())) == len(positions)


@given(size=st.integers(10, 5000), seed=seeds, data=st.data())
def test_a_position_has_the_same_index_whatever_else_is_asked_with_it(size, seed, data):
    order = Permutation.of(size, seed=seed)
    cut = data.draw(st.integers(0, size))
    parts = np.concatenate([order(np.arange(cut)), order(np.arange(cut, size))])
    assert np.array_equal(parts, order(np.arange(size).reshape(1, size))[0])


def test_the_order_never_changes_between_versions():
    assert Permutation.of(10, seed=1, epoch=2)(np.arange(10)).tolist() == [8, 1, 3, 5, 9, 6, 2, 0, 4, 7]


def test_seed_and_epoch_each_give_another_order():
    orders = {
        tuple(Permutation.of(1000, seed=s, epoch=e)(np.arange(1000))) for s in range(5) for e in range(5)
    }
    assert len(orders) == 25


def test_four_rounds_leave_no_trace_of_the_position():
    # chi-squared over a grid of (position, index) pairs and of neighbours: 1 per degree of freedom when random
    size, cells = 1 << 18, 64
    assert NUM_ROUNDS >= 4
    indices = Permutation.of(size, seed=3)(np.arange(size))
    for left, right in [(np.arange(size), indices), (indices[:-1], indices[1:])]:
        counts, _, _ = np.histogram2d(left, right, bins=cells, range=[[0, size]] * 2)
        expected = len(left) / cells**2
        assert 0.9 < ((counts - expected) ** 2 / expected).sum() / (cells - 1) ** 2 < 1.1
    assert abs(np.corrcoef(indices[:-1], indices[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("position", [-1, 7])
def test_a_position_outside_is_an_index_error(position):
    with pytest.raises(IndexError, match="leave the permutation of 7"):
        Permutation.of(7, seed=0)(np.array([0, position]))


@pytest.mark.parametrize(("size", "seed"), [(0, 0), (2**63, 0), (5, -1), (5, 2**64)])
def test_a_size_or_seed_that_cannot_be_is_refused(size, seed):
    with pytest.raises(ValueError, match=r"cannot permute|must lie in 0\.\.2\*\*64-1"):
        Permutation.of(size, seed=seed)
