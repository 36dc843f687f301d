"""End-effector pose: forward kinematics against poses worked out by hand, and against its own derivative."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dyna_assets.derive import DerivedRole, Signal, apply_derived
from dyna_assets.derive.kinematics import Chain, about, multiply, of_rpy, rotate
from dyna_assets.derive.urdf import read_urdf
from dyna_assets.errors import RecordingError
from dyna_train.errors import ConfigError

# Two links of 1 m and 0.5 m that turn about z, a slide along the last one, and a tool turned by a quarter.
PLANAR = """<?xml version="1.0"?>
<robot name="planar">
  <link name="base"/><link name="upper"/><link name="lower"/><link name="slide"/><link name="tool"/>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><origin xyz="0 0 0.2"/><axis xyz="0 0 1"/>
  </joint>
  <joint name="elbow" type="continuous">
    <parent link="upper"/><child link="lower"/><origin xyz="1 0 0"/><axis xyz="0 0 2"/>
  </joint>
  <joint name="reach" type="prismatic">
    <parent link="lower"/><child link="slide"/><origin xyz="0.5 0 0"/><axis xyz="1 0 0"/>
  </joint>
  <joint name="mount" type="fixed">
    <parent link="slide"/><child link="tool"/><origin xyz="0 0 -0.1" rpy="0 0 1.5707963267948966"/>
  </joint>
  <joint name="finger" type="prismatic">
    <parent link="tool"/><child link="left"/><axis xyz="0 1 0"/>
  </joint>
  <joint name="other" type="prismatic">
    <parent link="tool"/><child link="right"/><axis xyz="0 1 0"/><mimic joint="finger" multiplier="-1" offset="0.01"/>
  </joint>
