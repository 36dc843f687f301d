"""The hand-over of a cube from the right arm to the left one, as physics and not as a script.

The operator's script moves the leaders; the followers lag behind them; the cube is held by friction, slips,
falls and bounces.  Whether the episode succeeded is read off the world's last instant.

Axis letters: S instants of the simulation, N instants asked for, K keys of the script, J joints of both
arms (left, then right).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.simulate.arm import (
    ARMS,
    LEFT,
    NUM_JOINTS,
    OPEN_M,
    RIGHT,
    Arm,
    Pose,
    Target,
    forward,
    inverse,
)
from dyna_assets.simulate.scene import TREMOR_HZ, Scene

STEP_HZ = 250
CUBE_M = 0.05  # edge of the cube
NOMINAL_S = 6.0

_GRIP_M = 0.052  # an opening below this touches a cube between the fingers
_REACH_M = 0.030  # the pads end this far beyond the pinch point: a cube further out is not held
_FIRM_M = 0.016  # a cube grasped within this does not creep
_ASIDE_M = 0.018  # a cube further to the side is not between the fingers
_CREEP = 0.06  # metres of creep per metre of travel for a loosely held cube
_LAG_HZ = 5.0  # bandwidth of the followers
_GRAVITY = 9.81
_CARRY_M = 0.12


@dataclass(frozen=True, slots=True)
class Keys:
    """The operator's script: leader joints at times, with smooth moves in between."""

    time_s_K: NDArray[np.float64]
    joints_KJ: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The world at N instants: cube_N4 is x, y, height of its lower face (m) and yaw (rad)."""

    arms: dict[str, Pose]
    cube_N4: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class World:
    """One simulated episode, S instants at STEP_HZ from 0 s.

    leader_SJ, follower_SJ: positions; velocity_SJ, effort_SJ: of the followers, per second and in newtons or
    newton metres.  held_S2: whether the left and the right gripper hold the cube.
    """

    scene: Scene
    time_s_S: NDArray[np.float64]
    leader_SJ: NDArray[np.float64]
    follower_SJ: NDArray[np.float64]
    velocity_SJ: NDArray[np.float64]
    effort_SJ: NDArray[np.float64]
    cube_S4: NDArray[np.float64]
    held_S2: NDArray[np.bool_]

    @property
    def end_s(self) -> float:
        """Length of the episode in seconds."""
        return float(self.time_s_S[-1])

    @property
    def success(self) -> bool:
        """True if at the end the left gripper alone holds the cube, clear of the table."""
        left, right = self.held_S2[-1]
        return bool(left and not right and self.cube_S4[-1, 2] > CUBE_M)

    def at(self, time_s_N: NDArray[np.float64]) -> Snapshot:
        """The world at `time_s_N`, linear between simulated instants."""
        joints_NJ = sample(self.time_s_S, self.follower_SJ, time_s_N)
        arms = {arm.side: forward(arm, joints_NJ[:, columns(arm)]) for arm in ARMS}
        return Snapshot(arms, sample(self.time_s_S, self.cube_S4, time_s_N))


def columns(arm: Arm) -> slice:
    """The columns of `arm` among the joints of both."""
    first = ARMS.index(arm) * NUM_JOINTS
    return slice(first, first + NUM_JOINTS)


def sample(
    time_s_S: NDArray[np.float64], values_SD: NDArray[np.float64], time_s_N: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`values_SD` at `time_s_N` [N, D], linear in between, the ends held."""
    return np.stack([np.interp(time_s_N, time_s_S, column_S) for column_S in values_SD.T], axis=1)


def simulate(scene: Scene, seconds: float = NOMINAL_S) -> World:
    """Let the operator of `scene` work for about `seconds`; everything scales with it."""
    keys = write_script(scene, seconds)
    time_s_S = np.arange(round(keys.time_s_K[-1] * STEP_HZ) + 1) / STEP_HZ
    leader_SJ = lead(keys, scene, time_s_S)
    lag_s = seconds / NOMINAL_S / (2 * math.pi * _LAG_HZ)
    wanted_SJ = follow(leader_SJ, lag_s)
    cube_S4, held_S2 = move_cube(scene, wanted_SJ)
    follower_SJ = wanted_SJ.copy()
    for index, arm in enumerate(ARMS):  # fingers stop at the cube they hold, whatever the trigger asks for
        gripper_S = follower_SJ[:, columns(arm)][:, -1]
        gripper_S[held_S2[:, index]] = np.maximum(gripper_S[held_S2[:, index]], CUBE_M)
    stiffness_J = np.tile([18.0, 12.0, 5.0, 240.0, 160.0], 2)
    return World(
        scene=scene,
        time_s_S=time_s_S,
        leader_SJ=leader_SJ,
        follower_SJ=follower_SJ,
        velocity_SJ=np.gradient(follower_SJ, 1 / STEP_HZ, axis=0),
        effort_SJ=stiffness_J * (leader_SJ - follower_SJ),
        cube_S4=cube_S4,
        held_S2=held_S2,
    )


