"""A ROS 2 bag's SQLite file: messages in the order in which they were recorded, read and never written."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.base import utf8
from dyna_assets.landing.sources.messages.file import RawRecord, RawTopic
from dyna_train.episode.container import MOST_UNPACKED_BYTES

MAGIC = b"SQLite format 3\0"
HEAD_BYTES = 100
AGAIN = "Record or upload it again"


class BagSqlite:
    """An open file, a `MessageFile`. The format has one time per message, when it arrived at the recorder."""

    metadata: Mapping[str, str] = {}

    def __init__(
        self,
        where: str,
        connection: sqlite3.Connection,
        topics: Mapping[str, RawTopic],
        names: Mapping[int, str],
        first_ids: Mapping[str, int],
    ) -> None:
        self.where, self.topics = where, topics
        self._connection, self._names, self._first_ids = connection, names, first_ids

    @classmethod
    def open(cls, path: Path, where: str, *, has_journal: bool = False) -> BagSqlite:
        """Open the file at `path`, which is called `where` in messages; reads all but the messages' data.

        has_journal: beside it lies what a recorder that was killed had not yet moved into it, and SQLite may do
        so now. Without, nothing beside the file is looked at or made. Raises RecordingError.
        """
        _check_head(path, where)
        mode = "mode=rw" if has_journal else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, check_same_thread=False)
        try:
            with _naming_damage(where):
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_UNPACKED_BYTES)
                connection.text_factory = utf8
                return cls(where, connection, *_contents(connection, where))
        except BaseException:
            connection.close()
            raise

    def first_messages(self) -> dict[str, bytes]:
        """topic -> its first message, for every topic that has one. Raises RecordingError."""
        found = {}
        with _naming_damage(self.where):
            for topic, number in self._first_ids.items():
                rows = self._connection.execute(
                    "SELECT timestamp, data FROM messages WHERE id = ?", (number,)
                )
                found[topic] = self._record(topic, number, *rows.fetchone()).data
        return {topic: bytes(data) for topic, data in found.items()}

    def messages(self, topics: Collection[str]) -> Iterator[RawRecord]:
        """The messages of `topics` in file order, one in memory. Raises RecordingError."""
        keys = [key for key, name in self._names.items() if name in topics]
        marks = ", ".join("?" * len(keys))
        query = f"SELECT id, topic_id, timestamp, data FROM messages WHERE topic_id IN ({marks}) ORDER BY id"
        with _naming_damage(self.where):
            for number, key, time_ns, data in self._connection.execute(query, keys):
                yield self._record(self._names[key], number, time_ns, data)

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def _record(self, topic: str, number: int, time_ns: object, data: object) -> RawRecord:
        if not isinstance(time_ns, int) or not isinstance(data, bytes):
            raise RecordingError(
                f"{self.where}: row {number} of table messages, topic '{topic}': expected a time and bytes, found "
                f"{type(time_ns).__name__} and {type(data).__name__}. {AGAIN}"
            )
        return RawRecord(topic, time_ns, time_ns, data)


def _check_head(path: Path, where: str) -> None:
    """Refuse what is no SQLite file, and one that is shorter than its own count of pages."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        size_bytes = file.seek(0, 2)
    if not head.startswith(MAGIC):
        found = head[: len(MAGIC)].hex(" ") or "an empty file"
        raise RecordingError(f"{where}: byte 0: expected the SQLite magic, found {found}. {AGAIN}")
    page_bytes = int.from_bytes(head[16:18], "big")
    page_bytes = 1 << 16 if page_bytes == 1 else page_bytes  # 65,536 does not fit its two bytes
    needed = page_bytes * int.from_bytes(head[28:32], "big")
    is_counted = head[24:28] == head[92:96]  # by a writer that knows of the count
    if is_counted and size_bytes < needed:
        raise RecordingError(
            f"{where}: the file ends at byte {size_bytes:,}, its pages need {needed:,}: it was cut while being "
            f"recorded or uploaded. {AGAIN}"
        )


