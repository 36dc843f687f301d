"""What the topics of a file of messages are, and what its metadata say of the recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dyna_assets.landing.recording import RecordingMeta
from dyna_assets.landing.sources.base import first_of, text_of, truth_of
from dyna_assets.landing.sources.json_topics import json_topic
from dyna_assets.landing.sources.message_file import RawTopic
from dyna_assets.landing.sources.message_topics import MessageTopic, Other, no_stamp
from dyna_assets.landing.sources.protobuf_topics import protobuf_topic
from dyna_assets.landing.sources.ros2_topics import ros2_topic

TASK_KEYS = ("task", "language_instruction", "instruction")
SUCCESS_KEYS = ("success", "is_success")
ROBOT_KEYS = ("robot", "robot_id", "robot_type")
VERSION_KEYS = ("robot_software_version", "software_version")
TOPIC_READERS: Mapping[str, Callable[[RawTopic, bytes | None], MessageTopic]] = {
    "cdr": ros2_topic,
    "protobuf": protobuf_topic,
    "json": json_topic,
}
"""By message encoding, what tells what a topic is."""


def message_topic(raw: RawTopic, first: bytes | None) -> MessageTopic:
    """What a topic of the file is."""
    if raw.fault:
        return MessageTopic(raw, Other(raw.fault), no_stamp)
    if raw.message_encoding not in TOPIC_READERS:
        known = ", ".join(TOPIC_READERS)
        return MessageTopic(
            raw, Other(f"message encoding '{raw.message_encoding}', expected one of {known}"), no_stamp
        )
    return TOPIC_READERS[raw.message_encoding](raw, first)


def meta_of(
    facts: Mapping[str, str], topics: Mapping[str, MessageTopic], extra: Mapping[str, Any]
) -> RecordingMeta:
    """The recording's facts, from the pairs that the file carries. extra: more for `RecordingMeta.extra`."""
    used = {*TASK_KEYS, *SUCCESS_KEYS, *ROBOT_KEYS, *VERSION_KEYS, "operator"}
    missing = {name: topic.missing for name, topic in topics.items() if topic.missing}
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
            **extra,
        },
    )
