"""ROS 2 messages of any type made of numbers, against an independent writer."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import T0_NS, definition, encoded, stamp

from dyna_assets.landing.sources.messages.file import RawTopic
from dyna_assets.landing.sources.messages.ros2_topics import ros2_topic
from dyna_assets.landing.sources.messages.topics import BadMessage, Block, MessageTopic, Other

SEPARATOR = "=" * 80 + "\n"
HEADER = SEPARATOR + "MSG: std_msgs/Header\n" + definition("std_msgs/msg/Header")
TIP = {"position": {"x": 1.0, "y": 2.0, "z": 3.0}, "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}}


def topic(kind: str, text: str, first: bytes | None, schema_encoding: str = "ros2msg") -> MessageTopic:
    return ros2_topic(RawTopic("/t", kind, schema_encoding, text.encode(), "cdr", 1), first)


def reason(found: MessageTopic) -> str:
    assert isinstance(found.form, Other)
    return found.form.reason


def names(found: MessageTopic) -> tuple[str, ...]:
    assert not isinstance(found.form, Other), found.form.reason
    return found.form.names[""]  # type: ignore[union-attr]


def block(found: MessageTopic, *messages: bytes) -> Block:
    return found.form.block(messages)  # type: ignore[union-attr]


def stamped_pose(time_ns: int, frame: str = "base", x: float = 1.0) -> bytes:
    pose = {**TIP, "position": {"x": x, "y": 2.0, "z": 3.0}}
    return encoded("geometry_msgs/msg/PoseStamped", {"header": stamp(time_ns, frame), "pose": pose})


NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "uint8": st.integers(0, 255),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**50), 2**50),
    "float32": st.floats(width=32, allow_nan=False),
    "float64": st.floats(allow_nan=False),
}


@st.composite
def number_fields(draw: st.DrawFn) -> tuple[list[str], dict[str, Any]]:
    """(lines of a definition, a value for each): numbers, arrays of fixed length and sequences of them."""
    lines, values = [], {}
    for index in range(draw(st.integers(1, 5))):
        word, name = draw(st.sampled_from(sorted(NUMBERS))), f"f{index}"
        form = draw(st.sampled_from(["number", "array", "sequence"]))
        if form == "number":
            lines.append(f"{word} {name}")
            values[name] = draw(NUMBERS[word])
        else:
            found = draw(st.lists(NUMBERS[word], min_size=form == "array", max_size=3))
            lines.append(f"{word}[{len(found) if form == 'array' else ''}] {name}")
            values[name] = found
    return lines, values


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Name -> number, of a message's values."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            found |= {f"{prefix}{name}.{index}": float(item) for index, item in enumerate(value)}
        else:
            found[prefix + name] = float(value)
    return found


@given(
    outer=number_fields(),
    inner=number_fields(),
    seconds=st.integers(1, 2**31 - 1),
    frame=st.sampled_from("ab"),
)
def test_the_numbers_of_any_type_come_back_under_their_names_with_the_stamp(
    outer: tuple[list[str], dict[str, Any]],
    inner: tuple[list[str], dict[str, Any]],
    seconds: int,
    frame: str,
) -> None:
    lines = ["std_msgs/Header header", outer[0][0], "my_msgs/Part part", *outer[0][1:], "uint8 last"]
    text = "\n".join(lines) + f"\n{SEPARATOR}MSG: my_msgs/Part\n" + "\n".join(inner[0]) + "\n" + HEADER
    values = {**outer[1], "part": inner[1], "last": 7}
    data = encoded("my_msgs/msg/Own", {"header": stamp(seconds * 10**9, frame * 3), **values}, text)
    found = topic("my_msgs/msg/Own", text, data)
    ordered = {"f0": values["f0"], "part": inner[1], **values}
    assert dict(zip(names(found), block(found, data).values[""][0].tolist(), strict=True)) == flat(ordered)
    assert list(names(found)) == list(flat(ordered))
    assert block(found, data, data).stamps_N.tolist() == [seconds * 10**9] * 2


def test_nested_fields_are_named_by_their_path_and_the_stamp_is_the_capture_time() -> None:
    data = stamped_pose(T0_NS)
    found = topic("geometry_msgs/msg/PoseStamped", definition("geometry_msgs/msg/PoseStamped"), data)
    assert names(found)[:4] == ("pose.position.x", "pose.position.y", "pose.position.z", "pose.orientation.x")
    assert found.stamp_ns(data) == T0_NS
    assert block(found, data).values[""].tolist() == [[1, 2, 3, 0, 0, 0, 1]]


@pytest.mark.parametrize("kind", ["geometry_msgs/msg/PoseStamped", "geometry_msgs/PoseStamped"])
def test_a_standard_type_is_read_without_a_definition(kind: str) -> None:
    data = stamped_pose(T0_NS)
    found = topic(kind, "", data)
    assert names(found)[0] == "pose.position.x"
    assert block(found, data).values[""].tolist() == [[1, 2, 3, 0, 0, 0, 1]]


def test_a_type_defined_as_idl_is_read() -> None:
    text = (
        SEPARATOR + "IDL: my_msgs/msg/Own\nmodule my_msgs {\n  module msg {\n    struct Own {\n"
        "      double a;\n      float b[2];\n      sequence<long> c;\n    };\n  };\n};\n"
    )
    data = b"\0\1\0\0" + struct.pack("<dffIi", 1.5, 2.5, 3.5, 1, -4)
    found = topic("my_msgs/msg/Own", text, data, "ros2idl")
    assert names(found) == ("a", "b.0", "b.1", "c.0")
    assert block(found, data).values[""].tolist() == [[1.5, 2.5, 3.5, -4]]


def test_an_odometry_keeps_its_frames_beside_its_numbers() -> None:
    head = (
        struct.pack("<iI", 3, 5)
        + struct.pack("<I", 4)
        + b"map\0"
        + struct.pack("<I", 5)
        + b"base\0"
        + b"\0" * 7
    )
    numbers = np.arange(7 + 36 + 6 + 36, dtype="<f8")
    data = b"\0\1\0\0" + head + numbers.tobytes()
    found = topic("nav_msgs/msg/Odometry", "", data)
    assert len(names(found)) == len(numbers)
    assert names(found)[-1] == "twist.covariance.35"
    assert block(found, data).values[""].tolist() == [numbers.tolist()]
    other = data.replace(b"base\0", b"tool\0")
    with pytest.raises(
        BadMessage, match="expected child_frame_id 'base' as in the first message, found 'tool'"
    ):
        block(found, data, other)


@given(
    st.lists(st.tuples(st.sampled_from(["base", "a", "longer"]), st.floats(-9, 9)), min_size=1, max_size=5)
)
def test_joint_states_are_read_whatever_their_frame_is_called(rows: list[tuple[str, float]]) -> None:
    messages = [
        encoded(
            "sensor_msgs/msg/JointState",
            {
                "header": stamp(T0_NS + number, frame),
                "name": ["a", "b"],
                "position": [value, 1.0],
                "velocity": [],
                "effort": [value],
            },
        )
        for number, (frame, value) in enumerate(rows)
    ]
    found = topic("sensor_msgs/msg/JointState", "", messages[0])
    assert found.form.names == {"position": ("a", "b"), "effort": ("joint_0",)}  # type: ignore[union-attr]
    made = block(found, *messages)
    assert made.values["position"].tolist() == [[value, 1.0] for _, value in rows]
    assert made.values["effort"].tolist() == [[value] for _, value in rows]
    assert made.stamps_N.tolist() == [T0_NS + number for number in range(len(rows))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("string note\nfloat64 x\n", "my_msgs/msg/Own: 'note' is text"),
        (
            f"my_msgs/P[] all\n{SEPARATOR}MSG: my_msgs/P\nfloat64 x\n",
            "'all' is a list of my_msgs/msg/P, of any",
        ),
        ("float64[5000] x\n", "its first message has 5,000 numbers, expected 1 to 4,096"),
        ("other_msgs/Thing x\n", "nothing says what a other_msgs/msg/Thing is"),
        ("my_msgs/Own again\n", "is nested too deep"),
        (f"my_msgs/P[4] all\n{SEPARATOR}MSG: my_msgs/P\n", "'all.0' is empty"),
        (
            f"my_msgs/P[5000] all\n{SEPARATOR}MSG: my_msgs/P\nstring frame_id\n",
            "'all' is an array of 5,000 my_msgs/msg/P, expected at most 4,096",
        ),
        ("float64[ x", "its definition cannot be read: Could not parse"),
    ],
)
def test_a_type_that_is_no_vector_says_why(text: str, said: str) -> None:
    assert said in reason(topic("my_msgs/msg/Own", text, b"\0\1\0\0" + bytes(40_000)))


def test_a_topic_without_a_message_or_without_a_field_says_so() -> None:
    assert reason(topic("std_msgs/msg/Empty", "", b"\0\1\0\0\0")) == "std_msgs/msg/Empty: it is empty"
    assert "there is no message to tell" in reason(topic("geometry_msgs/msg/Pose", "", None))


def test_a_stamped_topic_that_is_no_vector_keeps_its_capture_time() -> None:
    text = f"std_msgs/Header header\nstring note\n{HEADER}"
    data = encoded("my_msgs/msg/Note", {"header": stamp(T0_NS), "note": "hi"}, text)
    found = topic("my_msgs/msg/Note", text, data)
    assert reason(found) == "my_msgs/msg/Note: 'note' is text"
    assert found.stamp_ns(data) == T0_NS


def test_a_float_array_that_grows_names_both_lengths() -> None:
    def floats(*values: float) -> bytes:
        return b"\0\1\0\0" + struct.pack(f"<III{len(values)}f", 0, 0, len(values), *values)

    found = topic("std_msgs/msg/Float32MultiArray", "", floats(1, 2))
    assert names(found) == ("data.0", "data.1")
    with pytest.raises(
        BadMessage, match="expected 2 values of 'data' as in the first message, found 3 values"
    ):
        block(found, floats(1, 2), floats(1, 2, 3))
