from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyna_train.errors import BadInput
from dyna_train.window import WindowSpec, gather_window, window_rows

offsets = st.lists(st.integers(-50, 50), max_size=12)


@given(data=st.data(), start=st.integers(0, 40), length=st.integers(1, 40), offsets=offsets)
def test_rows_stay_in_the_stretch_and_are_pad_exactly_where_the_offset_leaves_it(
    data, start, length, offsets
):
    stop = start + length
    step = data.draw(st.integers(start, stop - 1))
    rows, is_pad = window_rows(step, offsets, start=start, stop=stop)
    for offset, row, pad in zip(offsets, rows, is_pad, strict=True):
        wanted = step + offset
        assert pad == (not start <= wanted < stop)
        assert row == (wanted if not pad else start if wanted < start else stop - 1)


def test_values_outside_the_episode_repeat_its_edge_and_the_input_is_copied():
    values = np.arange(10, dtype=np.float32).reshape(5, 2)
    window, is_pad = gather_window(values, 4, (-5, 0, 1))
    assert window.tolist() == [[0, 1], [8, 9], [8, 9]]
    assert is_pad.tolist() == [True, False, True]
    window[:] = -1
    assert values.min() == 0


def test_an_anchor_outside_the_stretch_is_an_index_error():
    with pytest.raises(IndexError, match=r"anchor step 9 is outside the stretch \[3, 9\)"):
        window_rows(9, (0,), start=3, stop=9)


@given(
    rate=st.sampled_from([10.0, 30.0, 29.97, 50.0, 1000.0]),
    steps=st.lists(st.integers(-500, 500), min_size=1),
)
def test_seconds_that_are_multiples_of_the_grid_become_the_same_steps(rate, steps):
    spec = WindowSpec.from_seconds(rate, frames_s=[step / rate for step in steps])
    assert spec.frames == tuple(steps)
    assert spec.state == spec.action == (0,)


def test_a_time_off_the_grid_is_refused_and_the_two_nearest_on_it_are_named():
    with pytest.raises(
        BadInput,
        match=r"action offset 0\.05 s is 1\.5 steps of the 30 Hz grid.*0\.0333333 s and 0\.0666667 s",
    ):
        WindowSpec.from_seconds(30, action_s=[0.05])


def test_a_decimal_that_a_person_writes_for_a_thirtieth_is_on_the_grid():
    assert WindowSpec.from_seconds(30, state_s=[-0.03333, 0.06667]).state == (-1, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"frames": (), "state": (), "action": ()}, "the window is empty"),
        ({"frames": (0.5,)}, r"window offsets of frames are \(0\.5,\); expected a tuple of whole steps"),
        ({"state": [0]}, r"window offsets of state are \[0\]; expected a tuple"),
        ({"cameras": ("a", "a")}, "a camera is named twice in a, a"),
    ],
)
def test_a_window_that_cannot_be_is_refused(given, message):
    with pytest.raises(BadInput, match=message):
        WindowSpec(**given)


@pytest.mark.parametrize("rate", [0, -1.0, float("nan")])
def test_a_rate_that_is_no_rate_is_refused(rate):
    with pytest.raises(BadInput, match=r"rate_hz is .*greater than 0"):
        WindowSpec.from_seconds(rate)
