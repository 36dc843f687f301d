"""What a step gets for one row, and what it gives back. Plain data that crosses process borders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dyna_assets.lake import episode_uri, open_episode
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Folder, Recording, RecordingRef
from dyna_assets.landing.sources import reader_of
from dyna_assets.landing.unchanged import folder_state, refuse_changed
from dyna_assets.quality.policy import DEFAULT, Policy
from dyna_assets.settings import Settings
from dyna_assets.stamps import Status
from dyna_train.episode.reader import Episode
from dyna_train.errors import DynaError


@dataclass(frozen=True, slots=True)
class Row:
    """One episode of a shard as the catalog knows it, with the rows earlier steps left in the warehouse.

    upstream: table -> its row for this episode that the step reads, or a list of them where a table has several an
    episode. policy: what a gate judges by. skip_checks: those that a gate does not run.
    """

    episode_id: int
    name: str
    recording_name: str
    files: tuple[str, ...]
    size_bytes: int
    upload_name: str
    upload_uri: str
    upload_problem: str
    marker: Mapping[str, Any] | None
    source: SourceProfile
    shard_key: str
    settings: Settings
    pipeline_version: str
    upstream: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy = DEFAULT
    skip_checks: frozenset[str] = frozenset()

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """The recording, open.

        Raises RecordingError, also where a file was replaced while it was read: then nothing that was read counts.
        """
        folder = Folder.of(self.upload_uri, **self.settings.storage_options(self.upload_uri))
        if self.marker is not None:
            folder = folder.limited_to(file["path"] for file in self.marker["files"])
        reader, before = reader_of(self.source), folder_state(folder, self.files)
        try:
            with reader.open(folder, RecordingRef(self.recording_name, self.files)) as recording:
                yield recording
        except (DynaError, OSError):  # of two files that were taken for one anything may come
            refuse_changed(folder, before)
            raise
        refuse_changed(folder, before)

    def episode_uri(self, content_hash: str) -> str:
        """Where the row's episode file with this sha256 lies."""
        return episode_uri(self.settings, self.shard_key, self.episode_id, content_hash)

    def open_episode(self) -> Episode:
        """The row's episode file, as the table `episodes` has it, open. Raises EpisodeError if it cannot be read."""
        made = self.upstream["episodes"]
        return open_episode(self.settings, self.shard_key, self.episode_id, made["content_hash"])

    def where(self) -> str:
        """How an error names the row: source, upload and recording."""
        return f"{self.source.name}: {self.name}"


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome of one step for one row.

    rows: table -> rows to append (without bucket, shard, seq).
    """

    episode_id: int
    status: Status
    reason: str = ""
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    robot_software_version: str = ""
