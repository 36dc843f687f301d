"""An open video with its hand poses: frames as a camera, keypoints and their confidence as vectors."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.recording import Folder, RawMessage, RecordingMeta, TopicInfo
from dyna_assets.landing.sources.facts import meta_of, plain
from dyna_assets.landing.sources.hand_video.files import read_poses
from dyna_assets.landing.sources.hand_video.pairing import counts_from_one, frame_times, paired_with_frames
from dyna_assets.landing.sources.hand_video.poses import SIDES, HandPoses, HandTrack
from dyna_assets.landing.sources.row_json import row_messages, row_topic
from dyna_assets.landing.sources.row_recording import RowRecording
from dyna_assets.landing.sources.video import Video, VideoInfo
from dyna_assets.text import sayable
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


class HandVideoRecording(RowRecording):
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
        camera = TopicInfo(VIDEO, "image", len(pts_F), (), info.width, info.height, info.codec)
        super().__init__(video.where, meta, {VIDEO: camera} | {name: row.info for name, row in rows.items()})
        self.seen_sides = seen_sides
        self._video, self._pts_F, self._rows = video, pts_F, rows
        self._times_F = frame_times(pts_F, info)

    @classmethod
    def open(cls, folder: Folder, name: str, poses_name: str, first_frame: int) -> HandVideoRecording:
        """Open the video `name`; poses_name '': it has none. Raises RecordingError."""
        video = Video(folder, name)
        info, pts_F = video.info(), video.pts()
        if not poses_name:
            meta = _meta(None, len(pts_F), ["no pose file: a camera alone"], missing={})
            return cls(video, info, pts_F, meta, {}, ())
        poses = read_poses(folder, poses_name)
        times_F, where = frame_times(pts_F, info), folder.at(poses_name)
        fault = counts_from_one(poses, len(pts_F), first_frame, where)
        poses, times_M, notes = paired_with_frames(poses, times_F, first_frame, where)
        both = {side: poses.hands.get(side) for side in SIDES if poses.hands}
        hands = {
            side: track or HandTrack.unseen(next(filter(None, both.values()))) for side, track in both.items()
        }
        notes += [f"{side} hand: {track.note}" for side, track in hands.items() if track.note]
        rows = _row_topics(hands, poses.columns, times_M)
        meta = _meta(poses, len(pts_F), notes, missing=dict.fromkeys(rows, fault) if fault else {})
        seen = tuple(side for side, track in hands.items() if track.is_seen)
        return cls(video, info, pts_F, meta, rows, seen)

    def coded(self, topic: str) -> CodedVideo | None:
        """The video's packets; None for any other topic. Raises RecordingError."""
        self._readable(topic)
        return self._video.coded() if topic == VIDEO else None

    def close(self) -> None:
        """Nothing is held open."""

    def _times(self, info: TopicInfo) -> NDArray[np.int64]:
        return self._times_F if info.name == VIDEO else self._rows[info.name].times_N

    def _payloads(self, info: TopicInfo) -> Iterator[Any]:
        if info.name == VIDEO:
            return self._video.frames(self._pts_F)
        return (np.asarray(row, np.float64).reshape(-1) for row in self._rows[info.name].rows())

    def _extra_topic(self, info: TopicInfo) -> ExtraTopic:
        if info.name != VIDEO:
            return row_topic(info.name)
        coded = self._video.coded()
        facts = {"extradata": base64.b64encode(coded.extradata).decode()}
        return ExtraTopic(VIDEO, coded.codec, metadata=facts)

    def _raw(self, info: TopicInfo) -> Iterator[RawMessage]:
        if info.name == VIDEO:
            return self._packets()
        return row_messages(info.name, self._times(info), self._rows[info.name].rows())

    def _packets(self) -> Iterator[RawMessage]:
        """With the times at which they are shown; one that an edit list hides counts as shown at the start."""
        shown = dict(zip(self._pts_F.tolist(), self._times_F.tolist(), strict=True))
        for packet in self._video.packets():
            yield RawMessage(VIDEO, shown.get(packet.pts, 0), packet.data)


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
        name = f"{COLUMNS}{sayable(column)}"
        info = TopicInfo(
            name,
            "vector" if is_number else "other",
            len(times_M),
            (sayable(column),) if is_number else (),
            encoding="float64" if is_number else "json",
        )
        topics[name] = PoseTopic(info, times_M, found.__iter__)
    return topics


def _meta(
    poses: HandPoses | None, num_frames: int, notes: Sequence[str], *, missing: Mapping[str, str]
) -> RecordingMeta:
    """num_listed: the rows that pair by number must be as many as the video has frames."""
    facts = dict(poses.facts) if poses else {}
    by_number = poses is not None and poses.by == "frame"
    return meta_of(
        facts,
        paired_by="number" if by_number else "clock",
        num_listed=num_frames if by_number else None,
        missing=missing,
        notes=tuple(notes),
        extra={"poses": plain(facts), "poses_paired_by": poses.by if poses else ""},
    )
