"""Clocks and a source profile for the laws of alignment: a camera 'scene' and a state 'imu'."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dyna_assets.landing.profile import Align, CameraRole, Grid, SourceProfile, VectorRole

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
RATES = st.one_of(st.sampled_from([1.0, 10.0, 29.97, 30.0, 64.0, 120.0, 1000.0]), st.floats(0.5, 1000.0))
CLOCKS = st.lists(st.integers(1, 50_000_000), min_size=2, max_size=200).map(
    lambda gaps: START + np.cumsum(np.array(gaps, np.int64))
)


def source(how: Align = "causal", *, units: str | tuple[str, ...] = "", **grid: object) -> SourceProfile:
    return SourceProfile(
        name="test",
        landing="landing",
        reader="mcap",
        grid=Grid.model_validate({"rate_hz": 30.0, **grid}),
        cameras=(CameraRole(name="scene", topic="/scene"),),
        states=(VectorRole(name="imu", topic="/imu", align=how, units=units),),
    )
