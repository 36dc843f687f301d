"""Faults planted into a real recording that is held in memory: of its first camera, its state, its action.

Axis letters: N messages, D dimensions, H W pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from benchmarks._held import HeldRecording
from dyna_assets.landing.recording import TopicInfo

NOISE = 2.0
"""Levels, of the sensor: it is there however little light comes in."""
BLACK, WHITE = 16, 235
BLOCK = 16
CONFIDENCE = "hands.confidence"

Luma = NDArray[np.uint8]
Fault = Callable[[HeldRecording, float, np.random.Generator], HeldRecording]
FAULTS: dict[str, Fault] = {}


def fault(plant: Fault) -> Fault:
    """Register the decorated function under its own name."""
    FAULTS[plant.__name__] = plant
    return plant


@fault
def lost_camera(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The camera's file is missing."""
    return replace(held, topics={name: info for name, info in held.topics.items() if name != _camera(held)})


@fault
def clock_jump(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The rows' clock is set back in the middle, at strength 1 by a quarter."""
    for topic in (_state(held), _action(held)):
        times_N = held.clocks[topic].copy()
        half = len(times_N) // 2
        times_N[half:] -= round(strength * (times_N[-1] - times_N[0]) / 4) + times_N[half] - times_N[half - 1]
        held = held.with_times(topic, times_N)
    return held


@fault
def short_episode(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The episode ends early: at strength 1 it has a fiftieth of its rows."""
    num = max(1, round(len(held.clocks[_state(held)]) * (1 - 0.98 * strength)))
    for topic in held.topics:
        held = held.only(topic, np.arange(num))
    return replace(held, meta=replace(held.meta, num_listed=num))


@fault
def unpaired_frames(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The video lacks frames, at strength 1 twenty of them; those after it move up."""
    camera, num = _camera(held), max(1, round(20 * strength))
    times_N = held.clocks[camera]
    first = len(times_N) // 2
    numbers = np.delete(np.arange(len(times_N)), np.arange(first, first + num))
    return held.only(camera, numbers).with_times(camera, times_N[: len(numbers)])


@fault
def wrong_rate(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The metadata promises another rate, at strength 1 half as much again."""
    rate_hz = (held.meta.rate_hz or 0) * (1 + strength / 2)
    return replace(held, meta=replace(held.meta, rate_hz=rate_hz))


@fault
def slow_video(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The video's clock is slower than the rows', at strength 1 by a tenth."""
    camera = _camera(held)
    slow = np.rint(held.clocks[camera] * (1 - strength / 10)).astype(np.int64)
    return held.with_times(camera, slow)


@fault
def nan_state(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """A joint is NaN, at strength 1 in one row of ten."""
    values_ND = held.values[_state(held)].copy()
    rows = rng.random(len(values_ND)) < strength / 10
    rows[len(rows) // 2] = True
    values_ND[rows, 1] = np.nan
    return held.with_values(_state(held), values_ND)


@fault
def wrong_unit(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The joints are in degrees from a moment on, at strength 1 from the start."""
    values_ND = held.values[_state(held)].copy()
    values_ND[round((1 - strength) * len(values_ND)) :] *= 180 / np.pi
    return held.with_values(_state(held), values_ND)


@fault
def spiking_joint(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """Single rows of a joint are wrong, one in 100: at strength 1 by what the joint covers in all."""
    values_ND = held.values[_state(held)].copy()
    joint = int(np.ptp(values_ND, axis=0).argmax())
    values_ND[40::100, joint] += strength * np.ptp(values_ND[:, joint])
    return held.with_values(_state(held), values_ND)


@fault
def frozen_joint(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """One encoder is stuck."""
    values_ND = held.values[_state(held)].copy()
    values_ND[:, 1] = values_ND[0, 1]
    return held.with_values(_state(held), values_ND)


@fault
def frozen_state(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """Nothing reads the robot: the first row repeats."""
    values_ND = held.values[_state(held)]
    return held.with_values(_state(held), np.repeat(values_ND[:1], len(values_ND), axis=0))


@fault
def stuttering_state(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The robot's driver stalls three times, at strength 1 for 1.5 s."""
    values_ND, times_N = held.values[_state(held)].copy(), held.clocks[_state(held)]
    for start in range(1, 4):
        first = len(values_ND) * start // 4
        stop = int(np.searchsorted(times_N, times_N[first] + 1.5e9 * strength))
        values_ND[first:stop] = values_ND[first]
    return held.with_values(_state(held), values_ND)


@fault
def copied_action(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """Commands were made of the next row's state from some row on, at strength 1 all of them."""
    state_ND, action_ND = held.values[_state(held)], held.values[_action(held)].copy()
    first = round((1 - strength) * (len(action_ND) - 1))
    action_ND[first:-1] = state_ND[first + 1 :]
    return held.with_values(_action(held), action_ND)


@fault
def lost_hands(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The state is taken for detected keypoints: in this share of the rows none is found."""
    lost = rng.random(len(held.clocks[_state(held)])) < strength
    values_ND = np.where(lost[:, None], np.nan, held.values[_state(held)])
    return _with_confidence(held, np.where(lost, 0.0, 0.95)).with_values(_state(held), values_ND)


@fault
def hidden_hands(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The state is taken for detected keypoints: in this share of the rows they are rather guessed."""
    hidden = rng.random(len(held.clocks[_state(held)])) < strength
    return _with_confidence(held, np.where(hidden, 0.3, 0.95))


@fault
def dark_camera(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The light is off: the camera gets less of it by the strength, at 1 a fiftieth."""
    return _exposed(held, 1 - 0.98 * strength, rng)


@fault
def overexposed_camera(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The camera is exposed too long: at strength 1 sixteen times."""
    return _exposed(held, 16.0**strength, rng)


@fault
def covered_camera(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """Something grey is in front of the camera, at strength 1 all that it sees."""

    def veil(number: int, luma_HW: Luma) -> Luma:
        grey = luma_HW * np.float32(1 - strength) + np.float32(128 * strength)
        return _levels(grey + _noise(rng, luma_HW.shape))

    return _seen(held, veil)


@fault
def blurred_camera(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The camera is out of focus: at strength 1 by a hundredth of its picture's width."""

    def blur(number: int, luma_HW: Luma) -> Luma:
        picture = Image.fromarray(luma_HW).filter(ImageFilter.BoxBlur(strength * luma_HW.shape[1] / 100))
        return np.asarray(picture, np.uint8)

    return _seen(held, blur)


@fault
def glitching_camera(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """Single frames are damaged, one in 40; at strength 1 all of it is garbage."""

    def damage(number: int, luma_HW: Luma) -> Luma:
        if number % 40 != 20:
            return luma_HW
        rows, columns = luma_HW.shape[0] // BLOCK, luma_HW.shape[1] // BLOCK
        num = round(strength * rows * columns)
        first, luma_HW = int(rng.integers(rows * columns - num + 1)), luma_HW.copy()
        for block in range(first, first + num):
            y, x = BLOCK * (block // columns), BLOCK * (block % columns)
            luma_HW[y : y + BLOCK, x : x + BLOCK] = rng.integers(BLACK, WHITE)
        return luma_HW

    return _seen(held, damage)


@fault
def frozen_camera(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The driver hangs: one frame comes again and again, at strength 1 always."""
    camera = _camera(held)
    numbers = np.arange(len(held.clocks[camera]))
    num = round(strength * len(numbers))
    first = (len(numbers) - num) // 2
    numbers[first : first + num] = first
    return held.showing(camera, numbers)


@fault
def repeating_camera(held: HeldRecording, strength: float, rng: np.random.Generator) -> HeldRecording:
    """The camera is slower than it says: frames repeat, at strength 1 nine of ten."""
    camera = _camera(held)
    num = len(held.clocks[camera])
    is_new = rng.random(num) >= 0.9 * strength
    return held.showing(camera, np.maximum.accumulate(np.where(is_new, np.arange(num), 0)))


def _camera(held: HeldRecording) -> str:
    return next(iter(held.frames))


def _state(held: HeldRecording) -> str:
    return next(topic for topic in held.values if topic != CONFIDENCE and not topic.startswith("action"))


def _action(held: HeldRecording) -> str:
    return next(topic for topic in held.values if topic.startswith("action"))


def _with_confidence(held: HeldRecording, confidence_N: NDArray[np.float64]) -> HeldRecording:
    info = TopicInfo(CONFIDENCE, "vector", len(confidence_N), ("hand",))
    held = replace(held, topics={**held.topics, CONFIDENCE: info})
    return held.with_times(CONFIDENCE, held.clocks[_state(held)]).with_values(
        CONFIDENCE, confidence_N[:, None]
    )


def _exposed(held: HeldRecording, gain: float, rng: np.random.Generator) -> HeldRecording:
    def expose(number: int, luma_HW: Luma) -> Luma:
        light = (luma_HW.astype(np.float32) - BLACK) * np.float32(gain) + BLACK
        return _levels(light + _noise(rng, luma_HW.shape))

    return _seen(held, expose)


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.float32(NOISE) * rng.standard_normal(shape, np.float32)


def _levels(light_HW: NDArray[np.float32]) -> Luma:
    return np.asarray(np.clip(np.rint(light_HW), BLACK, WHITE), np.uint8)


def _seen(held: HeldRecording, change: Callable[[int, Luma], Luma]) -> HeldRecording:
    """Changes the luma of the camera's frames; nothing that is measured looks at their colours."""

    def alter(number: int, frame: av.VideoFrame) -> av.VideoFrame:
        planes = frame.to_ndarray(format="yuv420p")
        planes[: frame.height] = change(number, np.asarray(planes[: frame.height], np.uint8))
        return av.VideoFrame.from_ndarray(planes, format="yuv420p")

    return held.with_pictures(_camera(held), alter)
