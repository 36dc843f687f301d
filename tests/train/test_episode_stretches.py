"""Sets of steps as stretches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dyna_train.episode.profile import MISSING_NS
from dyna_train.episode.stretches import missing_from, steps_at, steps_text, stretches
from dyna_train.episode.sync import gaps_of


@given(steps=st.lists(st.integers(0, 60), max_size=60))
def test_stretches_hold_every_step_once_in_order_and_do_not_touch(steps):
    found = steps_at(np.array(steps, dtype=np.int64))
    assert [step for run in found for step in run] == sorted(set(steps))
    assert all(first.stop < second.start for first, second in pairwise(found))


@given(is_missing=st.lists(st.booleans(), max_size=60))
def test_gaps_are_the_steps_without_a_capture_time(is_missing):
    capture_T = np.where(is_missing, MISSING_NS, 7).astype(np.int64)
    assert [step for gap in gaps_of(capture_T) for step in gap] == np.flatnonzero(is_missing).tolist()


@given(st.lists(st.integers(0, 30)), st.integers(0, 30), st.integers(0, 30))
def test_joined_stretches_hold_the_same_steps_and_what_is_missing_is_the_rest(steps, start, length):
    parts = stretches(range(step, step + 1) for step in steps)
    assert [step for part in parts for step in part] == sorted(set(steps))
    assert all(before.stop < after.start for before, after in pairwise(parts))
    whole = range(start, start + length)
    assert {step for part in missing_from(whole, parts) for step in part} == set(whole) - set(steps)


def test_steps_are_written_as_people_write_them():
    assert steps_text([range(3, 4)]) == "step 3"
    assert steps_text([range(3, 9), range(12, 13)]) == "steps 3-8, 12"
    assert steps_text([range(k, k + 1) for k in range(0, 20, 2)]) == "steps 0, 2, 4, 6 and 6 more"
