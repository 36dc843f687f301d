"""Raw MCAP as a ROS 2 recorder writes it: CDR messages, one topic per sensor, each at its own rate."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from mcap.records import Message as McapMessage
from mcap.records import Metadata
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import (
    Folder,
    Message,
    Recording,
    RecordingMeta,
    RecordingRef,
    Roles,
    TopicInfo,
)
from dyna_assets.landing.sources.base import (
    camera_rate_hz,
    first_of,
    guess_roles,
    info_of,
    text_of,
    truth_of,
)
from dyna_assets.landing.sources.cdr import Cdr, CdrError
from dyna_assets.landing.sources.mcap_file import McapFile
from dyna_assets.landing.sources.one_file import OneFileReader
from dyna_assets.landing.sources.ros2_topics import RosTopic, ros_topic

FALLBACK_HZ = 30.0
TASK_KEYS = ("task", "language_instruction", "instruction")
SUCCESS_KEYS = ("success", "is_success")
ROBOT_KEYS = ("robot", "robot_id", "robot_type")
VERSION_KEYS = ("robot_software_version", "software_version")


class McapRos2Reader(OneFileReader):
    """Folders of .mcap files, one recording each."""

    name = "mcap_ros2"
    looks_for = "files *.mcap"
    suffixes = (".mcap",)

    def open(self, folder: Folder, ref: RecordingRef) -> Recording:
        """Open one file. Raises RecordingError if it is no MCAP, is cut, or is damaged."""
        return McapRecording.open(folder, ref.files[0])

    def roles(self, recording: Recording) -> Roles:
        """Roles from topic names; the grid is the cameras' rate."""
        return guess_roles(recording.topics, camera_rate_hz(recording, FALLBACK_HZ))


class McapRecording:
    """One open file. A JointState topic '/arm' becomes '/arm.position', '/arm.velocity', '/arm.effort'."""

    def __init__(self, file: McapFile, meta: RecordingMeta, sources: Mapping[str, RosTopic]) -> None:
        self.meta = meta
        self.topics: Mapping[str, TopicInfo] = {
            name: info for source in sources.values() for name, info in source.infos.items()
        }
        self._file, self._sources = file, sources
        self._owner = {name: source.name for source in sources.values() for name in source.infos}
        self._times: dict[str, NDArray[np.int64] | RecordingError] = {}

    @classmethod
    def open(cls, folder: Folder, name: str) -> McapRecording:
        """Open the file `name`; reads its summary and the first message of each topic."""
        file = McapFile.open(folder, name)
        try:
            sources = _sources(file)
        except RecordingError:
            file.close()
            raise
        missing = {topic: reason for source in sources.values() for topic, reason in source.missing.items()}
        return cls(file, _meta(file.contents.metadata, missing), sources)

    def times(self, topic: str) -> NDArray[np.int64]:
        """Capture times [N] in ns since the epoch, in file order: the header's stamp, else publish_time.

        The first call reads the file once for all topics. Raises RecordingError.
        """
        self._readable(topic)
        if not self._times:
            self._times = self._all_times()
        times = self._times[self._owner[topic]]
        if isinstance(times, RecordingError):
            raise times
        return times

    def read(self, topics: Collection[str]) -> Iterator[Message]:
        """Messages of `topics` in file order, in one pass, one chunk in memory. Raises RecordingError."""
        for topic in topics:
            self._readable(topic)
        return self._messages(frozenset(topics))

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def __enter__(self) -> McapRecording:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _readable(self, topic: str) -> TopicInfo:
        return info_of(self.topics, topic, self._file.where, self.meta.extra["missing"])

    def _messages(self, topics: frozenset[str]) -> Iterator[Message]:
        sources = {self._owner[topic] for topic in topics}
        numbers = dict.fromkeys(sources, -1)
        for source, record in self._raw(sources):
            numbers[source.name] += 1
            try:
                time_ns = _capture_ns(record, source.stamped)
                payloads = source.decode(record.data) if source.decode else {}
            except CdrError as error:
                raise self._fault(source, numbers[source.name], error) from None
            for topic, payload in payloads.items():
                if topic in topics:
                    yield Message(topic, time_ns, payload)

    def _all_times(self) -> dict[str, NDArray[np.int64] | RecordingError]:
        times: dict[str, list[int]] = {name: [] for name, source in self._sources.items() if source.decode}
        faults: dict[str, RecordingError] = {}
        for source, record in self._raw(times):
            try:
                times[source.name].append(_capture_ns(record, source.stamped))
            except CdrError as error:
                faults.setdefault(source.name, self._fault(source, len(times[source.name]), error))
        return {name: faults.get(name, np.array(stamps, np.int64)) for name, stamps in times.items()}

    def _raw(self, names: Collection[str]) -> Iterator[tuple[RosTopic, McapMessage]]:
        by_channel = {
            key: self._sources[channel.topic]
            for key, channel in self._file.contents.channels.items()
            if channel.topic in names
        }
        for record in self._file.messages(by_channel):
            yield by_channel[record.channel_id], record

    def _fault(self, source: RosTopic, number: int, error: CdrError) -> RecordingError:
        return RecordingError(f"{self._file.where}: topic '{source.name}' message {number}: {error}")


