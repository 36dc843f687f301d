"""What a file written by us is to everybody else: stock MCAP, and legal H.264 for viewers."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from pathlib import Path

import av
import numpy as np
import pytest
from episode_samples import (
    CAMERAS,
    LAYOUT,
    START_NS,
    VECTORS,
    camera_capture_ns,
    header,
    packets_of,
    paint,
    vectors_of,
    write_painted,
)
from mcap.reader import make_reader
from mcap.records import Chunk, ChunkIndex, Message
from mcap.stream_reader import StreamReader

from dyna_train.episode.container import chunk_head_bytes
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import grid_times_ns
from dyna_train.episode.tracks import CameraTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import Quality

NUM_STEPS = 50  # two state blocks and a rest, five video chunks, a last GOP of two


@pytest.fixture(scope="module")
def painted(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("episode") / "painted.mcap"
    write_painted(path, NUM_STEPS)
    return path


def test_the_stock_reader_accepts_every_checksum_and_counts_every_message(painted):
    with painted.open("rb") as stream:
        records = list(StreamReader(stream, validate_crcs=True).records)
    assert sum(isinstance(record, Message) for record in records) == NUM_STEPS * 6
    with painted.open("rb") as stream:
        reader = make_reader(stream, validate_crcs=True)
        counts = reader.get_summary().statistics.channel_message_counts
        assert sum(1 for _ in reader.iter_messages()) == NUM_STEPS * 6
    assert counts == dict.fromkeys(range(1, 7), NUM_STEPS)


def test_messages_of_a_topic_are_in_step_order_with_grid_and_capture_times(painted):
    described = header(NUM_STEPS)
    grid_T = grid_times_ns(START_NS, 30.0, NUM_STEPS).tolist()
    capture = {camera.topic: camera_capture_ns(described, k).tolist() for k, camera in enumerate(CAMERAS)} | {
        topic: times.tolist() for topic, (_, times) in vectors_of(described).items()
    }
    by_topic = defaultdict(list)
    with painted.open("rb") as stream:
        for _, channel, message in make_reader(stream).iter_messages(log_time_order=False):
            by_topic[channel.topic].append((message.sequence, message.log_time, message.publish_time))
    assert set(by_topic) == set(capture)
    for topic, rows in by_topic.items():
        assert rows == list(zip(range(NUM_STEPS), grid_T, capture[topic], strict=True)), topic


def test_no_chunk_mixes_groups_and_each_has_its_compression(painted):
    with painted.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    groups = [
        (
            {summary.channels[channel].metadata["group"] for channel in chunk.message_index_offsets},
            chunk.compression,
        )
        for chunk in summary.chunk_indexes
    ]
    assert groups == [
        ({"state"}, "zstd"),
        ({"video"}, ""),
        ({"video"}, ""),
        ({"state"}, "zstd"),
        ({"video"}, ""),
        ({"video"}, ""),
        ({"state"}, "zstd"),
        ({"video"}, ""),
    ]


def test_message_indexes_point_at_the_messages_they_name(painted):
    data = painted.read_bytes()
    with painted.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    for chunk in summary.chunk_indexes:
        assert isinstance(chunk, ChunkIndex)
        with painted.open("rb") as stream:
            stream.seek(chunk.chunk_start_offset)
            reader = StreamReader(stream, skip_magic=True, emit_chunks=True)
            record = next(reader.records)
            assert isinstance(record, Chunk)
        assert data[chunk.chunk_start_offset + chunk.chunk_length] == 0x07  # the first message index follows
        if not chunk.compression:
            body = data[chunk.chunk_start_offset + chunk_head_bytes("") :][: chunk.uncompressed_size]
            assert zlib.crc32(body) == record.uncompressed_crc


def test_schemas_and_channels_stand_outside_the_chunks_and_carry_the_profile(painted):
    with painted.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert {schema.name for schema in summary.schemas.values()} == {
        "foxglove.CompressedVideo",
        "dyna.JointVector",
    }
    channels = {channel.topic: channel.metadata for channel in summary.channels.values()}
    video = channels["/camera/right_wrist/video"]
    assert {key: video[key] for key in ("group", "rate_hz", "width", "height", "fps", "gop")} == {
        "group": "video",
        "rate_hz": "30.0",
        "width": "63",
        "height": "47",
        "fps": "30.0",
        "gop": "6",
    }
    assert "libx264 preset=veryfast crf=18" in video["codec_params"]
    arm = channels["/state/arm"]
    assert (arm["group"], arm["dim"]) == ("state", "3")
    assert json.loads(arm["names"]) == list(VECTORS[0].names)
    assert json.loads(arm["units"]) == list(VECTORS[0].units)


def test_metadata_records_tell_profile_versions_episode_quality_and_sync(painted):
    with painted.open("rb") as stream:
        records = {record.name: record.metadata for record in make_reader(stream).iter_metadata()}
    assert list(records) == ["dyna.profile", "dyna.versions", "dyna.episode", "dyna.qc", "dyna.sync"]
    assert records["dyna.profile"] == {
        "name": "dyna.episode",
        "version": "1",
        "gop": "6",
        "gops_per_chunk": "2",
        "steps_per_block": "24",
    }
    assert records["dyna.qc"] == {"before": "pass", "after": "pass"}
    assert records["dyna.episode"]["episode_id"] == "4300000017"
    assert records["dyna.sync"]["/camera/right_wrist/video.max_abs_ns"] == "2000000"
    assert records["dyna.sync"]["/camera/left.wrist/video.mean_abs_ns"] == "1000000"


def test_the_index_is_the_last_attachment_and_its_checksum_holds(painted):
    with painted.open("rb") as stream:
        reader = make_reader(stream)
        places = reader.get_summary().attachment_indexes
        attachments = list(reader.iter_attachments())
    assert [attachment.name for attachment in attachments] == ["dyna.capture/1", "dyna.index/1"]
    for place in places:
        record = painted.read_bytes()[place.offset : place.offset + place.length]
        assert zlib.crc32(record[9:-4]).to_bytes(4, "little") == record[-4:]


def _nal_units(packet: bytes) -> list[tuple[int, bytes]]:
    """(type, payload) of each NAL unit of an Annex B packet."""
    units = packet.replace(b"\x00\x00\x00\x01", b"\x00\x00\x01").split(b"\x00\x00\x01")[1:]
    return [(unit[0] & 0x1F, unit[1:]) for unit in units]


def _slice_type(payload: bytes) -> int:
    """0 P, 1 B, 2 I: the second Exp-Golomb number of a slice header."""
    bits = "".join(f"{byte:08b}" for byte in payload[:8])
    at = 0
    for _ in range(2):
        zeros = bits.index("1", at) - at
        value = int(bits[at + zeros : at + 2 * zeros + 1], 2) - 1
        at += 2 * zeros + 1
    return value % 5


def _assert_viewable(packets: list[bytes], gop: int) -> None:
    for step, packet in enumerate(packets):
        units = _nal_units(packet)
        kinds = [kind for kind, _ in units]
        slices = {_slice_type(payload) for kind, payload in units if kind in (1, 5)}
        if step % gop == 0:
            assert {7, 8, 5} <= set(kinds) and 1 not in kinds, (step, kinds)
            assert slices == {2}
        else:
            assert 1 in kinds and not {5, 7, 8} & set(kinds), (step, kinds)
            assert slices <= {0, 2}


def test_every_gop_starts_with_sps_pps_and_idr_and_there_is_no_b_slice(painted):
    for camera in CAMERAS:
        packets = packets_of(painted, camera.topic)
        assert len(packets) == NUM_STEPS
        _assert_viewable(packets, LAYOUT.gop)


def test_picture_types_of_source_frames_do_not_reach_the_encoder(tmp_path):
    """A decoded source frame says I, P or B of itself; x264 would obey it and break the GOPs."""
    camera = CameraTrack("top", 64, 48)
    described = header(24, [camera], [])
    path = tmp_path / "e.mcap"
    with EpisodeWriter.create(path, described, LAYOUT, quality=Quality(18), vectors={}) as writer:
        for step in range(24):
            frame = paint(step, 0, 64, 48).reformat(format="yuv420p")
            frame.pict_type = (1, 3, 2)[step % 3]
            frame.pts = 7
            writer.add_frame("top", frame, START_NS)
            assert (frame.pict_type, frame.pts) == ((1, 3, 2)[step % 3], 7)
        writer.finish()
    _assert_viewable(packets_of(path, camera.topic), LAYOUT.gop)


@pytest.mark.parametrize("gop", [1, 2, 7])
def test_any_gop_length_is_kept_exactly(tmp_path, gop):
    layout = EpisodeLayout(gop=gop, gops_per_chunk=3, steps_per_block=6 * gop)
    write_painted(tmp_path / "e.mcap", 17, cameras=[CAMERAS[0]], layout=layout)
    _assert_viewable(packets_of(tmp_path / "e.mcap", CAMERAS[0].topic), gop)


def test_a_scene_cut_in_the_middle_of_a_gop_makes_no_keyframe(tmp_path):
    described = header(18, [CameraTrack("top", 64, 48)], [])
    rng = np.random.default_rng(0)
    with EpisodeWriter.create(
        tmp_path / "e.mcap", described, LAYOUT, quality=Quality(18), vectors={}
    ) as writer:
        for _ in range(18):
            noise = rng.integers(0, 256, (48, 64, 3), np.uint8)
            writer.add_frame("top", av.VideoFrame.from_ndarray(noise, "rgb24"), START_NS)
        writer.finish()
    _assert_viewable(packets_of(tmp_path / "e.mcap", "/camera/top/video"), LAYOUT.gop)
