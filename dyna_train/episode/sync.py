"""The record `dyna.sync`: how far capture lies from the grid, and where a camera has no frames.

Array axes: T steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.profile import MISSING_NS
from dyna_train.episode.stretches import Stretches, steps_at
from dyna_train.episode.tracks import Tracks


def sync_record(
    tracks: Tracks, capture_ns: Mapping[str, NDArray[np.int64]], grid_T: NDArray[np.int64]
) -> dict[str, str]:
    """By topic the largest and mean distance of capture from grid time, ns, and the gaps, in steps.

    capture_ns: int64 [T] ns by topic, MISSING_NS in a gap; vectors have none. grid_T: int64 [T] ns.
    """
    record = {}
    for topic in tracks.topics:
        capture_T = capture_ns[topic]
        distance_ns = np.abs(capture_T - grid_T)[capture_T != MISSING_NS]
        record[f"{topic}.max_abs_ns"] = str(int(distance_ns.max(initial=0)))
        record[f"{topic}.mean_abs_ns"] = str(round(float(distance_ns.mean())) if distance_ns.size else 0)
    vectors = {track.topic for track in tracks.vectors}
    for topic in tracks.topics:
        gaps = gaps_of(capture_ns[topic])
        if gaps and topic not in vectors:
            record[f"{topic}.gaps"] = json.dumps([[gap.start, gap.stop] for gap in gaps])
    return record


def gaps_of(capture_T: NDArray[np.int64]) -> Stretches:
    """The stretches without a frame. capture_T: int64 [T] ns."""
    return steps_at(np.flatnonzero(capture_T == MISSING_NS))
