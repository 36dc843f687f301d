"""Which frame of the video each row of a pose file belongs to, and when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.hand_video.poses import HandPoses
from dyna_assets.landing.sources.video import VideoInfo, ticks_to_ns


def paired_with_frames(
    poses: HandPoses, times_F: NDArray[np.int64], first_frame: int, where: str
) -> tuple[HandPoses, NDArray[np.int64], list[str]]:
    """(the rows as they pair with the video's F frames, their times [M] in ns, notes).

    first_frame: the number that the file gives to the first frame. Raises RecordingError.
    """
    if poses.by == "time":
        _check_clock(poses.keys_N, times_F, where)
        return poses, poses.keys_N, []
    rows_M, times_M, notes = _rows_by_frame(poses.keys_N - first_frame, times_F, where)
    return _taken(poses, rows_M), times_M, notes


def counts_from_one(poses: HandPoses, num_frames: int, first_frame: int, where: str) -> str:
    """Why the rows do not pair with the video's frames: they name one behind the last, and not the first; '' if not."""
    if poses.by == "time" or first_frame or not len(poses.keys_N):
        return ""
    if poses.keys_N.min() == 1 and poses.keys_N.max() == num_frames:
        return (
            f"{where}: its rows name frames 1 to {num_frames:,}, the video has 0 to {num_frames - 1:,}: every pose "
            "would stand one frame late. If the file counts from 1, set first_frame = 1 under [reader_options]"
        )
    return ""


def frame_times(pts_F: NDArray[np.int64], info: VideoInfo) -> NDArray[np.int64]:
    """Times [F] in ns since the first frame: a container may start its clock anywhere."""
    return ticks_to_ns(pts_F - pts_F[:1], info.time_base)


def _rows_by_frame(
    keys_N: NDArray[np.int64], times_F: NDArray[np.int64], where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Which of N rows stands for each frame: (row numbers [M], -1 for none; times [M]; notes).

    A file that leaves out frames in between lists detections only: frames it does not name, also at the ends, are
    without one. A file that names every frame from its first to its last is taken as it is, so that one of
    another length than the video is noticed. Rows of frames beyond the video get the times such frames would have.
    Raises RecordingError if a frame stands twice or is before the first.
    """
    order = np.argsort(keys_N, kind="stable")
    keys = keys_N[order]
    twice = np.flatnonzero(np.diff(keys) == 0)
    if len(twice):
        raise RecordingError(
            f"{where}: frame {keys[twice[0]]} stands in more than one row; expected one row a frame"
        )
    if len(keys) and keys[0] < 0:
        raise RecordingError(
            f"{where}: a row names a frame before the first one; set first_frame under [reader_options] to the "
            "number that pose files give to a video's first frame"
        )
    notes = []
    wanted = keys
    if len(keys) and len(keys) <= keys[-1] - keys[0]:
        wanted = np.union1d(np.arange(len(times_F)), keys)
        notes.append(
            f"{where} names {len(keys):,} of {len(times_F):,} frames: the others are without a detection"
        )
    at = np.searchsorted(keys, wanted)
    is_named = np.isin(wanted, keys)
    rows_M = (
        np.where(is_named, order[np.minimum(at, len(keys) - 1)], -1) if len(keys) else np.empty(0, np.int64)
    )
    num_inside = int((wanted < len(times_F)).sum())
    step_ns = int(np.median(np.diff(times_F))) if len(times_F) > 1 else 1
    beyond = times_F[-1] + step_ns * np.arange(1, len(wanted) - num_inside + 1)
    return rows_M, np.concatenate([times_F[wanted[:num_inside]], beyond]), notes


def _check_clock(times_N: NDArray[np.int64], times_F: NDArray[np.int64], where: str) -> None:
    """Refuse rows on a clock that has nothing to do with the video's."""
    if len(times_N) and (times_N.min() > times_F[-1] or times_N.max() < times_F[0]):
        first_s, last_s = times_N.min() / 1e9, times_N.max() / 1e9
        raise RecordingError(
            f"{where}: its rows are at {first_s:,.3f} to {last_s:,.3f} s, the video lasts {times_F[-1] / 1e9:,.3f} s: "
            "expected times since its first frame. Subtract the first frame's time, or give frame numbers"
        )


def _taken(poses: HandPoses, rows_M: NDArray[np.int64]) -> HandPoses:
    rows = rows_M.tolist()
    return replace(
        poses,
        hands={side: track.taken(rows_M) for side, track in poses.hands.items()},
        columns={
            name: [values[row] if row >= 0 else None for row in rows]
            for name, values in poses.columns.items()
        },
    )
