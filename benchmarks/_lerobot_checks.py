"""What LeRobot notices of a recording when it loads it, after its documentation and source (0.6.1).

Timestamps of the rows are 1 / fps apart within tolerance_s = 1e-4; each row's time has a frame of the video within that
tolerance, among the frames that there are; each feature has the shape that info.json promises. Nothing looks
at values or pictures. The rows and frames are those of the recording, as LeRobot would find them.
"""

from __future__ import annotations

import numpy as np

from benchmarks._held import HeldRecording

TOLERANCE_S = 1e-4


def lerobot_notices(held: HeldRecording) -> bool:
    """True if any of these checks fails, or a feature is not there at all."""
    fps = float(held.meta.rate_hz or 0)
    rows_s = [held.clocks[topic] / 1e9 for topic in held.values if topic in held.topics]
    on_grid = all(np.abs(np.diff(times_N) - 1 / fps).max(initial=0.0) <= TOLERANCE_S for times_N in rows_s)
    shapes = all(
        values_ND.shape[1] == len(held.topics[topic].names) for topic, values_ND in held.values.items()
    )
    present = all(topic in held.topics for topic in held.frames)
    return not (on_grid and shapes and present and all(_frames_found(held, topic) for topic in held.frames))


def _frames_found(held: HeldRecording, camera: str) -> bool:
    """Whether the frame that a row's time asks for is there: number round(time * fps), within the tolerance."""
    fps = float(held.meta.rate_hz or 0)
    rows_s, frames_s = next(held.clocks[topic] / 1e9 for topic in held.values), held.clocks[camera] / 1e9
    wanted_N = np.rint(rows_s * fps).astype(np.int64)
    if wanted_N.min() < 0 or wanted_N.max() >= len(frames_s):
        return False
    return bool(np.abs(frames_s[wanted_N] - rows_s).max() <= TOLERANCE_S)
