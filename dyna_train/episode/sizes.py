"""What footage and vectors weigh: fitted on two trial encodes of the footage, or assumed from its pixels.

Array axes: T steps, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, log

import av
import numpy as np
import zstandard
from numpy.typing import NDArray

from dyna_train.episode.blocks import build_block, vector_places
from dyna_train.episode.container import MESSAGE_HEAD_BYTES
from dyna_train.episode.layout import BLOCK_S, candidate_gops
from dyna_train.episode.schemas import video_head_bytes
from dyna_train.errors import BadInput
from dyna_train.video.encode import CameraEncoder, Quality

# Of x264's preset veryfast. A keyframe is paid for by the frames that the encoder sees refer to it; in a GOP
# that is shorter than its sight it gets fewer bytes, and bytes are no longer linear in 1 / GOP.
LOOKAHEAD_FRAMES = 10

VIDEO_HEAD_BYTES = MESSAGE_HEAD_BYTES + video_head_bytes("camera")
"""What stands before the H.264 bytes of a frame; a longer camera name adds its letters."""

_KEYFRAME_RATIO = 7.0  # measured at crf 23; it falls with crf, to 3 at 16, because noise fills every frame

# crf -> MB per minute of one camera of 640x480 at 30 Hz, GOP 60, x264 veryfast: robot footage with sensor
# noise. A clean render has half of it, footage that was compressed before a half to a sixth.
_MEASURED_MB = {10: 76.5, 12: 55.6, 14: 37.6, 16: 24.1, 18: 14.8, 20: 9.2, 23: 5.4, 26: 3.4, 28: 2.5}
_MEASURED_GOP, _MEASURED_FRAMES, _MEASURED_PIXELS = 60, 1800, 640 * 480
_LOG_PER_CRF = -0.155  # beyond the table: the slope of both its ends
_FAST_DECODE_RATIO = 6.1 / 5.4  # no CABAC, no deblocking, at equal crf
_ZSTD_RATIO = 0.69  # of blocks of vectors: 8 topics of 14 dimensions


@dataclass(frozen=True, slots=True)
class CameraSizes:
    """Mean H.264 bytes of a keyframe and of any other frame of one camera."""

    keyframe_bytes: float
    other_bytes: float

    def bytes_per_frame(self, gop: int) -> float:
        """Mean over a GOP of that many frames."""
        return self.other_bytes + (self.keyframe_bytes - self.other_bytes) / gop

    @classmethod
    def assumed(cls, width: int, height: int, quality: Quality) -> CameraSizes:
        """For noisy footage that nobody has tried to encode, in proportion to its pixels.

        The rate does not enter: sensor noise, not motion, fills the frames. Footage without noise has a
        fraction of it; `fitted` knows.
        """
        crfs = sorted(_MEASURED_MB)
        inside = min(max(quality.crf, crfs[0]), crfs[-1])
        log_mb = float(np.interp(inside, crfs, [log(_MEASURED_MB[crf]) for crf in crfs]))
        mb = exp(log_mb + _LOG_PER_CRF * (quality.crf - inside))
        per_frame = 1e6 * mb / _MEASURED_FRAMES * (width * height) / _MEASURED_PIXELS
        if quality.fast_decode:
            per_frame *= _FAST_DECODE_RATIO
        other = per_frame / (1 + (_KEYFRAME_RATIO - 1) / _MEASURED_GOP)
        return cls(keyframe_bytes=_KEYFRAME_RATIO * other, other_bytes=other)

    @classmethod
    def fitted(
        cls, frames: Iterable[av.VideoFrame], *, rate_hz: float, quality: Quality, name: str = "trial"
    ) -> CameraSizes:
        """From two encodes of the same frames, at the `trial_gops`.

        frames: consecutive, of one size, as many as the longer GOP has; read once, left as they were. The fit
        is of all bytes, not of single frames: two numbers, exact at both GOPs, within 2 % between them. For
        GOPs below ten frames it says up to a quarter too much. Raises BadInput naming the camera if there
        are too few.
        """
        short, long = trial_gops(rate_hz)
        trials: tuple[CameraEncoder, ...] = ()
        num_frames, trial_bytes = 0, [0, 0]
        for step, frame in enumerate(frames):
            trials = trials or tuple(
                CameraEncoder(name, frame.width, frame.height, rate_hz=rate_hz, gop=gop, quality=quality)
                for gop in (short, long)
            )
            for number, encoder in enumerate(trials):
                trial_bytes[number] += sum(map(len, encoder.encode(frame, step)))
            num_frames = step + 1
        if num_frames < long:
            raise BadInput(
                f"camera {name}: {num_frames} frames to try, expected at least {long}, so that GOPs of {short} "
                f"and {long} differ; give more, or assume the sizes"
            )
        for number, encoder in enumerate(trials):
            trial_bytes[number] += sum(map(len, encoder.flush()))
        return cls._solved(num_frames, (short, long), trial_bytes)

    @classmethod
    def _solved(cls, num_frames: int, gops: tuple[int, int], trial_bytes: Sequence[int]) -> CameraSizes:
        """Two sums of keyframes and others, two unknowns."""
        num_keys = [ceil(num_frames / gop) for gop in gops]
        key_excess = (trial_bytes[0] - trial_bytes[1]) / (num_keys[0] - num_keys[1])
        other = (trial_bytes[1] - num_keys[1] * key_excess) / num_frames
        # No frame is empty, whatever two numbers say of a scene that stands still.
        return cls(keyframe_bytes=max(1.0, other + key_excess), other_bytes=max(1.0, other))


@dataclass(frozen=True, slots=True)
class StateSizes:
    """The vector topics: how many, and their bytes per step in a block, all topics, compressed."""

    num_topics: int
    step_bytes: float

    @classmethod
    def assumed(cls, dims: Sequence[int]) -> StateSizes:
        """For topics of these dimensions."""
        return cls(len(dims), _ZSTD_RATIO * vector_places(tuple(dims)).step_bytes)

    @classmethod
    def fitted(
        cls, vectors: Mapping[str, tuple[NDArray[np.float32], NDArray[np.int64]]], *, rate_hz: float
    ) -> StateSizes:
        """From one block of them: by topic, values float32 [T, D] and capture times int64 [T] ns."""
        if not vectors:
            return cls(0, 0.0)
        num_steps = min(ceil(BLOCK_S * Fraction(rate_hz)), *(len(times_T) for _, times_T in vectors.values()))
        values = [values_TD[:num_steps] for values_TD, _ in vectors.values()]
        times = [times_T[:num_steps] for _, times_T in vectors.values()]
        # Any grid compresses like the one the file will have: it ascends by 1 / rate.
        grid_T = times[0][0] + np.round(np.arange(num_steps) * (1e9 / rate_hz)).astype(np.int64)
        block = build_block(0, grid_T, range(len(values)), values, times)
        return cls(len(values), len(zstandard.ZstdCompressor().compress(block.data)) / num_steps)


@dataclass(frozen=True, slots=True)
class SizeModel:
    """What one step of an episode weighs: every camera, and the vectors beside them."""

    cameras: tuple[CameraSizes, ...]
    state: StateSizes

    @property
    def keyframe_ratio(self) -> float:
        """Bytes of a keyframe over those of another frame, all cameras together."""
        if not self.cameras:
            return _KEYFRAME_RATIO
        others = sum(camera.other_bytes for camera in self.cameras)
        return sum(camera.keyframe_bytes for camera in self.cameras) / others

    def video_step_bytes(self, gop: int) -> float:
        """Bytes of the video messages of one step, all cameras, mean over a GOP."""
        return sum(VIDEO_HEAD_BYTES + camera.bytes_per_frame(gop) for camera in self.cameras)

    def scaled(self, factor: float) -> SizeModel:
        """The same with every frame so many times as large."""
        cameras = (
            CameraSizes(factor * camera.keyframe_bytes, factor * camera.other_bytes)
            for camera in self.cameras
        )
        return SizeModel(tuple(cameras), self.state)

    @classmethod
    def assumed(
        cls, frame_sizes: Sequence[tuple[int, int]], quality: Quality, *, dims: Sequence[int] = ()
    ) -> SizeModel:
        """For footage that nobody has tried: (width, height) of every camera, dimensions of every vector."""
        cameras = tuple(CameraSizes.assumed(width, height, quality) for width, height in frame_sizes)
        return cls(cameras, StateSizes.assumed(dims))

    @classmethod
    def fitted(
        cls,
        footage: Mapping[str, Iterable[av.VideoFrame]],
        *,
        rate_hz: float,
        quality: Quality,
        state: StateSizes,
    ) -> SizeModel:
        """From trial encodes of some seconds of every camera, by name; see `CameraSizes.fitted`."""
        cameras = tuple(
            CameraSizes.fitted(frames, rate_hz=rate_hz, quality=quality, name=name)
            for name, frames in footage.items()
        )
        return cls(cameras, state)


def trial_gops(rate_hz: float) -> tuple[int, int]:
    """The GOPs of the trial encodes, in frames: what is chosen lies between them, or nearly."""
    return LOOKAHEAD_FRAMES, max(4 * LOOKAHEAD_FRAMES, candidate_gops(rate_hz)[-1])
