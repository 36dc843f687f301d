"""How a model reads, what a store costs, and where the cuts of a file lie: the words of the layout planner.

`dyna_train.episode.planning` chooses a layout from a pattern, `dyna_train.episode.prediction` says what
reading it will cost. This module holds only what they share, so that everybody may import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dyna_train.errors import BadInput, did_you_mean

MAX_GOP_S = Fraction(2)  # beyond it a GOP has nothing left to save: 30 -> 300 steps is 9 % of the bytes
BLOCK_S = Fraction(2)  # state blocks: one merged request reads them with the video beside them
_GOPS_PER_MAX = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)  # the longest GOP is cut in so many equal ones


@dataclass(frozen=True, slots=True)
class StoreCosts:
    """What one request costs on a store: latency_s before its first byte, then the bytes at bandwidth."""

    latency_s: float
    bandwidth_bytes_per_s: float

    @property
    def gap_bytes(self) -> int:
        """The longest gap that is cheaper to read along than to ask for what lies behind it separately."""
        return round(self.latency_s * self.bandwidth_bytes_per_s)

    def seconds(self, requests: float, num_bytes: float) -> float:
        """Time of that many requests one after the other."""
        return requests * self.latency_s + num_bytes / self.bandwidth_bytes_per_s


# An object store as one reader sees it: gap 4 MB.
REMOTE_STORE = StoreCosts(latency_s=0.020, bandwidth_bytes_per_s=200e6)
# A cold read of an NVMe drive: gap 200 KB. From the page cache a request costs less, but 200 KB that nobody
# wanted cost it no more than 40 us there.
LOCAL_STORE = StoreCosts(latency_s=100e-6, bandwidth_bytes_per_s=2e9)


@dataclass(frozen=True, slots=True)
class ReadPattern:
    """How a model samples an episode around an anchor.

    frame_offsets_s: times of the wanted frames from the anchor, seconds, ascending, of every camera.
    horizon_s: length of the state and action chunk, from the anchor. decode_price: cost of decoding as many
    frames as are wanted, in units of storing the same video without keyframes; it folds in the epochs a
    file is read and the windows that share one decode. max_gop_s: the longest GOP; a loader that decodes
    spans holds a GOP of every camera it reads. Raises BadInput for a pattern without frames.
    """

    name: str
    frame_offsets_s: tuple[Fraction, ...]
    horizon_s: float
    decode_price: float = 0.1
    max_gop_s: Fraction = MAX_GOP_S

    def __post_init__(self) -> None:
        """Refuse a pattern that no window could follow."""
        if not self.frame_offsets_s:
            raise BadInput(f"read pattern '{self.name}' wants no frame; give at least one offset in seconds")
        if self.horizon_s < 0 or self.decode_price < 0:
            raise BadInput(
                f"read pattern '{self.name}': horizon_s = {self.horizon_s}, decode_price = "
                f"{self.decode_price}; expected 0 or more"
            )

    def frame_offsets(self, rate_hz: float) -> tuple[int, ...]:
        """The offsets in whole steps at `rate_hz`, ascending, without repeats."""
        rate = Fraction(rate_hz)
        return tuple(sorted({round(offset * rate) for offset in self.frame_offsets_s}))

    def horizon_steps(self, rate_hz: float) -> int:
        """State steps of a window, the anchor's own first."""
        return round(self.horizon_s * rate_hz)


PATTERNS = {
    # two frames 0.2 s apart and a short action chunk
    "vla": ReadPattern("vla", (Fraction(0), Fraction(1, 5)), horizon_s=1.0, max_gop_s=Fraction(1, 2)),
    # both kinds of model read the files: judged by eight frames over 1.4 s
    "mixed": ReadPattern(
        "mixed", tuple(Fraction(k, 5) for k in range(8)), horizon_s=1.6, max_gop_s=Fraction(1)
    ),
    # a world model that reads every frame of 1.6 s
    "wam": ReadPattern("wam", tuple(Fraction(k, 30) for k in range(48)), horizon_s=1.6),
}


def pattern_named(name: str) -> ReadPattern:
    """The pattern `vla`, `mixed` or `wam`. Raises BadInput with the nearest name for another."""
    if name in PATTERNS:
        return PATTERNS[name]
    raise BadInput(f"unknown read pattern '{name}'; {did_you_mean(name, PATTERNS, 'patterns')}")


@dataclass(frozen=True, slots=True)
class EpisodeLayout:
    """Where the cuts of a file lie, in steps.

    gop: steps from keyframe to keyframe, the same and aligned on all cameras. gops_per_chunk: whole GOPs
    of all cameras in one video chunk. steps_per_block: steps in one state chunk, a multiple of the
    video chunk's. Raises BadInput for cuts that do not nest.
    """

    gop: int
    gops_per_chunk: int
    steps_per_block: int

    def __post_init__(self) -> None:
        """Refuse cuts that do not nest."""
        if min(self.gop, self.gops_per_chunk, self.steps_per_block) < 1:
            raise BadInput(f"{self}: every length must be at least 1")
        if self.steps_per_block % self.steps_per_chunk:
            raise BadInput(
                f"{self}: steps_per_block must be a multiple of gop x gops_per_chunk = {self.steps_per_chunk}"
            )

    @property
    def steps_per_chunk(self) -> int:
        """Steps in one video chunk."""
        return self.gop * self.gops_per_chunk


def candidate_gops(rate_hz: float) -> list[int]:
    """The GOPs to choose from, ascending: 2 s of steps, cut in equal parts."""
    longest = max(1, int(MAX_GOP_S * checked_rate(rate_hz)))
    return sorted({max(1, longest // parts) for parts in _GOPS_PER_MAX})


def checked_rate(rate_hz: float) -> Fraction:
    """The rate as an exact number. Raises BadInput for one that is not positive."""
    if not 0 < rate_hz < float("inf"):
        raise BadInput(f"rate_hz = {rate_hz}: expected a positive number of steps per second")
    return Fraction(rate_hz)
