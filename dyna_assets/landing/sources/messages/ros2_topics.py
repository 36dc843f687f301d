"""What a ROS 2 topic (CDR) is to us: pictures, video, joint states, any other type of numbers, or nothing readable."""

from __future__ import annotations

from dyna_assets.landing.sources.messages import cdr
from dyna_assets.landing.sources.messages.cdr_vectors import CdrVectors
from dyna_assets.landing.sources.messages.file import RawTopic
from dyna_assets.landing.sources.messages.pictures import coded_pictures, raw_pictures
from dyna_assets.landing.sources.messages.ros2_types import (
    TypeTree,
    is_stamped,
    leaves_of,
    type_name,
    type_tree,
)
from dyna_assets.landing.sources.messages.topics import (
    MessageTopic,
    Other,
    Unfit,
    first_of_topic,
    no_stamp,
    topic_of,
)

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
        return topic_of(raw, cdr.stamp_ns, lambda: CdrVectors.of_joints(first_of_topic(raw, first)))
    try:
        types = type_tree(raw)
        stamp = cdr.stamp_ns if is_stamped(types) else no_stamp
    except Unfit as why:
        return MessageTopic(raw, Other(f"{name}: {why}"), no_stamp)
    return topic_of(raw, stamp, lambda: _numbers(raw, types, first))


def _numbers(raw: RawTopic, types: TypeTree, first: bytes | None) -> CdrVectors:
    try:
        return CdrVectors.of_numbers(leaves_of(types), first_of_topic(raw, first))
    except Unfit as why:
        raise Unfit(f"{types.name}: {why}") from None