def approach(scene: Scene) -> float:
    """Direction (rad) in which the right hand reaches for the cube, square to two of its faces."""
    (cube_x, cube_y), (base_x, base_y) = scene.cube_xy, RIGHT.base_xy
    return math.atan2(cube_y - base_y, cube_x - base_x) + 0.5 + scene.cube_yaw


def write_script(scene: Scene, seconds: float) -> Keys:
    """Key poses of both leaders: pick on the right, meet in the middle, carry off to the left."""
    (cube_x, cube_y), (meet_x, meet_y) = scene.cube_xy, scene.meet_xy
    reach = approach(scene)
    pick_x, pick_y = cube_x - scene.slack_m * math.cos(reach), cube_y - scene.slack_m * math.sin(reach)
    aside = 0.03 if scene.mistake == "missed hand" else 0.0
    home_l, home_r = Target(-0.20, 0.0, _CARRY_M, 0.6), Target(0.20, 0.0, _CARRY_M, math.pi - 0.6)
    above, down = (Target(pick_x, pick_y, lift, reach) for lift in (_CARRY_M, 0.004))
    meet_r = Target(meet_x + 0.005, meet_y, _CARRY_M, math.pi)
    near_l, meet_l = (Target(meet_x - gap, meet_y + aside, _CARRY_M, 0.0) for gap in (0.09, 0.003))
    away_r, goal_l = Target(meet_x + 0.11, meet_y, _CARRY_M, math.pi), Target(-0.17, 0.06, 0.10, 0.3)
    opened, shut = OPEN_M, 0.02
    # While the cube changes hands: close left, then open right; a hasty operator opens first.
    left_first, right_first = (shut, shut), (opened, opened)
    between = right_first if scene.mistake == "early release" else left_first
    moves: list[tuple[float, Target, float, Target, float]] = [
        (0.3, home_l, opened, home_r, opened),
        (0.9, home_l, opened, above, opened),
        (0.5, home_l, opened, down, opened),
        (0.3, home_l, opened, down, shut),
        (0.5, home_l, opened, above, shut),
        (0.8, near_l, opened, meet_r, shut),
        (0.5, meet_l, opened, meet_r, shut),
        (0.3, meet_l, between[0], meet_r, between[1]),
        (0.3, meet_l, shut, meet_r, opened),
        (0.6, meet_l, shut, away_r, opened),
        (0.7, goal_l, shut, home_r, opened),
        (0.3, goal_l, shut, home_r, opened),
    ]
    joints_KJ = np.stack([np.r_[inverse(LEFT, a, x), inverse(RIGHT, b, y)] for _, a, x, b, y in moves])
    duration_s_K = np.array([move[0] for move in moves]) * scene.pace_K * seconds / NOMINAL_S
    turned_KJ = np.where(
        np.tile([True, True, True, False, False], 2), np.unwrap(joints_KJ, axis=0), joints_KJ
    )
    return Keys(np.r_[0.0, np.cumsum(duration_s_K)], np.vstack([turned_KJ[:1], turned_KJ]))


def lead(keys: Keys, scene: Scene, time_s_S: NDArray[np.float64]) -> NDArray[np.float64]:
    """Leader joints [S, J]: the smoothest move (minimum jerk) from key to key, and the hand's tremor."""
    after_S = np.clip(np.searchsorted(keys.time_s_K, time_s_S), 1, len(keys.time_s_K) - 1)
    begin_S, end_S = keys.time_s_K[after_S - 1], keys.time_s_K[after_S]
    part_S1 = np.clip((time_s_S - begin_S) / (end_S - begin_S), 0, 1)[:, None]
    smooth_S1 = part_S1**3 * (10 - 15 * part_S1 + 6 * part_S1**2)
    path_SJ = keys.joints_KJ[after_S - 1] * (1 - smooth_S1) + keys.joints_KJ[after_S] * smooth_S1
    phase_FS = 2 * np.pi * np.outer(TREMOR_HZ, time_s_S) + np.arange(len(TREMOR_HZ))[:, None]
    return np.asarray(path_SJ + (scene.tremor_JF @ np.sin(phase_FS)).T)


