"""The one interface between a file of timed messages (MCAP, a ROS 2 bag) and the topics made of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class RawTopic:
    """One topic as the file declares it.

    schema_name: 'sensor_msgs/msg/Image', 'foxglove.CompressedVideo', '' without a schema. message_encoding: 'cdr',
    'protobuf', 'json', … num_messages: as the file counts them. fault: why its messages cannot be told apart or
    read ('' if they can). metadata: what else the file says of the topic, such as a quality of service.
    """

    name: str
    schema_name: str
    schema_encoding: str
    schema_data: bytes
    message_encoding: str
    num_messages: int
    fault: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


class RawRecord(NamedTuple):
    """One message: what the file says of its time (log = arrival, publish), in ns since the epoch, and its bytes."""

    topic: str
    log_ns: int
    publish_ns: int
    data: bytes | memoryview


class MessageFile(Protocol):
    """An open file of messages. `where` is its address, for errors; `metadata` the pairs it carries."""

    where: str
    topics: Mapping[str, RawTopic]
    metadata: Mapping[str, str]

    def first_messages(self) -> Mapping[str, bytes]:
        """topic -> its first message, for every topic that has one. Raises RecordingError."""
        ...

    def messages(self, topics: Collection[str]) -> Iterator[RawRecord]:
        """The messages of `topics` in file order, in one pass and bounded memory. Raises RecordingError."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...
