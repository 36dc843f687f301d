"""Velocity, the state of a gripper, and the difference between action and state.

Axis letters: T steps, D dimensions, F *fresh* rows: those that hold something newly captured, the first of each
valid stretch among them. Differences are taken between fresh rows of one stretch, over the time between their
captures; so neither a held row nor the grid's rate shows in them, and none reaches across a gap.
"""

from __future__ import annotations

import json
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from dyna_assets.angles import Turning
from dyna_assets.derive.registry import Signal, Units, Values, derived, refused, units_in, units_text
from dyna_train.config import Config


class VelocityOptions(Config):
    """difference: 'backward' knows only the past, as a policy does; 'central' is smoother and knows the next row."""

    difference: Literal["backward", "central"] = "backward"


class GripperOptions(Config):
    """closed, open: the values of a closed and an open gripper. dims: names of the dimensions; none: all of them."""

    closed: float
    open: float
    dims: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _are_two(self) -> GripperOptions:
        if not np.isfinite([self.closed, self.open]).all() or self.closed == self.open:
            raise ValueError(f"closed = {self.closed} and open = {self.open} must be two different numbers")
        return self


class DeltaOptions(Config):
    """to: 'state': action - state at the same step. 'next': the action at the next step - this one."""

    to: Literal["state", "next"] = "state"


def _velocity_units(of: tuple[Units, ...], options: VelocityOptions) -> Units:
    (units,) = of
    _refuse_quaternions(units, "its rate is no difference of its parts")
    return _per_second(units) if isinstance(units, str) else tuple(map(_per_second, units))


def _per_second(unit: str) -> str:
    return f"{unit}/s" if unit else ""


def _gripper_units(of: tuple[Units, ...], options: GripperOptions) -> Units:
    return ""


def _delta_units(of: tuple[Units, ...], options: DeltaOptions) -> Units:
    _refuse_quaternions(of[0], "a difference of its parts is no rotation")
    if options.to == "next" and len(of) > 1:
        raise refused("to = 'next' compares an action with itself: name one signal in 'of'")
    if options.to == "state" and len(of) < 2:
        raise refused("to = 'state' needs two signals in 'of': the action, then the state")
    if options.to == "state" and not _are_alike(*of):
        raise refused(
            f"the action is {_said(of[0])}, the state {_said(of[1])}; they must be alike, "
            f"in the same order{_units_hint(*of)}"
        )
    return of[0]


@derived("velocity", VelocityOptions, units="those of the signal per second", units_of=_velocity_units)
def velocity(inputs: tuple[Signal, ...], options: VelocityOptions) -> Signal:
    """How fast each dimension changes; 0 where nothing came before (backward), and at steps that are not valid."""
    (signal,) = inputs
    turning = _turning(signal)
    fresh_T, stretch_T = _fresh(signal)
    rows_F, stretch_F = np.flatnonzero(fresh_T), stretch_T[fresh_T]
    joined_F = stretch_F[1:] == stretch_F[:-1]
    apart_s = np.where(joined_F, np.diff(signal.times_T[rows_F]) / 1e9, 1.0)[:, None]
    slope_FD = turning.shorter(np.diff(signal.values_TD[rows_F], axis=0)) / apart_s * joined_F[:, None]
    made_FD = np.zeros((len(rows_F), len(signal.names)))
    if options.difference == "backward":
        made_FD[1:] = slope_FD
    else:
        made_FD = _central(slope_FD, apart_s, joined_F)
    held_T = np.maximum(np.cumsum(fresh_T) - 1, 0)
    made_TD = made_FD[held_T] if len(rows_F) else np.zeros_like(signal.values_TD)
    made_TD = made_TD * signal.valid_T[:, None]
    return signal.with_values(made_TD, signal.names, [_per_second(unit) for unit in signal.units])


@derived("gripper_state", GripperOptions, units="none: 0 closed, 1 open", units_of=_gripper_units)
def gripper_state(inputs: tuple[Signal, ...], options: GripperOptions) -> Signal:
    """How far a gripper is open: 0 closed, 1 open, whatever the robot's own numbers are."""
    (signal,) = inputs
    names = options.dims or signal.names
    share_TD = (signal.values_TD[:, signal.dims(names)] - options.closed) / (options.open - options.closed)
    return signal.with_values(np.clip(share_TD, 0.0, 1.0), names, [""] * len(names))


