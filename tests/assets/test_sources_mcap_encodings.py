"""Topics in protobuf and JSON: Foxglove's messages, and any other message made of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import foxglove.messages as foxglove
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap_samples import (
    JSON,
    Kind,
    Sample,
    foxglove_sample,
    foxglove_time,
    json_sample,
    json_time,
    of,
    opened,
    protobuf_type,
    reason_of,
    vector_of,
    write_samples,
)
from recordings import T0_NS, encoded, number_in, painted, stamp, still, write_mcap

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.messages.topics import Other, Pictures, Video
from dyna_assets.landing.stills import decode_still

STEP_NS = 10_000_000


def pose(number: int) -> foxglove.PoseInFrame:
    return foxglove.PoseInFrame(
        timestamp=foxglove_time(T0_NS + number * STEP_NS),
        frame_id="base",
        pose=foxglove.Pose(
            position=foxglove.Vector3(x=number, y=1, z=2), orientation=foxglove.Quaternion(x=0, y=0, z=0, w=1)
        ),
    )


def joints(**position: float) -> foxglove.JointStates:
    return foxglove.JointStates(
        timestamp=foxglove_time(T0_NS),
        joints=[foxglove.JointState(name=name, position=value) for name, value in position.items()],
    )


def test_one_file_may_mix_every_encoding(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "ros.mcap", 3)
    with opened(path) as recording:
        arm = [Sample("/arm", Kind("cdr", "sensor_msgs/msg/JointState", "ros2msg"), m.data)
               for m in recording.extras(["/arm/joint_states.position", "/arm/joint_states.effort"])]  # fmt: skip
    samples = [
        *arm,
        *(foxglove_sample("/tip", pose(number), publish_ns=1) for number in range(3)),
        *(json_sample("/gripper", {"width": 0.1 * k}, publish_ns=T0_NS + k) for k in range(3)),
        Sample("/log", Kind("ros1"), b"x"),
    ]
    with opened(write_samples(tmp_path / "a.mcap", samples)) as recording:
        assert {name: info.kind for name, info in recording.topics.items()} == {
            "/arm.position": "vector",
            "/arm.effort": "vector",
            "/gripper": "vector",
            "/log": "other",
            "/tip": "vector",
        }
        found = recording.vectors(["/arm.position", "/tip", "/gripper"])
        assert found["/arm.position"][1][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
        assert found["/tip"][0].tolist() == [T0_NS + k * STEP_NS for k in range(3)]
        assert found["/tip"][1][:, 0].tolist() == [0, 1, 2]
        assert found["/gripper"][0].tolist() == [T0_NS, T0_NS + 1, T0_NS + 2]
        messages = [message.topic for message in recording.read(["/gripper", "/tip"])]
        assert sorted(messages) == ["/gripper"] * 3 + ["/tip"] * 3


def test_pictures_of_foxglove_are_read_from_protobuf_and_json(tmp_path: Path) -> None:
    time = foxglove_time(T0_NS)
    raw = {"width": 64, "height": 48, "encoding": "rgb8", "step": 192, "data": painted(9).tobytes()}
    samples = [
        foxglove_sample(
            "/proto/jpeg", foxglove.CompressedImage(timestamp=time, data=still(5), format="jpeg")
        ),
        foxglove_sample("/proto/raw", foxglove.RawImage(timestamp=time, **raw)),
        json_sample(
            "/json/png",
            {"timestamp": json_time(T0_NS), "format": "png", "data": still(7, "PNG")},
            "foxglove.CompressedImage",
        ),
        json_sample("/json/raw", {"timestamp": json_time(T0_NS), **raw}, "foxglove.RawImage"),
    ]
    with opened(write_samples(tmp_path / "a.mcap", samples)) as recording:
        assert {info.kind for info in recording.topics.values()} == {"image"}
        assert {(info.width, info.height) for info in recording.topics.values()} == {(64, 48)}
        for topic, painted_number in {
            "/proto/jpeg": 5,
            "/proto/raw": 9,
            "/json/png": 7,
            "/json/raw": 9,
        }.items():
            (message,) = recording.read([topic])
            payload = message.payload
            assert message.time_ns == T0_NS
            frame = decode_still(payload) if isinstance(payload, bytes) else payload
            assert isinstance(frame, av.VideoFrame) and number_in(frame) == painted_number


def test_joint_states_of_foxglove_become_a_topic_for_each_quantity(tmp_path: Path) -> None:
    told_joints = [{"name": "a", "position": 1, "effort": 3}, {"name": "b", "position": 2}]
    told = {"timestamp": json_time(T0_NS), "joints": told_joints}
    samples = [foxglove_sample("/p", joints(a=1.0, b=2.0)), json_sample("/j", told, "foxglove.JointStates")]
    with opened(write_samples(tmp_path / "a.mcap", samples)) as recording:
        assert {name: info.names for name, info in recording.topics.items()} == {
            "/p.position": ("a", "b"),
            "/j.position": ("a", "b"),
            "/j.effort": ("a",),
        }
        found = recording.vectors(list(recording.topics))
        assert [values.tolist() for _, values in found.values()] == [[[1, 2]], [[3]], [[1, 2]]]
        assert {int(times[0]) for times, _ in found.values()} == {T0_NS}


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (joints(a=1.0), "expected the joints a, b, found a; publish each set of joints"),
        (joints(b=1.0, a=1.0), "expected the joints a, b, found b, a"),
    ],
)
def test_joints_that_change_are_refused_by_number(tmp_path: Path, second: Any, what: str) -> None:
    samples = [foxglove_sample("/j", joints(a=1.0, b=2.0)), foxglove_sample("/j", second)]
    with (
        opened(write_samples(tmp_path / "a.mcap", samples)) as recording,
        pytest.raises(RecordingError, match=f"topic '/j' message 1: {what}"),
    ):
        recording.vectors(["/j.position"])


JOINT_LISTS = {"name": "*string", "position": "*double", "velocity": "*double", "effort": "*float"}
STAMPED_LISTS = protobuf_type({"header": {"stamp": "Timestamp", "frame_id": "string"}, **JOINT_LISTS})
names_of_joints = st.lists(st.text("abcé_", min_size=1, max_size=5), min_size=1, max_size=5, unique=True)


@settings(max_examples=30)
@given(names=names_of_joints, data=st.data())
def test_joint_states_come_out_the_same_of_every_encoding(names: list[str], data: st.DataObject) -> None:
    values = st.lists(st.floats(-1e6, 1e6), min_size=len(names), max_size=len(names))
    told: dict[str, Any] = {"name": names, "position": data.draw(values)}
    told |= {part: data.draw(st.just([]) | values) for part in ("velocity", "effort")}
    header = {"seq": 7, "stamp": json_time(T0_NS), "frame_id": "base"}
    kind, made = STAMPED_LISTS
    message = made(**told)
    message.header.stamp.FromNanoseconds(T0_NS)
    of_ros: dict[str, Any] = {"header": stamp(T0_NS), **told}
    ros = Kind("cdr", "sensor_msgs/msg/JointState", "ros2msg")
    found = [
        joints_of(JSON, json_sample("/t", {"header": header, **told}).data),
        joints_of(JSON, json_sample("/t", {"timestamp": "2026-01-02T03:04:05Z", **told}).data),
        joints_of(kind, message.SerializeToString()),
        joints_of(ros, encoded("sensor_msgs/msg/JointState", of_ros)),
    ]
    assert [names for names, _ in found] == [
        {part: tuple(names) for part in told if part != "name" and told[part]}
    ] * 4
    for _, parts in found:
        assert all(values == pytest.approx(told[part]) for part, values in parts.items())


def joints_of(kind: Kind, data: bytes) -> tuple[dict[str, tuple[str, ...]], dict[str, list[float]]]:
    """(names, values) of the only message of a topic, by part."""
    form = of(kind, data).form
    assert not isinstance(form, Other | Pictures | Video)
    return dict(form.names), {part: values[0].tolist() for part, values in form.block([data]).values.items()}


def test_lists_beside_the_names_of_joints_become_topics_with_these_names(tmp_path: Path) -> None:
    told = {"stamp": json_time(T0_NS), "name": ["b", "a"], "position": [1, 2], "temperature": [30, 31]}
    bare = {"joint_names": [], "position": [1, 2]}
    samples = [json_sample("/arm", told), json_sample("/bare", bare)]
    with opened(write_samples(tmp_path / "a.mcap", samples)) as recording:
        assert {name: (info.kind, info.names) for name, info in recording.topics.items()} == {
            "/arm.position": ("vector", ("b", "a")),
            "/arm.temperature": ("vector", ("b", "a")),
            "/bare.position": ("vector", ("joint_0", "joint_1")),
        }
        times, values = recording.vectors(["/arm.position"])["/arm.position"]
        assert (times.tolist(), values.tolist()) == ([T0_NS], [[1, 2]])


@pytest.mark.parametrize(
    ("second", "what"),
    [
        ({"name": ["b", "a"], "position": [1, 2]}, "expected the joints a, b, found b, a; publish each set"),
        ({"position": [1, 2]}, "expected the joints a, b, found none; publish each set"),
        ({"name": ["a", "b"], "position": [1]}, "expected 2 values of 'position' .*, found 1 value"),
        ({"name": ["a", "b"], "effort": [1, 2]}, "expected the fields position .*, found effort"),
    ],
)
def test_listed_joints_that_change_are_refused_by_number(tmp_path: Path, second: Any, what: str) -> None:
    first = {"name": ["a", "b"], "position": [1, 2]}
    samples = [json_sample("/j", first), json_sample("/j", second)]
    with (
        opened(write_samples(tmp_path / "a.mcap", samples)) as recording,
        pytest.raises(RecordingError, match=f"topic '/j' message 1: {what}"),
    ):
        recording.vectors(["/j.position"])


def test_what_is_no_list_of_numbers_beside_joints_keeps_the_message_whole() -> None:
    told = b'{"name": ["a"], "position": [1], "mode": "hold"}'
    assert reason_of(JSON, told) == "'mode' is text, beside the names of joints"
    kind, made = protobuf_type({"names": "*string", "velocity": "*float", "mode": "int32"})
    assert reason_of(kind, made(names=["a"], velocity=[1]).SerializeToString()) == (
        "robot.State: 'mode' is a number, beside the names of joints"
    )


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ({"a": 1, "b": [1, 2, 3]}, "expected 2 values of 'b' as in the first message, found 3 values"),
        ({"a": 1}, "expected the fields a, b as in the first message, found a"),
        ({"a": 1, "b": [1, 2], "c": 0}, "expected the fields a, b as in the first message, found a, b, c"),
        ({"a": [1], "b": [1, 2]}, "expected one number of 'a' as in the first message, found 1 value"),
        ({"a": None, "b": [1, 2]}, "expected numbers only, as in the first message: 'a' is nothing"),
        ({"a": 10**400, "b": [1, 2]}, "a number that a float64 or a time that an int64 cannot say"),
    ],
)
def test_a_json_message_unlike_the_first_is_refused_by_number_with_both(
    tmp_path: Path, message: Any, what: str
) -> None:
    samples = [json_sample("/t", {"a": 1, "b": [1, 2]}), json_sample("/t", message)]
    with opened(write_samples(tmp_path / "a.mcap", samples)) as recording:
        assert len(recording.times("/t")) == 2  # when it was taken it says all the same
        with pytest.raises(RecordingError, match=f"a.mcap: topic '/t' message 1: {what}"):
            recording.vectors(["/t"])


def test_a_field_that_protobuf_leaves_out_is_not_taken_for_zero(tmp_path: Path) -> None:
    kind, made = protobuf_type({"a": "double", "b": "?double"})
    samples = [Sample("/t", kind, message.SerializeToString()) for message in (made(a=1, b=2), made(a=1))]
    with (
        opened(write_samples(tmp_path / "a.mcap", samples)) as recording,
        pytest.raises(
            RecordingError, match=r"message 1: expected the fields a, b as in the first .* found a\Z"
        ),
    ):
        recording.vectors(["/t"])


def test_a_joint_at_zero_is_at_zero_where_the_schema_cannot_leave_fields_out(tmp_path: Path) -> None:
    joint = {"name": "string", "position": "double", "velocity": "?double"}
    kind, made = protobuf_type({"joints": [joint]}, name="foxglove.JointStates")
    messages = (made(joints=[{"name": "a", "position": at}, {"name": "b"}]) for at in (0.0, 1.5))
    samples = [Sample("/j", kind, message.SerializeToString()) for message in messages]
    with opened(write_samples(tmp_path / "a.mcap", samples)) as recording:
        assert recording.topics.keys() == {"/j.position"}
        _, values = recording.vectors(["/j.position"])["/j.position"]
        assert values.tolist() == [[0.0, 0.0], [1.5, 0.0]]


def test_a_coordinate_frame_that_changes_is_refused() -> None:
    topic = of(JSON, b'{"frame_id": "map", "x": 1}')
    with pytest.raises(ValueError, match="expected frame_id 'map' as in the first message, found 'odom'"):
        vector_of(topic, b'{"frame_id": "odom", "x": 1}')


@pytest.mark.parametrize(
    ("stamp", "time_ns"),
    [
        ({"timestamp": {"sec": 3, "nsec": 5}}, 3_000_000_005),
        ({"stamp": {"sec": 3, "nanosec": 5}}, 3_000_000_005),
        ({"header": {"stamp": {"secs": 3, "nsecs": 5}, "frame_id": "b"}}, 3_000_000_005),
        ({"timestamp": "2026-01-02T03:04:05.25Z"}, 1_767_323_045_250_000_000),
        ({"timestamp": "2026-01-02T04:04:05.25+01:00"}, 1_767_323_045_250_000_000),
        ({"timestamp": "2026-13-02T03:04:05Z"}, None),
        ({"timestamp": 12.5}, 0),
        ({}, 0),
    ],
)
def test_the_capture_time_of_json_is_found_where_formats_put_it(
    stamp: dict[str, Any], time_ns: int | None
) -> None:
    sample = json_sample("/t", {**stamp, "x": 1.0})
    topic = of(JSON, sample.data)
    if time_ns is None:
        assert reason_of(JSON, sample.data) == "'timestamp' is text"
        return
    assert topic.stamp_ns(sample.data) == time_ns
    names, values = vector_of(topic, sample.data)
    assert (names[-1], values[0][-1]) == ("x", 1)
    assert len(names) == 1 or stamp == {"timestamp": 12.5}


@pytest.mark.parametrize("path", ["timestamp", "stamp", "header.stamp", "header.timestamp"])
def test_the_capture_time_of_protobuf_is_found_where_formats_put_it(path: str) -> None:
    outer, _, inner = path.rpartition(".")
    fields: dict[str, Any] = {inner: "Timestamp"}
    kind, made = protobuf_type({"x": "float", **({outer: fields} if outer else fields)})
    message = made(x=1.5)
    time = getattr(message.header if outer else message, inner)
    time.seconds, time.nanos = 3, 5
    topic = of(kind, message.SerializeToString())
    assert topic.stamp_ns(message.SerializeToString()) == 3_000_000_005
    assert vector_of(topic, message.SerializeToString()) == (("x",), [[1.5]])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"a": "double", "note": "string"}, "robot.State: 'note' is text"),
        ({"blob": "bytes"}, "robot.State: 'blob' is bytes"),
        ({"tags": "*string"}, "robot.State: 'tags' is text"),
        ({"times": "*Timestamp"}, "robot.State: 'times' is a list of messages, of any length"),
        ({}, "robot.State: its first message has 0 numbers, expected 1 to 4,096"),
    ],
)
def test_protobuf_that_is_no_vector_says_why(fields: dict[str, str], reason: str) -> None:
    kind, made = protobuf_type(fields)
    assert reason_of(kind, made().SerializeToString()) == reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"note": "hi"}', "'note' is text"),
        (b'{"a": {"b": null}}', "'a.b' is nothing"),
        (b'{"a": [1, "x"]}', "'a' is a list"),
        (b'{"a": [{"x": 1}]}', "'a' is a list"),
        (b"{}", "its first message has 0 numbers, expected 1 to 4,096"),
        (b"[" + b"0," * 5000 + b"0]", "its first message has 5,001 numbers, expected 1 to 4,096"),
        (b"{", "its first message is no json: not readable as JSON: .*"),
        (b"[" * 100_000, "its first message is no json: not readable as JSON: .*recursion.*"),
    ],
)
def test_json_that_is_no_vector_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        vector_of(of(JSON, data))


def test_a_protobuf_schema_that_is_damaged_or_foreign_says_so() -> None:
    good, made = protobuf_type({"a": "double"})
    data = made(a=1).SerializeToString()
    for schema_name, schema_data, what in [
        (good.schema_name, b"\xff\xff", "its schema cannot be read: Error parsing message"),
        ("robot.Other", good.schema_data, "its schema cannot be read: .*Couldn't find message robot.Other"),
        (good.schema_name, b"", "its schema cannot be read: "),
    ]:
        kind = Kind("protobuf", schema_name, "protobuf", schema_data)
        with pytest.raises(AssertionError, match=f"{schema_name}: {what}"):
            vector_of(of(kind, data))


def test_a_message_that_only_calls_itself_foxgloves_is_read_as_what_it_is() -> None:
    kind, made = protobuf_type({"format": "double"}, name="foxglove.CompressedImage")
    assert vector_of(of(kind, made(format=2).SerializeToString()), made(format=3).SerializeToString()) == (
        ("format",),
        [[3.0]],
    )


def test_damaged_pictures_in_json_are_refused_by_number(tmp_path: Path) -> None:
    def picture(**changes: Any) -> Sample:
        return json_sample(
            "/cam", {"format": "jpeg", "data": still(1), **changes}, "foxglove.CompressedImage"
        )

    for change, what in [
        ({"data": "%%%"}, "'data' is no base64"),
        ({"data": 5}, "expected text in 'data', found a number"),
        ({"format": None}, "expected text in 'format', found nothing"),
    ]:
        path = write_samples(tmp_path / "a.mcap", [picture(), picture(**change)])
        with (
            opened(path) as recording,
            pytest.raises(RecordingError, match=f"topic '/cam' message 1: {what}"),
        ):
            list(recording.read(["/cam"]))
