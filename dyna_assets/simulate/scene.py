"""What differs from one simulated episode to the next, drawn from one random generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Mistake = Literal["", "loose grasp", "early release", "missed hand"]

# Okabe and Ito's palette: told apart by people with any kind of colour vision.
CUBE_COLOURS: dict[str, Colour] = {
    "orange": (230, 159, 0),
    "sky blue": (86, 180, 233),
    "green": (0, 158, 115),
    "yellow": (240, 228, 66),
    "blue": (0, 114, 178),
    "vermilion": (213, 94, 0),
    "purple": (204, 121, 167),
}
TABLE_COLOURS: dict[str, Colour] = {
    "maple": (196, 168, 132),
    "walnut": (128, 96, 72),
    "laminate": (186, 190, 192),
    "slate": (104, 112, 122),
}
OPERATORS = ("ana", "bo", "chidi", "devi")
MISTAKES: tuple[Mistake, ...] = ("loose grasp", "early release", "missed hand")
MISTAKE_SHARE = 0.25
NUM_MOVES = 12
TREMOR_HZ = (1.7, 4.1, 8.3)


@dataclass(frozen=True, slots=True)
class Scene:
    """One episode's circumstances.

    pace_K: how much slower than nominal each of the operator's moves is.  tremor_JF: amplitude per joint of
    both arms and frequency in TREMOR_HZ, in the joint's unit.  cube_yaw: how far (rad) the cube is turned
    from the easiest direction of approach.  slack_m: how far short of the cube's middle the grasp is.
    mistake: what the operator does wrong; whether it costs the cube is the world's business.
    light: brightness of the room (1 is normal), light_xy: where the lamp hangs (m).
    """

    operator: str
    mistake: Mistake
    pace_K: NDArray[np.float64]
    tremor_JF: NDArray[np.float64]
    cube_xy: tuple[float, float]
    cube_yaw: float
    cube_colour: str
    slack_m: float
    meet_xy: tuple[float, float]
    table_colour: str
    light: float
    light_xy: tuple[float, float]
    top_shift_xy: tuple[float, float]
    texture_seed: int


def draw_scene(rng: np.random.Generator) -> Scene:
    """A scene; every draw is made whatever the others give, so that one change moves only itself."""
    operator = int(rng.integers(len(OPERATORS)))
    mistake = MISTAKES[int(rng.integers(len(MISTAKES)))] if rng.random() < MISTAKE_SHARE else ""
    short_m = rng.uniform(0.019, 0.028)
    tremor_JF = (
        rng.normal(0, 1, (10, len(TREMOR_HZ))) * np.array([0.004, 0.002, 0.001]) * (0.6 + 0.3 * operator)
    )
    tremor_JF[[3, 8]] *= 0.3  # the lift is in metres, not radians
    tremor_JF[[4, 9]] = 0  # a pressed trigger does not tremble
    return Scene(
        operator=OPERATORS[operator],
        mistake=mistake,
        pace_K=rng.uniform(0.85, 1.15, NUM_MOVES) * (0.92 + 0.05 * operator),
        tremor_JF=tremor_JF,
        cube_xy=(float(rng.uniform(0.06, 0.20)), float(rng.uniform(0.00, 0.14))),
        cube_yaw=float(rng.uniform(-0.25, 0.25)),
        cube_colour=list(CUBE_COLOURS)[int(rng.integers(len(CUBE_COLOURS)))],
        slack_m=float(short_m if mistake == "loose grasp" else rng.normal(0, 0.003)),
        meet_xy=(float(rng.normal(0, 0.012)), float(rng.normal(0.09, 0.012))),
        table_colour=list(TABLE_COLOURS)[int(rng.integers(len(TABLE_COLOURS)))],
        light=float(rng.uniform(0.75, 1.1)),
        light_xy=(float(rng.uniform(-0.4, 0.4)), float(rng.uniform(-0.1, 0.4))),
        top_shift_xy=(float(rng.normal(0, 0.006)), float(rng.normal(0, 0.006))),
        texture_seed=int(rng.integers(2**31)),
    )
