"""Labeller `lag`: how late the body follows its commands, how late a camera shows it, how far beside both stand.

Array axes: T steps, M = T - 1 intervals between steps, N some of the steps, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dyna_assets.labels.correlate import Peak, lag_between
from dyna_assets.labels.joints import Commanded, commanded, places
from dyna_assets.labels.motion import between, smoothed
from dyna_assets.labels.registry import Annotation, labeller
from dyna_assets.labels.view import EpisodeView
from dyna_assets.quality.trace import CameraTrace
from dyna_assets.quality.vector_facts import STILL

MAX_LAG_S = 1.0
MIN_HEIGHT = 0.3
"""Below this correlation two signals have too little in common to say which is later."""
RATE_SHARE = 0.5
"""An action that leaves less than this share unexplained when it is taken for a speed, of what it leaves when taken
for a place, says how fast to go and not where to be."""
MOVER_SHARE = 0.1
"""A joint that travels less than this share of the one that travels most (of its unit) only holds itself: what it
shows beside its command is what it bears (an arm that rests on the table stands degrees beside it), and that is no
offset of its calibration. Of hands and grippers that is always so: they close on things."""
SLOW_SHARE = 0.25
"""An offset is that of the slowest quarter of the steps."""
QUIET_PERCENT = 20
MIN_STEPS = 40
"""Fewer steps than this say nothing of an offset."""


@labeller("lag", version=1)
def lag(view: EpisodeView) -> Iterator[Annotation]:
    """Command to state per part, state to camera, and what stays between command and state where both are slow.

    In 'A→B' B is `lag` ms later than A; it is given where `confidence`, the correlation, is at least MIN_HEIGHT.
    Capture times count, so that the skew of alignment is no lag. `offset` is command minus state of a joint that
    moves, `hold_offset` of one that only holds itself.
    """
    movers = _movers(view)
    for pair in commanded(view.header):
        yield from _of_command(view, pair, movers)
    speed_M = _body_speed(view, movers)
    for camera, trace in view.traces.items():
        energy_M, used_M = picture_energy(trace, view.seconds_T(f"/camera/{camera}/video"), view.rate_hz)
        used_M &= view.valid_T[1:] & view.valid_T[:-1]
        if not (speed_M[used_M].any() and energy_M[used_M].any()):
            continue
        energy_M = smoothed(energy_M, view.rate_hz)
        evened = _evened(speed_M, used_M), _evened(energy_M, used_M)
        peak = lag_between(*evened, used_M, view.rate_hz, MAX_LAG_S)
        yield from _of_peak(f"state→camera/{camera}", peak)


def picture_energy(
    trace: CameraTrace, seconds_T: NDArray[np.float64], rate_hz: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(change of a camera's picture per second, float64 [M]; where it has pictures, bool [M]).

    A change is spread over the time since the last new picture, so that a camera slower than the grid, whose
    pictures repeat, does not flicker.
    """
    seen_T = np.isfinite(seconds_T) & trace.seen_T
    change_T = np.where(seen_T, np.nan_to_num(trace.change_T), 0.0).astype(np.float64)
    is_new_T = seen_T & (change_T > 0)
    if seen_T.any():
        is_new_T[np.argmax(seen_T)] = True
    grid_T = np.arange(len(seconds_T)) / rate_hz
    changed_T = between(np.cumsum(change_T[is_new_T])[:, None], seconds_T[is_new_T], grid_T)[:, 0]
    return np.diff(changed_T) * rate_hz, seen_T[1:] & seen_T[:-1]


