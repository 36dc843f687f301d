"""Facts of the vectors of a recording: numbers and stretches that checks measure and a table can keep.

Axis letters: M rows of one topic, D dimensions, K keypoints. Times are seconds since the recording's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.quality.spans import longest, spans_of
from dyna_train.episode.stretches import steps_at

STILL = 1e-3
"""What covers less (in its own unit) is noise of its encoder, not motion."""
LEAST_ROWS = 50
"""Fewer rows tell neither a jump from the motion around it, nor a joint that never moves from one that moves later."""
BREAK = 3.0
"""Rows so many usual steps apart are no neighbours: what lies between them is not known."""
NOISE_FACTOR = 4.0
"""A jump stands out if it is so many times the 90th percentile of the dimension's own."""
STUTTER_JUMP = 3.0
"""A stop was none of the robot's if it ends with so many times the step of the 90th percentile."""
LEAST_DIMS = 3
"""A vector of fewer dimensions (a gripper) may rest and start again at full speed."""
LEAST_STUTTER_S = 0.1
REACTION_S = 0.3
"""So long after a command a robot may still stand."""
SEEN = 0.5
"""Confidence from which a keypoint counts as seen."""

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
Facts = dict[str, Any]


def vector_facts(
    times_s_M: Values,
    values_MD: Values,
    names: Sequence[str],
    *,
    limits: tuple[float, float] | None = None,
    confidence_MK: Values | None = None,
    commands: tuple[Values, Values] | None = None,
) -> Facts:
    """All facts of one vector topic, M >= 1.

    limits: the lowest and highest value that can be true. confidence_MK: 0 to 1, of detected keypoints.
    commands: times and values of what tells this vector where to go, if anything does.
    """
    names = list(names) or [str(dim) for dim in range(values_MD.shape[1])]
    missing_M: Flags = np.zeros(len(values_MD), np.bool_)
    if confidence_MK is not None:
        missing_M = np.asarray(np.isnan(values_MD).all(axis=1))
    whole_M: Flags = np.asarray(np.isfinite(values_MD).all(axis=1))
    return {
        "names": names,
        **_finite_facts(times_s_M, values_MD, missing_M),
        **_still_facts(values_MD[whole_M], names),
        **({} if limits is None else _range_facts(times_s_M, values_MD, names, limits)),
        **_spike_facts(times_s_M, values_MD, whole_M, names),
        **_stutter_facts(times_s_M[whole_M], values_MD[whole_M], commands),
        **({} if confidence_MK is None else _hand_facts(times_s_M, missing_M, confidence_MK)),
    }


def next_state_facts(action_MD: Values, state_MD: Values) -> Facts | None:
    """How many of the commands only repeat the state, of the same row or of the next one; rows are paired by number.

    Only rows at which the state changes tell: at rest, a good command equals the state. None if fewer than ten do.
    """
    if action_MD.shape != state_MD.shape or len(state_MD) < 2:
        return None
    # as the episode file holds them; what it cannot hold, vector.finite says
    with np.errstate(over="ignore"):
        action_MD, state_MD = action_MD.astype(np.float32), state_MD.astype(np.float32)
    moves_M = (state_MD[1:] != state_MD[:-1]).any(axis=1)
    if moves_M.sum() < 10:
        return None
    same = {
        "next": (action_MD[:-1] == state_MD[1:]).all(axis=1)[moves_M].mean(),
        "same": (action_MD[:-1] == state_MD[:-1]).all(axis=1)[moves_M].mean(),
    }
    which = max(same, key=lambda key: same[key])
    return {"copies_share": float(same[which]), "copies": which}


def _finite_facts(times_s_M: Values, values_MD: Values, missing_M: Flags) -> Facts:
    with np.errstate(over="ignore"):
        kept_MD = values_MD.astype(np.float32)  # as the episode file will hold them
    bad_M = ~np.isfinite(kept_MD).all(axis=1) & ~missing_M
    return {"num_nan": int(bad_M.sum()), "nan_spans": spans_of(bad_M, times_s_M)}


def _still_facts(values_MD: Values, names: Sequence[str]) -> Facts:
    """Dimensions that never change at all, and how many do more than the noise of an encoder."""
    if not len(values_MD):
        return {"still": [], "num_moving": 0}
    still_D = (values_MD == values_MD[:1]).all(axis=0)
    travel_D = np.ptp(values_MD, axis=0)
    return {
        "still": [name for name, is_still in zip(names, still_D.tolist(), strict=True) if is_still],
        "num_moving": int((travel_D > STILL).sum()),
    }


def _range_facts(
    times_s_M: Values, values_MD: Values, names: Sequence[str], limits: tuple[float, float]
) -> Facts:
    low, high = limits
    outside_MD = (values_MD < low) | (values_MD > high)
    outside_M: Flags = np.asarray(outside_MD.any(axis=1))
    dims = np.flatnonzero(outside_MD.any(axis=0)).tolist()
    return {
        "range": [low, high],
        "outside_share": float(outside_M.mean()),
        "outside": {names[dim]: _extent(values_MD[:, dim]) for dim in dims},
        "outside_spans": spans_of(outside_M, times_s_M),
    }


def _extent(values_M: Values) -> list[float]:
    """The least and the greatest value as float32 holds them; NaN is neither."""
    most = float(np.finfo(np.float32).max)
    kept_M = np.clip(values_M[~np.isnan(values_M)], -most, most)
    return [float(kept_M.min()), float(kept_M.max())]


