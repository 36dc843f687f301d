"""Forward kinematics: the pose of one link of a robot in another, from the values of the joints between.

Axis letters: T steps (or one row that stands for all), three coordinates, four parts of a quaternion (w x y z).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dyna_assets.derive.registry import Values, refused
from dyna_assets.derive.urdf import FIXED, SLIDING, TURNING, Joint


@dataclass(frozen=True, slots=True)
class Moving:
    """A joint of a chain with what it follows: factor * value of `driver` + offset. A fixed one follows ''."""

    joint: Joint
    driver: str = ""
    factor: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Chain:
    """The joints from a base link to a tip link, in order."""

    path: tuple[Moving, ...]

    @classmethod
    def between(cls, joints: Mapping[str, Joint], base: str, tip: str) -> Chain:
        """The chain of a robot's `joints` from link `base` out to link `tip`. Raises RecordingError if none is."""
        return cls(tuple(_moving(joints, joint) for joint in _path(joints, base, tip)))

    @property
    def drivers(self) -> dict[str, Joint]:
        """The joints whose values the pose follows from, each with a joint of the chain that it moves."""
        return {moving.driver: moving.joint for moving in self.path if moving.driver}

    def pose(self, values: Mapping[str, Values]) -> tuple[Values, Values]:
        """Position [T, 3] in metres and rotation [T, 4] of the tip in the base. values: driver -> [T] rad or m."""
        xyz_T3, q_T4 = np.zeros((1, 3)), np.array([[1.0, 0.0, 0.0, 0.0]])
        for moving in self.path:
            joint = moving.joint
            xyz_T3 = xyz_T3 + rotate(q_T4, np.array([joint.xyz]))
            q_T4 = multiply(q_T4, of_rpy(*joint.rpy))
            if not joint.moves:
                continue
            value_T1 = (moving.factor * values[moving.driver] + moving.offset)[:, None]
            if joint.kind in SLIDING:
                xyz_T3 = xyz_T3 + rotate(q_T4, value_T1 * np.array([joint.axis]))
            else:
                q_T4 = multiply(q_T4, about(np.array([joint.axis]), value_T1))
        return xyz_T3, q_T4


def multiply(left_T4: Values, right_T4: Values) -> Values:
    """Products of quaternions, rows broadcast: the right turn in the frame that the left one leads to."""
    a, b, c, d = (left_T4[:, n : n + 1] for n in range(4))
    e, f, g, h = (right_T4[:, n : n + 1] for n in range(4))
    parts = (
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    )
    return np.hstack(parts)


def rotate(q_T4: Values, xyz_T3: Values) -> Values:
    """Vectors turned by unit quaternions, rows broadcast."""
    twice_T3 = 2 * np.cross(q_T4[:, 1:], xyz_T3)
    return np.asarray(xyz_T3 + q_T4[:, :1] * twice_T3 + np.cross(q_T4[:, 1:], twice_T3))


def about(axis_T3: Values, angle_T1: Values) -> Values:
    """Quaternions of turns about unit axes by radians, rows broadcast."""
    half_T1 = angle_T1 / 2
    return np.hstack([np.cos(half_T1), axis_T3 * np.sin(half_T1)])


def of_rpy(roll: float, pitch: float, yaw: float) -> Values:
    """The quaternion [1, 4] of turns about the fixed x, then y, then z axis."""
    turns = [
        about(axis[None], np.array([[angle]]))
        for axis, angle in zip(np.eye(3), (roll, pitch, yaw), strict=True)
    ]
    return multiply(turns[2], multiply(turns[1], turns[0]))


def _path(joints: Mapping[str, Joint], base: str, tip: str) -> list[Joint]:
    """The joints from base to tip, in order."""
    above = {joint.child: joint for joint in joints.values()}
    links = set(above) | {joint.parent for joint in joints.values()}
    for link in (base, tip):
        if link not in links:
            raise refused(f"the URDF has no link '{link}'; its links: {', '.join(sorted(links)) or 'none'}")
    path: list[Joint] = []
    link = tip
    while link != base:
        if link not in above or len(path) == len(above):
            raise refused(f"no joints of the URDF lead from link '{base}' out to '{tip}'")
        path.append(above[link])
        link = above[link].parent
    for joint in path:
        if joint.kind not in (*TURNING, *SLIDING, *FIXED):
            kinds = ", ".join((*TURNING, *SLIDING, *FIXED))
            raise refused(
                f"joint '{joint.name}' of the URDF is of type '{joint.kind}', expected one of {kinds}"
            )
    return path[::-1]


def _moving(joints: Mapping[str, Joint], joint: Joint) -> Moving:
    """The joint with the one it mimics, if need be through others."""
    if not joint.moves:
        return Moving(joint)
    driver, factor, offset, seen = joint, 1.0, 0.0, [joint.name]
    while driver.mimics is not None:
        name, times, plus = driver.mimics
        factor, offset = factor * times, offset + factor * plus
        if name in seen or name not in joints:
            reason = "itself, in a circle" if name in seen else f"'{name}', which the URDF does not have"
            raise refused(f"joint '{joint.name}' of the URDF mimics {reason}")
        seen.append(name)
        driver = joints[name]
    return Moving(joint, driver.name, factor, offset)
