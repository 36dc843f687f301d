"""ROS 2 bags: a folder with metadata.yaml and one or more splits, SQLite or MCAP, is one recording."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import (
    FileInfo,
    Folder,
    Recording,
    RecordingRef,
    Roles,
    describe_files,
)
from dyna_assets.landing.sources.base import WithoutOptions
from dyna_assets.landing.sources.messages.recording import MessageRecording
from dyna_assets.landing.sources.roles import camera_rate_hz, guess_roles
from dyna_assets.landing.sources.rosbag2.file import JOURNALS, BagFile
from dyna_assets.landing.sources.rosbag2.metadata import METADATA, BagMetadata, is_bag_metadata, read_metadata
from dyna_assets.landing.upload import landed_files

DATA_FILE = re.compile(r"(?P<stem>[^/]+?)(?:_(?P<number>\d+))?(?P<kind>\.(?:db3|mcap)(?:\.zstd)?)$")
FALLBACK_HZ = 30.0
ARRIVAL_NOTE = "SQLite keeps no time but a message's arrival: messages without a stamp of their own have that"
NO_METADATA = (
    "no metadata.yaml: read from its files in the order of their numbers; nothing says if all are here"
)


class Bag(NamedTuple):
    """A bag in a listing. metadata: its metadata.yaml, '' without. splits: in order, as far as they are here."""

    name: str
    metadata: str
    splits: tuple[str, ...]


class Rosbag2Reader(WithoutOptions):
    """Folders of ROS 2 bags at any depth, one recording each."""

    name = "rosbag2"
    looks_for = "metadata.yaml of a ROS 2 bag, or files *.db3"
    ignores: Mapping[str, str] = {"*.db3-shm": "SQLite makes it anew"}

    def matches(self, files: Mapping[str, FileInfo], folder: Folder) -> bool:
        """True if such a file lies directly in the folder."""
        here = [name for name in files if "/" not in name]
        is_sqlite = any(name.endswith((".db3", ".db3.zstd")) for name in here)
        return is_sqlite or (METADATA in here and is_bag_metadata(folder, METADATA))

    def recordings(self, folder: Folder) -> list[RecordingRef]:
        """One recording a bag, also in folders below. Raises RecordingError if there is none."""
        files = landed_files(folder.files())
        bags = _bags(folder, files)
        if not bags:
            raise RecordingError(f"{folder.uri}: expected {self.looks_for}, found {describe_files(files)}")
        refs = []
        for bag in bags:
            journals = [f"{name}{end}" for name in bag.splits for end in JOURNALS if f"{name}{end}" in files]
            names = (*filter(None, [bag.metadata]), *bag.splits, *journals)
            refs.append(RecordingRef(bag.name, names))
        return refs

    def notes(self, folder: Folder) -> list[str]:
        """Bags without metadata.yaml, and files that no bag lists."""
        files = landed_files(folder.files())
        bags = _bags(folder, files)
        bare = [bag.name for bag in bags if not bag.metadata]
        known = {name for bag in bags for name in bag.splits}
        stray = [name for name in files if DATA_FILE.search(name) and name not in known]
        notes = []
        if bare:
            notes.append(f"{len(bare)} of {len(bags)} bags have no metadata.yaml, first {bare[0]}")
        if stray:
            notes.append(f"{len(stray)} files are in no bag's metadata.yaml, first {min(stray)}")
        return notes

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one bag. Raises RecordingError if a split is missing or damaged, or it is not CDR."""
        metadata = next((name for name in ref.files if posixpath.basename(name) == METADATA), "")
        if metadata:
            place = posixpath.dirname(metadata)
            listed = read_metadata(folder, metadata)
            splits, where = _listed_splits(folder, place, listed), folder.at(place).rstrip("/")
        else:
            listed, splits, where = None, _numbered(folder, ref), folder.at(ref.name)
        notes = [] if listed else [NO_METADATA]
        if any(".db3" in name for name in splits):
            notes.append(ARRIVAL_NOTE)
        file = BagFile.open(folder, where, splits, listed)
        extra = {"ros_distro": listed.ros_distro} if listed and listed.ros_distro else {}
        return MessageRecording.of(file, notes=notes, splits=list(splits), **extra)

    def roles(self, recording: Recording) -> Roles:
        """Roles from topic names; the grid is the cameras' rate."""
        return guess_roles(recording.topics, camera_rate_hz(recording, FALLBACK_HZ))


