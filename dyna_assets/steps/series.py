"""Whole vector topics of a recording, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.recording import Recording, VectorRecording
from dyna_assets.steps.align import Series


def read_vectors(recording: Recording, topics: Sequence[str]) -> dict[str, Series]:
    """All messages of the vector `topics`, in one pass. Raises RecordingError."""
    if isinstance(recording, VectorRecording):
        return {topic: Series(*series) for topic, series in recording.vectors(topics).items()}
    times: dict[str, list[int]] = {topic: [] for topic in topics}
    values: dict[str, list[NDArray[np.float64]]] = {topic: [] for topic in topics}
    for message in recording.read(topics) if topics else ():
        assert isinstance(message.payload, np.ndarray)
        times[message.topic].append(message.time_ns)
        values[message.topic].append(message.payload)
    return {
        topic: Series(
            np.array(times[topic], dtype=np.int64),
            np.stack(values[topic]).astype(np.float64)
            if values[topic]
            else np.empty((0, len(recording.topics[topic].names))),
        )
        for topic in topics
    }
