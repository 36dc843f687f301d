"""The readers of foreign formats. A new one is a file or package here with a `Reader`, and a line in _EVERY.

What they share stands beside them: `base`, `facts` (what recordings say of themselves), `roles`, `video`, `texts`,
`row_recording` for formats of rows, `one_file` for those with a file a recording, `messages` for timed messages.
Those of one format begin at its `reader` (LeRobot's two at `v21` and `v30`).
"""

from __future__ import annotations

from collections.abc import Mapping

from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Folder, Reader, describe_files
from dyna_assets.landing.sources.aloha.reader import AlohaHdf5Reader
from dyna_assets.landing.sources.hand_video.reader import HandVideoReader
from dyna_assets.landing.sources.lerobot.v21 import LeRobotV21Reader
from dyna_assets.landing.sources.lerobot.v30 import LeRobotV30Reader
from dyna_assets.landing.sources.mcap.reader import McapReader
from dyna_assets.landing.sources.rlds.reader import RldsReader
from dyna_assets.landing.sources.rosbag2.reader import Rosbag2Reader
from dyna_assets.landing.upload import landed_files
from dyna_train.errors import did_you_mean

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
MAY_CRASH = frozenset({AlohaHdf5Reader.name})
"""Readers whose library may end its process on damaged bytes: HDF5's is not made for hostile files."""


def reader_named(name: str) -> Reader:
    """The reader of that name. Raises RecordingError naming the nearest one."""
    if name in READERS:
        return READERS[name]
    raise RecordingError(f"no reader is called '{name}'; {did_you_mean(name, READERS, 'readers')}")


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
