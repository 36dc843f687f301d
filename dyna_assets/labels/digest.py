"""Labeller `digest`: what tells that two episodes are the same one, encoded anew, cut or stamped a little differently.

A digest is a set of *codes*: numbers for what the episode is like within a short window, taken at every step. An
episode that was cut lacks a few of them, one encoded anew has a few others. The NUM_CODES smallest stand for all (a
min-hash): the share of them that two digests have in common is about the share of their windows that are the same.
`dyna_assets.curation.duplicates` compares them.

Array axes: T steps, D state dimensions, C channels, W windows, B bits, K codes.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.labels.joints import places
from dyna_assets.labels.registry import Annotation, labeller
from dyna_assets.labels.view import EpisodeView
from dyna_assets.quality.trace import CameraTrace
from dyna_assets.quality.vector_facts import STILL

VERSION = 2
NUM_CODES, CODE_CHARACTERS = 32, 8
"""A code has 48 bits: eight characters of base64."""
LEAST_CODES = 8
"""What has fewer hardly changes, and a digest of it would be like that of anything else at rest."""
WINDOW_S, NUM_TIMES, NUM_CHANNELS, NUM_BITS = 2.0, 8, 8, 48
"""Of the trajectory: length of a window, means taken within it, sums of dimensions, and bits of the code."""
PICTURES_S = 1.0
MOVING = 0.1
"""Windows that move less than this share of the one that moves most have no code."""
HASHED_TIMES, LEVELS = 64, 1000
"""Of the state's hash: means over the episode, and steps of a dimension's travel."""

_SPLITMIX64 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # mix, so that being small says nothing of the bits

Codes = NDArray[np.uint64]


@labeller("digest", version=VERSION)
def digest(view: EpisodeView) -> Iterator[Annotation]:
    """'digest.state' (hex, equal for equal trajectories), 'sketch', and per camera 'digest.frames' (codes)."""
    states = [track for track in view.header.vectors if track.role == "state"]
    state_TD = _beside([view.vectors[track.topic] for track in states])
    if _moves(state_TD):  # all that stand still would be equal
        yield Annotation("state", "digest.state", text=state_digest(state_TD))
    parts = places(view.header)
    place_TD = _beside([view.vectors[part.track.topic][:, part.dims] for part in parts])
    names = [part.track.names[dim] for part in parts for dim in part.dims]
    units = [part.unit for part in parts for _ in part.dims]
    found = {"state": ("sketch", sketch(place_TD, names, units, view.rate_hz))}
    for camera, trace in view.traces.items():
        found[f"camera/{camera}"] = ("digest.frames", frames_digest(trace, view.rate_hz))
    for subject, (key, codes_K) in found.items():
        if len(codes_K) >= LEAST_CODES:
            yield Annotation(subject, key, text=codes_text(codes_K))


def codes_text(codes_K: Codes) -> str:
    """The codes in base64, CODE_CHARACTERS each."""
    return base64.b64encode(codes_K.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 2:].tobytes()).decode()


def state_digest(state_TD: NDArray[np.float64]) -> str:
    """Sixteen bytes in hex over the trajectory at HASHED_TIMES times, in LEVELS steps of each dimension's travel.

    Equal for the same state however its pictures are encoded; a cut of one step changes it.
    """
    values_ND = _means(state_TD, HASHED_TIMES)
    low_D, travel_D = values_ND.min(axis=0), np.ptp(values_ND, axis=0)
    levels_ND = np.rint((values_ND - low_D) / np.where(travel_D > STILL, travel_D, 1.0) * LEVELS)
    ends = " ".join(f"{low:.3g}+{travel:.3g}" for low, travel in zip(low_D, travel_D, strict=True))
    digested = hashlib.blake2b(levels_ND.astype("<i2").tobytes(), digest_size=16)
    digested.update(ends.encode())
    return digested.hexdigest()


def sketch(
    place_TD: NDArray[np.float64], names: Sequence[str], units: Sequence[str], rate_hz: float
) -> Codes:
    """Codes of the trajectory's shape within WINDOW_S, uint64 [K]; none if nothing moves, or for a shorter one.

    The dimensions are summed into channels under signs that their names draw: the same for every episode and any
    order of dimensions. A code says on which side of NUM_BITS drawn planes the window lies, seen from its mean; so
    neither where the robot stands nor how far the source's units reach matters.
    """
    stretch = max(round(WINDOW_S * rate_hz / NUM_TIMES), 1)
    num_windows = len(place_TD) - NUM_TIMES * stretch + 1
    if num_windows < 1 or not _moves(place_TD):
        return np.empty(0, np.uint64)
    signs_DC = np.array([_signs(name) for name in names])
    means_TC = _over(place_TD @ (_scales(place_TD, units)[:, None] * signs_DC), stretch) / stretch
    at_times = [means_TC[time * stretch :][:num_windows] for time in range(NUM_TIMES)]
    shapes_WSC = np.stack(at_times, axis=1, dtype=np.float32, casting="same_kind")
    shapes_WSC -= shapes_WSC.mean(axis=1, keepdims=True)
    shapes_WX = shapes_WSC.reshape(num_windows, -1)
    moved_W = np.linalg.norm(shapes_WX, axis=1)
    return _smallest(shapes_WX[moved_W > MOVING * moved_W.max()] @ _PLANES_XB > 0)


def frames_digest(trace: CameraTrace, rate_hz: float) -> Codes:
    """Codes of the pictures, uint64 [K]: what each bit of their difference hashes is most of PICTURES_S.

    A step without a picture counts as the picture before. Encoding anew flips bits of single pictures, hardly ever one
    of most.
    """
    held_T = np.maximum.accumulate(np.where(trace.seen_T, np.arange(trace.num_steps), -1))
    hashes_T = trace.hashes_T[held_T[held_T >= 0]]
    window = max(round(PICTURES_S * rate_hz), 1)
    if len(hashes_T) < window:
        return np.empty(0, np.uint64)
    bits_TB = np.unpackbits(hashes_T.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
    return _smallest(2 * _over(bits_TB, window) > window)


def _smallest(bits_WB: NDArray[np.bool_]) -> Codes:
    """The NUM_CODES smallest of the numbers that the rows of bits are mixed into, ascending."""
    packed_W8 = np.zeros((len(bits_WB), 8), np.uint8)
    packed_W8[:, : bits_WB.shape[1] // 8] = np.packbits(bits_WB, axis=1)
    mixed_W = packed_W8.view("<u8").ravel().astype(np.uint64)
    for factor in _SPLITMIX64:
        mixed_W = (mixed_W ^ (mixed_W >> np.uint64(30))) * np.uint64(factor)
    smallest_K: Codes = np.unique(mixed_W >> np.uint64(16))[:NUM_CODES]
    return smallest_K


def _over(values_TD: NDArray[Any], num_steps: int) -> NDArray[Any]:
    """Sums of as many steps, from each step that has them, [T - num_steps + 1, D]."""
    sums_TD = np.pad(np.cumsum(values_TD, axis=0), ((1, 0), (0, 0)))
    return np.asarray(sums_TD[num_steps:] - sums_TD[:-num_steps])


def _means(values_TD: NDArray[np.float64], num_stretches: int) -> NDArray[np.float64]:
    """Means over stretches of equal length, whose ends may lie within steps; float64 [num_stretches, D]."""
    num_steps = len(values_TD)
    sums = np.vstack([np.zeros((1, values_TD.shape[1])), np.cumsum(values_TD, axis=0)])
    ends = np.linspace(0, num_steps, num_stretches + 1)
    whole = np.minimum(ends.astype(int), num_steps - 1)
    at_ends = sums[whole] + (ends - whole)[:, None] * values_TD[whole]
    means_ND: NDArray[np.float64] = np.diff(at_ends, axis=0) / np.diff(ends)[:, None]
    return means_ND


def _scales(place_TD: NDArray[np.float64], units: Sequence[str]) -> NDArray[np.float64]:
    """What brings the units to about the same reach, [D]; in powers of four, which a cut hardly ever changes."""
    travel_D = np.ptp(place_TD, axis=0)
    reach = {unit: max(travel_D[[one == unit for one in units]].max(), STILL) for unit in set(units)}
    return np.array([4.0 ** -round(math.log(reach[unit], 4)) for unit in units])


def _beside(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Side by side, float64 [T, D], without the steps at which something is no number."""
    joined_TD = np.hstack(parts).astype(np.float64) if parts else np.empty((0, 0))
    return joined_TD[np.isfinite(joined_TD).all(axis=1)]


def _moves(values_TD: NDArray[np.float64]) -> bool:
    return bool(values_TD.size and (np.ptp(values_TD, axis=0) > STILL).any())


def _signs(name: str, num: int = NUM_CHANNELS) -> NDArray[np.float64]:
    """Signs that a name draws, the same on every machine; num: a multiple of 8."""
    drawn = hashlib.shake_128(name.encode()).digest(num // 8)
    return np.unpackbits(np.frombuffer(drawn, np.uint8)).astype(np.float64) * 2 - 1


_PLANES_XB = _signs("planes", NUM_TIMES * NUM_CHANNELS * NUM_BITS).reshape(-1, NUM_BITS).astype(np.float32)
