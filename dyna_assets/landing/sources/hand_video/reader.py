"""First-person video with a file of hand poses beside it; a video alone is a recording of one camera."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, Literal

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import (
    FileInfo,
    Folder,
    Recording,
    RecordingRef,
    Roles,
    describe_files,
)
from dyna_assets.landing.sources.base import files_with
from dyna_assets.landing.sources.hand_video.files import POSE_SUFFIXES
from dyna_assets.landing.sources.hand_video.recording import CONFIDENCE, KEYPOINTS, VIDEO, HandVideoRecording
from dyna_assets.landing.sources.roles import camera_rate_hz
from dyna_assets.landing.upload import landed_files
from dyna_train.config import Config, parse_config

VIDEO_SUFFIXES = (".mp4", ".m4v", ".mkv", ".mov", ".webm", ".avi")
FALLBACK_HZ = 30.0


class HandVideoOptions(Config):
    """first_frame: the number that pose files give to a video's first frame."""

    first_frame: Literal[0, 1] = 0


class HandVideoReader:
    """Folders of videos, one recording each, with the pose file of the same name, or the only one there."""

    name = "hand_video"
    looks_for = "files *.mp4, *.mkv, *.mov or *.webm, with hand poses beside them"
    ignores: Mapping[str, str] = {}
    metadata: tuple[str, ...] = ()

    def __init__(self, first_frame: Literal[0, 1] = 0) -> None:
        self.first_frame = first_frame
        self.options: Mapping[str, Any] = {"first_frame": first_frame}

    def configured(self, options: Mapping[str, Any], *, where: str) -> HandVideoReader:
        """A reader with options. Raises ConfigError for an unknown one."""
        known = parse_config(HandVideoOptions, dict(options), where=f"{where}, [reader_options]")
        return HandVideoReader(known.first_frame)

    def matches(self, files: Mapping[str, FileInfo], folder: Folder) -> bool:
        """True if a video lies directly in the folder."""
        return any("/" not in name for name in files_with(files, VIDEO_SUFFIXES))

    def recordings(self, folder: Folder) -> list[RecordingRef]:
        """One recording a video, also in folders below, with its pose files. Raises RecordingError without any."""
        files = landed_files(folder.files())
        videos = files_with(files, VIDEO_SUFFIXES)
        if not videos:
            raise RecordingError(f"{folder.uri}: expected {self.looks_for}, found {describe_files(files)}")
        poses = _poses_of(videos, files_with(files, POSE_SUFFIXES))
        stems = [posixpath.splitext(name)[0] for name in videos]
        return [
            RecordingRef(stem if stems.count(stem) == 1 else name, (name, *poses[name]))
            for name, stem in zip(videos, stems, strict=True)
        ]

    def notes(self, folder: Folder) -> list[str]:
        """Videos without poses, and pose files that belong to no video."""
        files = landed_files(folder.files())
        videos, tables = files_with(files, VIDEO_SUFFIXES), files_with(files, POSE_SUFFIXES)
        poses = _poses_of(videos, tables)
        alone = [name for name in videos if not poses[name]]
        stray = sorted(set(tables) - {name for names in poses.values() for name in names})
        notes = []
        if alone:
            notes.append(f"{len(alone)} of {len(videos)} videos have no pose file, first {alone[0]}")
        if stray:
            notes.append(f"{len(stray)} tables belong to no video by their name, first {stray[0]}")
        return notes

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one video and its poses. Raises RecordingError if either cannot be read, or poses stand twice."""
        video, *poses = ref.files
        if len(poses) > 1:
            raise RecordingError(
                f"{folder.at(video)}: several pose files have its name: {', '.join(poses)}; keep one"
            )
        return HandVideoRecording.open(folder, video, poses[0] if poses else "", self.first_frame)

    def roles(self, recording: Recording) -> Roles:
        """The camera, and the keypoints of the hands that are seen as state; the grid is the camera's rate."""
        assert isinstance(recording, HandVideoRecording)
        states = tuple((f"{side}_hand", f"{side}_hand{KEYPOINTS}") for side in recording.seen_sides)
        confidence = {topic: topic.removesuffix(KEYPOINTS) + CONFIDENCE for _, topic in states}
        return Roles(((VIDEO, VIDEO),), states, (), camera_rate_hz(recording, FALLBACK_HZ), confidence)


def _poses_of(videos: list[str], tables: list[str]) -> dict[str, list[str]]:
    """The pose files of each video: those of its name, else the only one beside the only video."""
    found = {}
    for video in videos:
        place = posixpath.dirname(video)
        named = [name for name in tables if posixpath.splitext(name)[0] == posixpath.splitext(video)[0]]
        beside = [name for name in tables if posixpath.dirname(name) == place]
        is_only = sum(posixpath.dirname(name) == place for name in videos) == len(beside) == 1
        found[video] = named or (beside if is_only else [])
    return found
