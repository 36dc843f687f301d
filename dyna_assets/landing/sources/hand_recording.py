"""An open video with its hand poses: frames as a camera, keypoints and their confidence as vectors."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.recording import Folder, Message, RawMessage, RecordingMeta, TopicInfo
from dyna_assets.landing.sources.base import KeptByName, first_of, info_of, merged, paired, text_of, truth_of
from dyna_assets.landing.sources.hand_files import read_poses
from dyna_assets.landing.sources.hand_pairing import frame_times, paired_with_frames
from dyna_assets.landing.sources.hand_poses import SIDES, HandPoses, HandTrack
from dyna_assets.landing.sources.row_json import merged_rows, row_messages, row_topic
from dyna_assets.landing.sources.video import Video, VideoInfo
from dyna_train.episode.channels import ExtraTopic
from dyna_train.video.coded import CodedVideo

VIDEO, KEYPOINTS, CONFIDENCE = "video", ".keypoints", ".confidence"
COLUMNS = "poses."
"""In front of what a pose file says beside keypoints."""


@dataclass(frozen=True, slots=True)
class PoseTopic:
    """A topic of N rows of the pose file; `rows` gives them anew at every call."""

    info: TopicInfo
    times_N: NDArray[np.int64]
    rows: Callable[[], Iterator[Any]]


class HandVideoRecording(KeptByName):
    """One open video. Topics: 'video', '<side>_hand.keypoints', '<side>_hand.confidence', 'poses.<column>'."""

    def __init__(
        self,
        video: Video,
        info: VideoInfo,
        pts_F: NDArray[np.int64],
        meta: RecordingMeta,
        rows: Mapping[str, PoseTopic],
        seen_sides: tuple[str, ...],
    ) -> None:
        self.meta = meta
        self.seen_sides = seen_sides
        camera = TopicInfo(VIDEO, "image", len(pts_F), (), info.width, info.height, info.codec)
        self.topics: Mapping[str, TopicInfo] = {VIDEO: camera} | {
            name: row.info for name, row in rows.items()
        }
        self._video, self._pts_F, self._rows = video, pts_F, rows
        self._times_F = frame_times(pts_F, info)

    @classmethod
    def open(cls, folder: Folder, name: str, poses_name: str, first_frame: int) -> HandVideoRecording:
        """Open the video `name`; poses_name '': it has none. Raises RecordingError."""
        video = Video(folder, name)
        info, pts_F = video.info(), video.pts()
        if not poses_name:
            return cls(video, info, pts_F, _meta(None, len(pts_F), ["no pose file: a camera alone"]), {}, ())
        poses = read_poses(folder, poses_name)
        times_F, where = frame_times(pts_F, info), folder.at(poses_name)
        poses, times_M, notes = paired_with_frames(poses, times_F, first_frame, where)
        both = {side: poses.hands.get(side) for side in SIDES if poses.hands}
        hands = {
            side: track or HandTrack.unseen(next(filter(None, both.values()))) for side, track in both.items()
        }
        notes += [f"{side} hand: {track.note}" for side, track in hands.items() if track.note]
        meta = _meta(poses, len(pts_F), notes)
        seen = tuple(side for side, track in hands.items() if track.is_seen)
        return cls(video, info, pts_F, meta, _row_topics(hands, poses.columns, times_M), seen)

    def times(self, topic: str) -> NDArray[np.int64]:
        """Times [N] in ns since the video's first frame. Raises RecordingError."""
        self._readable(topic)
        return self._times_F if topic == VIDEO else self._rows[topic].times_N

    def read(self, topics: Collection[str]) -> Iterator[Message]:
        """Messages of `topics` merged by time; frames are decoded one at a time. Raises RecordingError."""
        for topic in topics:
            self._readable(topic)
        return merged(
            paired(topic, self.times(topic), self._payloads(topic), self._video.where) for topic in topics
        )

    def coded(self, topic: str) -> CodedVideo | None:
        """The video's packets; None for any other topic. Raises RecordingError."""
        self._readable(topic)
        return self._video.coded() if topic == VIDEO else None

    def extra_topics(self, topics: Collection[str]) -> list[ExtraTopic]:
        """Rows as JSON, the video as its packets. Raises RecordingError."""
        return [
            self._packet_topic() if self._listed(topic).name == VIDEO else row_topic(topic)
            for topic in topics
        ]

    def extras(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """Rows merged by time; packets of the video with the times at which they are shown. Raises RecordingError."""
        return merged_rows(self._packets() if topic == VIDEO else self._raw_rows(topic) for topic in topics)

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> HandVideoRecording:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _readable(self, topic: str) -> TopicInfo:
        return info_of(self.topics, topic, self._video.where, self.meta.extra["missing"])

    def _listed(self, topic: str) -> TopicInfo:
        """The topic of whatever kind; what is not listed is not readable either, which says why."""
        info = self.topics.get(topic)
        return self._readable(topic) if info is None else info

    def _payloads(self, topic: str) -> Iterator[Any]:
        if topic == VIDEO:
            return self._video.frames(self._pts_F)
        return (np.asarray(row, np.float64).reshape(-1) for row in self._rows[topic].rows())

    def _packet_topic(self) -> ExtraTopic:
        coded = self._video.coded()
        return ExtraTopic(
            VIDEO, coded.codec, metadata={"extradata": base64.b64encode(coded.extradata).decode()}
        )

    def _packets(self) -> Iterator[RawMessage]:
        """A packet that an edit list hides counts as shown at the video's start."""
        shown = dict(zip(self._pts_F.tolist(), self._times_F.tolist(), strict=True))
        for packet in self._video.packets():
            yield RawMessage(VIDEO, shown.get(packet.pts, 0), packet.data)

    def _raw_rows(self, topic: str) -> Iterator[RawMessage]:
        self._listed(topic)
        return row_messages(topic, self._rows[topic].times_N, self._rows[topic].rows())


def _row_topics(
    hands: Mapping[str, HandTrack], columns: Mapping[str, Sequence[Any]], times_M: NDArray[np.int64]
) -> dict[str, PoseTopic]:
    topics = {}
    for side, track in hands.items():
        names = tuple(f"{point}.{axis}" for point in track.points for axis in track.axes)
        vectors = {
            KEYPOINTS: (names, track.keypoints_NKA),
            CONFIDENCE: (track.confidence_names, track.confidence_NC),
        }
        for part, (dimensions, values) in vectors.items():
            info = TopicInfo(f"{side}_hand{part}", "vector", len(times_M), dimensions, encoding="float64")
            topics[info.name] = PoseTopic(info, times_M, values.__iter__)
    for column, found in columns.items():
        is_number = all(isinstance(value, int | float) for value in found)
        name = f"{COLUMNS}{_valid(column)}"
        info = TopicInfo(
            name,
            "vector" if is_number else "other",
            len(times_M),
            (_valid(column),) if is_number else (),
            encoding="float64" if is_number else "json",
        )
        topics[name] = PoseTopic(info, times_M, found.__iter__)
    return topics


def _meta(poses: HandPoses | None, num_frames: int, notes: list[str]) -> RecordingMeta:
    """num_listed: the rows that pair by number must be as many as the video has frames."""
    facts = dict(poses.facts) if poses else {}
    by_number = poses is not None and poses.by == "frame"
    return RecordingMeta(
        task=_valid(text_of(first_of(facts, "task", "instruction", "language_instruction"))),
        success=truth_of(facts.get("success")),
        operator=_valid(text_of(facts.get("operator"))),
        paired_by="number" if by_number else "clock",
        num_listed=num_frames if by_number else None,
        extra={
            "poses": facts,
            "poses_paired_by": poses.by if poses else "",
            "missing": {},
            "notes": notes,
        },
    )


def _valid(text: str) -> str:
    """JSON can escape halves of characters, which UTF-8 cannot say."""
    return text.encode(errors="replace").decode()
