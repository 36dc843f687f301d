"""RLDS data sets as TFRecord files (Open X-Embodiment, BridgeData): a record is an episode, without times."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pydantic import Field

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import (
    FileInfo,
    Folder,
    Recording,
    RecordingRef,
    Roles,
    describe_files,
)
from dyna_assets.landing.sources.base import damage_named, read_json
from dyna_assets.landing.sources.rlds.features import read_declared
from dyna_assets.landing.sources.rlds.recording import RldsRecording
from dyna_assets.landing.sources.rlds.tfrecord import record_spans
from dyna_assets.landing.sources.roles import IS_ACTION, guess_roles
from dyna_assets.landing.upload import landed_files
from dyna_train.config import Config, parse_config
from dyna_train.errors import ConfigError

DATA_FILE = re.compile(r"(?:(?P<name>[^/]+)-(?P<split>[^-/]+))?[^/]*\.tfrecords?(?:-(?P<shard>\d+)-of-\d+)?$")
NO_RATE = (
    "RLDS keeps no times: give the rate at which the steps were recorded as rate_hz under [reader_options] "
    "of the source's TOML"
)


class RldsOptions(Config):
    """What the files do not say. rate_hz: steps a second."""

    rate_hz: float = Field(gt=0, le=1000)


class RldsReader:
    """Folders of *.tfrecord files, one recording a record, named '<file>:<number>'."""

    name = "rlds"
    looks_for = "files *.tfrecord or *.tfrecord-00000-of-00001"
    ignores: Mapping[str, str] = {
        "is_first": "true at the first step",
        "is_last": "true at the last step",
        **{
            pattern: "stands as the episode's task"
            for pattern in ("language_instruction", "*/language_instruction")
        },
    }
    metadata: tuple[str, ...] = (
        "features.json",
        "*/features.json",
        "dataset_info.json",
        "*/dataset_info.json",
    )

    def __init__(self, rate_hz: float | None = None) -> None:
        self.rate_hz = rate_hz
        self.options: Mapping[str, Any] = {} if rate_hz is None else {"rate_hz": rate_hz}

    def configured(self, options: Mapping[str, Any], *, where: str) -> RldsReader:
        """A reader that knows the rate. Raises ConfigError for an unknown option or without rate_hz."""
        if "rate_hz" not in options:
            raise ConfigError(f"{where}: {NO_RATE}")
        known = parse_config(RldsOptions, dict(options), where=f"{where}, [reader_options]")
        return RldsReader(known.rate_hz)

    def matches(self, files: Mapping[str, FileInfo], folder: Folder) -> bool:
        """True if such a file lies directly in the folder."""
        return any("/" not in name for name in _data_files(files))

    def recordings(self, folder: Folder) -> list[RecordingRef]:
        """One recording a record, also in folders below; of a cut file also the record that is cut.

        Raises RecordingError if there is no such file, or features.json is malformed.
        """
        files = landed_files(folder.files())
        names = _data_files(files)
        if not names:
            raise RecordingError(f"{folder.uri}: expected {self.looks_for}, found {describe_files(files)}")
        digests = {posixpath.dirname(name): read_declared(folder, name)[1] for name in names}
        return [
            RecordingRef(f"{name}:{number:05d}", (name,), digests[posixpath.dirname(name)])
            for name in names
            for number in range(len(record_spans(folder, name)))
        ]

    def notes(self, folder: Folder) -> list[str]:
        """Where dataset_info.json lists another number of records or files than there are."""
        names = _data_files(landed_files(folder.files()))
        return [
            note
            for place in sorted({posixpath.dirname(name) for name in names})
            for note in _notes(folder, place, [name for name in names if posixpath.dirname(name) == place])
        ]

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one record. Raises RecordingError if it is cut, damaged, no RLDS episode, or without a rate."""
        file, _, number = ref.name.rpartition(":")
        if not file or not number.isdigit():
            raise RecordingError(f"expected a recording named like train.tfrecord:00003, found {ref.name!r}")
        if self.rate_hz is None:
            raise RecordingError(f"{folder.at(file)}: {NO_RATE}")
        return RldsRecording.open(folder, file, int(number), Fraction(repr(self.rate_hz)))

    def roles(self, recording: Recording) -> Roles:
        """Roles from the feature names (rewards and marks of the first step are neither); the grid is the rate."""
        topics = {
            name: info
            for name, info in recording.topics.items()
            if name.startswith("observation") or IS_ACTION.search(name)
        }
        assert self.rate_hz is not None, "nothing opens without"
        return guess_roles(topics or recording.topics, self.rate_hz)


def _data_files(files: Mapping[str, FileInfo]) -> list[str]:
    return sorted(name for name in files if DATA_FILE.search(name))


def _notes(folder: Folder, place: str, names: list[str]) -> list[str]:
    """names: the data files of this place. A list that cannot be read is a note, not the end of the upload."""
    info = posixpath.join(place, "dataset_info.json")
    if not folder.exists(info):
        return []
    try:
        listed = _listed_lengths(folder, info)
    except RecordingError as error:
        return [str(error)]
    here = {
        (match["split"], int(match["shard"] or 0)): name
        for name in names
        if (match := DATA_FILE.search(name))
    }
    notes = []
    for (split, shard), length in listed.items():
        name = here.get((split, shard))
        if name is None:
            notes.append(f"{info} lists {length} records in shard {shard} of '{split}', which is not here")
        elif (found := _num_whole(folder, name)) != length:
            notes.append(f"{info} lists {length} records, {name} holds {found} whole ones")
    return notes


def _listed_lengths(folder: Folder, info: str) -> dict[tuple[str, int], int]:
    """(split, shard) -> records, as dataset_info.json says."""
    data = read_json(folder, info)
    with damage_named(
        (AttributeError, TypeError, ValueError, KeyError),
        lambda error: f"{folder.at(info)}: its splits are malformed: {error!r}",
    ):
        return {
            (str(split["name"]), shard): int(length)
            for split in data.get("splits") or ()
            for shard, length in enumerate(split.get("shardLengths") or ())
        }


def _num_whole(folder: Folder, name: str) -> int:
    return sum(not span.fault for span in record_spans(folder, name))
