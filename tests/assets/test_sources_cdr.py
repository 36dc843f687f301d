from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import encoded, painted, stamp

from dyna_assets.landing.sources.messages import cdr
from dyna_assets.landing.sources.messages.cdr_vectors import (
    CdrVectors,
    Layout,
    joint_layout,
    typed_layout,
)
from dyna_assets.landing.sources.messages.file import RawTopic
from dyna_assets.landing.sources.messages.pictures import CodedPicture, RawPicture
from dyna_assets.landing.sources.messages.ros2_types import leaves_of, type_tree
from dyna_assets.landing.sources.messages.topics import BadMessage, Data, Unfit

finite = st.floats(-1e6, 1e6)


def standard(kind: str, data: Data) -> Layout:
    """The layout of a message of a type that ROS 2 ships."""
    return typed_layout(leaves_of(type_tree(RawTopic("/t", kind, "", b"", "cdr", 1))), data)


def values(layout: Layout, data: bytes) -> list[float]:
    block = layout.take([data])
    assert block is not None
    return block.values[""][0].tolist()  # type: ignore[no-any-return]


@given(
    frame=st.text(max_size=9),
    names=st.lists(st.text(max_size=7), max_size=4),
    position=st.lists(finite, max_size=4),
    velocity=st.lists(finite, min_size=1, max_size=4),
    time_ns=st.integers(0, 2**31 * 10**9 - 1),
)
def test_joint_states_are_read_as_an_independent_writer_wrote_them(
    frame: str, names: list[str], position: list[float], velocity: list[float], time_ns: int
) -> None:
    names = [name.replace("\0", "") for name in names]
    message = {
        "header": stamp(time_ns, frame.replace("\0", "")),
        "name": names,
        "position": position,
        "velocity": velocity,
        "effort": [],
    }
    data = encoded("sensor_msgs/msg/JointState", message)
    block = CdrVectors.of_joints(data).block([data])
    assert joint_layout(data).shape.joints == tuple(names)
    assert {part: found[0].tolist() for part, found in block.values.items()} == {
        part: told for part, told in (("position", position), ("velocity", velocity)) if told
    }
    assert block.stamps_N.tolist() == [time_ns] == [cdr.stamp_ns(data)]


def test_joint_states_that_measure_nothing_are_unfit() -> None:
    data = encoded(
        "sensor_msgs/msg/JointState",
        {"header": stamp(1), "name": ["a"], "position": [], "velocity": [], "effort": []},
    )
    with pytest.raises(Unfit, match="joint states without any value"):
        CdrVectors.of_joints(data)


@given(frame=st.text(alphabet="abc/", max_size=9), payload=st.binary(max_size=40))
def test_compressed_pictures_are_read_as_written(frame: str, payload: bytes) -> None:
    data = encoded(
        "sensor_msgs/msg/CompressedImage",
        {"header": stamp(5, frame), "format": "jpeg", "data": payload},
    )
    assert cdr.compressed_image(data) == CodedPicture("jpeg", payload)
    assert cdr.compressed_image(memoryview(data)) == CodedPicture("jpeg", payload)


@given(
    told=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5), label=st.text("abc", max_size=5)
)
def test_float_arrays_are_read_as_written(told: list[float], label: str) -> None:
    folding = {"dim": [{"label": label, "size": 1, "stride": 1}], "data_offset": 0}
    data = encoded("std_msgs/msg/Float32MultiArray", {"layout": folding, "data": told})
    assert values(standard("std_msgs/msg/Float32MultiArray", data), data) == told


