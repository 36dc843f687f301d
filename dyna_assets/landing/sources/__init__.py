"""The readers of foreign formats. A new format is one module here and one line in READERS."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Folder, Reader, describe_files
from dyna_assets.landing.sources.aloha_hdf5 import AlohaHdf5Reader
from dyna_assets.landing.sources.hand_video import HandVideoReader
from dyna_assets.landing.sources.lerobot_v21 import LeRobotV21Reader
from dyna_assets.landing.sources.lerobot_v30 import LeRobotV30Reader
from dyna_assets.landing.sources.mcap import McapReader
from dyna_assets.landing.sources.rlds import RldsReader
from dyna_assets.landing.sources.rosbag2 import Rosbag2Reader
from dyna_assets.landing.upload import landed_files

_EVERY: tuple[Reader, ...] = (
    LeRobotV21Reader(),
    LeRobotV30Reader(),
    AlohaHdf5Reader(),
    RldsReader(),
    Rosbag2Reader(),  # before McapReader: its bags may hold MCAP files
    McapReader(),
    HandVideoReader(),  # last: many formats hold a video file
)
READERS: Mapping[str, Reader] = {reader.name: reader for reader in _EVERY}
"""By name, in the order in which they are asked whether a folder is theirs."""


def reader_named(name: str) -> Reader:
    """The reader of that name. Raises RecordingError naming the nearest one."""
    if name in READERS:
        return READERS[name]
    near = difflib.get_close_matches(name, READERS, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else f"known readers: {', '.join(READERS)}"
    raise RecordingError(f"no reader is called '{name}'; {hint}")


def reader_of(source: SourceProfile) -> Reader:
    """The reader of a source, with the options its TOML gives. Raises RecordingError or ConfigError."""
    return reader_named(source.reader).configured(source.reader_options, where=f"source '{source.name}'")


def detect(folder: Folder) -> Reader:
    """The reader whose format the folder holds.

    Raises RecordingError listing what was looked for and which files are there.
    """
    files = landed_files(folder.files())
    for reader in READERS.values():
        if reader.matches(files, folder):
            return reader
    looked_for = "; ".join(f"{reader.name}: {reader.looks_for}" for reader in READERS.values())
    raise RecordingError(
        f"{folder.uri}: no known recording format. Looked for {looked_for}. Found {describe_files(files)}. "
        "Give a folder that holds one of these directly"
    )
