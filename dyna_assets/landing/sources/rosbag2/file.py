"""A ROS 2 bag as one file of messages: its splits one after the other, MCAP or SQLite, packed or not."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import zstandard

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, is_local
from dyna_assets.landing.sources.base import damage_named
from dyna_assets.landing.sources.mcap.file import McapFile
from dyna_assets.landing.sources.messages.file import MessageFile, RawRecord, RawTopic
from dyna_assets.landing.sources.rosbag2.metadata import BagMetadata
from dyna_assets.landing.sources.rosbag2.sqlite import BagSqlite, joined
from dyna_assets.landing.sources.rosbag2.storage import copied, unpacked
from dyna_train.episode.container import MOST_UNPACKED_BYTES

JOURNALS = ("-wal", "-journal")
"""What SQLite puts beside a file: changes that are not in it yet. Its -shm holds nothing."""


class BagFile:
    """An open bag, a `MessageFile`. Each part is one split; messages come split by split, in file order."""

    def __init__(
        self, where: str, stack: ExitStack, parts: Sequence[MessageFile], listed: BagMetadata | None
    ) -> None:
        self.where = where
        self.metadata: Mapping[str, str] = {
            key: value
            for pairs in (*(part.metadata for part in parts), listed.custom if listed else {})
            for key, value in pairs.items()
        }
        self.topics: Mapping[str, RawTopic] = _topics(parts, listed)
        self._stack, self._parts = stack, parts
        self._is_packed = listed is not None and listed.compression == "message"

    @classmethod
    def open(cls, folder: Folder, where: str, splits: Sequence[str], listed: BagMetadata | None) -> BagFile:
        """Open the files `splits` in this order. where: the bag's address, for messages.

        listed: what metadata.yaml says, if there is one. Raises RecordingError naming the split that is damaged,
        or the topic of which other messages are there than listed.
        """
        with ExitStack() as stack:
            parts = [_part(folder, name, stack) for name in splits]
            if listed is not None:
                _compare(parts, listed, where)
            return cls(where, stack.pop_all(), parts, listed)

    def first_messages(self) -> Mapping[str, bytes]:
        """topic -> its first message, for every topic that has one. Raises RecordingError."""
        found: dict[str, bytes] = {}
        for part in self._parts:
            found = {**part.first_messages(), **found}
        return {topic: bytes(self._unpacked(topic, 0, data)) for topic, data in found.items()}

    def messages(self, topics: Collection[str]) -> Iterator[RawRecord]:
        """The messages of `topics` in one pass, one chunk or message in memory. Raises RecordingError."""
        numbers: Counter[str] = Counter()
        for part in self._parts:
            wanted = [topic for topic in topics if topic in part.topics]
            records = part.messages(wanted) if wanted else iter(())
            if not self._is_packed:
                yield from records
                continue
            for record in records:
                data = self._unpacked(record.topic, numbers[record.topic], record.data)
                numbers[record.topic] += 1
                yield record._replace(data=data)

    def close(self) -> None:
        """Release the splits, and remove their copies."""
        self._stack.close()

    def _unpacked(self, topic: str, number: int, data: bytes | memoryview) -> bytes | memoryview:
        """A message's data. Raises RecordingError if they are packed and damaged, or too large unpacked."""
        if not self._is_packed:
            return data
        place = f"{self.where}: topic '{topic}' message {number:,}"
        with damage_named((zstandard.ZstdError,), lambda error: f"{place} cannot be unpacked: {error}"):
            if zstandard.frame_content_size(data) > MOST_UNPACKED_BYTES:
                raise RecordingError(f"{place}: over {MOST_UNPACKED_BYTES:,} bytes unpacked")
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=MOST_UNPACKED_BYTES)


@dataclass(frozen=True, slots=True)
class _Copy(Folder):
    """A temporary folder with one file that is called by its original's address in messages."""

    original: str = ""

    def at(self, name: str) -> str:
        return self.original


def _part(folder: Folder, name: str, stack: ExitStack) -> MessageFile:
    """One split, opened where it lies if that can be done without touching it."""
    where, bare = folder.at(name), name.removesuffix(".zstd")
    journals = [f"{name}{end}" for end in JOURNALS if _has_bytes(folder, f"{name}{end}")]
    is_sqlite = not bare.endswith(".mcap")
    path = Path(folder.path) / name
    if bare != name or (is_sqlite and (journals or not is_local(folder.fs))):
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dyna-bag-")))
        path = unpacked(folder, name, place) if bare != name else copied(folder, name, place)
        for journal in journals:
            copied(folder, journal, place)
        folder, name = _Copy(Folder.of(place).fs, str(place), original=where), path.name
    part: MessageFile = (
        BagSqlite.open(path, where, has_journal=bool(journals)) if is_sqlite else McapFile.open(folder, name)
    )
    stack.callback(part.close)
    return part


def _has_bytes(folder: Folder, name: str) -> bool:
    return folder.exists(name) and folder.fs.info(f"{folder.path}/{name}")["size"] > 0


def _topics(parts: Sequence[MessageFile], listed: BagMetadata | None) -> dict[str, RawTopic]:
    """The topics of all splits, and those of which metadata.yaml says that they had no message."""
    topics: dict[str, RawTopic] = {}
    for part in parts:
        for name, topic in part.topics.items():
            topics[name] = joined(topics[name], topic) if name in topics else topic
    for silent in listed.topics if listed else ():
        none = RawTopic(silent.name, silent.type, "", b"", silent.serialization, 0)
        topics.setdefault(silent.name, none)
    return topics


def _compare(parts: Sequence[MessageFile], listed: BagMetadata, where: str) -> None:
    """Refuse a bag that does not hold the messages that its metadata.yaml counts."""
    expected, found = listed.num_messages(), Counter[str]()
    for part in parts:
        for name, topic in part.topics.items():
            base = name if name in expected else name.rpartition(":")[0]  # one of several types on one topic
            found[base if base in expected else name] += topic.num_messages
    wrong = [name for name in sorted(expected | found) if expected[name] != found[name]]
    if wrong:
        said = ", ".join(f"'{name}' {expected[name]:,} (found {found[name]:,})" for name in wrong[:3])
        more = f" and {len(wrong) - 3} other topics" if len(wrong) > 3 else ""
        raise RecordingError(
            f"{where}: metadata.yaml counts {expected.total():,} messages, found {found.total():,}: {said}{more}. "
            "Upload all files of the bag, or correct its metadata with `ros2 bag reindex`",
            check="recording.complete",
        )
