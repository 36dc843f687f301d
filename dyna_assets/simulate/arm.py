"""A planar arm: two links that turn in the plane of the table, a hand that turns and lifts, a gripper.

Axis letters: N poses, J joints of one arm, 2 = x and y on the table in metres (x right, y away from the
operator, origin in the middle of the table).  Angles are radians, counted from +x towards +y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

JOINTS = ("shoulder", "elbow", "wrist", "lift", "gripper")
UNITS = ("rad", "rad", "rad", "m", "m")
NUM_JOINTS = len(JOINTS)

UPPER_M, FORE_M, HAND_M = 0.26, 0.24, 0.10  # shoulder to elbow, elbow to wrist, wrist to pinch point
OPEN_M = 0.085  # widest opening between the finger pads


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: where it stands, and to which side its elbow bends (+1 counter-clockwise, -1 clockwise)."""

    side: str
    base_xy: tuple[float, float]
    bend: int


LEFT = Arm("left", (-0.33, -0.21), -1)
RIGHT = Arm("right", (0.33, -0.21), 1)
ARMS = (LEFT, RIGHT)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a pinch point should be: x and y on the table, height (m), direction of the fingers (rad)."""

    x: float
    y: float
    lift: float
    yaw: float


@dataclass(frozen=True, slots=True)
class Pose:
    """Where the parts of an arm are, for N instants."""

    elbow_N2: NDArray[np.float64]
    wrist_N2: NDArray[np.float64]
    pinch_N2: NDArray[np.float64]
    yaw_N: NDArray[np.float64]
    lift_N: NDArray[np.float64]
    opening_N: NDArray[np.float64]


def directions(angle_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unit vectors [N, 2] in the directions `angle_N`."""
    return np.stack([np.cos(angle_N), np.sin(angle_N)], axis=-1)


def forward(arm: Arm, joints_NJ: NDArray[np.float64]) -> Pose:
    """Where the arm's parts are for joint positions `joints_NJ` (columns as in JOINTS)."""
    shoulder_N, elbow_N, wrist_N, lift_N, opening_N = joints_NJ.T
    elbow_N2 = np.array(arm.base_xy) + UPPER_M * directions(shoulder_N)
    wrist_N2 = elbow_N2 + FORE_M * directions(shoulder_N + elbow_N)
    yaw_N = shoulder_N + elbow_N + wrist_N
    pinch_N2 = wrist_N2 + HAND_M * directions(yaw_N)
    return Pose(elbow_N2, wrist_N2, pinch_N2, yaw_N, lift_N, opening_N)


def inverse(arm: Arm, target: Target, opening_m: float) -> NDArray[np.float64]:
    """Joint positions [J] that put the pinch point at `target`; each angle in (-pi, pi].

    Raises ValueError if the arm is too short for it.
    """
    dx = target.x - HAND_M * math.cos(target.yaw) - arm.base_xy[0]
    dy = target.y - HAND_M * math.sin(target.yaw) - arm.base_xy[1]
    cosine = (dx * dx + dy * dy - UPPER_M**2 - FORE_M**2) / (2 * UPPER_M * FORE_M)
    if abs(cosine) > 1:
        raise ValueError(
            f"{arm.side} arm: its wrist would be {math.hypot(dx, dy):.3f} m from its base to reach {target}; "
            f"it reaches {abs(UPPER_M - FORE_M):.3f} to {UPPER_M + FORE_M:.3f} m"
        )
    elbow = arm.bend * math.acos(cosine)
    shoulder = math.atan2(dy, dx) - math.atan2(FORE_M * math.sin(elbow), UPPER_M + FORE_M * cosine)
    angles = (shoulder, elbow, target.yaw - shoulder - elbow)
    turned = [math.remainder(angle, 2 * math.pi) for angle in angles]
    return np.array([*turned, target.lift, opening_m])
