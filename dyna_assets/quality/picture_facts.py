"""Facts of a camera's pictures over an episode, from its trace: no picture is looked at again.

Axis letters: T steps, D state dimensions, P pictures that differ from the one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.quality.spans import longest, spans_of
from dyna_assets.quality.trace import CameraTrace
from dyna_train.episode.stretches import steps_at

REPEAT = 0.3
"""Mean change of luma below which a picture repeats the one before: sensor noise alone changes it by
more, what coding adds to a repeated picture by less."""
BRIGHT, CLIPPED, CONTRAST = 32.0, 0.5, 24.0
"""Where the stretches of dark, overexposed and flat pictures are drawn on the time axis; a policy has its own
limits for the episode as a whole."""
RARE = 0.1
"""A share of the steps that may be worse than the value: the start of an exposure control, a lamp switched."""
MOVED, MOVED_NOISE, MOVED_SHARE = 0.01, 10.0, 0.02
"""A dimension counts if it covers 0.01 (of its unit) and ten times its noise; the robot moves while one
of these covers 2 % of its travel within half a second."""
MOTION_S = 0.5
AROUND = 8
GLITCH = 2.0
"""A glitch changes the picture so many times as much as the pictures around it change, there and back."""
LONGEST_GLITCH = 6
LEAST_CHANGE = 1.0

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Facts = dict[str, Any]


def picture_facts(
    trace: CameraTrace, capture_ns_T: NDArray[np.int64], rate_hz: float, moves_T: Bools
) -> Facts:
    """All facts of one camera. capture_ns_T: -1 where there is no picture. moves_T: see `moving`."""
    times_s_T = np.arange(trace.num_steps) / rate_hz
    seen_T = trace.seen_T
    if not seen_T.any():
        return {"num_steps": trace.num_steps, "num_seen": 0}
    return {
        "num_steps": trace.num_steps,
        "num_seen": int(seen_T.sum()),
        **_light_facts(trace, seen_T, times_s_T),
        **_repeat_facts(trace, _is_new(seen_T, capture_ns_T), moves_T, times_s_T),
        **_glitch_facts(trace, seen_T, times_s_T),
    }


def moving(state_TD: Floats, rate_hz: float) -> Bools:
    """At which steps the robot moves: something it measures changes by more than its noise."""
    num_steps, width = len(state_TD), max(2, round(MOTION_S * rate_hz))
    if num_steps <= width or state_TD.shape[1] == 0:
        return np.zeros(num_steps, np.bool_)
    values_TD = np.nan_to_num(state_TD.astype(np.float64))
    noise_D = np.median(np.abs(values_TD[1:-1] - (values_TD[:-2] + values_TD[2:]) / 2), axis=0)
    travel_D = np.ptp(values_TD, axis=0)
    counts_D = travel_D > np.maximum(MOVED, MOVED_NOISE * noise_D)
    apart_TD = np.abs(values_TD[width:] - values_TD[:-width])[:, counts_D]
    moved_T = (apart_TD > np.maximum(MOVED_SHARE * travel_D, 4 * noise_D)[counts_D]).any(axis=1)
    first = width // 2
    return np.pad(moved_T, (first, width - first), mode="edge")


def _is_new(seen_T: Bools, capture_ns_T: NDArray[np.int64]) -> Bools:
    """Steps that show another picture of the camera than the step before: what the grid repeats proves nothing."""
    new_T = np.zeros(len(seen_T), np.bool_)
    new_T[1:] = seen_T[1:] & seen_T[:-1] & (capture_ns_T[1:] > capture_ns_T[:-1])
    return new_T


def _light_facts(trace: CameraTrace, seen_T: Bools, times_s_T: NDArray[np.float64]) -> Facts:
    contrast_T = trace.high_T - trace.low_T
    sharp_T = trace.sharpness_T[~np.isnan(trace.sharpness_T)]
    return {
        "level": float(np.median(trace.level_T[seen_T])),
        "high": float(np.quantile(trace.high_T[seen_T], RARE)),
        "dark_spans": spans_of(seen_T & (trace.high_T < BRIGHT), times_s_T),
        "clipped": float(np.quantile(trace.clipped_T[seen_T], 1 - RARE)),
        "clipped_spans": spans_of(seen_T & (trace.clipped_T > CLIPPED), times_s_T),
        "contrast": float(np.quantile(contrast_T[seen_T], RARE)),
        "flat_spans": spans_of(seen_T & (contrast_T < CONTRAST), times_s_T),
        "sharpness": float(np.median(sharp_T)) if len(sharp_T) else None,
    }


def _repeat_facts(trace: CameraTrace, new_T: Bools, moves_T: Bools, times_s_T: NDArray[np.float64]) -> Facts:
    """Pictures that repeat the one before; where the robot moves meanwhile, the camera is frozen.

    A single small change does not end a stretch of repeats: a keyframe codes the same picture anew.
    """
    repeats_T = new_T & (trace.change_T < REPEAT)
    lone_T = new_T & (trace.change_T < 3 * REPEAT)
    lone_T[1:-1] &= repeats_T[:-2] & repeats_T[2:]
    # between its new pictures a still camera is still, too
    still_T = repeats_T | lone_T | ~new_T
    frozen = []
    for run in steps_at(np.flatnonzero(still_T)):
        if repeats_T[run.start : run.stop].sum() > 1:
            frozen.append((int(moves_T[run.start : run.stop].sum()), run.start, run.stop))
    step_s = float(times_s_T[1]) if len(times_s_T) > 1 else 0.0
    most, start, stop = max(frozen, default=(0, 0, 0))
    return {
        "num_new": int(new_T.sum()),
        "repeat_share": float(repeats_T.sum() / new_T.sum()) if new_T.any() else 0.0,
        "moves_s": float(moves_T.sum() * step_s),
        "frozen_s": most * step_s,
        "frozen_spans": longest([[start * step_s, (stop - 1) * step_s]]) if most else [],
    }


def _glitch_facts(trace: CameraTrace, seen_T: Bools, times_s_T: NDArray[np.float64]) -> Facts:
    """Pictures unlike those before and after them, which are alike: damaged, or of another moment."""
    steps_P = np.flatnonzero(seen_T & ~(trace.change_T < REPEAT))
    change_P = np.nan_to_num(trace.change_T[steps_P])
    hashes_P = trace.hashes_T[steps_P]
    glitches: list[list[float]] = []
    number, taken = 1, 0
    while number < len(steps_P) - 1:
        length = _glitch_length(change_P, hashes_P, number)
        if length:
            last = steps_P[number + length] - 1
            glitches.append([float(times_s_T[steps_P[number]]), float(times_s_T[last])])
            taken += int(last - steps_P[number] + 1)
        number += length or 1
    return {
        "glitch_share": taken / int(seen_T.sum()),
        "num_glitches": len(glitches),
        "glitch_spans": longest(glitches),
    }


def _glitch_length(change_P: Floats, hashes_P: NDArray[np.uint64], first: int) -> int:
    """How many pictures from `first` on are one glitch; 0 if none."""
    if change_P[first] < GLITCH * LEAST_CHANGE:
        return 0
    for length in range(1, min(LONGEST_GLITCH, len(change_P) - 1 - first) + 1):
        after = first + length
        around = np.r_[change_P[max(1, first - AROUND) : first], change_P[after + 1 : after + 1 + AROUND]]
        usual = max(float(np.quantile(around, 0.75)) if len(around) else 0.0, LEAST_CHANGE)
        there, back = _distance(hashes_P, first - 1, first), _distance(hashes_P, after - 1, after)
        returned = _distance(hashes_P, first - 1, after)
        if min(change_P[first], change_P[after]) > GLITCH * usual and 2 * returned <= min(there, back):
            return length
    return 0


def _distance(hashes_P: NDArray[np.uint64], one: int, other: int) -> int:
    return int(hashes_P[one] ^ hashes_P[other]).bit_count()
