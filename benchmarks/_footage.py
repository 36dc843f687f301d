"""Pictures to measure on: real recordings with the noise of a sensor, and a clean render.

Recorded video was denoised by its codec, and a denoised picture flatters whoever compresses it again. So views
are taken from real recordings, reduced in size until their pixels are sharp again, looped forth and back, and
given the noise that a sensor would have added: Gaussian, independent in every pixel and colour, its sigma
growing with the square root of the light.

Array axes: H W pixels, C colours (RGB).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.reformatter import Interpolation
from numpy.typing import NDArray

from dyna_train.errors import BadInput

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
WIDTH, HEIGHT, RATE_HZ = 640, 480, 30.0
VIEW_FRAMES = 240  # of each recorded view: 8 s forth, then back; a view of 320x240 takes 55 MB

ROBOT = "g1_inspire_lerobot_v21/videos/chunk-000/observation.images.cam_high/episode_{:06d}.mp4"
EPISODES = (1, 2, 10, 20, 21, 23, 24, 25, 28, 29, 30, 31)
RENDER = "so101_sim_lerobot_v30/videos/observation.images.wrist/chunk-000/file-000.mp4"
_RENDER_CROP = (80, 0, 480, 360)  # the middle of 640x360, of the shape of our pictures
_BANK_FRAMES = 4


@dataclass(frozen=True, slots=True)
class View:
    """A stretch of one recording. crop: left, top, width, height in its pixels; None for all of them."""

    path: Path
    first: int = 0
    crop: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Footage:
    """What every camera sees: one view, or four that share its picture two by two.

    sigma: of the noise in levels, at black and at white; None for none.
    """

    name: str
    source: str
    cameras: tuple[tuple[View, ...], ...]
    sigma: tuple[float, float] | None

    def frames(self, camera: int, num_steps: int) -> Iterator[NDArray[np.uint8]]:
        """The pictures of one camera, uint8 [480, 640, 3]; the same ones at every call."""
        views = self.cameras[camera]
        shape = (HEIGHT, WIDTH) if len(views) == 1 else (HEIGHT // 2, WIDTH // 2)
        loops = [load_view(view, shape, min(num_steps, VIEW_FRAMES)) for view in views]
        noise = SensorNoise(self.sigma, seed=camera) if self.sigma else None
        for step in range(num_steps):
            parts = [loop[forth_and_back(step, len(loop))] for loop in loops]
            frame_HWC = parts[0] if len(parts) == 1 else _two_by_two(parts)
            yield noise.add(frame_HWC) if noise else frame_HWC


def robot_footage(data: Path, sigma: tuple[float, float] | None = (1.0, 2.0)) -> Footage:
    """Twelve episodes of a real robot, four views of 320x240 in each camera's picture."""
    views = [View(data / ROBOT.format(episode)) for episode in EPISODES]
    cameras = tuple(tuple(views[number::3]) for number in range(3))
    return Footage(
        "robot", "Unitree G1, 12 episodes, each reduced to 320x240, four a picture", cameras, sigma
    )


def soft_footage(data: Path) -> Footage:
    """The same recordings at their own size, soft from the AV1 they were kept in, with the same noise."""
    cameras = tuple((View(data / ROBOT.format(episode)),) for episode in (1, 20, 30))
    return Footage("soft", "Unitree G1, 3 episodes at 640x480 as recorded", cameras, (1.0, 2.0))


def render_footage(data: Path) -> Footage:
    """A rendered scene without noise, in which little moves."""
    path = data / RENDER
    cameras = tuple((View(path, first, _RENDER_CROP),) for first in (0, 500, 1000))
    return Footage("render", "SO-101 render, 480x360 of 640x360 enlarged to 640x480", cameras, None)


def check_recordings(*footage: Footage) -> None:
    """Refuse to start without the recordings. Raises BadInput naming the first that is absent."""
    for view in (view for one in footage for camera in one.cameras for view in camera):
        if not view.path.is_file():
            raise BadInput(
                f"{view.path}: no such recording. This benchmark needs real footage: lay the recordings of "
                "shared/data beside the checkout, or call benchmarks.episode_file.build(data=FOLDER)"
            )


def load_view(view: View, shape: tuple[int, int], most: int) -> list[NDArray[np.uint8]]:
    """Up to `most` distinct pictures in a row, uint8 [H, W, 3] of `shape` (H, W).

    A picture that repeats the one before it is left out: the robot's camera was slower than its recorder.
    Raises BadInput if the recording ends before the view begins.
    """
    frames: list[NDArray[np.uint8]] = []
    last: NDArray[Any] | None = None
    with av.open(str(view.path)) as container:
        for frame in islice(container.decode(video=0), view.first, None):
            planes: NDArray[Any] = frame.to_ndarray()
            if last is not None and np.array_equal(planes, last):
                continue
            last = planes
            frames.append(_sized(frame, view.crop, shape))
            if len(frames) == most:
                break
    if not frames:
        raise BadInput(
            f"{view.path}: no picture from number {view.first} on; is it the recording of shared/data?"
        )
    return frames


def forth_and_back(step: int, length: int) -> int:
    """Where a loop without a jump stands at `step`: 0 1 2 1 0 1 ... for a length of 3."""
    period = max(1, 2 * (length - 1))
    place = step % period
    return min(place, period - place)


class SensorNoise:
    """Gaussian noise of one camera; sigma² rises evenly with the light.

    It is drawn once for a few pictures, and every frame takes a stretch of it that starts anywhere.
    """

    def __init__(self, sigma: tuple[float, float], *, seed: int) -> None:
        dark, bright = sigma
        share = np.arange(256, dtype=np.float32) / 255
        self._sigma_of_level = np.sqrt(dark**2 + (bright**2 - dark**2) * share).astype(np.float32)
        self._rng = np.random.default_rng(seed)
        self._unit = self._rng.standard_normal(_BANK_FRAMES * HEIGHT * WIDTH * 3, dtype=np.float32)

    def add(self, frame_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The frame, uint8 [H, W, 3], and noise, rounded and clipped."""
        start = int(self._rng.integers(self._unit.size - frame_HWC.size))
        noisy = np.take(self._sigma_of_level, frame_HWC, mode="clip")
        noisy *= self._unit[start : start + frame_HWC.size].reshape(frame_HWC.shape)
        noisy += frame_HWC
        np.rint(noisy, out=noisy)
        np.clip(noisy, 0, 255, out=noisy)
        return noisy.astype(np.uint8)


def _sized(
    frame: av.VideoFrame, crop: tuple[int, int, int, int] | None, shape: tuple[int, int]
) -> NDArray[np.uint8]:
    rgb_HWC: NDArray[Any] = frame.to_ndarray(format="rgb24")
    if crop is not None:
        left, top, width, height = crop
        rgb_HWC = np.ascontiguousarray(rgb_HWC[top : top + height, left : left + width])
    if rgb_HWC.shape[:2] == shape:
        return rgb_HWC
    method = Interpolation.AREA if rgb_HWC.shape[0] > shape[0] else Interpolation.BICUBIC
    whole = av.VideoFrame.from_ndarray(rgb_HWC, "rgb24")
    resized: NDArray[Any] = whole.reformat(shape[1], shape[0], interpolation=method).to_ndarray()
    return resized


def _two_by_two(parts: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    upper, lower = np.concatenate(parts[:2], axis=1), np.concatenate(parts[2:], axis=1)
    return np.concatenate([upper, lower])
