"""The simulated world as flat polygons in space, in the order in which a painter would lay them down.

Axis letters: N instants, V corners of a polygon, 2 = x and y on the table (m), 3 = x, y and height (m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.simulate.arm import ARMS, Arm, Pose, directions
from dyna_assets.simulate.scene import CUBE_COLOURS, Colour, Scene
from dyna_assets.simulate.world import CUBE_M, Snapshot

ARM_HEIGHT_M = 0.19
_ACCENTS: dict[str, Colour] = {"left": (0, 114, 178), "right": (230, 159, 0)}
_SHELL, _EDGE, _SHINE = (198, 202, 208), (54, 58, 66), (232, 234, 238)
_METAL, _PAD = (74, 80, 90), (40, 42, 48)
_CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


@dataclass(frozen=True, slots=True)
class Shape:
    """One polygon at N instants; a shadow darkens what lies under it instead of covering it."""

    points_NV3: NDArray[np.float64]
    colour: Colour
    is_shadow: bool = False


def world_shapes(scene: Scene, snapshot: Snapshot) -> list[Shape]:
    """Everything that moves, bottom first: shadows, the cube, hands, arms."""
    cube = _cube(snapshot.cube_N4, CUBE_COLOURS[scene.cube_colour])
    hands = [shape for arm in ARMS for shape in _hand(snapshot.arms[arm.side])]
    links = [shape for arm in ARMS for shape in _links(arm, snapshot.arms[arm.side])]
    shadows = [_shadow(shape, scene.light_xy) for shape in [cube[-1], *_casters(snapshot)]]
    return [*shadows, *cube, *hands, *links]


def _cube(cube_N4: NDArray[np.float64], colour: Colour) -> list[Shape]:
    """Four sides and the top, which is brightest."""
    yaw_N = cube_N4[:, 3]
    floor_NV2 = cube_N4[:, None, :2] + _turned(_CORNERS * (CUBE_M / 2), yaw_N)
    low_NV3 = _raised(floor_NV2, cube_N4[:, 2])
    high_NV3 = _raised(floor_NV2, cube_N4[:, 2] + CUBE_M)
    sides = [
        Shape(
            np.stack([low_NV3[:, a], low_NV3[:, b], high_NV3[:, b], high_NV3[:, a]], axis=1),
            _shade(colour, part),
        )
        for a, b, part in ((0, 1, 0.55), (1, 2, 0.68), (2, 3, 0.78), (3, 0, 0.62))
    ]
    return [*sides, Shape(high_NV3, colour)]


def _hand(pose: Pose) -> list[Shape]:
    """Palm and two fingers with pads, at the height of the hand."""
    shapes: list[Shape] = []
    height_N = pose.lift_N + CUBE_M + 0.005
    along_N2 = directions(pose.yaw_N)
    across_N2 = directions(pose.yaw_N + math.pi / 2)
    palm_N2 = pose.pinch_N2 - 0.062 * along_N2
    for side in (-1, 1):
        offset_N2 = side * (pose.opening_N / 2)[:, None] * across_N2
        root_N2 = palm_N2 + offset_N2 + side * 0.006 * across_N2
        tip_N2 = pose.pinch_N2 + 0.024 * along_N2 + offset_N2 + side * 0.006 * across_N2
        shapes.append(Shape(_bar(root_N2, tip_N2, 0.015, height_N), _EDGE))
        shapes.append(Shape(_bar(root_N2, tip_N2, 0.009, height_N), _METAL))
        middle_N2 = pose.pinch_N2 + offset_N2 + side * 0.002 * across_N2
        shapes.append(
            Shape(_bar(middle_N2 - 0.018 * along_N2, middle_N2 + 0.022 * along_N2, 0.006, height_N), _PAD)
        )
    half_N2 = 0.055 * across_N2
    shapes.append(Shape(_bar(palm_N2 - half_N2, palm_N2 + half_N2, 0.032, height_N + 0.01), _EDGE))
    shapes.append(
        Shape(_bar(palm_N2 - 0.94 * half_N2, palm_N2 + 0.94 * half_N2, 0.024, height_N + 0.01), _METAL)
    )
    stem = _bar(pose.wrist_N2, palm_N2, 0.03, height_N + 0.012)
    return [*shapes, Shape(stem, _EDGE)]


def _links(arm: Arm, pose: Pose) -> list[Shape]:
    """Base, two links and their joints, in a light shell with a dark outline and the arm's own colour."""
    base_N2 = np.broadcast_to(np.array(arm.base_xy), pose.elbow_N2.shape)
    accent = _ACCENTS[arm.side]
    height_N = np.full(len(base_N2), ARM_HEIGHT_M)
    shapes = [Shape(_disc(base_N2, 0.062, height_N), _EDGE), Shape(_disc(base_N2, 0.056, height_N), _METAL)]
    for begin_N2, end_N2, width in ((base_N2, pose.elbow_N2, 0.058), (pose.elbow_N2, pose.wrist_N2, 0.048)):
        shapes.append(Shape(_bar(begin_N2, end_N2, width, height_N), _EDGE))
        shapes.append(Shape(_bar(begin_N2, end_N2, width - 0.010, height_N), _SHELL))
        shapes.append(Shape(_bar(begin_N2, end_N2, width * 0.3, height_N), _SHINE))
    for centre_N2, radius in ((base_N2, 0.036), (pose.elbow_N2, 0.036), (pose.wrist_N2, 0.030)):
        shapes.append(Shape(_disc(centre_N2, radius, height_N), _EDGE))
        shapes.append(Shape(_disc(centre_N2, radius - 0.006, height_N), accent))
    return shapes


