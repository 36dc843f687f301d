"""Pictures of a scene that moves, as numbers: what a camera's trace is taken of in the tests of picture checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import av
import numpy as np
from numpy.typing import NDArray

from dyna_assets.quality import measure
from dyna_assets.quality.picture_facts import moving, picture_facts
from dyna_assets.quality.registry import Measured
from dyna_assets.quality.trace import CameraEye, CameraTrace

STEPS, RATE_HZ, HEIGHT, WIDTH = 150, 30.0, 96, 128
Luma = NDArray[np.uint8]
Scene = NDArray[np.float64]


def scene(step: int) -> Scene:
    """Sharp boxes on a lit table; one moves by two pixels a step and turns back at the edges. Levels 0 to 1."""
    picture = np.full((HEIGHT, WIDTH), 0.35)
    picture += np.linspace(0, 0.15, WIDTH)[None, :]
    for number in range(12):
        y, x = 8 * (number % 6) * 2 % (HEIGHT - 8), 10 * number
        picture[y : y + 8, x : x + 6] = 0.1 + 0.07 * number
    across = 2 * step % (2 * (WIDTH - 30))
    left = min(across, 2 * (WIDTH - 30) - across)
    picture[30:66, left : left + 30] = 0.9
    return picture


def exposed(light: Scene, step: int, gain: float = 1.0) -> Luma:
    """What a sensor with noise makes of it, limited range."""
    noise = np.random.default_rng(step).normal(0, 1.5, light.shape)
    return np.asarray(np.clip(np.rint(16 + 219 * light * gain + noise), 16, 235), np.uint8)


def film(shot: Callable[[int], Luma], num_steps: int = STEPS) -> list[av.VideoFrame]:
    """One frame for each step."""
    return [frame_of(shot(step)) for step in range(num_steps)]


def frame_of(luma_HW: Luma) -> av.VideoFrame:
    planes = np.full((luma_HW.shape[0] * 3 // 2, luma_HW.shape[1]), 128, np.uint8)
    planes[: luma_HW.shape[0]] = luma_HW
    return av.VideoFrame.from_ndarray(planes, format="yuv420p")


def traced(frames: Iterable[av.VideoFrame]) -> CameraTrace:
    """Their trace."""
    held = list(frames)
    eye = CameraEye(len(held))
    for step, frame in enumerate(held):
        eye.see(step, frame)
    return eye.trace


def state(num_steps: int = STEPS, travel: float = 1.0) -> NDArray[np.float32]:
    """An arm that swings, with the noise of its encoder."""
    noise = np.random.default_rng(0).normal(0, 1e-4, (num_steps, 1))
    return np.asarray(travel * np.sin(np.arange(num_steps) / 20)[:, None] + noise, np.float32)


def found_in(
    trace: CameraTrace,
    state_TD: NDArray[np.float32] | None = None,
    capture_ns_T: NDArray[np.int64] | None = None,
) -> dict[str, list[Measured]]:
    """What the checks after the transform measure of one camera whose file is as it should be."""
    if capture_ns_T is None:
        capture_ns_T = np.arange(trace.num_steps) * 33_333_333
    moves_T = moving(state(trace.num_steps) if state_TD is None else state_TD, RATE_HZ)
    facts = picture_facts(trace, capture_ns_T, RATE_HZ, moves_T)
    file = {
        "num_packets": facts["num_seen"],
        "num_lost": 0,
        "damage": "",
        "readback": None,
        "readback_step": 0,
    }
    num = trace.num_steps
    return measure("after", {"num_steps": num, "num_planned": num, "cameras": {"top": {**facts, **file}}})
