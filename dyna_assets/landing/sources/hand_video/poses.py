"""What a pose file says: for each row a frame number or a time, and keypoints with confidence of two hands.

There is no public standard. Read are (names in any case):
- wide tables (CSV, Parquet): `left_0_x, left_0_y[, left_0_z][, left_0_confidence]`, as COLUMN says;
- long tables: `frame` or a time, `hand`, `keypoint`, `x`, `y`[, `z`][, `confidence`];
- frames (JSON, JSON lines, or a Parquet column `hands`): {"frame": n, "hands": [{"side": "left", "score": c,
  "keypoints": [[x, y, z, c], ...]}]}; also "handedness", "landmarks", and points as {"x": ..}.
A row is known by `frame`, or by `timestamp_s`, `_ms`, `_us` or `_ns` since the video's first frame.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError

SIDES = ("left", "right")
AXES = ("x", "y", "z")
MEDIAPIPE = (
    "wrist", "thumb_cmc", "thumb_mcp", "thumb_ip", "thumb_tip",
    *(f"{finger}_{part}" for finger in ("index_finger", "middle_finger", "ring_finger", "pinky")
      for part in ("mcp", "pip", "dip", "tip")),
)  # fmt: skip
"""The 21 points of a hand, in MediaPipe's order, which nearly every tracker follows."""
CONFIDENCE = ("confidence", "conf", "score", "visibility", "c")
COLUMN = re.compile(
    rf"(?P<side>left|right)(?:_hand)?(?:[_.](?:kp|keypoint|landmark|joint)?_?(?P<point>\d+|{'|'.join(MEDIAPIPE)}))?"
    rf"[_.](?P<part>x|y|z|{'|'.join(CONFIDENCE)})",
    re.IGNORECASE,
)
"""A column of a wide table; without a point it is the whole hand's confidence."""
FRAME = frozenset({"frame", "frame_index", "frame_idx", "frame_number", "frame_id"})
TIME = re.compile(r"(?:timestamp|time|t)(?:_(?P<unit>s|ms|us|ns))?", re.IGNORECASE)
UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
MAX_KEY = 1 << 62
KEY_NOUNS = {"frame": "whole frame number", "time": "time"}


@dataclass(frozen=True, slots=True)
class HandTrack:
    """One hand over N rows. points: K names. axes: A of x, y, z. A point that is not seen: NaN, confidence 0.

    confidence_NC: 0 to 1, of each point (C = K) or of the whole hand (C = 1). note: what was odd about it.
    """

    points: tuple[str, ...]
    axes: tuple[str, ...]
    keypoints_NKA: NDArray[np.float64]
    confidence_NC: NDArray[np.float64]
    note: str = ""

    @classmethod
    def of(
        cls,
        points: Sequence[str],
        axes: tuple[str, ...],
        keypoints_NKA: NDArray[np.float64],
        confidence_NC: NDArray[np.float64] | None,
    ) -> HandTrack:
        """A track from what a file says. confidence_NC None: the file has none, what is seen counts as 1.

        So does a confidence of 0 at every point that is seen: some trackers fill the field with zeros. A point
        of zeros with a confidence of 0 among others is how some say that they see nothing.
        """
        is_seen_NK = np.asarray(np.isfinite(keypoints_NKA).all(axis=2))
        is_hand_seen_N1 = np.asarray(is_seen_NK.any(axis=1))[:, None]
        note = ""
        if confidence_NC is None or not np.nan_to_num(confidence_NC).any():
            if confidence_NC is not None and keypoints_NKA[is_seen_NK].any():
                note = "its confidence is 0 everywhere and says nothing: what is seen counts as 1"
            if confidence_NC is None or note:
                confidence_NC = is_seen_NK.astype(np.float64)
        is_seen_NK &= (keypoints_NKA != 0).any(axis=2) | (confidence_NC != 0)
        is_seen_NC = is_seen_NK if confidence_NC.shape[1] == len(points) else is_hand_seen_N1
        seen_NKA = np.where(is_seen_NK[:, :, None], keypoints_NKA, np.nan)
        confidence_NC = np.asarray(np.where(np.isnan(confidence_NC) & ~is_seen_NC, 0.0, confidence_NC))
        return cls(point_names(points), axes, seen_NKA, confidence_NC, note)

    @classmethod
    def unseen(cls, other: HandTrack) -> HandTrack:
        """The track of a hand that is never seen, beside the one of the other hand."""
        return other.taken(np.full(len(other.keypoints_NKA), -1))

    @property
    def is_seen(self) -> bool:
        """Whether the hand is seen in any row."""
        return bool(np.isfinite(self.keypoints_NKA).any())

    @property
    def confidence_names(self) -> tuple[str, ...]:
        """What the C confidences are of."""
        return self.points if self.confidence_NC.shape[1] == len(self.points) else ("hand",)

    def taken(self, rows_M: NDArray[np.int64]) -> HandTrack:
        """The rows with these numbers; a number below 0 is a row in which nothing is seen."""
        none = rows_M < 0
        keypoints = np.where(none[:, None, None], np.nan, self.keypoints_NKA[rows_M])
        confidence = np.where(none[:, None], 0.0, self.confidence_NC[rows_M])
        return HandTrack(self.points, self.axes, keypoints, confidence, self.note)


