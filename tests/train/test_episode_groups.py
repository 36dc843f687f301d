"""Depth, events, extra topics and gaps: what goes in, what comes out, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from doctor_samples import found
from episode_samples import CAMERAS, LAYOUT, START_NS, header, paint
from full_episodes import DEPTHS, EXTRAS, Script, full_script
from mcap.reader import make_reader

from dyna_train.episode.index import GopTable
from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.reader import Episode
from dyna_train.episode.schemas import Event
from dyna_train.episode.span import fetch
from dyna_train.episode.sparse import StoredMessage
from dyna_train.episode.tracks import DepthTrack
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter, ExtraTopic
from dyna_train.errors import BadInput, CorruptEpisode, MissingFrame
from dyna_train.video.encode import Quality


@pytest.fixture(scope="module")
def script() -> Script:
    return full_script(40)


@pytest.fixture(scope="module")
def made(script, tmp_path_factory) -> EpisodeFile:
    return script.write(tmp_path_factory.mktemp("groups") / "full.mcap")


@pytest.fixture(scope="module")
def episode(made):
    with Episode.open(made.path) as episode:
        yield episode


def writer(
    path: Path,
    described: EpisodeHeader,
    events: list[Event] | None = None,
    extras: list[ExtraTopic] | None = None,
) -> EpisodeWriter:
    return EpisodeWriter.create(
        path, described, LAYOUT, quality=Quality(18), vectors={}, events=events or [], extras=extras or []
    )


ONE_CAMERA = header(4, CAMERAS[:1], [])


def test_events_come_out_in_order_of_time_whatever_order_they_went_in(tmp_path):
    times = [START_NS + 10**9, START_NS - 10**9, START_NS + 10**12, START_NS, START_NS]
    events = [Event(time_ns, f"event {k}", {"k": [k, None, "größe"]}) for k, time_ns in enumerate(times)]
    with writer(tmp_path / "e.mcap", ONE_CAMERA, events) as writing:
        writing.skip_steps("top", 4)
        writing.finish()
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert [event.name for event in episode.events()] == [f"event {k}" for k in (1, 3, 4, 0, 2)]
        assert sorted(episode.events(), key=str) == sorted(events, key=str)


def test_an_event_is_logged_on_the_clock_of_the_grid_and_published_when_it_was_captured(tmp_path):
    events = [Event(START_NS + 5, "lift", capture_ns=START_NS + 900), Event(START_NS + 7, "drop")]
    with writer(tmp_path / "e.mcap", ONE_CAMERA, events) as writing:
        writing.skip_steps("top", 4)
        writing.finish()
    with (tmp_path / "e.mcap").open("rb") as stream:
        found = [message for _, _, message in make_reader(stream).iter_messages(["/event"])]
    assert [message.log_time - START_NS for message in found] == [5, 7]
    assert [message.publish_time - START_NS for message in found] == [900, 7]
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert episode.events() == events


def test_an_episode_without_events_and_extras_has_none_of_them(tmp_path):
    with writer(tmp_path / "e.mcap", ONE_CAMERA) as writing:
        writing.skip_steps("top", 4)
        writing.finish()
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert (episode.events(), episode.extra_topics()) == ([], ())
        with pytest.raises(BadInput, match=r"e\.mcap: no extra topic '/lidar'; its extra topics: none"):
            episode.extra_messages("/lidar")


def test_extra_topics_keep_name_encoding_schema_and_metadata(episode):
    assert episode.extra_topics() == EXTRAS
    with pytest.raises(BadInput, match=r"no extra topic '/event'; its extra topics: /lidar, /imu, /log"):
        episode.extra_messages("/event")


def test_extra_messages_are_the_same_bytes_in_the_same_order(episode, script):
    for topic in EXTRAS:
        assert list(episode.extra_messages(topic.topic)) == script.messages_of(topic.topic)
    assert list(episode.extra_messages("/log")) == []


def test_a_large_extra_topic_is_read_chunk_by_chunk_as_far_as_somebody_asks(tmp_path):
    data = [np.random.default_rng(k).bytes(700_000) for k in range(6)]
    with writer(tmp_path / "e.mcap", ONE_CAMERA, extras=[EXTRAS[0]]) as writing:
        for k, part in enumerate(data):
            writing.add_extra("/lidar", START_NS - k, k, part, sequence=7)
        writing.skip_steps("top", 4)
        writing.finish()
    with Episode.open(tmp_path / "e.mcap") as episode:
        before = episode.counters.requests
        messages = episode.extra_messages("/lidar")
        assert next(messages) == StoredMessage(START_NS, 0, 7, data[0])
        assert episode.counters.requests == before + 1
        assert [message.data for message in messages] == data[1:]
        assert episode.counters.requests == before + 3


def test_events_and_extras_are_found_in_a_file_that_was_opened_by_its_table(made, script):
    table = GopTable.from_bytes(made.gop_table, uri="manifest")
    with Episode.open_at(made.path, script.header.tracks, table) as episode:
        assert episode.counters.requests == 0
        assert episode.events() == script.events
        assert list(episode.extra_messages("/imu")) == script.messages_of("/imu")


@pytest.mark.parametrize(
    ("group", "read", "message"),
    [
        ("event", lambda episode: episode.events(), r"/event, in the event chunk from byte [\d,]+"),
        (
            "extra",
            lambda episode: list(episode.extra_messages("/imu")),
            r"/imu, in the extra chunk from byte [\d,]+",
        ),
    ],
)
def test_a_flipped_byte_in_a_chunk_names_file_topic_and_byte(made, episode, tmp_path, group, read, message):
    table = episode.index.chunks[group]
    start, length = int(table.offset_K[0]), int(table.length_K[0])
    whole = made.path.read_bytes()
    path = tmp_path / "flipped.mcap"
    # Not the chunk's times, which its index repeats, nor a length that may only be too large, nor unused bits.
    for at in [*range(9), *range(25, 45), *range(62, length, 97), length - 1]:
        data = bytearray(whole)
        data[start + at] ^= 0x21
        path.write_bytes(data)
        with Episode.open(path) as damaged, pytest.raises(CorruptEpisode, match=rf"flipped\.mcap: {message}"):
            read(damaged)


def nested(depth: int) -> dict[str, object]:
    data: dict[str, object] = {}
    for _ in range(depth):
        data = {"in": data}
    return data


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Event(-1, "lift"), "event 'lift' at -1 ns"),
        (Event(2**64, "lift"), f"event 'lift' at {2**64} ns"),
        (Event(START_NS, "lift", {"height": float("nan")}), f"event 'lift' at {START_NS} ns: .*plain JSON"),
        (Event(START_NS, "lift", {"by": object()}), f"event 'lift' at {START_NS} ns: .*plain JSON"),
        (Event(START_NS, "lift", nested(3000)), f"event 'lift' at {START_NS} ns: .*plain JSON"),
        (Event(START_NS, "lift", {"by": "\ud800"}), f"event 'lift' at {START_NS} ns: .*plain JSON"),
        (Event(START_NS, "\ud800"), rf"event '\\ud800' at {START_NS} ns: expected a name that UTF-8 can say"),
        (Event(START_NS, None), f"event None at {START_NS} ns: expected a name"),
        (Event(1.5, "lift"), r"event 'lift' at 1\.5 ns, expected 0 to"),
        (Event(START_NS, "lift", {}, -1), "event 'lift' captured at -1 ns, expected 0 to"),
    ],
)
def test_an_event_that_no_file_can_hold_is_refused_and_leaves_no_file(tmp_path, event, message):
    with (
        pytest.raises(BadInput, match=message),
        writer(tmp_path / "e.mcap", ONE_CAMERA, [event]) as writing,
    ):
        writing.skip_steps("top", 4)
        writing.finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("topic", "log_ns", "publish_ns", "sequence", "message"),
    [
        ("/radar", 0, 0, 0, "no extra topic '/radar' was declared; there are: /lidar"),
        ("/lidar", -1, 0, 0, "/lidar.* -1"),
        ("/lidar", 0, 2**64, 0, f"/lidar.* {2**64}"),
        ("/lidar", 2**63, 0, 0, f"/lidar.* {2**63}.*expected whole numbers from 0, 63 bits for the times"),
        ("/lidar", 0, 2**63, 0, f"/lidar.* {2**63}"),
        ("/lidar", 1.5, 0, 0, r"/lidar.* 1\.5"),
        ("/lidar", 0, 0, 2**32, f"/lidar.* {2**32}"),
    ],
)
def test_an_extra_message_that_no_file_can_hold_is_refused(
    tmp_path, topic, log_ns, publish_ns, sequence, message
):
    with (
        pytest.raises(BadInput, match=message),
        writer(tmp_path / "e.mcap", ONE_CAMERA, extras=[EXTRAS[0]]) as writing,
    ):
        writing.add_extra(topic, log_ns, publish_ns, b"data", sequence)
        writing.skip_steps("top", 4)
        writing.finish()
    assert list(tmp_path.iterdir()) == []


def test_an_extra_message_of_text_is_refused_and_one_of_the_last_int64_time_is_kept(tmp_path):
    with writer(tmp_path / "e.mcap", ONE_CAMERA, extras=[EXTRAS[0]]) as writing:
        with pytest.raises(BadInput, match="/lidar: a message of str, expected bytes"):
            writing.add_extra("/lidar", 0, 0, "text")
        writing.add_extra("/lidar", 2**63 - 1, 2**63 - 1, b"data")
        writing.skip_steps("top", 4)
        writing.finish()
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert [message.log_ns for message in episode.extra_messages("/lidar")] == [2**63 - 1]
    assert found(tmp_path / "e.mcap") == {}


@pytest.mark.parametrize(
    "extra",
    [
        ExtraTopic("/\ud800", "json"),
        ExtraTopic("/a", None),
        ExtraTopic("/a", "json", metadata={"k": 5}),
        ExtraTopic("/a", "json", "Schema", "jsonschema", "text"),
    ],
)
def test_an_extra_topic_that_no_record_can_say_is_refused(tmp_path, extra):
    with pytest.raises(BadInput, match=r"extra topic '.*': expected texts that UTF-8 can say and bytes"):
        writer(tmp_path / "e.mcap", ONE_CAMERA, extras=[extra])
    assert list(tmp_path.iterdir()) == []


def test_more_topics_than_a_file_can_number_are_refused(tmp_path):
    extras = [ExtraTopic(f"/t{k}", "json") for k in range(65_535)]
    with pytest.raises(BadInput, match=r"65,536 topics .*; a file numbers both in 16 bits, up to 65,535"):
        writer(tmp_path / "e.mcap", ONE_CAMERA, extras=extras)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("taken", ["/camera/top/video", "/event", "/lidar"])
def test_an_extra_topic_whose_name_is_taken_is_refused(tmp_path, taken):
    with pytest.raises(BadInput, match=f"topic {taken} stands more than once"):
        writer(
            tmp_path / "e.mcap", ONE_CAMERA, [Event(START_NS, "x")], [EXTRAS[0], ExtraTopic(taken, "json")]
        )
    assert list(tmp_path.iterdir()) == []


def test_an_extra_topic_keeps_a_metadata_key_that_we_use_ourselves(tmp_path):
    topic = ExtraTopic("/lidar", "x-cloud", metadata={"group": "front sensors"})
    with writer(tmp_path / "e.mcap", ONE_CAMERA, extras=[topic]) as writing:
        writing.skip_steps("top", 4)
        writing.finish()
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert episode.extra_topics() == (topic,)


def test_depth_pictures_come_back_bit_for_bit_in_any_order_with_repeats(episode, script):
    steps = [39, 0, 17, 17, 4]
    (span,) = fetch([episode.plan(depth_steps=steps)])
    for depth in DEPTHS:
        pictures = span.depth(depth.name, steps)
        assert (pictures.dtype, pictures.shape) == (np.uint16, (5, depth.height, depth.width))
        assert np.array_equal(pictures, script.depth(depth)[steps])


def test_a_depth_camera_has_its_gap_and_its_names_are_told(episode):
    (span,) = fetch([episode.plan(depth_steps=range(40))])
    with pytest.raises(MissingFrame, match=r"full\.mcap: depth camera wrist has no picture at step 5"):
        span.depth("wrist", [4, 5])
    with pytest.raises(BadInput, match="no depth camera 'front'; its depth cameras: top, wrist"):
        span.depth("front", [4])
    (empty,) = fetch([episode.plan(frame_steps=[0])])
    with pytest.raises(BadInput, match="steps 4 to 4 of group depth were not planned"):
        empty.depth("top", [4])


def test_the_header_keeps_the_unit_of_a_depth_camera(episode):
    assert episode.header.depths == DEPTHS
    assert episode.header.depths[1].unit_m == 0.00025


@pytest.mark.parametrize(
    ("picture", "capture_ns", "message"),
    [
        (
            np.zeros((7, 15), np.int16),
            1,
            r"depth camera wrist, step 1: int16 \[7, 15\], expected uint16 \[7, 15\]",
        ),
        (
            np.zeros((15, 7), np.uint16),
            1,
            r"depth camera wrist, step 1: uint16 \[15, 7\], expected uint16 \[7, 15\]",
        ),
        (np.zeros((7, 15), np.uint16), -3, "depth camera wrist, step 1: capture time -3 ns"),
        (np.zeros((7, 15), np.uint16), 2**63, f"depth camera wrist, step 1: capture time {2**63} ns"),
    ],
)
def test_a_depth_picture_that_does_not_fit_is_refused(tmp_path, picture, capture_ns, message):
    described = replace(ONE_CAMERA, depths=DEPTHS[1:])
    with pytest.raises(BadInput, match=message), writer(tmp_path / "e.mcap", described) as writing:
        writing.add_depth("wrist", np.zeros((7, 15), np.uint16), 0)
        writing.add_depth("wrist", picture, capture_ns)
    assert list(tmp_path.iterdir()) == []


def test_depth_alone_makes_an_episode(tmp_path):
    described = replace(ONE_CAMERA, cameras=(), depths=(DepthTrack("only", 3, 2),))
    pictures = np.arange(24, dtype=np.uint16).reshape(4, 2, 3)
    with writer(tmp_path / "e.mcap", described) as writing:
        for step in range(4):
            writing.add_depth("only", pictures[step], START_NS + step)
        writing.finish()
    with Episode.open(tmp_path / "e.mcap") as episode:
        (span,) = fetch([episode.plan(depth_steps=range(4))])
        assert np.array_equal(span.depth("only", range(4)), pictures)
        assert episode.capture_ns("/depth/only").tolist() == [START_NS + step for step in range(4)]


def test_a_camera_that_never_delivers_is_a_gap_of_all_steps(tmp_path):
    described = header(14, CAMERAS[:2], [])
    with writer(tmp_path / "e.mcap", described) as writing:
        writing.skip_steps("left.wrist", 14)
        for step in range(14):
            writing.add_frame("top", paint(step, 0, 64, 48), START_NS)
        made = writing.finish()
    assert made.video_bytes["left.wrist"] == 0
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert not episode.has_frame("left.wrist").any()
        assert (episode.capture_ns(CAMERAS[1].topic) == -1).all()
        assert len(episode.frames("top", range(14))) == 14
        with pytest.raises(MissingFrame, match=r"camera left\.wrist has no frame at step 3: .* gap"):
            episode.frames("left.wrist", [3])


@pytest.mark.parametrize("num_steps", [-1, 4])
def test_a_gap_outside_the_episode_is_refused(tmp_path, num_steps):
    message = rf"camera top: {num_steps} steps without a frame from step 1 on leave the 4 steps"
    with pytest.raises(BadInput, match=message), writer(tmp_path / "e.mcap", ONE_CAMERA) as writing:
        writing.add_frame("top", paint(0, 0, 64, 48), START_NS)
        writing.skip_steps("top", num_steps)
    assert list(tmp_path.iterdir()) == []
