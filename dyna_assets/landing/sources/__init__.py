"""The readers of foreign formats. A new format is one module here and one line in READERS."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, Reader, describe_files
from dyna_assets.landing.sources.aloha_hdf5 import AlohaHdf5Reader
from dyna_assets.landing.sources.lerobot_v21 import LeRobotV21Reader
from dyna_assets.landing.sources.lerobot_v30 import LeRobotV30Reader
from dyna_assets.landing.sources.mcap_ros2 import McapRos2Reader
from dyna_assets.landing.upload import landed_files

READERS: Mapping[str, Reader] = {
    reader.name: reader
    for reader in (LeRobotV21Reader(), LeRobotV30Reader(), AlohaHdf5Reader(), McapRos2Reader())
}


def reader_named(name: str) -> Reader:
    """The reader of that name. Raises RecordingError naming the nearest one."""
    if name in READERS:
        return READERS[name]
    near = difflib.get_close_matches(name, READERS, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else f"known readers: {', '.join(READERS)}"
    raise RecordingError(f"no reader is called '{name}'; {hint}")


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