@dataclass(frozen=True, slots=True)
class HandPoses:
    """N rows of a pose file. keys_N: frame numbers, or ns since the video's first frame, in file order.

    columns: what else the rows say, by name, N values each. facts: what the file says of itself.
    """

    by: Literal["frame", "time"]
    keys_N: NDArray[np.int64]
    hands: Mapping[str, HandTrack]
    columns: Mapping[str, Sequence[Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def point_names(points: Sequence[str]) -> tuple[str, ...]:
    """MediaPipe's names where the points are its 21 by number or name, else as they are, numbers as 'kp_0'."""
    if [str(point) for point in points] == [str(number) for number in range(len(MEDIAPIPE))]:
        return MEDIAPIPE
    return tuple(f"kp_{point}" if str(point).isdigit() else str(point).lower() for point in points)


def point_order(point: str) -> tuple[int, str]:
    """Sorts points by number, and MediaPipe's names in its order."""
    if point.isdigit():
        return int(point), ""
    return (MEDIAPIPE.index(point), "") if point in MEDIAPIPE else (len(MEDIAPIPE), point)


def side_of(text: Any, place: str) -> str:
    """'left' or 'right'. Raises RecordingError for anything else."""
    word = str(text).strip().lower().removesuffix("hand").strip("_ ")
    side = {"l": "left", "r": "right"}.get(word, word)
    if side not in SIDES:
        raise RecordingError(f"{place}: expected the hand 'left' or 'right', found {text!r}")
    return side


def key_column(names: Collection[str], where: str) -> tuple[str, Literal["frame", "time"], int]:
    """(the name that says which row it is, how, the unit of a time in ns); frame numbers before times.

    A time without a unit is in seconds. Raises RecordingError if there is none.
    """
    for name in names:
        if name.lower() in FRAME:
            return name, "frame", 1
    for name in names:
        match = TIME.fullmatch(name)
        if match:
            return name, "time", UNIT_NS[(match["unit"] or "s").lower()]
    raise RecordingError(
        f"{where}: expected 'frame', 'timestamp_s' or 'timestamp_ns' for each row, found "
        f"{', '.join(list(names)[:8]) or 'none'}"
    )


def keys_of(
    values: Iterable[Any], by: Literal["frame", "time"], unit_ns: int, where: str
) -> NDArray[np.int64]:
    """Whole frame numbers, or times in ns. Raises RecordingError naming the row that has none."""
    keys = []
    for row, value in enumerate(values):
        key = value * unit_ns if isinstance(value, int | float) and not isinstance(value, bool) else np.nan
        if not abs(key) < MAX_KEY or (by == "frame" and key != int(key)):
            raise RecordingError(f"{where}: row {row}: expected a {KEY_NOUNS[by]}, found {value!r}")
        keys.append(round(key))
    return np.array(keys, np.int64)
