"""Pose files that are lists of frames with the hands found in each (JSON, JSON lines, nested Parquet)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.facts import first_of
from dyna_assets.landing.sources.hand_video.poses import (
    AXES,
    CONFIDENCE,
    SIDES,
    HandPoses,
    HandTrack,
    key_column,
    keys_of,
    side_of,
)

SIDE_KEYS = ("side", "handedness", "hand")
POINT_KEYS = ("keypoints", "landmarks")


class _Hand:
    """One hand while its frames are read: [K, A] of a frame, or None where it is not seen."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.points: list[NDArray[np.float64] | None] = []
        self.scores: list[float] = []
        self.rest: dict[str, dict[int, Any]] = {}
        self.width = (0, 0)
        self.is_scored = False


def poses_of_frames(frames: Iterable[Any], where: str, facts: Mapping[str, Any] | None = None) -> HandPoses:
    """The poses in frames, one at a time. Raises RecordingError naming the frame (counted from 0) that is wrong."""
    hands = {side: _Hand(side) for side in SIDES}
    keys: list[Any] = []
    others: dict[str, dict[int, Any]] = {}
    key_name, by, unit_ns = "", None, 1
    for number, frame in enumerate(frames):
        place = f"{where}: frame {number} of the list"
        if not isinstance(frame, Mapping) or not isinstance(frame.get("hands"), list):
            raise RecordingError(f'{place}: expected {{"frame": …, "hands": [...]}}, found {str(frame)[:80]}')
        if by is None:
            key_name, by, unit_ns = key_column(frame, place)
        keys.append(frame.get(key_name))
        for side, hand in hands.items():
            found = [one for one in frame["hands"] if _side(one, place) == side]
            _add(hand, found, number, place)
        for name in frame.keys() - {key_name, "hands"}:
            others.setdefault(name, {})[number] = frame[name]
    if by is None:
        raise RecordingError(f"{where}: no frame in it")
    for hand in hands.values():
        if hand.is_scored and hand.width[1] == 4:  # each point has its own confidence too
            hand.rest["score"] = dict(enumerate(hand.scores))
        others |= {f"{hand.side}_hand.{name}": values for name, values in hand.rest.items()}
    columns = {name: [values.get(row) for row in range(len(keys))] for name, values in sorted(others.items())}
    tracks = {side: _track(hand) for side, hand in hands.items() if hand.width[0]}
    return HandPoses(by, keys_of(keys, by, unit_ns, where), tracks, columns, facts or {})


def _side(hand: Any, place: str) -> str:
    if not isinstance(hand, Mapping):
        raise RecordingError(f"{place}: expected a hand as an object, found {str(hand)[:80]}")
    return side_of(first_of(hand, *SIDE_KEYS), place)


def _add(hand: _Hand, found: Sequence[Mapping[str, Any]], number: int, place: str) -> None:
    """Of several hands said to be the same, the surest one counts; the others are kept as they are."""
    ordered = sorted(found, key=_score, reverse=True)
    if not ordered:
        hand.points.append(None)
        hand.scores.append(np.nan)
        return
    best = ordered[0]
    points = _points(best, place)
    if len(points) and not hand.width[0]:
        hand.width = (points.shape[0], points.shape[1])
    if len(points) and points.shape != hand.width:
        raise RecordingError(
            f"{place}: {hand.side} hand: expected {hand.width[0]} keypoints of {hand.width[1]} numbers as before, "
            f"found {points.shape[0]} of {points.shape[1]}"
        )
    hand.points.append(points if len(points) else None)
    hand.scores.append(_score(best))
    hand.is_scored |= any(name in best for name in CONFIDENCE)
    for name in best.keys() - {*SIDE_KEYS, *POINT_KEYS, *CONFIDENCE}:
        hand.rest.setdefault(name, {})[number] = best[name]
    if len(ordered) > 1:
        hand.rest.setdefault("others", {})[number] = ordered[1:]


def _score(hand: Mapping[str, Any]) -> float:
    value = first_of(hand, *CONFIDENCE)
    return float(value) if isinstance(value, int | float) else np.nan


def _points(hand: Mapping[str, Any], place: str) -> NDArray[np.float64]:
    """[K, 2 to 4]; without a row where the hand has no keypoints."""
    found = first_of(hand, *POINT_KEYS)
    if not isinstance(found, list | None):
        raise RecordingError(f"{place}: expected a list of keypoints, found {str(found)[:80]}")
    points = [_point(one, place) for one in found or ()]
    if len({len(point) for point in points}) > 1:
        raise RecordingError(f"{place}: keypoints of different lengths, first {points[0]}")
    return np.array(points, np.float64)


def _point(point: Any, place: str) -> list[float]:
    """[x, y], [x, y, z] or [x, y, z, confidence]."""
    if isinstance(point, Mapping):
        parts = [point[axis] for axis in AXES if axis in point]
        confidence = first_of(point, *CONFIDENCE)
        point = parts if confidence is None else [*parts, *[np.nan] * (3 - len(parts)), confidence]
    if not isinstance(point, list | tuple) or len(point) not in (2, 3, 4):
        raise RecordingError(
            f"{place}: expected a keypoint [x, y], [x, y, z] or [x, y, z, c], found {str(point)[:80]}"
        )
    if not all(value is None or isinstance(value, int | float) for value in point):
        raise RecordingError(f"{place}: expected numbers in a keypoint, found {str(point)[:80]}")
    return [np.nan if value is None else float(value) for value in point]


def _track(hand: _Hand) -> HandTrack:
    """The rows of one hand; the fourth number of a point is its confidence."""
    nothing = np.full(hand.width, np.nan)
    values_NKV = np.stack([nothing if points is None else points for points in hand.points])
    num_axes = min(hand.width[1], 3)
    if num_axes == 3 and hand.width[1] == 4 and np.isnan(values_NKV[:, :, 2]).all():
        num_axes = 2  # points that are objects without z
    names = [str(number) for number in range(hand.width[0])]
    keypoints_NKA = values_NKV[:, :, :num_axes]
    if hand.width[1] == 4:
        return HandTrack.of(names, AXES[:num_axes], keypoints_NKA, values_NKV[:, :, 3])
    scores = np.array(hand.scores)[:, None] if hand.is_scored else None
    return HandTrack.of(names, AXES[:num_axes], keypoints_NKA, scores)
