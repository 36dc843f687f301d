"""What a ROS 2 topic (CDR) is to us: pictures, video, joint states, any other type of numbers, or nothing readable."""

from __future__ import annotations

from dyna_assets.landing.sources import cdr
from dyna_assets.landing.sources.cdr_vectors import CdrVectors, joint_layout, joint_names, typed_layout
from dyna_assets.landing.sources.message_file import RawTopic
from dyna_assets.landing.sources.message_topics import (
    MessageTopic,
    Other,
    Unfit,
    first_of_topic,
    no_stamp,
    topic_of,
)
from dyna_assets.landing.sources.picture_messages import coded_pictures, raw_pictures
from dyna_assets.landing.sources.ros2_types import TypeTree, is_stamped, leaves_of, type_name, type_tree

JOINTS = "sensor_msgs/msg/JointState"


def ros2_topic(raw: RawTopic, first: bytes | None) -> MessageTopic:
    """The topic by its message type and its first message, None if it has none."""
    name = type_name(raw)
    if not name:
        return MessageTopic(raw, Other("without a schema"), no_stamp)
    where = f"topic '{raw.name}' message 0"
    if read_coded := cdr.CODED_PICTURES.get(name):
        return topic_of(raw, cdr.stamp_ns, lambda: coded_pictures(read_coded, first, where))
    if read_raw := cdr.RAW_PICTURES.get(name):
        return topic_of(raw, cdr.stamp_ns, lambda: raw_pictures(read_raw, first))
    if name == JOINTS:
        return topic_of(raw, cdr.stamp_ns, lambda: _joints(first_of_topic(raw, first)))
    try:
        types = type_tree(raw)
        stamp = cdr.stamp_ns if is_stamped(types) else no_stamp
    except Unfit as why:
        return MessageTopic(raw, Other(f"{name}: {why}"), no_stamp)
    return topic_of(raw, stamp, lambda: _numbers(raw, types, first))


def _joints(first: bytes) -> CdrVectors:
    return CdrVectors(first, joint_layout, joint_names(joint_layout(first)))


def _numbers(raw: RawTopic, types: TypeTree, first: bytes | None) -> CdrVectors:
    try:
        leaves = leaves_of(types)
        data = first_of_topic(raw, first)
        names = typed_layout(leaves, data).shape.names()
    except Unfit as why:
        raise Unfit(f"{types.name}: {why}") from None
    return CdrVectors(data, lambda message: typed_layout(leaves, message), {"": names})
