"""An open LeRobot episode: videos, and the rows of its data file. The same for v2.1 and v3.0."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import (
    Folder,
    RawMessage,
    Recording,
    RecordingMeta,
    Roles,
    TopicInfo,
)
from dyna_assets.landing.sources.base import MOST_DIMENSIONS
from dyna_assets.landing.sources.facts import plain
from dyna_assets.landing.sources.lerobot.metadata import BOOKKEEPING, DatasetInfo, Episode, Feature, VideoPart
from dyna_assets.landing.sources.lerobot.rows import EpisodeRows
from dyna_assets.landing.sources.lerobot.tasks import ANNOTATION, first_task, texts_of
from dyna_assets.landing.sources.roles import IS_ACTION, guess_roles
from dyna_assets.landing.sources.row_json import row_messages, row_topic
from dyna_assets.landing.sources.row_recording import RowRecording
from dyna_assets.landing.sources.video import Video, VideoInfo, pts_to_ns
from dyna_assets.landing.stills import StillInfo, still_info
from dyna_train.episode.channels import ExtraTopic
from dyna_train.video.coded import CodedVideo


@dataclass(frozen=True, slots=True)
class Camera:
    """An episode's frames of one camera; origin: the tick of the episode's start."""

    video: Video
    info: VideoInfo
    origin: int
    num_frames: int


class LeRobotRecording(RowRecording):
    """One open episode. A topic whose file is missing or damaged is in meta.missing instead."""

    def __init__(
        self,
        folder: Folder,
        fps: Fraction,
        meta: RecordingMeta,
        topics: Mapping[str, TopicInfo],
        rows: EpisodeRows | None,
        cameras: Mapping[str, Camera],
    ) -> None:
        super().__init__(folder.at(f"episode_{meta.extra['episode_index']:06d}"), meta, topics)
        self._folder, self._fps = folder, fps
        self._rows, self._cameras = rows, cameras
        self._pts: dict[str, NDArray[np.int64]] = {}
        self._camera_times: dict[str, NDArray[np.int64]] = {}

    @classmethod
    def open(cls, folder: Folder, info: DatasetInfo, episode: Episode) -> LeRobotRecording:
        """Open what is there of an episode. Raises RecordingError only if the metadata is wrong."""
        missing: dict[str, str] = {}
        cameras = _cameras(folder, info, episode, missing)
        topics = {name: _camera_topic(name, camera) for name, camera in cameras.items()}
        with ExitStack() as stack:
            rows, fault = _rows(folder, episode)
            if rows is not None:
                stack.callback(rows.close)
            topics |= _row_topics(
                folder, info, rows, missing, fault or f"no such column in {episode.data_file}"
            )
            meta = _meta(folder, info, episode, rows, missing)
            stack.pop_all()
        return cls(folder, info.fps, meta, topics, rows, cameras)

    def coded(self, topic: str) -> CodedVideo | None:
        """The packets of a camera that is stored as video; None for pictures in rows. Raises RecordingError."""
        self._readable(topic)
        camera = self._cameras.get(topic)
        return camera.video.coded() if camera else None

    def close(self) -> None:
        """Release the data file."""
        if self._rows is not None:
            self._rows.close()

    def _times(self, info: TopicInfo) -> NDArray[np.int64]:
        if info.name not in self._cameras:
            return self._episode_rows().times_ns(self._fps)
        if info.name not in self._camera_times:
            camera = self._cameras[info.name]
            ticks = self._frame_pts(info.name) - camera.origin
            self._camera_times[info.name] = pts_to_ns(ticks, camera.info.time_base, self._fps)
        return self._camera_times[info.name]

    def _payloads(self, info: TopicInfo) -> Iterator[Any]:
        if info.name in self._cameras:
            return self._cameras[info.name].video.frames(self._frame_pts(info.name))
        rows = self._episode_rows()
        if info.kind == "image":
            return rows.stills(info.name, self._folder)
        values = rows.vector(info.name)
        if values.shape[1] != len(info.names):
            raise RecordingError(
                f"{rows.where}: topic '{info.name}': info.json promises {len(info.names)} dimensions, "
                f"the rows have {values.shape[1]}; correct 'shape' in info.json"
            )
        return iter(values)

    def _listed(self, topic: str) -> TopicInfo:
        """Of what is kept, which videos are not: they are cut out of files that many episodes share."""
        info = super()._listed(topic)
        if topic in self._cameras:
            raise RecordingError(
                f"{self._where}: topic '{topic}' is a video: give it a role under [[cameras]], or name it under "
                "'ignore' in the source's TOML"
            )
        return info

    def _extra_topic(self, info: TopicInfo) -> ExtraTopic:
        if info.kind == "image":
            return ExtraTopic(info.name, info.encoding)
        return row_topic(info.name, dtype=info.encoding)

    def _raw(self, info: TopicInfo) -> Iterator[RawMessage]:
        rows, name = self._episode_rows(), info.name
        times_N = rows.times_ns(self._fps)
        if info.kind != "image":
            return row_messages(name, times_N, rows.values(name))
        stills = zip(times_N.tolist(), rows.stills(name, self._folder), strict=True)
        return (RawMessage(name, time_ns, still) for time_ns, still in stills)

    def _frame_pts(self, topic: str) -> NDArray[np.int64]:
        if topic not in self._pts:
            self._pts[topic] = self._cameras[topic].video.pts()
        return self._pts[topic]

    def _episode_rows(self) -> EpisodeRows:
        assert self._rows is not None  # a row topic is listed only when the data file opened
        return self._rows


def lerobot_roles(recording: Recording) -> Roles:
    """Roles from the feature names (rewards, marks of the next step and numbers are none); the grid is the fps."""
    telling = {
        name: info
        for name, info in recording.topics.items()
        if name not in BOOKKEEPING
        and not name.startswith(("next.", ANNOTATION))
        and not name.endswith("_index")
    }
    named = {
        name: info
        for name, info in telling.items()
        if name.startswith("observation") or info.kind == "image" or IS_ACTION.search(name)
    }
    assert recording.meta.rate_hz is not None, "info.json has it"
    return guess_roles(named or telling, recording.meta.rate_hz)


def _meta(
    folder: Folder, info: DatasetInfo, episode: Episode, rows: EpisodeRows | None, missing: Mapping[str, str]
) -> RecordingMeta:
    notes = [feature.fault for feature in info.features.values() if feature.fault]
    texts, unknown = texts_of(folder, episode, rows, info.fps) if rows else ([], [])
    task = episode.tasks[0] if episode.tasks else first_task(folder, rows) if rows else ""
    return RecordingMeta(
        task=task,
        success=episode.success,
        robot=info.robot,
        paired_by="number",
        num_listed=episode.length if episode.length >= 0 else None,
        rate_hz=float(info.fps),
        texts=texts,
        missing=missing,
        notes=(*notes, *unknown),
        extra={
            **{key: plain(value) for key, value in episode.extra.items()},
            "episode_index": episode.index,
            "num_steps_listed": episode.length,
            "tasks": list(episode.tasks),
        },
    )


def _rows(folder: Folder, episode: Episode) -> tuple[EpisodeRows | None, str]:
    """(the episode's rows, '') or (None, why they cannot be read)."""
    if not folder.exists(episode.data_file):
        return None, f"no file {folder.at(episode.data_file)}"
    try:
        return EpisodeRows.open(folder, episode.data_file, episode.index), ""
    except RecordingError as error:
        return None, str(error)


def _cameras(
    folder: Folder, info: DatasetInfo, episode: Episode, missing: dict[str, str]
) -> dict[str, Camera]:
    """The cameras whose file is there and opens; the others go to `missing` with the reason."""
    cameras = {}
    for name, part in episode.videos.items():
        if not folder.exists(part.file):
            missing[name] = f"no file {folder.at(part.file)}"
            continue
        try:
            cameras[name] = _camera(Video(folder, part.file), part, info.fps)
        except RecordingError as error:
            missing[name] = str(error)
    return cameras


def _camera(file: Video, part: VideoPart, fps: Fraction) -> Camera:
    info = file.info()
    if part.end_s is None:
        # Matroska does not state a count
        return Camera(file, info, 0, info.num_frames or len(file.pts()))
    # half a frame of slack: the stored float seconds may lie on either side of a frame's tick
    half_frame = Fraction(1, 2) / fps / info.time_base
    origin = round(Fraction(part.start_s) / info.time_base)
    start = math.ceil(origin - half_frame)
    stop = math.ceil(Fraction(part.end_s) / info.time_base - half_frame)
    num_frames = round((Fraction(part.end_s) - Fraction(part.start_s)) * fps)
    return Camera(Video(file.folder, file.name, start, stop), info, origin, num_frames)


def _camera_topic(name: str, camera: Camera) -> TopicInfo:
    info = camera.info
    return TopicInfo(
        name, "image", camera.num_frames, width=info.width, height=info.height, encoding=info.codec
    )


def _row_topics(
    folder: Folder, info: DatasetInfo, rows: EpisodeRows | None, missing: dict[str, str], absent: str
) -> dict[str, TopicInfo]:
    """Every column: those that info.json declares, then the others. absent: why a declared one is missing."""
    declared = {name: feature for name, feature in info.features.items() if feature.dtype != "video"}
    names = rows.names if rows is not None else []
    missing |= {name: absent for name in declared if name not in names and name not in BOOKKEEPING}
    topics: dict[str, TopicInfo] = {}
    if rows is None:
        return topics
    for name in (
        *(name for name in declared if name in names),
        *(name for name in names if name not in declared),
    ):
        try:
            topics[name] = _row_topic(name, declared.get(name), rows, folder)
        except RecordingError as error:
            missing[name] = str(error)
    return topics


def _row_topic(name: str, feature: Feature | None, rows: EpisodeRows, folder: Folder) -> TopicInfo:
    """Raises RecordingError if the first picture of a column of pictures is none."""
    num_numbers, kind = rows.num_numbers(name), rows.kind(name)
    if feature is None:
        size = num_numbers if num_numbers and num_numbers <= MOST_DIMENSIONS else 0
        dimensions = tuple(f"{name.rpartition('.')[2]}_{index}" for index in range(size))
        return TopicInfo(name, "vector" if dimensions else "other", rows.num_rows, dimensions, encoding=kind)
    shape = " x ".join(map(str, feature.shape))
    if feature.is_vector:
        if num_numbers is not None:
            return TopicInfo(name, "vector", rows.num_rows, feature.names, encoding=feature.dtype)
        return TopicInfo(
            name, "other", rows.num_rows, encoding=f"{kind}, in info.json {feature.dtype} [{shape}]"
        )
    if feature.dtype != "image":
        return TopicInfo(name, "other", rows.num_rows, encoding=f"{feature.dtype} [{shape}]")
    still = StillInfo("", 0, 0)
    for payload in rows.stills(name, folder):
        still = still_info(payload, where=f"{rows.where}: column '{name}'")
        break
    return TopicInfo(
        name, "image", rows.num_rows, width=still.width, height=still.height, encoding=still.encoding
    )
