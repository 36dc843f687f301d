"""What goes into the catalog and what comes out of it: plain frozen values, no database behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from dyna_train.episode.address import shard_key

MAX_ATTEMPTS = 3
"""Runs of a due shard that may fail before it is left to a person; new uploads begin the count anew."""

UploadState = Literal["registered", "quarantined"]
ShardState = Literal["open", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEpisode:
    """One recording of an upload.

    name: unique within its source, for good. files: relative to the upload's folder.
    input_hash: digest of the bytes it is made from. size_bytes: those landed bytes.
    """

    name: str
    files: tuple[str, ...]
    input_hash: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUpload:
    """An upload as found in the landing area.

    digest: of names and sizes or hashes of its files; a changed upload has another one.
    looks: of how it was found and by what it is read; as long as it stays, no second look is needed.
    marker: the content of upload.json; None where the source writes none.
    robot, task: as the marker or the source profile say; '' if unknown.
    """

    name: str
    uri: str
    digest: str
    num_files: int
    size_bytes: int
    looks: str = ""
    kind: str = ""
    marker: Mapping[str, Any] | None = None
    robot: str = ""
    task: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredUpload:
    """What registering did. shard_key: where the new episodes went, or the upload's shard if none is new."""

    upload_id: int
    shard_key: str
    num_new_episodes: int
    num_changed_episodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One source of recordings."""

    id: int
    name: str
    landing_uri: str
    reader: str
    added_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRow:
    """One upload. reason: why it is quarantined, else ''. shard_key: None until it has episodes."""

    id: int
    source: str
    name: str
    uri: str
    state: UploadState
    reason: str
    digest: str
    marker: Mapping[str, Any] | None
    num_files: int
    size_bytes: int
    kind: str
    shard_key: str | None
    notes: Mapping[str, Any]
    registered_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRow:
    """One shard.

    versions: the step versions at its birth. seq: number of its latest materialization.
    revision: counts registrations that touched its rows; settled_revision: the revision that the last
    finished run had read. attempts: runs that began since then and did not finish.
    """

    number: int
    key: str
    state: ShardState
    versions: str
    num_episodes: int
    size_bytes: int
    seq: int
    revision: int
    settled_revision: int
    attempts: int
    opened_at: datetime
    last_added_at: datetime
    closed_at: datetime | None

    @property
    def is_due(self) -> bool:
        """True if rows were registered or changed that no finished run has read."""
        return self.revision > self.settled_revision

    @property
    def is_given_up(self) -> bool:
        """True if runs failed so often that nothing tries again by itself: a person has to look."""
        return self.is_due and self.attempts >= MAX_ATTEMPTS


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """One episode and the upload it comes from. robot, task: '' if unknown."""

    id: int
    name: str
    source: str
    upload_id: int
    upload: str
    upload_uri: str
    upload_state: UploadState
    upload_reason: str
    upload_kind: str
    marker: Mapping[str, Any] | None
    files: tuple[str, ...]
    input_hash: str
    size_bytes: int
    robot: str
    task: str

    @property
    def input_state(self) -> str:
        """What its rows are made from: the input bytes, and whether their upload may be used at all."""
        return self.input_hash if self.upload_state == "registered" else f"quarantined:{self.input_hash}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """One application of a quality policy: its TOML, and since when it judges."""

    name: str
    version: int
    text: str
    applied_at: datetime


def shard_number(key: str) -> int:
    """The number in a partition key. Raises ValueError for anything that `shard_key` would not give."""
    number = key.removeprefix("shard-")
    if not number.isdecimal() or shard_key(int(number)) != key:
        raise ValueError(f"'{key}' is not a shard key; expected the form 'shard-000007'")
    return int(number)