def _casters(snapshot: Snapshot) -> list[Shape]:
    """Rough outlines of the arms, whose shadows fall on the table."""
    casters: list[Shape] = []
    for arm in ARMS:
        pose = snapshot.arms[arm.side]
        height_N = np.full(len(pose.lift_N), ARM_HEIGHT_M)
        base_N2 = np.broadcast_to(np.array(arm.base_xy), pose.elbow_N2.shape)
        casters.append(Shape(_bar(base_N2, pose.elbow_N2, 0.058, height_N), _EDGE))
        casters.append(Shape(_bar(pose.elbow_N2, pose.wrist_N2, 0.048, height_N), _EDGE))
        palm_N2 = pose.pinch_N2 - 0.062 * directions(pose.yaw_N)
        casters.append(Shape(_bar(palm_N2, pose.pinch_N2, 0.07, pose.lift_N + 0.03), _EDGE))
    return casters


def _shadow(caster: Shape, light_xy: tuple[float, float]) -> Shape:
    """Where the light of a lamp far above and towards `light_xy` leaves the table dark."""
    points_NV3 = caster.points_NV3.copy()
    points_NV3[..., :2] -= points_NV3[..., 2:] * np.array(light_xy) * 0.8
    points_NV3[..., 2] = 0.0
    return Shape(points_NV3, (0, 0, 0), is_shadow=True)


def _bar(
    begin_N2: NDArray[np.float64], end_N2: NDArray[np.float64], width: float, height_N: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A rectangle [N, 4, 3] around the line from begin to end."""
    along_N2 = end_N2 - begin_N2
    length_N1 = np.maximum(np.hypot(along_N2[:, 0], along_N2[:, 1]), 1e-9)[:, None]
    side_N2 = along_N2[:, ::-1] * np.array([-1.0, 1.0]) / length_N1 * (width / 2)
    corners = [begin_N2 - side_N2, end_N2 - side_N2, end_N2 + side_N2, begin_N2 + side_N2]
    return _raised(np.stack(corners, axis=1), height_N)


def _disc(
    centre_N2: NDArray[np.float64], radius: float, height_N: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A regular polygon [N, 14, 3] that passes for a circle."""
    rim_V2 = radius * directions(np.linspace(0, 2 * np.pi, 14, endpoint=False))
    return _raised(centre_N2[:, None] + rim_V2, height_N)


def _turned(points_V2: NDArray[np.float64], yaw_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """`points_V2` turned by each of `yaw_N`: [N, V, 2]."""
    cos, sin = np.cos(yaw_N)[:, None], np.sin(yaw_N)[:, None]
    x_V, y_V = points_V2.T
    return np.stack([x_V * cos - y_V * sin, x_V * sin + y_V * cos], axis=-1)


def _raised(points_NV2: NDArray[np.float64], height_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """`points_NV2` at one height per instant: [N, V, 3]."""
    height_NV1 = np.broadcast_to(height_N[:, None, None], (*points_NV2.shape[:2], 1))
    return np.concatenate([points_NV2, height_NV1], axis=-1)


def _shade(colour: Colour, part: float) -> Colour:
    red, green, blue = colour
    return round(red * part), round(green * part), round(blue * part)
