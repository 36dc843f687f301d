"""Labeller `performance`: how long, how far, how smoothly, and how much of it was waiting.

Array axes: M intervals between steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dyna_assets.labels.joints import Part, places
from dyna_assets.labels.registry import Annotation, labeller
from dyna_assets.labels.view import EpisodeView
from dyna_train.episode.stretches import steps_at

IDLE_SHARE = 0.05
"""A part is idle below this share of its own brisk speed (the 95th percentile)."""
PAUSE_S = 0.5
"""An idle stretch this long between two movements is a pause."""
SPARC_MAX_HZ, SPARC_MIN_AMPLITUDE, SPARC_PADDING = 10.0, 0.05, 4


@labeller("performance", version=1)
def performance(view: EpisodeView) -> Iterator[Annotation]:
    """Duration; per part of the body its path and smoothness; the share of time in which nothing moves; pauses."""
    yield Annotation("", "duration", view.duration_s, "s")
    moving = []
    for part in places(view.header):
        motion = view.motions[part.track.topic]
        yield Annotation(part.subject, "path_length", motion.path(part.dims), part.unit)
        if motion.moves(part.dims):
            moving.append(part)
            smoothness = spectral_arc_length(motion.speed_M(part.dims), view.rate_hz)
            yield Annotation(part.subject, "smoothness", smoothness, "sparc")
    idle_M = _idle(view, moving)
    if len(idle_M):
        yield Annotation("", "idle_share", float(idle_M.mean()), "share")
        yield Annotation("", "num_pauses", float(num_pauses(idle_M, view.rate_hz)), "pauses")


def spectral_arc_length(speed_M: NDArray[np.float64], rate_hz: float) -> float:
    """SPARC of a speed profile: 0 is smoothest, an hour of jerks is far below -10.

    The length of the curve of its normalised amplitude spectrum, up to 10 Hz or where the spectrum stays below
    0.05, negative. S. Balasubramanian, A. Melendez-Calderon, A. Roby-Brami, E. Burdet: On the analysis of movement
    smoothness, Journal of NeuroEngineering and Rehabilitation 12:112 (2015). speed_M: float64 [M], not all 0.
    """
    length = 2 ** (int(np.ceil(np.log2(len(speed_M)))) + SPARC_PADDING)
    amplitude_F = np.abs(np.fft.rfft(speed_M, length))
    hertz_F = np.fft.rfftfreq(length, 1 / rate_hz)
    amplitude_F = amplitude_F[hertz_F <= SPARC_MAX_HZ] / amplitude_F.max()
    loud = np.flatnonzero(amplitude_F >= SPARC_MIN_AMPLITUDE)
    curve_F = amplitude_F[loud[0] : loud[-1] + 1]
    if len(curve_F) < 2:
        return 0.0
    return -float(np.hypot(1 / (len(curve_F) - 1), np.diff(curve_F)).sum())


def num_pauses(idle_M: NDArray[np.bool_], rate_hz: float) -> int:
    """Idle stretches of at least PAUSE_S with movement before and after."""
    stretches = steps_at(np.flatnonzero(idle_M))
    return sum(
        len(one) >= PAUSE_S * rate_hz and one.start > 0 and one.stop < len(idle_M) for one in stretches
    )


def _idle(view: EpisodeView, moving: list[Part]) -> NDArray[np.bool_]:
    """Whether no part moves, bool over the valid intervals; all of them if none ever does."""
    states = [view.motions[track.topic] for track in view.header.vectors if track.role == "state"]
    if not states:
        return np.empty(0, bool)
    idle_M = np.ones(view.num_steps - 1, bool)
    for part in moving:
        motion = view.motions[part.track.topic]
        speed_M = motion.speed_M(part.dims)
        idle_M &= speed_M < IDLE_SHARE * np.percentile(speed_M[motion.used_M], 95)
    return idle_M[states[0].used_M]
