"""Units of derived signals: what cannot fit is refused when the source's TOML is read, the rest at the recording."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dyna_assets.derive import DERIVED, DerivedRole, Signal, apply_derived, check_derived
from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import ActionRole, Grid, SourceProfile, VectorRole
from dyna_train.errors import ConfigError

SECOND = 1_000_000_000


def role(function: str, *of: str, name: str = "made", **options: Any) -> DerivedRole:
    return DerivedRole(name=name, function=function, of=of, options=options)


POSE = {"urdf": "<robot/>", "base": "base", "tip": "tool"}


@pytest.mark.parametrize(
    ("units", "roles", "text"),
    [
        (("quat", ""), [role("velocity", "state/arm")], "unit 'quat' is a quaternion, and its rate"),
        ((("rad", "quat", "quat", "quat", "quat"), ""), [role("velocity", "state/arm")], "unit 'quat'"),
        (("", "quat"), [role("action_delta", "action/arm", to="next")], "a difference of its parts"),
        (("rad", "deg"), [role("action_delta", "action/arm", "state/arm")], "is in 'deg', the state in 'rad'; they"),
        (
            (("rad", "m"), "rad"),
            [role("action_delta", "action/arm", "state/arm")],
            "is in 'rad', the state 2-dimensional in 'rad', 'm'; they must be alike, in the same order ",
        ),
        (
            (("rad", "m"), ""),
            [role("action_delta", "action/arm", "state/arm")],
            r'Write units = \["rad", "m"\] under the \[\[actions\]\]',
        ),
        ((("rad", "m"), ("rad",)), [role("action_delta", "action/arm", "state/arm")], "is 1-dimensional in 'rad'"),
        (("", ""), [role("action_delta", "action/arm")], "to = 'state' needs two signals in 'of'"),
        (("", ""), [role("action_delta", "action/arm", "state/arm", to="next")], "name one signal in 'of'"),
        (("m/s", ""), [role("end_effector_pose", "state/arm", **POSE)], "no joint is in 'm/s', expected one of 'rad'"),
        (
            ("rad", ""),
            [role("end_effector_pose", "state/arm", name="hand", **POSE), role("velocity", "state/hand")],
            r"derived 'state/made' \(velocity\): unit 'quat' is a quaternion",
        ),
        (
            ("rad", "rad"),
            [role("velocity", "state/arm", name="v"), role("action_delta", "action/arm", "state/v")],
            "is in 'rad', the state in 'rad/s'",
        ),
    ],
)  # fmt: skip
def test_a_source_whose_units_do_not_fit_the_function_is_refused_before_there_is_a_recording(
    units: tuple[Any, Any], roles: list[DerivedRole], text: str
) -> None:
    with pytest.raises(ValidationError, match=text):
        SourceProfile(
            name="test",
            landing="landing",
            reader="mcap",
            grid=Grid(rate_hz=30.0),
            cameras=(),
            states=(VectorRole(name="arm", topic="/arm", units=units[0]),),
            actions=(ActionRole(name="arm", topic="/leader", units=units[1]),),
            derived=tuple(roles),
        )


@pytest.mark.parametrize("units", ["rad", ("rad", "rad")])
def test_one_unit_for_all_dimensions_is_like_the_same_for_each_of_them(units: Any) -> None:
    check_derived(
        [role("action_delta", "action/arm", "state/arm")], {"action/arm": "rad", "state/arm": units}
    )


units_of_a_vector = st.lists(st.sampled_from(["", "rad", "m"]), min_size=1, max_size=3).map(tuple)


def flat(units: tuple[str, ...]) -> Signal:
    return Signal(
        np.zeros((3, len(units))), np.arange(3) * SECOND, np.ones(3, bool), tuple("abc")[: len(units)], units
    )


@given(units_of_a_vector, units_of_a_vector, st.booleans())
def test_what_the_source_is_refused_for_no_recording_has(
    action: tuple[str, ...], state: tuple[str, ...], is_short: bool
) -> None:
    signals = {"action/arm": flat(action), "state/arm": flat(state)}
    stated = {
        name: one.units[0] if is_short and len(set(one.units)) == 1 else one.units
        for name, one in signals.items()
    }
    delta = role("action_delta", "action/arm", "state/arm")
    try:
        check_derived([delta], stated)
    except ConfigError:
        with pytest.raises(RecordingError, match="must be alike, in the same order"):
            apply_derived([delta], signals)


@given(units_of_a_vector)
def test_a_derived_signal_has_the_units_that_the_source_was_told(units: tuple[str, ...]) -> None:
    for asked, options in (
        (role("velocity", "state/arm"), {}),
        (role("gripper_state", "state/arm", closed=0, open=1), {"closed": 0, "open": 1}),
        (role("action_delta", "state/arm", to="next"), {"to": "next"}),
    ):
        entry = DERIVED[asked.function]
        told = entry.units_of((units,), entry.options.model_validate(options))
        found = apply_derived([asked], {"state/arm": flat(units)})["state/made"].units
        assert found == ((told,) * len(units) if isinstance(told, str) else told)
