"""What the metadata of LeRobot v2.1 and v3.0 share: info.json, its features, the list of episodes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import FileInfo, Folder, RecordingRef
from dyna_assets.landing.sources.base import MOST_DIMENSIONS, read_json
from dyna_assets.landing.sources.facts import exact_rate, text_of
from dyna_assets.landing.upload import leaves_folder

INFO = "meta/info.json"
BOOKKEEPING = frozenset({"timestamp", "frame_index", "episode_index", "index", "task_index"})
IGNORES = {
    "timestamp": "the clock of the rows; kept as their capture times",
    "frame_index": "the number of the row",
    "index": "the number of the row in the data set",
    "episode_index": "the number of the episode; kept in its name",
    "task_index": "the number of the task; its text is kept",
    "language_persistent": "kept as texts with their times",
    "language_events": "kept as texts with their times",
}
METADATA = ("meta/*", "images/*")
"""Files of a data set beside those of its episodes; pictures that rows name lie in images/."""
_WIDE = re.compile(r"\{[^}]*\d{4}")
NUMBERS = ("float", "int", "uint", "bool")


@dataclass(frozen=True, slots=True)
class Feature:
    """One entry of info.json's features; names one per dimension, made up where the file gives none."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    fault: str = ""

    @property
    def is_vector(self) -> bool:
        """True for one-dimensional numbers."""
        is_row = len(self.shape) == 1 and 0 < self.shape[0] <= MOST_DIMENSIONS
        return self.dtype.startswith(NUMBERS) and is_row


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """info.json. fps is exact (30, or 2997/100)."""

    where: str
    version: str
    fps: Fraction
    robot: str
    data_path: str
    video_path: str
    chunks_size: int
    features: Mapping[str, Feature]

    @property
    def cameras(self) -> list[str]:
        """Features stored as video."""
        return [name for name, feature in self.features.items() if feature.dtype == "video"]

    def path(self, template: str, **values: Any) -> str:
        """A path template filled in. Raises RecordingError if it cannot be, or leaves the folder."""
        if _WIDE.search(template):
            raise RecordingError(
                f"{self.where}: path template {template!r} asks for a name of endless length"
            )
        try:
            path = template.format(**values)
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise RecordingError(
                f"{self.where}: path template {template!r} does not fit {', '.join(values)} ({error!r})"
            ) from None
        if leaves_folder(path):
            raise RecordingError(
                f"{self.where}: path template {template!r} leads out of the data set, to {path!r}"
            )
        return path


@dataclass(frozen=True, slots=True)
class VideoPart:
    """Where an episode's frames of one camera are; end_s None: to the end of the file."""

    file: str
    start_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode as the metadata describes it; length in steps, -1 where it is not said."""

    index: int
    length: int
    tasks: tuple[str, ...]
    success: bool | None
    data_file: str
    videos: Mapping[str, VideoPart]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The recording's name."""
        return f"episode_{self.index:06d}"

    def files(self) -> list[str]:
        """Every file the episode is read from, each once."""
        return list(dict.fromkeys([self.data_file, *(part.file for part in self.videos.values())]))


def codebase_version(files: Mapping[str, FileInfo], folder: Folder) -> str | None:
    """codebase_version of the data set in the folder; '' if info.json is no JSON, None if it is no data set.

    A reader takes a broken info.json for its own, so that opening it tells what is broken.
    """
    if INFO not in files:
        return None
    try:
        with folder.open(INFO) as file:
            data = json.load(file)
    except (ValueError, RecursionError):
        return ""
    return str(data.get("codebase_version", "")) if isinstance(data, dict) else ""


