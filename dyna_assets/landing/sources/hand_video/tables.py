"""Pose files that are tables (CSV, Parquet): a row for each frame, or one for each keypoint of each frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.hand_video.poses import (
    AXES,
    COLUMN,
    CONFIDENCE,
    SIDES,
    HandPoses,
    HandTrack,
    key_column,
    keys_of,
    point_order,
    side_of,
)

HAND = ("hand", "side", "handedness")
POINT = ("keypoint", "landmark", "joint", "point")


def poses_of_table(table: pa.Table, where: str) -> HandPoses:
    """The poses in a table of either form. Raises RecordingError naming the column or row that is wrong."""
    low = {name.lower(): name for name in table.column_names}
    hand, point = (next((low[name] for name in names if name in low), None) for names in (HAND, POINT))
    if hand and point and "x" in low and "y" in low:
        return _long(table, hand, point, low, where)
    return _wide(table, where)


def _wide(table: pa.Table, where: str) -> HandPoses:
    key, by, unit_ns = key_column(table.column_names, where)
    keys_N = keys_of(table.column(key).to_pylist(), by, unit_ns, where)
    parts: dict[str, dict[str, dict[str, str]]] = {}  # side -> point ('' is the hand) -> part -> column
    used = {key}
    for name in table.column_names:
        match = COLUMN.fullmatch(name)
        if match and (match["point"] or match["part"].lower() in CONFIDENCE):
            part = "confidence" if match["part"].lower() in CONFIDENCE else match["part"].lower()
            points = parts.setdefault(match["side"].lower(), {})
            points.setdefault((match["point"] or "").lower(), {})[part] = name
            used.add(name)
    hands = {side: _wide_hand(table, parts[side], where) for side in SIDES if side in parts}
    if not hands:
        raise RecordingError(
            f"{where}: no hand in it: expected columns like left_0_x or hand, keypoint, x, y; found "
            f"{', '.join(table.column_names[:8])}"
        )
    rest = {name: table.column(name).to_pylist() for name in table.column_names if name not in used}
    return HandPoses(by, keys_N, hands, rest)


def _wide_hand(table: pa.Table, parts: Mapping[str, Mapping[str, str]], where: str) -> HandTrack:
    points = sorted(filter(None, parts), key=point_order)
    axes = tuple(axis for axis in AXES if any(axis in parts[point] for point in points))
    for point in points:
        lacking = [axis for axis in ("x", "y", *axes[2:]) if axis not in parts[point]]
        if lacking:
            raise RecordingError(
                f"{where}: {', '.join(parts[point].values())} without {lacking[0]}: every keypoint needs the same axes"
            )
    if not points:
        raise RecordingError(f"{where}: {', '.join(parts[''].values())} without any keypoint")
    keypoints_NKA = np.stack(
        [np.stack([_numbers(table, parts[p][axis], where) for axis in axes], -1) for p in points], 1
    )
    if all("confidence" in parts[point] for point in points):
        confidence = [_numbers(table, parts[point]["confidence"], where) for point in points]
    elif "" in parts:
        confidence = [_numbers(table, parts[""]["confidence"], where)]
    else:
        return HandTrack.of(points, axes, keypoints_NKA, None)
    return HandTrack.of(points, axes, keypoints_NKA, np.stack(confidence, -1))


def _long(table: pa.Table, hand: str, point: str, low: Mapping[str, str], where: str) -> HandPoses:
    names = {axis: low[axis] for axis in AXES if axis in low}
    confidence = next((low[name] for name in CONFIDENCE if name in low), None)
    rest = [name for name in table.column_names if name not in {hand, point, confidence, *names.values()}]
    key, by, unit_ns = key_column(rest, where)
    rest.remove(key)
    keys_L = keys_of(table.column(key).to_pylist(), by, unit_ns, where)
    keys_N, first_N, rows_L = np.unique(keys_L, return_index=True, return_inverse=True)
    order = np.argsort(first_N)  # rows in the order in which the file has them
    rows_L, keys_N = np.argsort(order)[rows_L], keys_N[order]
    sides_L = _coded(table.column(hand), lambda value, row: side_of(value, f"{where}: row {row}"))
    points_L = _coded(table.column(point), lambda value, row: _point(value, f"{where}: row {row}"))
    values_LA = np.stack([_numbers(table, name, where) for name in names.values()], -1)
    confidence_L = _numbers(table, confidence, where) if confidence else None
    hands = {}
    for side in SIDES:
        lines = np.flatnonzero(np.array([found == side for found in sides_L]))
        if len(lines):
            hands[side] = _long_hand(
                len(keys_N), lines, rows_L, points_L, tuple(names), values_LA, confidence_L, where
            )
    columns: dict[str, Sequence[Any]] = {}
    for name in rest:
        by_row: list[list[Any]] = [[] for _ in keys_N]
        for row, value in zip(rows_L.tolist(), table.column(name).to_pylist(), strict=True):
            by_row[row].append(value)
        columns[name] = by_row
    return HandPoses(by, keys_N, hands, columns)


def _long_hand(
    num_rows: int,
    lines: NDArray[np.int64],
    rows_L: NDArray[np.int64],
    points_L: Sequence[str],
    axes: tuple[str, ...],
    values_LA: NDArray[np.float64],
    confidence_L: NDArray[np.float64] | None,
    where: str,
) -> HandTrack:
    """One hand from its lines. Raises RecordingError if a keypoint stands twice in one row."""
    points = sorted({points_L[line] for line in lines.tolist()}, key=point_order)
    numbers = {point: number for number, point in enumerate(points)}
    places = rows_L[lines] * len(points) + [numbers[points_L[line]] for line in lines.tolist()]
    _, first, counts = np.unique(places, return_index=True, return_counts=True)
    if (counts > 1).any():
        again = lines[first[counts > 1][0]]
        raise RecordingError(
            f"{where}: row {again}: keypoint {points_L[again]} of the same hand stands more than once in its frame"
        )
    keypoints = np.full((num_rows * len(points), len(axes)), np.nan)
    keypoints[places] = values_LA[lines]
    keypoints_NKA = keypoints.reshape(num_rows, len(points), len(axes))
    if confidence_L is None:
        return HandTrack.of(points, axes, keypoints_NKA, None)
    confidence = np.full(num_rows * len(points), np.nan)
    confidence[places] = confidence_L[lines]
    return HandTrack.of(points, axes, keypoints_NKA, confidence.reshape(num_rows, len(points)))


def _point(value: Any, place: str) -> str:
    text = str(int(value)) if isinstance(value, float) and value == int(value) else str(value)
    if value is None:
        raise RecordingError(f"{place}: expected a keypoint's number or name, found none")
    return text.strip().lower()


def _coded(column: Any, meaning: Any) -> list[str]:
    """The meaning of each value; each distinct value is looked at once."""
    coded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
    codes = coded.indices.to_numpy(zero_copy_only=False)
    said = [
        meaning(value, int(np.argmax(codes == code)))
        for code, value in enumerate(coded.dictionary.to_pylist())
    ]
    return [said[code] for code in codes.tolist()]


def _numbers(table: pa.Table, name: str, where: str) -> NDArray[np.float64]:
    """A column as float64 [N], NaN where it has no value. Raises RecordingError if it holds no numbers."""
    column = table.column(name)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        first = next((value for value in column.to_pylist() if value is not None), None)
        raise RecordingError(
            f"{where}: column '{name}': expected numbers, found {column.type}, first {first!r}"
        )
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)