def _sources(file: McapFile) -> dict[str, RosTopic]:
    """Every topic of the file; several channels may publish on one."""
    contents = file.contents
    first = file.first_messages(contents.channels)
    by_topic: dict[str, list[int]] = {}
    for key, channel in sorted(contents.channels.items()):
        by_topic.setdefault(channel.topic, []).append(key)
    sources = {}
    for topic, keys in sorted(by_topic.items()):
        kinds = {_kind(file, key) for key in keys}
        schema, encoding = kinds.pop()
        count = sum(contents.counts.get(key, 0) for key in keys)
        message = next((first[key].data for key in keys if key in first), None)
        if kinds:
            encoding = f"{encoding} and other kinds on one topic"
        sources[topic] = ros_topic(topic, schema, encoding, count, message)
    return sources


def _kind(file: McapFile, key: int) -> tuple[str, str]:
    """(message type, message encoding) of a channel; a type of '' has no schema."""
    channel = file.contents.channels[key]
    schema = file.contents.schemas.get(channel.schema_id)
    if schema is None and channel.schema_id:
        raise RecordingError(
            f"{file.where}: topic '{channel.topic}' refers to schema {channel.schema_id}, "
            "which the file does not hold; write the file again with its schemas"
        )
    name = schema.name if schema else ""
    package, slash, kind = name.partition("/")
    # older recorders leave out the middle part: sensor_msgs/Image
    return (name if "/" in kind or not slash else f"{package}/msg/{kind}"), channel.message_encoding


def _capture_ns(record: McapMessage, stamped: bool) -> int:
    """When the sensor saw it: never log_time, which is when the recorder got it."""
    stamp_ns = Cdr(record.data).stamp_ns() if stamped else 0
    time_ns = stamp_ns or record.publish_time
    if time_ns == 0:
        raise CdrError("no capture time: the header's stamp and publish_time are both 0")
    return time_ns


def _meta(records: Collection[Metadata], missing: Mapping[str, str]) -> RecordingMeta:
    """Facts from the metadata records; rosbag2's own record is its index in YAML, not about the episode."""
    facts: dict[str, Any] = {}
    for record in records:
        if record.name != "rosbag2":
            facts.update(record.metadata)
    used = {*TASK_KEYS, *SUCCESS_KEYS, *ROBOT_KEYS, *VERSION_KEYS, "operator"}
    return RecordingMeta(
        task=text_of(first_of(facts, *TASK_KEYS)),
        success=truth_of(first_of(facts, *SUCCESS_KEYS)),
        robot=text_of(first_of(facts, *ROBOT_KEYS)),
        operator=text_of(facts.get("operator")),
        robot_software_version=text_of(first_of(facts, *VERSION_KEYS)),
        extra={
            **{key: value for key, value in facts.items() if key not in used},
            "missing": missing,
            "notes": [],
        },
    )