@derived(
    "action_delta", DeltaOptions, units="those of the action", units_of=_delta_units, num_inputs=range(1, 3)
)
def action_delta(inputs: tuple[Signal, ...], options: DeltaOptions) -> Signal:
    """How far the action is from the state, or from the next action; 0 where one of the two is not valid."""
    action = inputs[0]
    turning = _turning(action)
    if options.to == "next":
        delta_TD, valid_T = _to_next(action)
        return Signal(turning.shorter(delta_TD), action.times_T, valid_T, action.names, action.units)
    state = inputs[1]
    valid_T = action.valid_T & state.valid_T
    delta_TD = turning.shorter(action.values_TD - state.values_TD) * valid_T[:, None]
    return Signal(delta_TD, np.maximum(action.times_T, state.times_T), valid_T, action.names, action.units)


def _are_alike(action: Units, state: Units) -> bool:
    if isinstance(action, str) == isinstance(state, str):
        return action == state
    return units_in(action) == units_in(state)


def _said(units: Units) -> str:
    """'3-dimensional in 'rad', 'm''; the number is left out where it is not known yet."""
    return ("" if isinstance(units, str) else f"{len(units)}-dimensional ") + f"in {units_text(units)}"


def _units_hint(action: Units, state: Units) -> str:
    """What to write in the source's TOML where only one of the two has units."""
    has_other_size = not isinstance(action, str) and not isinstance(state, str) and len(action) != len(state)
    if has_other_size or any(units_in(action)) == any(units_in(state)):
        return ""
    table, units = ("actions", state) if any(units_in(state)) else ("states", action)
    every = units_in(units)
    written = json.dumps(every[0] if len(every) == 1 else units)
    return f". Write units = {written} under the [[{table}]] of that name"


def _fresh(signal: Signal) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """(which steps are fresh, the number of the valid stretch each step is in)."""
    valid_T = signal.valid_T
    starts_T = valid_T & ~np.concatenate([[False], valid_T[:-1]])
    captured_T = np.concatenate([[True], signal.times_T[1:] > signal.times_T[:-1]])
    return valid_T & (starts_T | captured_T), np.cumsum(starts_T)


def _central(slope_FD: Values, apart_s: Values, joined_F: NDArray[np.bool_]) -> Values:
    """The slope of the parabola through a row and its two neighbours; at the ends of a stretch that to the only one."""
    num_dims = slope_FD.shape[1]
    nothing, no_time, no_row = np.zeros((1, num_dims)), np.ones((1, 1)), np.zeros((1, 1))
    joined = joined_F[:, None].astype(np.float64)
    slope_before, slope_after = np.vstack([nothing, slope_FD]), np.vstack([slope_FD, nothing])
    time_before, time_after = np.vstack([no_time, apart_s]), np.vstack([apart_s, no_time])
    has_before, has_after = np.vstack([no_row, joined]), np.vstack([joined, no_row])
    # the nearer neighbour counts for more; one that is not there for nothing
    weight_before = has_before * np.where(has_after > 0, time_after, 1.0)
    weight_after = has_after * np.where(has_before > 0, time_before, 1.0)
    total = weight_before + weight_after
    weighted = slope_before * weight_before + slope_after * weight_after
    return np.asarray(weighted / np.where(total > 0, total, 1.0))


def _to_next(action: Signal) -> tuple[Values, NDArray[np.bool_]]:
    """Differences to the next step, and the steps that have one."""
    both_T = np.concatenate([action.valid_T[:-1] & action.valid_T[1:], [False]])
    delta_TD = np.zeros_like(action.values_TD)
    delta_TD[:-1] = np.diff(action.values_TD, axis=0)
    return delta_TD * both_T[:, None], both_T


def _refuse_quaternions(units: Units, why_not: str) -> None:
    if "quat" in units_in(units):
        raise refused(f"unit 'quat' is a quaternion, and {why_not}; derive from a signal without one")


def _turning(signal: Signal) -> Turning:
    return Turning.of(signal.values_TD, signal.units, where="derived")
