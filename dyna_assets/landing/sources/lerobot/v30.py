"""LeRobot v3.0: many episodes in one parquet file and in one video, located by the metadata."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow.parquet as pq

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import FileInfo, Folder, Recording, RecordingRef, Roles
from dyna_assets.landing.sources.base import WithoutOptions, damage_named, files_with
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
from dyna_assets.landing.sources.lerobot.rows import DAMAGE
from dyna_assets.landing.sources.video import MAX_S
from dyna_assets.landing.upload import landed_files

EPISODES = "meta/episodes"
LISTED = frozenset({"episode_index", "tasks", "length", "dataset_from_index", "dataset_to_index"})


class LeRobotV30Reader(WithoutOptions):
    """Data sets whose info.json says codebase_version v3.x."""

    name = "lerobot_v30"
    looks_for = "meta/info.json with codebase_version v3.0"
    ignores: Mapping[str, str] = IGNORES
    metadata = METADATA

    def matches(self, files: Mapping[str, FileInfo], folder: Folder) -> bool:
        """True if info.json says so."""
        return (codebase_version(files, folder) or "").startswith("v3.")

    def recordings(self, folder: Folder) -> list[RecordingRef]:
        """The listed episodes of which at least one file is here. Raises RecordingError."""
        info = read_info(folder)
        episodes = _episodes(folder, info)
        _refuse_overlaps(folder, info, episodes)
        return listed_refs(info, episodes, landed_files(folder.files()))

    def notes(self, folder: Folder) -> list[str]:
        """Listed episodes without a file, with a file missing, and files of no listed episode."""
        return notes_on(_episodes(folder, read_info(folder)), landed_files(folder.files()))

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one episode. Raises RecordingError if the metadata does not describe it."""
        info, index = read_info(folder), index_of(ref)
        found = _episodes(folder, info, only=index)
        if not found:
            raise RecordingError(f"{folder.at(EPISODES)}: lists no episode {index}")
        return LeRobotRecording.open(folder, info, found[0])

    def roles(self, recording: Recording) -> Roles:
        """Roles from the feature names."""
        return lerobot_roles(recording)


def _episodes(folder: Folder, info: DatasetInfo, only: int | None = None) -> list[Episode]:
    names = files_with(folder.below(EPISODES).files(), [".parquet"])
    if not names:
        raise RecordingError(f"{folder.at(EPISODES)}: no parquet file; LeRobot v3.0 lists its episodes there")
    return [_episode(info, row) for name in names for row in _rows(folder, f"{EPISODES}/{name}", only)]


def _rows(folder: Folder, name: str, only: int | None) -> list[dict[str, Any]]:
    """Rows of one file of the episode list, without the statistics (most of its bytes)."""
    filters = None if only is None else [("episode_index", "=", only)]
    explain = f"{folder.at(name)}: not readable as parquet"
    with damage_named(DAMAGE, lambda error: f"{explain} ({error})"), folder.open(name) as file:
        columns = [column for column in pq.read_schema(file).names if not column.startswith("stats/")]
        table = pq.read_table(file, columns=columns, filters=filters)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _episode(info: DatasetInfo, row: Mapping[str, Any]) -> Episode:
    try:
        index = int(row["episode_index"])
        places = {"chunk_index": int(row["data/chunk_index"]), "file_index": int(row["data/file_index"])}
        videos = {key: _part(info, row, key) for key in info.cameras}
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(
            f"{info.where}: the episode list lacks {error} for episode {row.get('episode_index')}; "
            "convert or record the data set again with LeRobot v3.0"
        ) from None
    return Episode(
        index=index,
        length=int(row.get("length") or -1),
        tasks=task_texts(row.get("tasks")),
        success=truth_of(first_of(row, *SUCCESS_KEYS)),
        data_file=info.path(info.data_path, **places),
        videos=videos,
        extra={key: value for key, value in row.items() if "/" not in key and key not in LISTED},
    )


def _part(info: DatasetInfo, row: Mapping[str, Any], key: str) -> VideoPart:
    places = {
        "chunk_index": int(row[f"videos/{key}/chunk_index"]),
        "file_index": int(row[f"videos/{key}/file_index"]),
    }
    file = info.path(info.video_path, video_key=key, **places)
    start_s = float(row[f"videos/{key}/from_timestamp"])
    end_s = float(row[f"videos/{key}/to_timestamp"])
    if not 0 <= start_s <= end_s < MAX_S:
        raise RecordingError(
            f"{info.where}: the episode list places '{key}' of episode {row['episode_index']} at "
            f"{start_s} to {end_s} s of {file}; expected a stretch of the video"
        )
    return VideoPart(file, start_s, end_s)


def _refuse_overlaps(folder: Folder, info: DatasetInfo, episodes: Collection[Episode]) -> None:
    """Raise RecordingError if two episodes claim the same frames of a video: one of them would show the other."""
    frame_s = float(1 / info.fps)
    for key in info.cameras:
        parts = sorted(
            (episode.videos[key].file, episode.videos[key].start_s, episode.videos[key].end_s, episode.name)
            for episode in episodes
        )
        for (file, _, end_s, name), (next_file, start_s, _, next_name) in itertools.pairwise(parts):
            if file == next_file and end_s is not None and start_s < end_s - frame_s / 2:
                raise RecordingError(
                    f"{folder.at(EPISODES)}: {name} and {next_name} overlap in {file}: one ends at {end_s:.3f} s, "
                    f"the other begins at {start_s:.3f} s; expected stretches that follow each other. Correct the list"
                )
