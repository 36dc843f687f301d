"""Raw MCAP as recorders write it: one topic per sensor, each at its own rate, in any message encoding."""

from __future__ import annotations

from dyna_assets.landing.recording import Folder, Recording, RecordingRef, Roles
from dyna_assets.landing.sources.mcap.file import McapFile
from dyna_assets.landing.sources.messages.recording import MessageRecording
from dyna_assets.landing.sources.one_file import OneFileReader
from dyna_assets.landing.sources.roles import camera_rate_hz, guess_roles

FALLBACK_HZ = 30.0


class McapReader(OneFileReader):
    """Folders of .mcap files, one recording each."""

    name = "mcap"
    looks_for = "files *.mcap"
    suffixes = (".mcap",)

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one file. Raises RecordingError if it is no MCAP, is cut, or is damaged."""
        file = McapFile.open(folder, ref.files[0])
        return MessageRecording.of(file, attachments=list(file.attachments))

    def roles(self, recording: Recording) -> Roles:
        """Roles from topic names; the grid is the cameras' rate."""
        return guess_roles(recording.topics, camera_rate_hz(recording, FALLBACK_HZ))