</robot>"""


def signal(values: Any, names: tuple[str, ...], units: tuple[str, ...]) -> Signal:
    values_TD = np.array(values, np.float64)
    num_steps = len(values_TD)
    return Signal(values_TD, np.arange(num_steps) * 33_333_333, np.ones(num_steps, np.bool_), names, units)


def pose(
    joints: Signal, urdf: str = PLANAR, base: str = "base", tip: str = "tool", **mapped: str | float
) -> Signal:
    options = {"urdf": urdf, "base": base, "tip": tip, "joints": mapped}
    role = DerivedRole(name="tool", function="end_effector_pose", of=("state/arm",), options=options)
    return apply_derived([role], {"state/arm": joints})["state/tool"]


def arm(*rows: tuple[float, ...]) -> Signal:
    return signal(rows, ("shoulder", "elbow", "reach"), ("rad", "rad", "m"))


@pytest.mark.parametrize(
    ("joints", "xyz", "yaw"),
    [
        ((0, 0, 0), (1.5, 0, 0.1), math.pi / 2),
        ((math.pi / 2, 0, 0), (0, 1.5, 0.1), math.pi),
        ((0, math.pi / 2, 0.25), (1, 0.75, 0.1), math.pi),
        ((math.pi / 2, -math.pi / 2, 0.1), (0.6, 1, 0.1), math.pi / 2),
        ((math.pi, math.pi, 0.0), (-0.5, 0, 0.1), math.pi / 2),
    ],
)
def test_the_pose_is_the_one_worked_out_by_hand(
    joints: tuple[float, ...], xyz: tuple[float, ...], yaw: float
) -> None:
    found = pose(arm(joints))
    assert found.names == ("x", "y", "z", "qw", "qx", "qy", "qz")
    assert found.units == ("m", "m", "m", "quat", "quat", "quat", "quat")
    assert found.values_TD[0, :3] == pytest.approx(xyz, abs=1e-12)
    exact = np.array([math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)])
    assert abs(found.values_TD[0, 3:] @ exact) == pytest.approx(1, abs=1e-12)


def test_turns_of_an_origin_are_about_the_fixed_axes_in_order() -> None:
    # x forward turned by roll, then pitch, then yaw, each a quarter, about the axes of the parent
    turned = rotate(of_rpy(math.pi / 2, math.pi / 2, math.pi / 2), np.eye(3))
    assert turned == pytest.approx(np.array([[0, 0, -1], [0, 1, 0], [1, 0, 0]]), abs=1e-12)


angles = st.floats(-math.pi, math.pi)


@given(angles, angles, angles, angles)
def test_quaternions_turn_as_matrices_do(roll: float, pitch: float, yaw: float, angle: float) -> None:
    def matrix(axis: int, by: float) -> NDArray[np.float64]:
        c, s = math.cos(by), math.sin(by)
        made = np.eye(3)
        one, two = [(1, 2), (2, 0), (0, 1)][axis]
        made[one, one] = made[two, two] = c
        made[two, one], made[one, two] = s, -s
        return made

    exact = matrix(2, yaw) @ matrix(1, pitch) @ matrix(0, roll) @ matrix(1, angle)
    q = multiply(of_rpy(roll, pitch, yaw), about(np.array([[0.0, 1.0, 0.0]]), np.array([[angle]])))
    turned = rotate(q, np.eye(3)).T
    assert turned == pytest.approx(exact, abs=1e-12)
    assert np.linalg.norm(q) == pytest.approx(1, abs=1e-12)


# A slanted chain of six joints, no two axes alike.
SLANTED = (
    "<robot>"
    + "".join(
        f'<joint name="j{n}" type="{"prismatic" if n == 3 else "revolute"}">'
        f'<parent link="l{n}"/><child link="l{n + 1}"/>'
        f'<origin xyz="{0.1 * n} {0.3 - 0.05 * n} 0.2" rpy="{0.4 * n} {-0.3 * n} {0.2 + n}"/>'
        f'<axis xyz="{n - 2} {1 + n % 3} {3 - n}"/></joint>'
        for n in range(6)
    )
    + "</robot>"
)


@given(st.lists(angles, min_size=6, max_size=6), st.lists(st.floats(-1, 1), min_size=6, max_size=6))
def test_the_tip_moves_as_its_jacobian_says(joints: list[float], speeds: list[float]) -> None:
    chain = Chain.between(read_urdf(SLANTED), "l0", "l6")
    step = 1e-6
    moved = np.array(joints) + np.array([[-0.5], [0.5]]) * step * np.array(speeds)
    values = {f"j{n}": moved[:, n] for n in range(6)}
    xyz, q = chain.pose(values)
    speed = (xyz[1] - xyz[0]) / step
    turn = 2 * multiply(q[1:] - q[:1], q[:1] * np.array([[1, -1, -1, -1]]))[0, 1:] / step
    exact_speed, exact_turn = np.zeros(3), np.zeros(3)
    tip, _ = chain.pose({name: one.mean(keepdims=True) for name, one in values.items()})
    for n in range(6):  # each joint for itself: the cross product of its axis and the way to the tip
        before = Chain(chain.path[: n + 1])
        at, turned = before.pose({name: one.mean(keepdims=True) for name, one in values.items()})
        axis = rotate(turned, np.array([chain.path[n].joint.axis]))[0]
        if n == 3:
            exact_speed += speeds[n] * axis
        else:
            exact_speed += speeds[n] * np.cross(axis, (tip - at)[0])
            exact_turn += speeds[n] * axis
    assert speed == pytest.approx(exact_speed, abs=1e-6)
    assert turn == pytest.approx(exact_turn, abs=1e-6)


def test_velocity_of_the_pose_is_that_of_the_tip() -> None:
    shoulder = np.linspace(0, 2, 301)
    joints = signal(
        np.stack([shoulder, 0 * shoulder, 0 * shoulder], axis=1),
        ("shoulder", "elbow", "reach"),
        ("rad", "rad", "m"),
    )
    made = pose(joints)
    found = Signal(made.values_TD[:, :3], made.times_T, made.valid_T, made.names[:3], made.units[:3])
    speed = apply_derived(
        [
            DerivedRole(
                name="speed", function="velocity", of=("state/xyz",), options={"difference": "central"}
            )
        ],
        {"state/xyz": found},
    )["state/speed"]
    turning = (shoulder[1] - shoulder[0]) / 0.033333333
    exact = 1.5 * turning * np.stack([-np.sin(shoulder), np.cos(shoulder), 0 * shoulder], axis=1)
    assert speed.values_TD[1:-1] == pytest.approx(exact[1:-1], abs=1e-4)


def test_a_joint_may_follow_another_and_a_chain_may_start_anywhere() -> None:
    joints = signal([[0.03]], ("finger",), ("m",))
    assert pose(joints, base="tool", tip="left").values_TD[0, :3] == pytest.approx([0, 0.03, 0])
    assert pose(joints, base="tool", tip="right").values_TD[0, :3] == pytest.approx([0, -0.02, 0])


def test_a_joint_may_follow_another_through_a_third() -> None:
    urdf = "<robot>" + "".join(
        joint(f'<axis xyz="0 0 1"/>{mimic}', "prismatic", name, parent, child)
        for name, parent, child, mimic in (
            ("a", "base", "tip", '<mimic joint="b" multiplier="2" offset="0.1"/>'),
            ("b", "x", "y", '<mimic joint="c" multiplier="3" offset="0.2"/>'),
            ("c", "z", "x", ""),
        )
    )
    found = pose(signal([[1.0]], ("c",), ("m",)), urdf=f"{urdf}</robot>", tip="tip")
    assert found.values_TD[0, 2] == pytest.approx(2 * (3 * 1.0 + 0.2) + 0.1)


def test_joints_are_found_by_name_by_mapping_or_have_a_fixed_value() -> None:
    joints = signal([[90.0, 250.0]], ("left_1", "left_3"), ("deg", "mm"))
    found = pose(joints, shoulder="left_1", elbow=0.0, reach="left_3")
    assert found.values_TD[0, :3] == pytest.approx([0, 1.75, 0.1], abs=1e-12)


def test_a_chain_without_joints_has_one_pose_at_every_step() -> None:
    found = pose(arm((0, 0, 0), (1, 1, 1)), base="slide", tip="tool")
    assert found.values_TD.shape == (2, 7)
    assert found.values_TD[:, 2].tolist() == [-0.1, -0.1]


def test_the_quaternion_never_jumps_to_its_opposite() -> None:
    turns = np.linspace(0.5, 6 * math.pi, 500) % (2 * math.pi)
    found = pose(arm(*((turn, 0.0, 0.0) for turn in turns))).values_TD[:, 3:]
    assert (np.abs(np.diff(found, axis=0)) < 0.05).all()
    assert found[0, 0] > 0


def test_the_urdf_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "planar.urdf"
    path.write_text(PLANAR, encoding="utf-8")
    assert pose(arm((0, 0, 0)), urdf=str(path)).values_TD[0, 0] == pytest.approx(1.5)
    with pytest.raises(ConfigError, match=r"urdf = '.*absent\.urdf': no such file"):
        pose(arm((0, 0, 0)), urdf=str(tmp_path / "absent.urdf"))
    path.write_bytes(PLANAR.encode("utf-16"))
    with pytest.raises(ConfigError, match="not UTF-8 text at byte 0"):
        pose(arm((0, 0, 0)), urdf=str(path))


def test_an_entity_bomb_is_refused_before_it_is_expanded() -> None:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE robot [<!ENTITY e0 "boom">{levels}]><robot name="&e11;"/>'
    with pytest.raises(RecordingError, match="the URDF declares a document type, which no URDF needs"):
        read_urdf(bomb)
    with pytest.raises(RecordingError, match="declares a document type"):
        read_urdf('<!DOCTYPE robot SYSTEM "file:///etc/hostname"><robot/>')


def joint(
    more: str = "", kind: str = "revolute", name: str = "a", parent: str = "base", child: str = "tip"
) -> str:
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{more}</joint>'
    )


NO_CHILD = '<joint name="a" type="fixed"><parent link="base"/></joint>'
APART = joint(kind="fixed", parent="x", child="base") + joint(kind="fixed", name="b", parent="y")
CIRCLE = (
    joint(kind="fixed", parent="b", child="tip")
    + joint(kind="fixed", name="b", parent="tip", child="b")
    + joint(kind="fixed", name="c", child="d")
)


@pytest.mark.parametrize(
    ("joints", "text"),
    [
        (NO_CHILD, "joint 'a' of the URDF has no child"),
        (joint(kind="planar"), "'a' of the URDF is of type 'planar', expected one of revolute, continuous"),
        (joint('<axis xyz="0 0 0"/>'), "the axis '0 0 0', which points nowhere"),
        (joint('<origin xyz="1 2"/>'), "'a' of the URDF: origin xyz is '1 2', expected 3 numbers"),
        (joint('<origin rpy="0 nan 0"/>'), "origin rpy is '0 nan 0', expected 3 numbers"),
        (joint('<origin xyz="1 2 z"/>'), "origin xyz is '1 2 z', expected 3 numbers"),
        (joint() * 2, "the URDF has two joints called a; expected one"),
        (joint() + joint(name="b"), "the URDF has two joints that lead to link tip; expected one"),
        (joint('<mimic joint="b"/>'), "'a' of the URDF mimics 'b', which the URDF does not have"),
        (joint('<mimic joint="a"/>'), "'a' of the URDF mimics itself, in a circle"),
        (joint('<mimic joint="b" multiplier="x"/>'), "mimic is 'x 0', expected 2 numbers"),
        (joint(child="elsewhere"), "the URDF has no link 'tip'; its links: base, elsewhere"),
        (APART, "no joints of the URDF lead from link 'base' out to 'tip'"),
        (CIRCLE, "no joints of the URDF lead from link 'base' out to 'tip'"),
        (
            joint(),
            "joint 'a' needs one dimension 'a', found in none; dimensions: shoulder, elbow, reach. Name it",
        ),
    ],
)
def test_a_robot_that_cannot_be_is_refused_with_the_reason(joints: str, text: str) -> None:
    with pytest.raises(RecordingError, match=text):
        pose(arm((0, 0, 0)), urdf=f"<robot>{joints}</robot>", tip="tip")


def test_what_is_no_urdf_is_refused() -> None:
    with pytest.raises(RecordingError, match="the URDF is not XML: unclosed token: line 1, column 7"):
        read_urdf("<robot><joint")
    with pytest.raises(RecordingError, match="begins with <sdf>, expected <robot>; expand xacro"):
        read_urdf("<sdf/>")
    with pytest.raises(RecordingError, match="has 33,554,447 characters, expected at most 33,554,432"):
        read_urdf("<robot>" + " " * (1 << 25) + "</robot>")


def test_a_joint_in_a_unit_it_cannot_have_and_one_that_is_not_in_the_chain_are_refused() -> None:
    wrong = signal([[0.0, 0.0, 0.0]], ("shoulder", "elbow", "reach"), ("m", "rad", "m"))
    with pytest.raises(
        RecordingError,
        match=r"joint 'shoulder' \(revolute\): dimension 'shoulder' is in 'm', expected one of 'rad', no unit, 'deg'",
    ):
        pose(wrong)
    with pytest.raises(
        RecordingError,
        match="'joints' names knee; those between 'base' and 'tool' are shoulder, elbow, reach",
    ):
        pose(arm((0, 0, 0)), knee="shoulder")
