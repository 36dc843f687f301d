"""Velocity, the state of a gripper, and the difference between action and state.

Axis letters: T steps, D dimensions, F *fresh* rows: those that hold something newly captured, the first of each
valid stretch among them. Differences are taken between fresh rows of one stretch, over the time between their
captures; so neither a held row nor the grid's rate shows in them, and none reaches across a gap.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from dyna_assets.angles import Turning
from dyna_assets.derive.registry import Signal, Values, derived, refused
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


@derived("velocity", VelocityOptions, units="those of the signal per second")
def velocity(inputs: tuple[Signal, ...], options: VelocityOptions) -> Signal:
    """How fast each dimension changes; 0 where nothing came before (backward), and at steps that are not valid."""
    (signal,) = inputs
    turning = _without_quaternions(signal, "their rate is no difference of their parts")
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
    return signal.with_values(made_TD, signal.names, [f"{unit}/s" if unit else "" for unit in signal.units])


@derived("gripper_state", GripperOptions, units="none: 0 closed, 1 open")
def gripper_state(inputs: tuple[Signal, ...], options: GripperOptions) -> Signal:
    """How far a gripper is open: 0 closed, 1 open, whatever the robot's own numbers are."""
    (signal,) = inputs
    names = options.dims or signal.names
    share_TD = (signal.values_TD[:, signal.dims(names)] - options.closed) / (options.open - options.closed)
    return signal.with_values(np.clip(share_TD, 0.0, 1.0), names, [""] * len(names))


@derived("action_delta", DeltaOptions, units="those of the action", num_inputs=range(1, 3))
def action_delta(inputs: tuple[Signal, ...], options: DeltaOptions) -> Signal:
    """How far the action is from the state, or from the next action; 0 where one of the two is not valid."""
    action = inputs[0]
    turning = _without_quaternions(action, "a difference of their parts is no rotation")
    if options.to == "next":
        if len(inputs) > 1:
            raise refused("to = 'next' compares an action with itself: name one signal in 'of'")
        delta_TD, valid_T = _to_next(action)
        return Signal(turning.shorter(delta_TD), action.times_T, valid_T, action.names, action.units)
    if len(inputs) < 2:
        raise refused("to = 'state' needs two signals in 'of': the action, then the state")
    state = inputs[1]
    if (len(action.names), action.units) != (len(state.names), state.units):
        raise refused(
            f"the action has {len(action.names)} dimensions in {_listed(action.units)}, the state "
            f"{len(state.names)} in {_listed(state.units)}; they must be alike, "
            f"in the same order{_units_hint(action, state)}"
        )
    valid_T = action.valid_T & state.valid_T
    delta_TD = turning.shorter(action.values_TD - state.values_TD) * valid_T[:, None]
    return Signal(delta_TD, np.maximum(action.times_T, state.times_T), valid_T, action.names, action.units)


def _units_hint(action: Signal, state: Signal) -> str:
    """What to write in the source's TOML where only one of the two has units."""
    if len(action.names) != len(state.names) or any(action.units) == any(state.units):
        return ""
    table, units = ("actions", state.units) if any(state.units) else ("states", action.units)
    written = f'"{units[0]}"' if len(set(units)) == 1 else "[" + ", ".join(f'"{u}"' for u in units) + "]"
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


def _without_quaternions(signal: Signal, why_not: str) -> Turning:
    if "quat" in signal.units:
        names = [name for name, unit in zip(signal.names, signal.units, strict=True) if unit == "quat"]
        raise refused(
            f"{', '.join(names)} are a quaternion, and {why_not}; derive from a signal without them"
        )
    return Turning.of(signal.values_TD, signal.units, where="derived")


def _listed(units: tuple[str, ...]) -> str:
    return ", ".join(repr(unit) for unit in dict.fromkeys(units)) or "no unit"
