"""One episode as a labeller sees it: its vectors, clocks and camera traces, and no pictures.

Array axes: T steps, D dimensions of a vector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.labels.motion import Motion
from dyna_assets.labels.options import LabelOptions
from dyna_assets.quality.trace import CameraTrace, traces_of
from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.reader import Episode
from dyna_train.episode.stretches import Stretches


@dataclass(frozen=True)
class EpisodeView:
    """What labellers work from; it opens nothing.

    valid: the steps at which everything was seen. vectors: topic ('/state/arm') -> float32 [T, D]. capture_ns:
    topic of a vector or camera -> int64 [T] ns, -1 where a camera has no frame. traces: camera -> its trace.
    task and success are what the recording or its upload says; texts: what it says in between, see
    `dyna_assets.labels.text.Text`.
    """

    header: EpisodeHeader
    valid: Stretches
    vectors: Mapping[str, NDArray[np.float32]]
    capture_ns: Mapping[str, NDArray[np.int64]]
    traces: Mapping[str, CameraTrace] = field(default_factory=dict)
    task: str = ""
    success: bool | None = None
    texts: Sequence[Mapping[str, Any]] = ()
    options: LabelOptions = field(default_factory=LabelOptions)

    @classmethod
    def of(
        cls,
        episode: Episode,
        recording: Mapping[str, Any],
        packed: Mapping[str, Any],
        traces: Iterable[Mapping[str, Any]],
        options: LabelOptions,
    ) -> EpisodeView:
        """From the open episode file (its state group and its end) and its rows in the warehouse.

        recording, packed, traces: rows of the tables `recordings`, `episodes`, `traces`. Raises EpisodeError for a
        damaged file, BadInput for a trace that is none.
        """
        tracks = episode.tracks
        starts, ends = packed["valid_starts"], packed["valid_ends"]
        valid = tuple(map(range, starts, ends)) if starts is not None else (range(episode.num_steps),)
        return cls(
            header=episode.header,
            valid=valid,
            vectors={track.topic: episode.vector(track.topic) for track in tracks.vectors},
            capture_ns={topic: episode.capture_ns(topic) for topic in tracks.topics},
            traces=traces_of(traces, packed["content_hash"]),
            task=recording["task"] or "",
            success=recording["success"],
            texts=json.loads(recording["facts"]).get("texts", []),
            options=options,
        )

    @property
    def rate_hz(self) -> float:
        """Steps per second."""
        return self.header.rate_hz

    @property
    def num_steps(self) -> int:
        """T."""
        return self.header.num_steps

    @property
    def duration_s(self) -> float:
        """Length of the episode."""
        return self.num_steps / self.rate_hz

    @cached_property
    def valid_T(self) -> NDArray[np.bool_]:
        """Whether everything was seen at each step, bool [T]."""
        valid_T = np.zeros(self.num_steps, bool)
        for stretch in self.valid:
            valid_T[stretch.start : stretch.stop] = True
        return valid_T

    def seconds_T(self, topic: str) -> NDArray[np.float64]:
        """When each step of `topic` was captured, in seconds since the episode's start; NaN without a frame."""
        capture_T = self.capture_ns[topic]
        return np.where(capture_T < 0, np.nan, (capture_T - self.header.start_ns) / 1e9)

    @cached_property
    def motions(self) -> Mapping[str, Motion]:
        """Vector topic -> its values and speeds at the grid's instants, by capture times."""
        return {
            topic: Motion.of(values_TD, self.seconds_T(topic), self.rate_hz, self.valid_T)
            for topic, values_TD in self.vectors.items()
        }
