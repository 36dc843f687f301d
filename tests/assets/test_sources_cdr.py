from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import MSG_COMPRESSED, MSG_FLOATS, MSG_IMAGE, MSG_JOINTS, encoded, painted, stamp

from dyna_assets.landing.sources import cdr

finite = st.floats(-1e6, 1e6)


@given(
    frame=st.text(max_size=9),
    names=st.lists(st.text(max_size=7), max_size=4),
    position=st.lists(finite, max_size=4),
    velocity=st.lists(finite, max_size=4),
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
    data = encoded("sensor_msgs/msg/JointState", MSG_JOINTS, message)
    state = cdr.joint_state(data)
    assert state.names == tuple(names)
    assert (state.position.tolist(), state.velocity.tolist(), state.effort.tolist()) == (
        position,
        velocity,
        [],
    )
    assert cdr.Cdr(data).stamp_ns() == time_ns


@given(frame=st.text(alphabet="abc/", max_size=9), payload=st.binary(max_size=40))
def test_compressed_pictures_are_read_as_written(frame: str, payload: bytes) -> None:
    data = encoded(
        "sensor_msgs/msg/CompressedImage",
        MSG_COMPRESSED,
        {"header": stamp(5, frame), "format": "jpeg", "data": payload},
    )
    assert cdr.compressed_image(data) == ("jpeg", payload)


@given(values=st.lists(st.floats(-1e6, 1e6, width=32), max_size=5), label=st.text(alphabet="abc", max_size=5))
def test_float_arrays_are_read_as_written(values: list[float], label: str) -> None:
    layout = {"dim": [{"label": label, "size": 1, "stride": 1}], "data_offset": 0}
    data = encoded("std_msgs/msg/Float32MultiArray", MSG_FLOATS, {"layout": layout, "data": values})
    assert cdr.VECTOR_TYPES["std_msgs/msg/Float32MultiArray"].parse(data).tolist() == values


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
    frame = cdr.raw_image(encoded("sensor_msgs/msg/Image", MSG_IMAGE, message)).frame()
    if encoding == "mono8":
        assert (frame.to_ndarray() == pixels).all()
    else:
        assert (frame.to_ndarray(format="rgb24") == rgb).all()


def test_big_endian_messages_are_read() -> None:
    data = b"\x00\x00\x00\x00" + struct.pack(">d", 2.5)
    assert cdr.VECTOR_TYPES["std_msgs/msg/Float64"].parse(data).tolist() == [2.5]


def test_a_stamped_pose_has_seven_named_values_in_order() -> None:
    body = struct.pack("<iI", 3, 5) + struct.pack("<I", 2) + b"b\0" + b"\0\0" + struct.pack("<7d", *range(7))
    kind = cdr.VECTOR_TYPES["geometry_msgs/msg/PoseStamped"]
    assert kind.parse(b"\x00\x01\x00\x00" + body).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert kind.names == ("x", "y", "z", "qx", "qy", "qz", "qw")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    parsers = [
        cdr.joint_state,
        cdr.compressed_image,
        cdr.raw_image,
        *(k.parse for k in cdr.VECTOR_TYPES.values()),
    ]
    for parse in parsers:
        for candidate in (data, b"\x00\x01\x00\x00" + data):
            try:
                parse(candidate)
            except cdr.CdrError as error:
                assert str(error)


def test_the_encapsulation_is_checked() -> None:
    with pytest.raises(cdr.CdrError, match=r"expected plain CDR .* found 00 03 00 00"):
        cdr.joint_state(b"\x00\x03\x00\x00" + bytes(40))
    with pytest.raises(cdr.CdrError, match="found nothing"):
        cdr.Cdr(b"")


def test_a_cut_message_names_the_bytes_it_needs() -> None:
    with pytest.raises(cdr.CdrError, match="ends at byte 8, a field needs bytes 4 to 12"):
        cdr.VECTOR_TYPES["std_msgs/msg/Float64"].parse(b"\x00\x01\x00\x00" + bytes(4))


def test_a_raw_picture_with_too_few_bytes_or_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(cdr.CdrError, match="4x2 rgb8 with rows of 12 bytes needs 24 bytes, found 23"):
        cdr.RawImage(4, 2, "rgb8", 12, bytes(23)).frame()
    with pytest.raises(cdr.CdrError, match="picture encoding '16UC1', expected one of rgb8, bgr8"):
        cdr.RawImage(4, 2, "16UC1", 8, bytes(16)).frame()
