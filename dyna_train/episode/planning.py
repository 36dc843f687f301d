"""Choose the cuts of a file for how it will be read: `ReadPattern -> EpisodeLayout`.

A window needs a few frames, and a decoder must run from the keyframe before each. A longer GOP saves bytes
and costs decoded frames; the pattern decides which is worth more. A longer chunk saves requests and costs
bytes that nobody wanted; the store decides. What the bytes are, a `SizeModel` says: fitted on two trial
encodes of the footage, or assumed from its number of pixels.

Array axes: P phases of the anchor in its GOP, W wanted frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.layout import (
    BLOCK_S,
    REMOTE_STORE,
    EpisodeLayout,
    ReadPattern,
    StoreCosts,
    candidate_gops,
    checked_rate,
)
from dyna_train.episode.sizes import SizeModel
from dyna_train.errors import BadInput

MAX_CHUNK_S = Fraction(4)  # a writer holds one chunk of every camera
# Outside these, stock readers ask too often or read too much.
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 256 << 10, 4 << 20


def decoded_per_camera(offsets: Sequence[int], gop: int) -> float:
    """Mean number of frames one camera decodes for a window with these step offsets, over all phases.

    For every phase of the anchor in its GOP, each touched GOP costs its last wanted position + 1.
    """
    wanted_PW = np.arange(gop)[:, None] + np.asarray(sorted(offsets), dtype=np.int64)[None, :]
    return float(((wanted_PW % gop + 1) * _is_last(wanted_PW // gop)).sum() / gop)


def touched_gops(offsets: Sequence[int], gop: int) -> float:
    """Mean number of GOPs of one camera that hold a wanted frame, over all phases."""
    wanted_PW = np.arange(gop)[:, None] + np.asarray(sorted(offsets), dtype=np.int64)[None, :]
    return float(_is_last(wanted_PW // gop).sum() / gop)


def plan_layout(
    pattern: ReadPattern, rate_hz: float, *, sizes: SizeModel, store: StoreCosts = REMOTE_STORE
) -> EpisodeLayout:
    """The layout that serves windows of `pattern` best at `rate_hz` steps per second.

    sizes: what a step weighs. store: where the file will lie. The GOP is never longer than the pattern's. Raises
    BadInput for a rate that is not positive.
    """
    longest = max(1, int(pattern.max_gop_s * checked_rate(rate_hz)))
    gops = [gop for gop in candidate_gops(rate_hz) if gop <= longest]
    offsets = pattern.frame_offsets(rate_hz)

    def cost(gop: int) -> float:
        """Bytes and decoded frames, in units of storing the video without keyframes."""
        stored = 1 + (sizes.keyframe_ratio - 1) / gop
        return stored + pattern.decode_price * decoded_per_camera(offsets, gop) / len(offsets)

    gop = min(gops, key=cost)
    return layout_with_gop(gop, pattern, rate_hz, sizes=sizes, store=store)


def layout_with_gop(
    gop: int, pattern: ReadPattern, rate_hz: float, *, sizes: SizeModel, store: StoreCosts = REMOTE_STORE
) -> EpisodeLayout:
    """The layout for video that has its GOP already, as a copied stream has.

    A chunk is the number of whole GOPs that costs two readers together least. A stock reader fetches every
    chunk that its window touches, one after the other; ours fetches once, from the state block on. It has
    0.25 to 4 MiB and at most 4 s, or is one GOP. Raises BadInput for a rate or GOP that is not positive.
    """
    rate = checked_rate(rate_hz)
    if gop < 1:
        raise BadInput(f"gop = {gop}: expected at least one step")
    offsets = pattern.frame_offsets(rate_hz)
    span = offsets[-1] - offsets[0]
    step_bytes = sizes.video_step_bytes(gop)

    def cost(num_gops: int) -> float:
        chunk = num_gops * gop
        stock_s = store.seconds(1 + span / chunk, (span + chunk) * step_bytes)
        ours_s = store.seconds(1, (span + _block_steps(chunk, rate)) * step_bytes)
        return stock_s + ours_s

    gops_per_chunk = min(_chunk_choices(gop, step_bytes, rate), key=cost)
    return EpisodeLayout(gop, gops_per_chunk, _block_steps(gop * gops_per_chunk, rate))


def _chunk_choices(gop: int, step_bytes: float, rate: Fraction) -> range:
    """Numbers of GOPs whose chunk is neither too long nor too large, and no smaller than need be."""
    most = max(1, int(MAX_CHUNK_S * rate) // gop)
    if step_bytes == 0:
        return range(most, most + 1)
    gop_bytes = gop * step_bytes
    most = max(1, min(most, int(MAX_CHUNK_BYTES / gop_bytes)))
    return range(min(most, ceil(MIN_CHUNK_BYTES / gop_bytes)), most + 1)


def _block_steps(chunk: int, rate: Fraction) -> int:
    """Steps of a state block: 2 s, rounded up to whole chunks."""
    return chunk * ceil(BLOCK_S * rate / chunk)


def _is_last(gop_PW: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True where a wanted frame is the last one of its GOP."""
    last_PW = np.ones(gop_PW.shape, dtype=bool)
    last_PW[:, :-1] = gop_PW[:, 1:] != gop_PW[:, :-1]
    return last_PW