def steady_offsets(command_ND: NDArray[np.float64], state_ND: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median of command minus state over the slowest steps of each dimension, float64 [D].

    command_ND: what was commanded one lag before each step.
    """
    speed_ND = np.maximum(np.abs(np.gradient(command_ND, axis=0)), np.abs(np.gradient(state_ND, axis=0)))
    slow_ND = speed_ND <= np.quantile(speed_ND, SLOW_SHARE, axis=0)
    offset_D: NDArray[np.float64] = np.nanmedian(np.where(slow_ND, command_ND - state_ND, np.nan), axis=0)
    return offset_D


def _of_command(view: EpisodeView, pair: Commanded, movers: set[tuple[str, int]]) -> Iterator[Annotation]:
    command, state = view.motions[pair.action.track.topic], view.motions[pair.state.track.topic]
    if not state.moves(pair.state.dims):
        return
    used_M, goes_MD = command.used_M & state.used_M, state.velocity_MD[:, pair.state.dims]
    asked_TD = command.values_TD[:, pair.action.dims]
    place_peak = lag_between(
        command.velocity_MD[:, pair.action.dims], goes_MD, used_M, view.rate_hz, MAX_LAG_S
    )
    rate_peak = lag_between((asked_TD[1:] + asked_TD[:-1]) / 2, goes_MD, used_M, view.rate_hz, MAX_LAG_S)
    says_where = _unexplained(rate_peak) > RATE_SHARE * _unexplained(place_peak)
    yield from _of_peak(pair.subject, place_peak if says_where else rate_peak)
    yield Annotation(pair.subject, "motion", command.path(pair.action.dims), pair.action.unit)
    if says_where and place_peak is not None and place_peak.height >= MIN_HEIGHT:
        yield from _offsets(view, pair, place_peak, movers)


def _offsets(
    view: EpisodeView, pair: Commanded, peak: Peak, movers: set[tuple[str, int]]
) -> Iterator[Annotation]:
    """What stays between command and state of each joint; of hands and grippers it is their grip, and not given."""
    track = pair.state.track
    earlier_ND, state_ND = _one_lag_apart(view, pair, peak)
    if len(state_ND) < MIN_STEPS or pair.state.holds or not pair.same_unit:
        return
    for dim, offset in zip(pair.state.dims, steady_offsets(earlier_ND, state_ND).tolist(), strict=True):
        key = "offset" if (track.topic, dim) in movers else "hold_offset"
        yield Annotation(f"state/{track.name}/{track.names[dim]}", key, offset, pair.state.unit)


def _unexplained(peak: Peak | None) -> float:
    return 1 - peak.height if peak else 1.0


def _of_peak(subject: str, peak: Peak | None) -> Iterator[Annotation]:
    if peak is None:
        return
    yield Annotation(subject, "confidence", peak.height, "correlation")
    if peak.height >= MIN_HEIGHT:
        yield Annotation(subject, "lag", peak.lag_s * 1e3, "ms")


def _one_lag_apart(
    view: EpisodeView, pair: Commanded, peak: Peak
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(the commands one lag before the valid steps, the state at them), float64 [N, D] each."""
    command, state = view.motions[pair.action.track.topic], view.motions[pair.state.track.topic]
    steps_T = np.arange(view.num_steps, dtype=np.float64)
    earlier_T = steps_T - peak.lag_s * view.rate_hz
    has_T = (earlier_T >= 0) & (earlier_T <= view.num_steps - 1) & state.valid_T
    has_T[has_T] = command.valid_T[earlier_T[has_T].round().astype(int)]
    earlier_ND = between(command.values_TD[:, pair.action.dims], steps_T, earlier_T[has_T])
    known_N = np.isfinite(earlier_ND).all(axis=1)
    return earlier_ND[known_N], state.values_TD[has_T][known_N][:, pair.state.dims]


def _movers(view: EpisodeView) -> set[tuple[str, int]]:
    """(topic, dimension) of the joints that move, not only hold; hands and grippers are none."""
    travel: dict[str, dict[tuple[str, int], float]] = {}
    for part in places(view.header):
        if not part.holds:
            travel_D = view.motions[part.track.topic].travel_D(part.dims).tolist()
            joints = [(part.track.topic, dim) for dim in part.dims]
            travel.setdefault(part.unit, {}).update(zip(joints, travel_D, strict=True))
    return {
        joint
        for of_unit in travel.values()
        for joint, far in of_unit.items()
        if far > max(STILL, MOVER_SHARE * max(of_unit.values()))
    }


def _body_speed(view: EpisodeView, movers: set[tuple[str, int]]) -> NDArray[np.float64]:
    """How fast the body moves, float64 [M]: the sum of its parts' speeds, each as a share of its own largest."""
    total_M = np.zeros(max(view.num_steps - 1, 0))
    for part in places(view.header):
        dims = [dim for dim in part.dims if (part.track.topic, dim) in movers]
        if dims:
            speed_M = view.motions[part.track.topic].speed_M(dims)
            total_M += speed_M / (speed_M.max() or 1.0)
    return total_M


def _evened(values_M: NDArray[np.float64], used_M: NDArray[np.bool_]) -> NDArray[np.float64]:
    """On a log scale that starts at its own quiet level, so that no burst outvotes the rest; float64 [M, 1]."""
    quiet = max(np.percentile(values_M[used_M], QUIET_PERCENT), 1e-3 * values_M[used_M].max())
    evened_M1: NDArray[np.float64] = np.log(values_M + quiet)[:, None]
    return evened_M1