def _spike_facts(times_s_M: Values, values_MD: Values, whole_M: Flags, names: Sequence[str]) -> Facts:
    """The highest jump away and back within one sample, as a share of what its dimension covers otherwise."""
    rows = np.flatnonzero(whole_M)
    if len(rows) < LEAST_ROWS:
        return {}
    usual_s = float(np.median(np.diff(times_s_M)))
    times_s_M, values_MD = times_s_M[rows], values_MD[rows]
    close = (np.diff(rows) == 1) & (np.diff(times_s_M) <= BREAK * usual_s)
    joined_M = close[1:] & close[:-1]
    travel_D = np.array([np.ptp(_middle(values_M)) for values_M in values_MD.T])
    # a dimension that hardly moves is measured by what the others cover: its own noise is no jump
    travel_D = np.maximum(travel_D, max(0.5 * float(np.median(travel_D)), STILL))
    shares = [
        np.where(joined_M, _spikes(values_M), 0.0) / travel
        for values_M, travel in zip(values_MD.T, travel_D, strict=True)
    ]
    worst = [float(share_M.max()) for share_M in shares]
    dim = int(np.argmax(worst))
    high_M = np.asarray(shares[dim] > 0.5 * worst[dim])
    return {
        "spike": worst[dim],
        "spike_dim": names[dim] if worst[dim] else "",
        "num_spikes": int(high_M.sum()),
        "spike_spans": spans_of(high_M, times_s_M[1:-1]),
    }


def _middle(values_M: Values) -> Values:
    """The median of each sample and its two neighbours, without the ends."""
    before, here, after = values_M[:-2], values_M[1:-1], values_M[2:]
    return np.asarray(np.maximum(np.minimum(before, here), np.minimum(np.maximum(before, here), after)))


def _spikes(values_M: Values) -> Values:
    """How far each sample lies outside both neighbours; 0 where that is no more than the dimension's noise."""
    height_M = np.abs(values_M[1:-1] - _middle(values_M))
    step_M = np.abs(np.diff(values_M))
    moves_M = step_M[step_M > 0]
    tick = float(np.quantile(moves_M, 0.05)) if len(moves_M) else 0.0  # what the encoder tells apart
    noise = max(float(np.quantile(height_M, 0.9)), tick, STILL / NOISE_FACTOR)
    return np.where(height_M > NOISE_FACTOR * noise, height_M, 0.0)


def _stutter_facts(times_s_M: Values, values_MD: Values, commands: tuple[Values, Values] | None) -> Facts:
    """Stretches in which all dimensions repeat exactly though the robot moves: the sensor stopped, not the robot.

    That it moved shows in the jump with which such a stretch ends, or in the commands that it got meanwhile.
    """
    if values_MD.shape[1] < LEAST_DIMS or len(values_MD) < LEAST_ROWS or not values_MD.any():
        return {}  # all zero: a velocity that the driver does not measure
    moving = values_MD[:, np.ptp(values_MD, axis=0) > STILL]
    usual = np.array([np.quantile(np.abs(np.diff(values_M)), 0.9) for values_M in moving.T])
    stops = []
    for still in steps_at(np.flatnonzero((values_MD[1:] == values_MD[:-1]).all(axis=1))):
        stretch = float(times_s_M[still.start]), float(times_s_M[still.stop])
        if stretch[1] - stretch[0] < LEAST_STUTTER_S:
            continue
        ends_with = np.abs(moving[min(still.stop + 1, len(moving) - 1)] - moving[still.stop])
        jumps = (ends_with > STUTTER_JUMP * usual).sum() >= max(2, len(usual) / 3)
        if jumps or _commanded(commands, *stretch):
            stops.append(list(stretch))
    return {
        "stutter_s": max((end_s - start_s for start_s, end_s in stops), default=0.0),
        "stutter_spans": longest(stops),
    }


def _commanded(commands: tuple[Values, Values] | None, start_s: float, end_s: float) -> bool:
    """True if the commands of that time, the last moments apart, cover a tenth of what they cover in all."""
    if commands is None:
        return False
    times_s_M, values_MD = commands
    inside_MD = values_MD[(times_s_M >= start_s) & (times_s_M <= end_s - REACTION_S)]
    travel_D = np.ptp(values_MD, axis=0)
    if len(inside_MD) < 2 or not (travel_D > STILL).any():
        return False
    return bool((np.ptp(inside_MD, axis=0) > 0.1 * travel_D)[travel_D > STILL].any())


def _hand_facts(times_s_M: Values, missing_M: Flags, confidence_MK: Values) -> Facts:
    """Rows in which nothing was detected, and, of the others, those that are rather guessed than seen."""
    sure_M = np.nan_to_num(confidence_MK).mean(axis=1)
    missing_M = missing_M | (sure_M == 0)
    occluded_M = ~missing_M & (sure_M < SEEN)
    num_detected = int((~missing_M).sum())
    return {
        "missing_share": float(missing_M.mean()),
        "missing_spans": spans_of(missing_M, times_s_M),
        "occluded_share": float(occluded_M.sum() / num_detected) if num_detected else 0.0,
        "occluded_spans": spans_of(occluded_M, times_s_M),
    }