@pytest.mark.parametrize(
    ("encoding", "padding"), [("rgb8", 0), ("rgb8", 5), ("bgr8", 0), ("mono8", 0), ("mono8", 3), ("rgba8", 0)]
)
def test_raw_pictures_become_frames_with_their_exact_pixels(encoding: str, padding: int) -> None:
    rgb = painted(0b1011).copy()
    rgb[:, :, 0] //= 2
    pixels = {
        "rgb8": rgb,
        "bgr8": rgb[:, :, ::-1],
        "mono8": rgb[:, :, 1],
        "rgba8": np.dstack([rgb, np.full(rgb.shape[:2], 255, np.uint8)]),
    }[encoding]
    rows = pixels.reshape(48, -1)
    step = rows.shape[1] + padding
    message = {
        "header": stamp(1),
        "height": 48,
        "width": 64,
        "encoding": encoding,
        "is_bigendian": 0,
        "step": step,
        "data": np.pad(rows, ((0, 0), (0, padding))).tobytes(),
    }
    frame = cdr.raw_image(encoded("sensor_msgs/msg/Image", message)).frame()
    if encoding == "mono8":
        assert (frame.to_ndarray() == pixels).all()
    else:
        assert (frame.to_ndarray(format="rgb24") == rgb).all()


def test_big_endian_messages_are_read() -> None:
    data = b"\x00\x00\x00\x00" + struct.pack(">d", 2.5)
    assert values(standard("std_msgs/msg/Float64", data), data) == [2.5]
    assert cdr.stamp_ns(b"\x00\x00\x00\x00" + struct.pack(">iI", 3, 5)) == 3_000_000_005


def test_a_stamped_pose_has_seven_named_values_in_order() -> None:
    body = struct.pack("<iI", 3, 5) + struct.pack("<I", 2) + b"b\0" + b"\0\0" + struct.pack("<7d", *range(7))
    data = b"\x00\x01\x00\x00" + body
    layout = standard("geometry_msgs/msg/PoseStamped", data)
    assert values(layout, data) == [0, 1, 2, 3, 4, 5, 6]
    assert layout.shape.names()[2:4] == ("pose.position.z", "pose.orientation.x")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    kinds = ["geometry_msgs/msg/PoseStamped", "std_msgs/msg/Float64MultiArray", "std_msgs/msg/Float32"]
    for candidate in (data, b"\x00\x01\x00\x00" + data):
        for parse in (
            cdr.stamp_ns,
            joint_layout,
            *cdr.CODED_PICTURES.values(),
            *cdr.RAW_PICTURES.values(),
            *(lambda found, kind=kind: standard(kind, found) for kind in kinds),
        ):
            try:
                parse(candidate)
            except BadMessage as error:
                assert str(error)


def test_the_encapsulation_is_checked() -> None:
    for parse in (joint_layout, cdr.stamp_ns, cdr.raw_image):
        with pytest.raises(BadMessage, match=r"expected plain CDR .* found 00 03 00 00"):
            parse(b"\x00\x03\x00\x00" + bytes(40))
        with pytest.raises(BadMessage, match="found nothing"):
            parse(b"")


def test_a_cut_message_names_the_bytes_it_needs() -> None:
    with pytest.raises(BadMessage, match="ends at byte 8, a field needs bytes 4 to 12"):
        standard("std_msgs/msg/Float64", b"\x00\x01\x00\x00" + bytes(4))
    with pytest.raises(BadMessage, match="ends at byte 8, its stamp needs bytes 4 to 12"):
        cdr.stamp_ns(b"\x00\x01\x00\x00" + bytes(4))


def test_a_raw_picture_with_too_few_bytes_or_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(BadMessage, match="4x2 rgb8 with rows of 12 bytes needs 24 bytes, found 23"):
        RawPicture(4, 2, "rgb8", 12, bytes(23)).frame()
    with pytest.raises(BadMessage, match="0x0 rgb8 with rows of 0 bytes needs 0 bytes, found 0"):
        RawPicture(0, 0, "rgb8", 0, b"").frame()
    with pytest.raises(BadMessage, match="picture encoding '16UC1', expected one of rgb8, bgr8"):
        RawPicture(4, 2, "16UC1", 8, bytes(16)).frame()