@contextmanager
def _naming_damage(where: str) -> Iterator[None]:
    """Errors of SQLite mean a damaged file, but for those of the disk, which pass as OSError."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR:
            raise OSError(errno.EIO, str(error), where) from error
        raise RecordingError(f"{where}: not readable as a bag's SQLite file ({error}). {AGAIN}") from None


def _contents(
    connection: sqlite3.Connection, where: str
) -> tuple[dict[str, RawTopic], dict[int, str], dict[str, int]]:
    """(topics; topic id -> name; topic -> row of its first message)."""
    kinds = dict(connection.execute("SELECT name, type FROM sqlite_master"))
    lacking = [name for name in ("topics", "messages") if kinds.get(name) != "table"]
    if lacking:
        raise RecordingError(
            f"{where}: no table '{lacking[0]}', which ROS 2 bags have; tables here: "
            f"{', '.join(sorted(name for name, kind in kinds.items() if kind == 'table')) or 'none'}"
        )
    found = connection.execute(
        "SELECT topic_id, COUNT(*), MIN(id) FROM messages GROUP BY topic_id"
    ).fetchall()
    counts = {key: count for key, count, _ in found}
    definitions = _definitions(connection, where) if kinds.get("message_definitions") == "table" else {}
    topics: dict[str, RawTopic] = {}
    names: dict[int, str] = {}
    for row in _rows(connection, "topics", ("id", "name", "type", "serialization_format"), where):
        topic = _topic(row, definitions, counts.get(row["id"], 0))
        names[row["id"]] = topic.name
        topics[topic.name] = joined(topics[topic.name], topic) if topic.name in topics else topic
    unknown = counts.keys() - names.keys()
    if unknown:
        raise RecordingError(
            f"{where}: {sum(counts[key] for key in unknown):,} messages belong to topics that table 'topics' does not "
            f"list. {AGAIN}"
        )
    first: dict[str, int] = {}
    if not all(isinstance(number, int) for *_, number in found):
        raise RecordingError(f"{where}: table messages holds rows without an id. {AGAIN}")
    for key, _, number in sorted(found, key=lambda one: one[2]):
        first.setdefault(names[key], number)
    return topics, names, first


def joined(topic: RawTopic, more: RawTopic) -> RawTopic:
    """One topic out of two entries; it has a fault if they are of different types."""
    kinds = [(one.schema_name, one.message_encoding) for one in (topic, more)]
    fault = topic.fault or more.fault
    if kinds[0] != kinds[1]:
        said = " and ".join(f"{name} ({encoding})" for name, encoding in kinds)
        fault = fault or f"its messages are of two types, {said}; publish each on a topic of its own"
    described = topic if topic.schema_data else more
    return RawTopic(
        topic.name,
        described.schema_name,
        described.schema_encoding,
        described.schema_data,
        topic.message_encoding,
        topic.num_messages + more.num_messages,
        fault,
        topic.metadata,
    )


def _topic(
    row: Mapping[str, Any], definitions: Mapping[str, tuple[str, bytes]], num_messages: int
) -> RawTopic:
    kind = str(row["type"])
    encoding, definition = definitions.get(kind, ("", b""))
    # named as rosbag2 names them in MCAP
    said = {"offered_qos_profiles": "offered_qos_profiles", "topic_type_hash": "type_description_hash"}
    metadata = {key: str(row[column]) for key, column in said.items() if row.get(column)}
    serialization = str(row["serialization_format"])
    return RawTopic(
        str(row["name"]), kind, encoding, definition, serialization, num_messages, metadata=metadata
    )


def _definitions(connection: sqlite3.Connection, where: str) -> dict[str, tuple[str, bytes]]:
    """Message type -> (encoding, definition), as far as the recorder knew them."""
    columns = ("topic_type", "encoding", "encoded_message_definition")
    return {
        str(row["topic_type"]): (str(row["encoding"]), str(row["encoded_message_definition"]).encode())
        for row in _rows(connection, "message_definitions", columns, where)
        if row["encoded_message_definition"]
    }


def _rows(
    connection: sqlite3.Connection, table: str, needed: Collection[str], where: str
) -> Iterator[dict[str, Any]]:
    """All rows of a small table, by column, whichever further columns this version of the format has."""
    cursor = connection.execute(f"SELECT * FROM {table}")
    columns = [column[0] for column in cursor.description]
    lacking = [name for name in needed if name not in columns]
    if lacking:
        raise RecordingError(
            f"{where}: no column '{lacking[0]}' in table '{table}', found {', '.join(columns)}. {AGAIN}"
        )
    for row in cursor:
        yield dict(zip(columns, row, strict=True))