def _bags(folder: Folder, files: Mapping[str, FileInfo]) -> list[Bag]:
    """Every bag, sorted by name. A folder's files without metadata.yaml are bags by their names."""
    bags: list[Bag] = []
    data = sorted(name for name in files if DATA_FILE.search(name))
    described = [
        name for name in files if posixpath.basename(name) == METADATA and is_bag_metadata(folder, name)
    ]
    for metadata in described:
        place = posixpath.dirname(metadata)
        beside = [name for name in data if posixpath.dirname(name) == place]
        splits = _splits_here(folder, metadata, beside)
        bags.append(Bag(place or _stem((splits or ["bag"])[0]), metadata, tuple(splits)))
    places = {posixpath.dirname(name) for name in described}
    bags += _undescribed([name for name in data if posixpath.dirname(name) not in places])
    return sorted(bags)


def _splits_here(folder: Folder, metadata: str, beside: Sequence[str]) -> list[str]:
    """The bag's files that are here; all beside it where metadata.yaml is broken, which opening it tells."""
    try:
        listed = read_metadata(folder, metadata)
    except RecordingError:
        return list(beside)
    place = posixpath.dirname(metadata)
    wanted = [posixpath.join(place, name) for name in listed.files]
    return [found for name in wanted for found in (name, f"{name}.zstd") if found in beside]


def _undescribed(names: Sequence[str]) -> list[Bag]:
    """Files whose names differ in a number that counts from 0 are the splits of one bag; others are a bag each."""
    groups: dict[tuple[str, str, str], dict[int, str]] = {}
    alone: list[str] = []
    for name in names:
        match = DATA_FILE.search(name)
        if match is None or match["number"] is None:
            alone.append(name)
        else:
            key = posixpath.dirname(name), match["stem"], match["kind"]
            groups.setdefault(key, {})[int(match["number"])] = name
    bags = []
    for (place, stem, _), splits in groups.items():
        if 0 in splits:
            bags.append(Bag(posixpath.join(place, stem), "", tuple(splits[key] for key in sorted(splits))))
        else:
            alone += splits.values()
    bags += [Bag(posixpath.join(posixpath.dirname(name), _stem(name)), "", (name,)) for name in alone]
    taken = [bag.name for bag in bags]
    return [
        bag._replace(name=f"{bag.name}{_kind(bag.splits[0])}") if taken.count(bag.name) > 1 else bag
        for bag in bags
    ]


def _listed_splits(folder: Folder, place: str, listed: BagMetadata) -> list[str]:
    """The bag's files in the order of metadata.yaml. Raises RecordingError naming those that are not here."""
    splits = [posixpath.join(place, name) for name in listed.files]
    if listed.compression == "file":
        splits = [name if folder.exists(name) else f"{name}.zstd" for name in splits]
    missing = [name for name in splits if not folder.exists(name)]
    if missing:
        raise RecordingError(
            f"{folder.at(posixpath.join(place, METADATA))}: lists {len(splits)} files, of which "
            f"{', '.join(missing[:3])}{', …' if len(missing) > 3 else ''} is not here. Upload the whole bag",
            check="recording.complete",
        )
    return splits


def _numbered(folder: Folder, ref: RecordingRef) -> list[str]:
    """The splits of a bag without metadata.yaml. Raises RecordingError naming a number that lacks in between."""
    splits = [name for name in ref.files if not name.endswith(JOURNALS)]
    matches = [DATA_FILE.search(name) for name in splits]
    numbers = [int(match["number"]) for match in matches if match and match["number"] is not None]
    lacking = sorted(set(range(max(numbers, default=0))) - set(numbers)) if 0 in numbers else []
    if lacking:
        raise RecordingError(
            f"{folder.at(ref.name)}: no metadata.yaml, and of its splits number {lacking[0]} is not here, "
            f"though number {max(numbers)} is. Upload the whole bag",
            check="recording.complete",
        )
    return splits


def _stem(name: str) -> str:
    return posixpath.basename(name).removesuffix(_kind(name))


def _kind(name: str) -> str:
    match = DATA_FILE.search(name)
    return match["kind"] if match else ""
