"""What the topics of a file of messages are, by the encoding of their messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dyna_assets.landing.sources.messages.file import RawTopic
from dyna_assets.landing.sources.messages.json_topics import json_topic
from dyna_assets.landing.sources.messages.protobuf_topics import protobuf_topic
from dyna_assets.landing.sources.messages.ros2_topics import ros2_topic
from dyna_assets.landing.sources.messages.topics import MessageTopic, Other, no_stamp

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
