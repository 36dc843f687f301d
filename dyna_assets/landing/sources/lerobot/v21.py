"""LeRobot v2.0 and v2.1: one parquet file per episode, and one video per episode and camera."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import FileInfo, Folder, Recording, RecordingRef, Roles
from dyna_assets.landing.sources.base import WithoutOptions, json_line
from dyna_assets.landing.sources.facts import SUCCESS_KEYS, first_of, truth_of
from dyna_assets.landing.sources.lerobot.metadata import (
    IGNORES,
    METADATA,
    DatasetInfo,
    Episode,
    VideoPart,
    codebase_version,
    index_of,
    listed_refs,
    notes_on,
    read_info,
    task_texts,
)
from dyna_assets.landing.sources.lerobot.recording import LeRobotRecording, lerobot_roles
from dyna_assets.landing.upload import landed_files

EPISODES = "meta/episodes.jsonl"


class LeRobotV21Reader(WithoutOptions):
    """Data sets whose info.json says codebase_version v2.0 or v2.1."""

    name = "lerobot_v21"
    looks_for = "meta/info.json with codebase_version v2.0 or v2.1"
    ignores: Mapping[str, str] = IGNORES
    metadata = METADATA

    def matches(self, files: Mapping[str, FileInfo], folder: Folder) -> bool:
        """True if info.json says so, or is there and broken."""
        version = codebase_version(files, folder)
        return version == "" or (version is not None and version.startswith(("v2.0", "v2.1")))

    def recordings(self, folder: Folder) -> list[RecordingRef]:
        """The listed episodes of which at least one file is here. Raises RecordingError."""
        return listed_refs(read_info(folder), _episodes(folder), landed_files(folder.files()))

    def notes(self, folder: Folder) -> list[str]:
        """Listed episodes without a file, with a file missing, and files of no listed episode."""
        return notes_on(_episodes(folder), landed_files(folder.files()))

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one episode. Raises RecordingError if the metadata does not describe it."""
        info, index = read_info(folder), index_of(ref)
        for row in _episode_rows(folder, only=index):
            episode = _episode(info, row)
            return LeRobotRecording.open(folder, info, episode)
        raise RecordingError(f"{folder.at(EPISODES)}: lists no episode {index}")

    def roles(self, recording: Recording) -> Roles:
        """Roles from the feature names."""
        return lerobot_roles(recording)


def _episodes(folder: Folder) -> list[Episode]:
    info = read_info(folder)
    return [_episode(info, row) for row in _episode_rows(folder)]


def _episode(info: DatasetInfo, row: Mapping[str, Any]) -> Episode:
    index = int(row["episode_index"])
    places = {"episode_index": index, "episode_chunk": index // info.chunks_size}
    return Episode(
        index=index,
        length=row["length"] if isinstance(row.get("length"), int) else -1,
        tasks=task_texts(row.get("tasks") or row.get("task")),
        success=truth_of(first_of(row, *SUCCESS_KEYS)),
        data_file=info.path(info.data_path, **places),
        videos={key: VideoPart(info.path(info.video_path, video_key=key, **places)) for key in info.cameras},
        extra={key: value for key, value in row.items() if key not in ("tasks", "length", "episode_index")},
    )


def _episode_rows(folder: Folder, only: int | None = None) -> Iterator[dict[str, Any]]:
    """Lines of episodes.jsonl; with `only` just that episode's, the others are not parsed."""
    where = folder.at(EPISODES)
    wanted = re.compile(rb'"episode_index"\s*:\s*' + (rb"\d+" if only is None else b"%d\\b" % only))
    try:
        with folder.open(EPISODES) as file:
            for number, line in enumerate(file, 1):
                if line.strip() and (only is None or wanted.search(line)):
                    yield _parsed(line, f"{where} line {number}")
    except FileNotFoundError:
        raise RecordingError(f"{where}: no such file; LeRobot v2.1 lists its episodes there") from None


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    row = json_line(line, where)
    if not isinstance(row, dict) or not isinstance(row.get("episode_index"), int):
        raise RecordingError(
            f"{where}: expected an object with an integer episode_index, found {line[:80]!r}"
        )
    return row
