"""Where the end effector is: forward kinematics over the steps of an episode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

import numpy as np
from pydantic import Field, FiniteFloat

from dyna_assets.derive.kinematics import Chain
from dyna_assets.derive.registry import Signal, Units, Values, derived, refused, units_in, units_text
from dyna_assets.derive.urdf import SLIDING, Joint, read_urdf
from dyna_train.config import Config
from dyna_train.errors import ConfigError
from dyna_train.files import open_store

NAMES = ("x", "y", "z", "qw", "qx", "qy", "qz")
UNITS = ("m", "m", "m", "quat", "quat", "quat", "quat")
TO_RADIANS = {"rad": 1.0, "": 1.0, "deg": math.pi / 180}
TO_METRES = {"m": 1.0, "": 1.0, "mm": 1e-3, "cm": 1e-2}


class PoseOptions(Config):
    """urdf: the robot's URDF, as text or as the address of a file. base, tip: links; the pose is that of tip in base.

    joints: joint of the URDF -> the dimension that holds its value, or a fixed value in rad or m. A joint that is not
    named here has a dimension of its own name.
    """

    urdf: str = Field(min_length=1)
    base: str
    tip: str
    joints: Mapping[str, str | FiniteFloat] = Field(default_factory=dict)


def _pose_units(of: tuple[Units, ...], options: PoseOptions) -> Units:
    known = (*TO_RADIANS, *TO_METRES)
    for units in of:
        if not set(units_in(units)) & set(known):
            raise refused(f"no joint is in {units_text(units)}, expected one of {units_text(known)}")
    return UNITS


@derived(
    "end_effector_pose",
    PoseOptions,
    units="m, and a quaternion w x y z",
    units_of=_pose_units,
    num_inputs=range(1, 9),
)
def end_effector_pose(inputs: tuple[Signal, ...], options: PoseOptions) -> Signal:
    """Position and rotation of a link, from the joints between it and a base link by the robot's URDF."""
    chain = Chain.between(read_urdf(_text(options.urdf)), options.base, options.tip)
    unknown = sorted(set(options.joints) - set(chain.drivers))
    if unknown:
        raise refused(
            f"'joints' names {', '.join(unknown)}; those between '{options.base}' and '{options.tip}' are "
            f"{', '.join(chain.drivers) or 'none'}"
        )
    values = {
        driver: _joint_values(inputs, driver, joint, options.joints.get(driver, driver))
        for driver, joint in chain.drivers.items()
    }
    num_steps = len(inputs[0].values_TD)
    xyz_T3, q_T4 = chain.pose(values)
    pose_T7 = np.hstack(
        [np.broadcast_to(xyz_T3, (num_steps, 3)), _steady(np.broadcast_to(q_T4, (num_steps, 4)))]
    )
    times_T = reduce(np.maximum, [signal.times_T for signal in inputs])
    valid_T = reduce(np.logical_and, [signal.valid_T for signal in inputs])
    return Signal(pose_T7, times_T, valid_T, NAMES, UNITS)


def _joint_values(inputs: tuple[Signal, ...], driver: str, joint: Joint, source: str | float) -> Values:
    """The values of one joint in rad or m: [T], or [1] if it is fixed."""
    if not isinstance(source, str):
        return np.array([float(source)])
    holding = [signal for signal in inputs if source in signal.names]
    if len(holding) != 1:
        there = ", ".join(name for signal in inputs for name in signal.names)
        found = "none" if not holding else f"{len(holding)} signals"
        raise refused(
            f"joint '{driver}' needs one dimension '{source}', found in {found}; dimensions: {there}. Name it under "
            "'joints' in the options, or give it a fixed value there"
        )
    dim = holding[0].names.index(source)
    unit, known = holding[0].units[dim], TO_METRES if joint.kind in SLIDING else TO_RADIANS
    if unit not in known:
        raise refused(
            f"joint '{driver}' ({joint.kind}): dimension '{source}' is in '{unit}', "
            f"expected one of {units_text(tuple(known))}"
        )
    return np.asarray(holding[0].values_TD[:, dim] * known[unit])


def _steady(q_T4: Values) -> Values:
    """The same rotations: of the two quaternions of each, the one nearer to that of the step before."""
    follows_T = np.where((q_T4[1:] * q_T4[:-1]).sum(axis=1) < 0, -1.0, 1.0)
    first = -1.0 if q_T4[0, 0] < 0 else 1.0
    return np.asarray(q_T4 * np.cumprod(np.concatenate([[first], follows_T]))[:, None])


def _text(urdf: str) -> str:
    """The URDF itself; an address is read."""
    if "<" in urdf:
        return urdf
    fs, path = open_store(urdf)
    try:
        return str(fs.read_text(path, encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"urdf = '{urdf}': no such file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"urdf = '{urdf}': not UTF-8 text at byte {error.start}") from None
