"""The steps of an episode's cameras in time order: pictures decoded one by one, packets copied, gaps.

What is held is one picture of each camera. A picture may stand for several steps, and some of the recording's for none.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import av
import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Message, Recording, TopicInfo
from dyna_assets.landing.sources.video import DECODABLE
from dyna_assets.landing.stills import decode_still
from dyna_assets.steps.align import Alignment
from dyna_assets.steps.video import CameraCopy
from dyna_train.video.coded import copied_packets


@dataclass(frozen=True, slots=True)
class CameraStep:
    """The next step of a camera: a picture to encode, a packet to copy, or None where it shows nothing."""

    time_ns: int
    camera: str
    content: av.VideoFrame | bytes | None


@dataclass(frozen=True, slots=True)
class Run:
    """Steps in a row that show the same frame of the recording; frame -1 is none."""

    frame: int
    steps: range


def runs_of(frames_T: NDArray[np.int64]) -> list[Run]:
    """The T steps of one camera (see `Alignment.frames`) as runs, in step order."""
    starts = np.flatnonzero(np.diff(frames_T, prepend=frames_T[:1] - 1)).tolist()
    ends = [*starts[1:], len(frames_T)]
    return [Run(int(frames_T[start]), range(start, end)) for start, end in zip(starts, ends, strict=True)]


def camera_steps(
    recording: Recording,
    plan: Alignment,
    topics: Mapping[str, str],
    copies: Mapping[str, CameraCopy],
    *,
    where: str,
) -> Iterator[CameraStep]:
    """Every step of every camera, merged, so that none runs ahead and waits in memory.

    topics: camera -> its topic. where: source and recording, for errors. Raises RecordingError.
    """
    encoded = {topic: name for name, topic in topics.items() if name not in copies}
    pictures = _pictures(recording, plan, encoded, where)
    packets = [_packets(copy, name, plan.capture_ns(name)) for name, copy in copies.items()]
    return heapq.merge(pictures, *packets, key=lambda step: step.time_ns)


def _packets(copy: CameraCopy, camera: str, capture_T: NDArray[np.int64]) -> Iterator[CameraStep]:
    for step, (_, packet) in enumerate(copied_packets(copy.video, copy.frames)):
        yield CameraStep(int(capture_T[step]), camera, packet)


def _pictures(
    recording: Recording, plan: Alignment, camera_of: Mapping[str, str], where: str
) -> Iterator[CameraStep]:
    waiting = {topic: _Waiting.of(plan, name, recording.topics[topic]) for topic, name in camera_of.items()}
    seen: Counter[str] = Counter()
    for message in recording.read(list(camera_of)) if camera_of else ():
        number = seen[message.topic]
        seen[message.topic] += 1
        yield from waiting[message.topic].shown_by(number, message, where)
    for topic in camera_of:
        num_times = len(recording.times(topic))
        if seen[topic] != num_times:
            raise RecordingError(
                f"{where}: {topic} gave {seen[topic]} pictures, its clock has {num_times} times: "
                "the video is cut or damaged. Record or upload it again",
                check=DECODABLE,
            )
        yield from waiting[topic].rest()


class _Waiting:
    """The runs of one camera that were not given yet."""

    def __init__(
        self,
        camera: str,
        size: tuple[int, int],
        runs: list[Run],
        capture_T: NDArray[np.int64],
        grid_T: NDArray[np.int64],
    ) -> None:
        self._camera, self._capture_T, self._grid_T = camera, capture_T, grid_T
        self._size = size
        self._runs = runs[::-1]

    @classmethod
    def of(cls, plan: Alignment, camera: str, info: TopicInfo) -> _Waiting:
        size = (info.width, info.height)
        return cls(camera, size, runs_of(plan.frames[camera]), plan.capture_ns(camera), plan.grid_T)

    def shown_by(self, number: int, message: Message, where: str) -> Iterator[CameraStep]:
        """The steps that show frame `number`, and the gap before them."""
        if self._runs and self._runs[-1].frame < 0 and len(self._runs) > 1 and self._runs[-2].frame == number:
            yield from self._gap(self._runs.pop())
        if not self._runs or self._runs[-1].frame != number:
            return
        picture = _picture(message, self._size, where)
        for step in self._runs.pop().steps:
            yield CameraStep(int(self._capture_T[step]), self._camera, picture)

    def rest(self) -> Iterator[CameraStep]:
        """A gap at the end."""
        while self._runs:
            yield from self._gap(self._runs.pop())

    def _gap(self, run: Run) -> Iterator[CameraStep]:
        assert run.frame < 0, f"{self._camera}: frame {run.frame} was never read"
        for step in run.steps:
            yield CameraStep(int(self._grid_T[step]), self._camera, None)


def _picture(message: Message, size: tuple[int, int], where: str) -> av.VideoFrame:
    payload, place = message.payload, f"{where}: {message.topic} at {message.time_ns} ns"
    assert isinstance(payload, bytes | av.VideoFrame), f"{place}: a camera gave {type(payload).__name__}"
    picture = payload if isinstance(payload, av.VideoFrame) else decode_still(payload, where=place)
    if (picture.width, picture.height) != size:
        raise RecordingError(
            f"{place}: a picture of {picture.width}x{picture.height}, the first one has {size[0]}x{size[1]}: "
            "one topic is one camera of one size",
            check=DECODABLE,
        )
    return picture
