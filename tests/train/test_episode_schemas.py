"""Our hand-written protobuf against the stock runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from dyna_train.episode.schemas import (
    depth_bytes,
    encode_depth,
    encode_video,
    parse_video,
    schemas,
    vector_head,
)
from dyna_train.errors import CorruptEpisode

TIMES_NS = st.integers(0, 2**62)


def stock_classes() -> dict[str, Any]:
    classes: dict[str, Any] = {}
    for schema in (schema for schema in schemas() if schema.encoding == "protobuf"):
        files = descriptor_pb2.FileDescriptorSet.FromString(schema.data)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        classes[schema.name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))
    return classes


STOCK = stock_classes()


@given(time_ns=TIMES_NS, frame_id=st.text(max_size=20), data=st.binary(max_size=400))
def test_the_stock_runtime_reads_our_video_messages(time_ns, frame_id, data):
    message = STOCK["foxglove.CompressedVideo"].FromString(encode_video(time_ns, frame_id, data))
    assert message.timestamp.seconds * 10**9 + message.timestamp.nanos == time_ns
    assert (message.frame_id, message.format, message.data) == (frame_id, "h264", data)


@given(time_ns=TIMES_NS, frame_id=st.text(max_size=20), data=st.binary(max_size=400))
def test_we_read_video_messages_of_the_stock_runtime_and_our_own_alike(time_ns, frame_id, data):
    message = STOCK["foxglove.CompressedVideo"](frame_id=frame_id, data=data, format="h264")
    message.timestamp.seconds, message.timestamp.nanos = divmod(time_ns, 10**9)
    for payload in (message.SerializeToString(), encode_video(time_ns, frame_id, data)):
        video = parse_video(payload)
        assert (video.timestamp_ns, video.frame_id, video.format) == (time_ns, frame_id, "h264")
        assert video.data == data


@given(time_ns=TIMES_NS, data=st.binary(min_size=1, max_size=400))
def test_the_data_of_a_video_message_is_its_last_bytes(time_ns, data):
    assert encode_video(time_ns, "top", data).endswith(data)


@given(time_ns=TIMES_NS, name=st.text(max_size=20), width=st.integers(1, 200), height=st.integers(1, 200))
def test_every_depth_message_of_a_camera_has_the_length_that_its_track_says(time_ns, name, width, height):
    message = encode_depth(time_ns, name, width, height, bytes(2 * width * height))
    assert len(message) == depth_bytes(name, width, height)


@given(values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40))
def test_the_stock_runtime_reads_our_joint_vectors(values):
    payload = vector_head(len(values)) + np.array(values, "<f4").tobytes()
    assert list(STOCK["dyna.JointVector"].FromString(payload).values) == values


@given(payload=st.binary(max_size=60))
def test_any_bytes_parse_or_raise_the_typed_error(payload):
    try:
        parse_video(payload)
    except CorruptEpisode as error:
        assert "protobuf" in str(error)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"\x1a\x05abc", "field 3 of 5 bytes at byte 2 ends after 5"),
        (b"\xff\xff", "varint does not end at byte 2 of 2"),
        (b"\x0b", "wire type 3 at byte 1"),
        (b"\x18\x01", "field 3 holds a number, expected bytes"),
        (b"\x0a\x02\x0a\x00", "field 1 holds 0 bytes, expected a number"),
    ],
)
def test_a_broken_message_says_where(payload, message):
    with pytest.raises(CorruptEpisode, match=message):
        parse_video(payload)
