"""Labeller `digest`: what tells that two episodes are the same one, encoded anew or cut a little differently.

Array axes: T steps, D state dimensions, N = NUM_TIMES stretches of equal length, C = NUM_CHANNELS.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyna_assets.labels.joints import places
from dyna_assets.labels.registry import Annotation, labeller
from dyna_assets.labels.view import EpisodeView
from dyna_assets.quality.trace import CameraTrace
from dyna_assets.quality.vector_facts import STILL

NUM_TIMES, NUM_CHANNELS = 16, 4
HASHED_TIMES = 64
LEVELS = 1000
"""Steps of a dimension's travel in the state's hash."""
NEAR = 0.8
"""From this similarity on two episodes are near duplicates. Of 84 teleoperated episodes of one task (249 to 583 steps)
one cut by 3 steps is 0.89 or more like itself, two different ones are 0.59 or less; by their head cameras alone 0.97
and 0.78."""


@dataclass(frozen=True, slots=True)
class Digests:
    """What duplicates are found by.

    state: hex; equal for equal trajectories. sketch: float32 [64], near for near trajectories; None if nothing
    moves. frames: camera -> uint8 [128], the bits of 16 pictures; alike for alike films.
    """

    state: str
    sketch: NDArray[np.float32] | None
    frames: Mapping[str, NDArray[np.uint8]]

    @classmethod
    def of(cls, view: EpisodeView) -> Digests:
        """Of one episode."""
        states = [track for track in view.header.vectors if track.role == "state"]
        parts = places(view.header)
        names = [f"{part.track.name}/{part.track.names[dim]}" for part in parts for dim in part.dims]
        units = [part.unit for part in parts for _ in part.dims]
        frames = {camera: frames_digest(trace) for camera, trace in view.traces.items()}
        return cls(
            state_digest(_beside([view.vectors[track.topic] for track in states])),
            sketch(_beside([view.vectors[part.track.topic][:, part.dims] for part in parts]), names, units),
            {camera: bits for camera, bits in frames.items() if bits is not None},
        )


@labeller("digest", version=1)
def digest(view: EpisodeView) -> Iterator[Annotation]:
    """'digest.state' (hex), 'sketch' and per camera 'digest.frames' (base64 of float16 and of bits)."""
    found = Digests.of(view)
    if found.state:
        yield Annotation("state", "digest.state", text=found.state)
    if found.sketch is not None:
        text = base64.b64encode(found.sketch.astype("<f2").tobytes()).decode()
        yield Annotation("state", "sketch", text=text)
    for camera, bits in found.frames.items():
        yield Annotation(f"camera/{camera}", "digest.frames", text=base64.b64encode(bits.tobytes()).decode())


def similarity(one: Digests, other: Digests) -> float:
    """0 (nothing in common) to 1 (the same), the least of what both can be compared by.

    That is the sketches, if both move, and the cameras that both have; without either 1 for equal states, else 0.
    """
    found = [
        1 - 2 * _share_of_bits(bits ^ other.frames[camera])
        for camera, bits in one.frames.items()
        if camera in other.frames
    ]
    if one.sketch is not None and other.sketch is not None:
        apart = np.linalg.norm(one.sketch - other.sketch)
        found.append(1 - float(apart / np.sqrt((one.sketch**2).sum() / 2 + (other.sketch**2).sum() / 2)))
    elif one.sketch is not None or other.sketch is not None:
        found.append(0.0)
    if not found:
        found.append(float(bool(one.state) and one.state == other.state))
    return max(min(found), 0.0)


def state_digest(state_TD: NDArray[np.float64]) -> str:
    """Sixteen bytes in hex over the trajectory at HASHED_TIMES times, in LEVELS steps of each dimension's travel.

    Equal for the same state however its pictures are encoded; a cut of one step changes it. '' without a state.
    """
    if not state_TD.size:
        return ""
    values_ND = _means(state_TD, HASHED_TIMES)
    low_D, travel_D = values_ND.min(axis=0), np.ptp(values_ND, axis=0)
    levels_ND = np.rint((values_ND - low_D) / np.where(travel_D > STILL, travel_D, 1.0) * LEVELS)
    ends = " ".join(f"{low:.3g}+{travel:.3g}" for low, travel in zip(low_D, travel_D, strict=True))
    digested = hashlib.blake2b(levels_ND.astype("<i2").tobytes(), digest_size=16)
    digested.update(ends.encode())
    return digested.hexdigest()


def sketch(
    place_TD: NDArray[np.float64], names: Sequence[str], units: Sequence[str]
) -> NDArray[np.float32] | None:
    """The trajectory's shape in 64 numbers, float32 [N * C]; None if nothing moves.

    Means over N stretches, each dimension around its mean and by its spread (small ones by a tenth of the largest in
    their unit, so that noise stays small), laid into C channels under signs that are drawn by the dimension's
    name: the same for every episode and any order of dimensions.
    """
    if not place_TD.size or (np.ptp(place_TD, axis=0) <= STILL).all():
        return None
    spread_D = place_TD.std(axis=0)
    for unit in set(units):
        of_unit = [dim for dim, found in enumerate(units) if found == unit]
        spread_D[of_unit] = np.maximum(spread_D[of_unit], max(0.1 * spread_D[of_unit].max(), STILL))
    shape_ND = (_means(place_TD, NUM_TIMES) - place_TD.mean(axis=0)) / spread_D
    signs_DC = np.array([_signs(name) for name in names])
    mixed_N: NDArray[np.float32] = (shape_ND @ signs_DC / np.sqrt(len(names))).astype(np.float32).ravel()
    return mixed_N


def frames_digest(trace: CameraTrace) -> NDArray[np.uint8] | None:
    """What each bit of the pictures' difference hashes is most of the time, in N stretches; uint8 [N * 8].

    None for fewer pictures than stretches. Encoding anew flips a few bits of a few pictures, and no majority.
    """
    hashes = trace.hashes_T[trace.seen_T]
    if len(hashes) < NUM_TIMES:
        return None
    bits_TB = np.unpackbits(hashes.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
    ends = np.linspace(0, len(bits_TB), NUM_TIMES + 1).astype(int)
    counts_NB = np.add.reduceat(bits_TB, ends[:-1], axis=0, dtype=np.int64)
    return np.packbits(2 * counts_NB > np.diff(ends)[:, None], axis=1).ravel()


def _means(values_TD: NDArray[np.float64], num_stretches: int) -> NDArray[np.float64]:
    """Means over stretches of equal length, whose ends may lie within steps; float64 [num_stretches, D]."""
    num_steps = len(values_TD)
    sums = np.vstack([np.zeros((1, values_TD.shape[1])), np.cumsum(values_TD, axis=0)])
    ends = np.linspace(0, num_steps, num_stretches + 1)
    whole = np.minimum(ends.astype(int), num_steps - 1)
    at_ends = sums[whole] + (ends - whole)[:, None] * values_TD[whole]
    means_ND: NDArray[np.float64] = np.diff(at_ends, axis=0) / np.diff(ends)[:, None]
    return means_ND


def _beside(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Side by side, float64 [T, D], without the steps at which something is no number."""
    joined_TD = np.hstack(parts).astype(np.float64) if parts else np.empty((0, 0))
    return joined_TD[np.isfinite(joined_TD).all(axis=1)]


def _signs(name: str) -> list[float]:
    """NUM_CHANNELS signs that a dimension's name draws."""
    drawn = hashlib.blake2b(name.encode(), digest_size=NUM_CHANNELS).digest()
    return [1.0 if byte & 1 else -1.0 for byte in drawn]


def _share_of_bits(bits: NDArray[np.uint8]) -> float:
    return float(np.unpackbits(bits).mean())
