"""What formats share whose recordings are one file each."""

from __future__ import annotations

from collections.abc import Mapping

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import FileInfo, Folder, RecordingRef, describe_files
from dyna_assets.landing.sources.base import WithoutOptions, files_with
from dyna_assets.landing.upload import landed_files


class OneFileReader(WithoutOptions):
    """A folder of files with one of `suffixes`, each of them a recording named after its file."""

    suffixes: tuple[str, ...]
    looks_for: str

    def matches(self, files: Mapping[str, FileInfo], folder: Folder) -> bool:
        """True if such a file lies directly in the folder."""
        return any("/" not in name for name in files_with(files, self.suffixes))

    def recordings(self, folder: Folder) -> list[RecordingRef]:
        """One recording per file, also in folders below. Raises RecordingError if there is none."""
        files = landed_files(folder.files())
        names = files_with(files, self.suffixes)
        if not names:
            raise RecordingError(f"{folder.uri}: expected {self.looks_for}, found {describe_files(files)}")
        return [RecordingRef(name.rpartition(".")[0], (name,)) for name in names]

    def notes(self, folder: Folder) -> list[str]:
        """Nothing: a file is all there is to a recording."""
        return []