def read_info(folder: Folder) -> DatasetInfo:
    """info.json of the data set. Raises RecordingError naming what is missing or wrong in it."""
    where = folder.at(INFO)
    data = read_json(folder, INFO)
    lacking = [key for key in ("codebase_version", "fps", "features", "data_path") if key not in data]
    if lacking:
        raise RecordingError(
            f"{where}: expected the keys {', '.join(lacking)}, found {', '.join(data) or 'none'}"
        )
    try:
        fps = exact_rate(data["fps"])
        chunks_size = int(data.get("chunks_size", 1000))
        features = {name: _feature(name, entry) for name, entry in data["features"].items()}
    except (ValueError, TypeError, AttributeError, KeyError, ArithmeticError) as error:
        raise RecordingError(f"{where}: fps, chunks_size or features are malformed: {error!r}") from None
    if chunks_size <= 0:
        raise RecordingError(f"{where}: expected chunks_size above 0, found {chunks_size}")
    return DatasetInfo(
        where=where,
        version=str(data["codebase_version"]),
        fps=fps,
        robot=text_of(data.get("robot_type")),
        data_path=str(data["data_path"]),
        video_path=str(data.get("video_path") or ""),
        chunks_size=chunks_size,
        features=features,
    )


def listed_refs(
    info: DatasetInfo, episodes: Collection[Episode], files: Mapping[str, FileInfo]
) -> list[RecordingRef]:
    """A recording for each episode of which at least one file is there; it names the files that are."""
    shared = repr(replace(info, where=""))
    refs = []
    for episode in episodes:
        there = tuple(name for name in episode.files() if name in files)
        if there:
            facts = hashlib.sha256(f"{shared} {episode!r}".encode()).hexdigest()
            refs.append(RecordingRef(episode.name, there, facts))
    return refs


def notes_on(episodes: Collection[Episode], files: Mapping[str, FileInfo]) -> list[str]:
    """What the metadata lists and the folder lacks, and the other way round."""
    absent, partial, known = [], [], set()
    for episode in episodes:
        lacking = [name for name in episode.files() if name not in files]
        known.update(episode.files())
        if len(lacking) == len(episode.files()):
            absent.append(episode.name)
        elif lacking:
            partial.append(f"{episode.name}: no {', '.join(lacking)}")
    strays = [name for name in files if name.startswith(("data/", "videos/")) and name not in known]
    notes = []
    if absent:
        notes.append(f"{len(absent)} of {len(episodes)} listed episodes have no file here, first {absent[0]}")
    if partial:
        notes.append(f"{len(partial)} of {len(episodes)} listed episodes lack a file, first {partial[0]}")
    if strays:
        notes.append(f"{len(strays)} data or video files belong to no listed episode, first {min(strays)}")
    return notes


def task_texts(value: Any) -> tuple[str, ...]:
    """An episode's tasks, which stand as a list or as one text."""
    texts = value if isinstance(value, list) else [value] if value else []
    return tuple(map(text_of, texts))


def index_of(ref: RecordingRef) -> int:
    """The episode index in a recording's name. Raises RecordingError."""
    prefix, _, digits = ref.name.partition("_")
    if prefix != "episode" or not digits.isdigit():
        raise RecordingError(f"expected a recording named like episode_000012, found {ref.name!r}")
    return int(digits)


def _feature(name: str, entry: Mapping[str, Any]) -> Feature:
    shape = tuple(int(size) for size in entry.get("shape") or (1,))
    dtype = str(entry["dtype"])
    size = shape[0] if len(shape) == 1 and shape[0] <= MOST_DIMENSIONS else 0
    given = _flat_names(entry.get("names"))
    if given and len(given) == size:
        return Feature(name, dtype, shape, tuple(given))
    made_up = tuple(f"{name.rpartition('.')[2]}_{index}" for index in range(size))
    # for pictures 'names' means axes, which nobody needs here
    fault = f"{name}: {len(given)} names for {size} dimensions, numbered instead" if given and size else ""
    return Feature(name, dtype, shape, made_up, fault if dtype.startswith(NUMBERS) else "")


def _flat_names(names: Any) -> list[str]:
    """Names as they occur: a list, lists inside it, {'motors': [...]}, {'x': 0, 'y': 1}, or nothing."""
    if isinstance(names, Mapping):
        nested = [_flat_names(value) for value in names.values()]
        return [name for part in nested for name in part] or [str(key) for key in names]
    if isinstance(names, list | tuple):
        return [
            name for part in names for name in (_flat_names(part) if not isinstance(part, str) else [part])
        ]
    return []
