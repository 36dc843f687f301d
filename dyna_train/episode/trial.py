"""Try the encoder on some seconds of a file: the `SizeModel` of a video or of an episode.

Array axes: N steps, H W pixels, C colours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.reader import Episode
from dyna_train.episode.sizes import SizeModel, StateSizes, trial_gops
from dyna_train.errors import BadInput
from dyna_train.video.encode import Quality

TRIAL_S = 6.0  # three of the longest GOPs
_EPISODE_SUFFIX = ".mcap"
_STEPS_AT_ONCE = 30


@dataclass(frozen=True, slots=True)
class Trial:
    """What a file's footage weighs at a quality; frame_sizes: (width, height) of every camera."""

    sizes: SizeModel
    rate_hz: float
    frame_sizes: tuple[tuple[int, int], ...]


def try_file(path: Path, quality: Quality, *, state: StateSizes, num_cameras: int | None = None) -> Trial:
    """Encode the middle of a file twice.

    path: an episode file (*.mcap), whose cameras and vectors count; or any video, which stands for
    num_cameras equal ones (default 1) beside vectors of `state`. Raises BadInput for a file that is
    neither, is shorter than two seconds, or an episode for which num_cameras is given.
    """
    if not os.path.isfile(path):  # False also for what the system calls no path
        raise BadInput(f"{path}: no such file; expected a video or an episode file (*{_EPISODE_SUFFIX})")
    if path.suffix != _EPISODE_SUFFIX:
        return _try_video(path, quality, state, num_cameras or 1)
    if num_cameras is not None:
        raise BadInput(f"{path}: an episode says itself how many cameras it has; leave --cameras out")
    with Episode.open(path) as episode:
        return _try_episode(episode, quality)


def _try_episode(episode: Episode, quality: Quality) -> Trial:
    header = episode.header
    num_steps = round(TRIAL_S * header.rate_hz)
    rows = _middle(np.arange(episode.num_steps), num_steps)
    vectors = {
        track.topic: (episode.vector(track.topic)[rows], episode.capture_ns(track.topic)[rows])
        for track in header.vectors
    }
    footage = {
        camera.name: _frames(
            episode, camera.name, _middle(np.flatnonzero(episode.has_frame(camera.name)), num_steps)
        )
        for camera in header.cameras
    }
    state = StateSizes.fitted(vectors, rate_hz=header.rate_hz)
    sizes = SizeModel.fitted(footage, rate_hz=header.rate_hz, quality=quality, state=state)
    return Trial(sizes, header.rate_hz, tuple((camera.width, camera.height) for camera in header.cameras))


def _middle(steps_N: NDArray[np.int64], num_steps: int) -> NDArray[np.int64]:
    """At most num_steps of them, from the middle: a robot often stands still when a recording starts."""
    first = max(0, (len(steps_N) - num_steps) // 2)
    return steps_N[first : first + num_steps]


def _frames(episode: Episode, camera: str, steps_N: NDArray[np.int64]) -> Iterator[av.VideoFrame]:
    for first in range(0, len(steps_N), _STEPS_AT_ONCE):
        for frame_HWC in episode.frames(camera, steps_N[first : first + _STEPS_AT_ONCE]):
            yield av.VideoFrame.from_ndarray(frame_HWC, "rgb24")


def _try_video(path: Path, quality: Quality, state: StateSizes, num_cameras: int) -> Trial:
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise BadInput(f"{path}: no video in it; expected a video or an episode file (*.mcap)")
            stream = container.streams.video[0]
            rate_hz = float(stream.average_rate or stream.guessed_rate or 30)
            num_frames = max(round(TRIAL_S * rate_hz), trial_gops(rate_hz)[1])
            if container.duration:
                _seek_to_middle(container, container.duration / av.time_base, num_frames / rate_hz)
            frames = islice(container.decode(stream), num_frames)
            sizes = SizeModel.fitted({path.name: frames}, rate_hz=rate_hz, quality=quality, state=state)
            frame_size = stream.width, stream.height
    except av.FFmpegError as error:
        raise BadInput(f"{path}: not readable as video: {error}; expected a video or an episode") from error
    return Trial(SizeModel(sizes.cameras * num_cameras, state), rate_hz, (frame_size,) * num_cameras)


def _seek_to_middle(container: av.container.InputContainer, duration_s: float, wanted_s: float) -> None:
    """Move to the keyframe before the stretch of wanted_s in the middle; stay at the start of a short one."""
    start_s = (duration_s - wanted_s) / 2
    if start_s > 0:
        begin = container.start_time or 0
        container.seek(begin + int(start_s * av.time_base))
