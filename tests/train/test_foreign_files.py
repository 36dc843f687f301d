"""MCAP files that are none of ours: topics, times, messages, and frames of H.264, through the stock reader."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import av
import pytest
from episode_samples import paint, read_painting
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

from dyna_train.episode.foreign import ForeignFile
from dyna_train.episode.open import open_episode
from dyna_train.episode.schemas import encode_video, schemas
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError, MissingFrame

VIDEO_SCHEMA = schemas()[0]


def messages_in(path: Path) -> list[tuple[Any, Any, Any]]:
    with path.open("rb") as stream:
        return list(make_reader(stream).iter_messages())


@cache
def painted_packets(num_frames: int, params: str) -> list[bytes]:
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt, context.framerate = 64, 48, "yuv420p", 30
    context.options = {
        "preset": "veryfast",
        "crf": "18",
        "x264-params": f"annexb=1:repeat-headers=1:{params}",
    }
    packets = []
    for step in range(num_frames):
        frame = paint(step, 0, 64, 48).reformat(format="yuv420p")
        frame.pts = step
        packets += context.encode(frame)
    return [bytes(packet) for packet in (*packets, *context.encode(None))]


def write_foreign(
    path: Path, packets: Sequence[bytes], times_ns: Sequence[int] | None = None, video_format: str = "h264"
) -> Path:
    """A file of one camera and one JSON topic by the stock writer."""
    with path.open("wb") as out:
        writer = Writer(out, chunk_size=3000)
        writer.start()
        schema = writer.register_schema(VIDEO_SCHEMA.name, VIDEO_SCHEMA.encoding, VIDEO_SCHEMA.data)
        camera = writer.register_channel("/cam", "protobuf", schema)
        log = writer.register_channel("/log", "json", 0, {"level": "info"})
        for number, packet in enumerate(packets):
            time_ns = times_ns[number] if times_ns else 1000 * number
            data = encode_video(time_ns, "cam", packet)
            if video_format != "h264":
                data = data.replace(b'"\4h264', b'"\4' + video_format.encode())
            writer.add_message(camera, time_ns, data, time_ns, number)
            writer.add_message(log, time_ns, b"{}", time_ns)
        writer.finish()
    return path


IRREGULAR = "keyint=9:min-keyint=1:scenecut=0:bframes=0"


@given(numbers=st.lists(st.integers(0, 29), max_size=6), few_times=st.booleans())
@settings(max_examples=25)
def test_frames_of_a_foreign_camera_come_by_the_number_of_their_message(tmp_path_factory, numbers, few_times):
    """Also where several messages share a time."""
    times_ns = [number // 4 for number in range(30)] if few_times else None
    path = write_foreign(
        tmp_path_factory.mktemp("foreign") / "f.mcap", painted_packets(30, IRREGULAR), times_ns
    )
    with open_episode(path) as found:
        assert isinstance(found, ForeignFile)
        frames = found.frames("/cam", numbers)
        assert [read_painting(frame) for frame in frames] == [(number, 0) for number in numbers]
        assert found.times_ns("/cam").tolist() == (times_ns or [1000 * number for number in range(30)])


def test_a_foreign_file_tells_its_topics_counts_and_messages(tmp_path):
    path = write_foreign(tmp_path / "f.mcap", painted_packets(20, IRREGULAR))
    with ForeignFile.open(path) as found:
        assert found.num_messages == {"/cam": 20, "/log": 20}
        camera, log = found.topics
        assert (camera.schema_name, camera.schema_data) == (VIDEO_SCHEMA.name, VIDEO_SCHEMA.data)
        assert (log.topic, log.message_encoding, log.schema_name, log.metadata) == (
            "/log",
            "json",
            "",
            {"level": "info"},
        )
        assert [m.log_ns for m in found.messages("/log", start_ns=3000, end_ns=6000)] == [3000, 4000, 5000]
        assert repr(found) == f"ForeignFile('{path}': /cam 20, /log 20)"
        with pytest.raises(BadInput, match=r"f\.mcap: no topic '/tf'; its topics: /cam, /log"):
            found.messages("/tf")
        with pytest.raises(BadInput, match=r"/cam has 20 messages, no number 20"):
            found.frames("/cam", [20])
        copy = pickle.loads(pickle.dumps(found))
        assert copy.num_messages == found.num_messages


def test_b_frames_are_refused_by_name(tmp_path):
    path = write_foreign(tmp_path / "b.mcap", painted_packets(20, "keyint=10:bframes=3:b-adapt=0"))
    with (
        open_episode(path) as found,
        pytest.raises(EpisodeError, match=r"b\.mcap: /cam, message \d: a B-frame"),
    ):
        found.frames("/cam", [0])


def test_other_codecs_other_schemas_and_other_bytes_are_refused_by_name(tmp_path):
    path = write_foreign(tmp_path / "f.mcap", painted_packets(3, IRREGULAR), video_format="h265")
    with open_episode(path) as found:
        with pytest.raises(
            EpisodeError, match=r"f\.mcap: /cam, message 0: video format 'h265', expected h264"
        ):
            found.frames("/cam", [0])
        with pytest.raises(EpisodeError, match=r"/log holds '' in json, expected foxglove\.CompressedVideo"):
            found.frames("/log", [0])
        with pytest.raises(BadInput, match="no topic '/tf'"):
            found.frames("/tf", [0])
    path = write_foreign(tmp_path / "noise.mcap", [b"no video at all"])
    with (
        open_episode(path) as found,
        pytest.raises(CorruptEpisode, match="/cam, message 0: byte 0: expected an Annex B"),
    ):
        found.frames("/cam", [0])


def test_frames_before_the_first_keyframe_are_missing(tmp_path):
    path = write_foreign(tmp_path / "f.mcap", painted_packets(20, IRREGULAR)[4:])
    with open_episode(path) as found:
        with pytest.raises(MissingFrame, match="/cam, message 4 comes before the first keyframe"):
            found.frames("/cam", [4])
        assert read_painting(found.frames("/cam", [6])[0]) == (10, 0)


def test_files_of_the_foxglove_sdk_are_read(tmp_path):
    foxglove = pytest.importorskip("foxglove", reason="foxglove-sdk is not installed")
    from foxglove.channels import CompressedVideoChannel
    from foxglove.messages import CompressedVideo, Timestamp

    with foxglove.open_mcap(tmp_path / "sdk.mcap"):
        channel = CompressedVideoChannel("/cam")
        for number, packet in enumerate(painted_packets(12, IRREGULAR)):
            video = CompressedVideo(
                timestamp=Timestamp(5, number), frame_id="cam", data=packet, format="h264"
            )
            channel.log(video, log_time=number)
    with open_episode(tmp_path / "sdk.mcap") as found:
        assert isinstance(found, ForeignFile)
        assert [read_painting(frame) for frame in found.frames("/cam", [11, 2])] == [(11, 0), (2, 0)]


def test_recordings_of_other_people_read_as_the_stock_reader_reads_them(shared_data):
    paths = sorted((shared_data / "rosbag2_bags").rglob("*.mcap"))
    assert paths
    for path in paths:
        expected = messages_in(path)
        with open_episode(path) as found:
            assert isinstance(found, ForeignFile)
            assert sum(found.num_messages.values()) == len(expected)
            for topic in found.topics:
                messages = [m for _, channel, m in expected if channel.topic == topic.topic]
                assert [tuple(m) for m in found.messages(topic.topic)] == [
                    (m.log_time, m.publish_time, m.sequence, m.data) for m in messages
                ]


@pytest.mark.parametrize("data", [b"", b"RIFF....WAVEfmt " * 20, b"{}", b"MCAP"])
def test_a_file_that_is_no_mcap_is_called_that(tmp_path, data):
    (tmp_path / "sound.wav").write_bytes(data)
    with pytest.raises(EpisodeError, match=r"sound\.wav: not an MCAP file"):
        open_episode(tmp_path / "sound.wav")


def test_an_absent_file_is_an_episode_error_that_names_it(tmp_path):
    for uri in (tmp_path / "absent.mcap", "memory://absent.mcap"):
        with pytest.raises(EpisodeError, match=r"absent\.mcap: no such episode file"):
            open_episode(uri)


@given(
    times=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=30),
    chunk_size=st.integers(1, 400),
    compression=st.sampled_from(list(CompressionType)),
    use_chunking=st.booleans(),
    bounds=st.tuples(st.none() | st.integers(0, 10), st.none() | st.integers(10, 22)),
)
@settings(max_examples=60)
def test_messages_come_as_the_stock_reader_gives_them(
    tmp_path_factory, times, chunk_size, compression, use_chunking, bounds
):
    path = tmp_path_factory.mktemp("foreign") / "f.mcap"
    with path.open("wb") as stream:
        writer = Writer(stream, chunk_size=chunk_size, compression=compression, use_chunking=use_chunking)
        writer.start()
        ids = [writer.register_channel(topic, "json", 0) for topic in ("/a", "/b")]
        for number, (time_ns, is_a) in enumerate(times):
            writer.add_message(ids[0 if is_a else 1], time_ns, b"x" * number, time_ns, number)
        writer.finish()
    with path.open("rb") as stream, ForeignFile.open(path) as found:
        reader = make_reader(stream)
        expected = reader.iter_messages(["/a"], starting_at=bounds[0], ending_before=bounds[1])
        assert [
            message.sequence for message in found.messages("/a", start_ns=bounds[0], end_ns=bounds[1])
        ] == [message.sequence for _, _, message in expected]