def follow(leader_SJ: NDArray[np.float64], lag_s: float) -> NDArray[np.float64]:
    """Where followers of bandwidth 1 / lag_s (critically damped, second order) are, [S, J]."""
    time_s = np.arange(max(2, math.ceil(12 * lag_s * STEP_HZ))) / STEP_HZ
    kernel = (time_s + 0.5 / STEP_HZ) * np.exp(-time_s / lag_s)
    kernel /= kernel.sum()
    before_SJ = np.vstack([np.repeat(leader_SJ[:1], len(kernel) - 1, axis=0), leader_SJ])
    return np.stack([np.convolve(column, kernel, "valid") for column in before_SJ.T], axis=1)


def move_cube(scene: Scene, joints_SJ: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Where the cube goes while the followers move along `joints_SJ`: cube_S4 and held_S2 as in World."""
    hands = [_Hand.of(forward(arm, joints_SJ[:, columns(arm)])) for arm in ARMS]
    cube = _Cube(*scene.cube_xy, 0.0, approach(scene))
    rows: list[tuple[float, float, float, float]] = []
    held: list[tuple[bool, bool]] = []
    for step in range(len(joints_SJ)):
        for hand in hands:
            hand.grip(step, cube)
        cube.move(step, [hand for hand in hands if hand.holds])
        rows.append((cube.x, cube.y, cube.z, cube.yaw))
        held.append((hands[0].holds, hands[1].holds))
    return np.array(rows), np.array(held)


@dataclass(slots=True)
class _Cube:
    x: float
    y: float
    z: float
    yaw: float
    vx: float = 0.0
    vy: float = 0.0
    vz: float = 0.0

    def move(self, step: int, holders: list[_Hand]) -> None:
        """One step: with the hand that holds it longest, or by gravity."""
        if holders:
            self._carry(step, min(holders, key=lambda hand: hand.since))
        elif self.z > 0 or self.vz != 0:
            self._fall()

    def _carry(self, step: int, hand: _Hand) -> None:
        x, y = self.x, self.y
        self.x, self.y, self.z, self.yaw = hand.place(step)
        self.vx, self.vy, self.vz = (self.x - x) * STEP_HZ, (self.y - y) * STEP_HZ, 0.0

    def _fall(self) -> None:
        self.vz -= _GRAVITY / STEP_HZ
        self.z += self.vz / STEP_HZ
        self.x += self.vx / STEP_HZ
        self.y += self.vy / STEP_HZ
        if self.z <= 0:  # it bounces a little and loses most of its way on the table
            self.z, self.vx, self.vy = 0.0, self.vx * 0.5, self.vy * 0.5
            self.vz = -0.3 * self.vz if self.vz < -0.3 else 0.0
            self.yaw += 0.2


@dataclass(slots=True)
class _Hand:
    """A gripper: x, y, yaw, lift and opening of every instant, and how it holds the cube."""

    rows: list[list[float]]
    shut: bool = False
    holds: bool = False
    since: int = 0
    ahead: float = 0.0  # of the cube's middle in the hand's frame: along the fingers, across, up, turned
    aside: float = 0.0
    up: float = 0.0
    turn: float = 0.0

    @classmethod
    def of(cls, pose: Pose) -> _Hand:
        table = np.column_stack([pose.pinch_N2, pose.yaw_N, pose.lift_N, pose.opening_N])
        return cls(table.tolist())

    def grip(self, step: int, cube: _Cube) -> None:
        """Catch the cube if the fingers just closed around it; let go if they opened or it crept out."""
        x, y, yaw, lift, opening = self.rows[step]
        was_shut, self.shut = self.shut, opening < _GRIP_M
        if not self.shut or self.ahead > _REACH_M:
            self.holds = False
        if self.holds or not self.shut or was_shut:
            return
        dx, dy = cube.x - x, cube.y - y
        self.ahead = dx * math.cos(yaw) + dy * math.sin(yaw)
        self.aside = dy * math.cos(yaw) - dx * math.sin(yaw)
        self.up, self.turn, self.since = cube.z - lift, cube.yaw - yaw, step
        self.holds = abs(self.ahead) <= _REACH_M and abs(self.aside) <= _ASIDE_M and abs(self.up) <= 0.02

    def place(self, step: int) -> tuple[float, float, float, float]:
        """Where the hand carries the cube; a loosely held one creeps towards the fingertips on the way."""
        x, y, yaw, lift, _ = self.rows[step]
        if abs(self.ahead) > _FIRM_M:
            before = self.rows[step - 1]
            self.ahead += _CREEP * math.hypot(x - before[0], y - before[1], lift - before[3])
        cos, sin = math.cos(yaw), math.sin(yaw)
        return (
            x + self.ahead * cos - self.aside * sin,
            y + self.ahead * sin + self.aside * cos,
            max(0.0, lift + self.up),
            yaw + self.turn,
        )
