"""The doctor finds every broken promise of an episode file and says where, also behind right checksums."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from broken_promises import (
    ARM,
    TOP,
    Break,
    add_to,
    another_task_in_front,
    arrays,
    as_avcc,
    attachment,
    channels,
    encoded,
    flip,
    flip_unseen,
    in_bytes,
    in_record,
    message,
    messages,
    nals,
    private_record,
    record,
    record_with,
    schema,
    set_head,
    stock,
    swapped_blocks,
    unknown_channel,
    video_of,
    with_moved_keyframe,
    with_value,
    without,
)
from doctor_samples import found, remade
from mcap.opcode import Opcode

from dyna_train.doctor.report import CHECKS
from dyna_train.episode.schemas import parse_video
from dyna_train.video.nal import PPS, SPS

RERUN = Path(sys.executable).with_name("rerun")
INDEX, CAPTURE = "dyna.index/1", "dyna.capture/1"
BROKEN: list[tuple[str, Break, str]] = [
    # the check that finds it, how the promise is broken, what the finding says
    (
        "record.whole",
        in_bytes(lambda data: data[:5000]),
        "footer and closing magic; found file ends at byte 5,000",
    ),
    ("record.later", in_bytes(private_record), "found a private 0x90 record"),
    ("record.order", stock(), "records"),
    ("crc.data", flip(Opcode.DATA_END, 0, -1), "expected crc32"),
    ("crc.summary", flip(Opcode.FOOTER, 0, -1), "expected crc32"),
    ("crc.chunk", flip(Opcode.CHUNK, 2, -5), "expected crc32"),
    ("crc.attachment", flip_unseen(Opcode.ATTACHMENT, 0, -1), f"of attachment {CAPTURE}"),
    ("profile.name", record_with("dyna.profile", version="9"), "expected profile dyna.episode/1"),
    (
        "profile.stamps",
        record_with("dyna.versions", pipeline_version=""),
        "dyna.versions with pipeline_version",
    ),
    ("profile.header", record_with("dyna.episode", rate_hz="fast"), "could not convert"),
    ("profile.records", another_task_in_front, "'task': 'another'"),
    *(
        (
            "profile.records",
            record(name, lambda values: None),
            f"record {name} after the last chunk; found none",
        )
        for name in ("dyna.profile", "dyna.versions", "dyna.episode", "dyna.qc", "dyna.sync")
    ),
    *(
        ("channel.metadata", without(name), rf"expected (metadata )?{name}")
        for name in (
            "group",
            "rate_hz",
            "fps",
            "width",
            "height",
            "gop",
            "codec_params",
            "dim",
            "names",
            "units",
        )
    ),
    ("channel.metadata", with_value("width", "wide"), "metadata width, a count of 1 or more; found 'wide'"),
    ("channel.metadata", with_value("dim", "5"), "expected 5 names, one per dimension; found 3"),
    (
        "channel.metadata",
        channels(lambda one: replace(one, topic=one.topic.replace("/video", ""))),
        "a topic /camera/<name>",
    ),
    ("channel.rate", with_value("rate_hz", "31.0"), "rate_hz 30.0, as the episode; found 31.0"),
    ("channel.rate", with_value("gop", "7"), "expected GOP 6"),
    ("channel.schema", channels(lambda one: replace(one, message_encoding="cdr")), "protobuf; found 'cdr'"),
    ("channel.schema", channels(lambda one: replace(one, schema_id=2)), "schema foxglove.CompressedVideo"),
    (
        "channel.schema",
        schema(1, lambda one: replace(one, data=one.data[:-2])),
        "bytes of our schema foxglove",
    ),
    (
        "channel.order",
        channels(lambda one: replace(one, id=20) if one.id == 2 else one),
        "expected channel id 2|id 3",
    ),
    ("chunk.channel", in_bytes(unknown_channel), "1 messages of channel 77, which is not there"),
    ("chunk.groups", stock(), "expected one topic group in a chunk; found state, video"),
    (
        "chunk.compression",
        lambda source, target: remade(source, target, compression=lambda stored: "" if stored else "zstd"),
        "compression none in a chunk of group video; found zstd",
    ),
    (
        "chunk.compression",
        lambda source, target: remade(source, target, compression=lambda stored: ""),
        "compression zstd in a chunk of group state; found none",
    ),
    ("chunk.times", in_record(Opcode.CHUNK, 3, message_start_time=5), "found 5 to"),
    ("chunk.overlap", stock(chunk_size=100, by_time=False), "chunks at any time, one per group"),
    ("chunk.steps", arrays(INDEX, set_head(layout=[6, 1, 24])), "video of one stretch of 6 steps"),
    ("chunk.order", messages(swapped_blocks), "state of step 0 before the chunk at byte"),
    ("chunk.message_index", flip_unseen(Opcode.MESSAGE_INDEX, 2, -1), "messages of channel .* that differ"),
    (
        "topic.grid",
        message(ARM, lambda m: replace(m, log_time=m.log_time + 5)),
        r"/state/arm, step 12.*log_time",
    ),
    ("topic.grid", message(TOP, lambda m: replace(m, sequence=13)), r"/camera/top/video, step 13"),
    ("topic.grid", record_with("dyna.episode", start_ns="5"), "the grid time of step 0"),
    ("topic.order", message(TOP, lambda m: replace(m, log_time=m.log_time - 10**9)), "log_time that ascends"),
    ("topic.count", message(ARM, lambda m: None), "/state/arm, step 12: expected a message for every step"),
    ("topic.count", message(ARM, lambda m: [m, m]), "step 12: expected one message for a step; found 2"),
    ("topic.count", message(TOP, lambda m: replace(m, sequence=999)), "expected steps below 50"),
    ("topic.count", record_with("dyna.episode", num_steps="4000000000"), "a message for every step"),
    ("state.stride", message(ARM, lambda m: replace(m, data=m.data[:-4])), "step 12.*3 packed floats"),
    ("state.stride", message(ARM, lambda m: replace(m, data=b"\x10" + m.data[1:])), "bytes of another form"),
    ("depth.message", message("/depth/top", lambda m: replace(m, data=m.data[:-3])), "/depth/top, step 12"),
    (
        "event.message",
        messages(lambda name, m: replace(m, data=b"{") if name == "/event" else m),
        "expected a dyna.Event",
    ),
    ("video.message", message(TOP, lambda m: replace(m, publish_time=m.publish_time + 8)), "-8 ns off"),
    ("video.message", message(TOP, lambda m: replace(m, data=b"\xff" + m.data)), "foxglove.CompressedVideo"),
    (
        "video.message",
        message(TOP, lambda m: replace(m, data=m.data.replace(b"h264", b"h265"))),
        "format h264",
    ),
    (
        "video.message",
        message(TOP, lambda m: video_of(m, bytes(parse_video(m.data).data), name="pot")),
        "expected frame_id top; found 'pot'",
    ),
    ("video.nal", message(TOP, as_avcc), "step 12.*Annex B"),
    ("video.nal", message(TOP, nals(lambda units: [*units, *units])), "one frame in a message; found 2"),
    ("video.nal", encoded(), "/camera/top/video, steps .*: expected I and P slices only; found B"),
    *(
        (
            "video.gop",
            message(TOP, nals(lambda units, kind=kind: [u for u in units if u.type != kind])),
            "SPS and",
        )
        for kind in (SPS, PPS)
    ),
    ("video.gop", with_moved_keyframe, "step 12, .*an IDR picture first in a GOP of 6 steps; found none"),
    ("video.gop", with_moved_keyframe, "step 15, .*; found one inside it"),
    ("video.size", with_value("width", "80"), "SPS with 80x48, 4:2:0, 8 bit, .*; found SPS with 64x48"),
    ("video.size", encoded("bframes=0", color_range=2), "limited range, whole frames; found .*, full range,"),
    ("video.decode", with_value("height", "80"), "expected pictures of 64x80; found 64x48"),
    ("index.attachment", attachment(INDEX, lambda data: None), f"attachment {INDEX}; found no"),
    ("index.attachment", record_with("dyna.episode", num_steps="51"), "index of 51 steps"),
    ("index.attachment", arrays(INDEX, set_head(metadata_crc=1)), "metadata records with crc32 00000001"),
    ("index.attachment", arrays(INDEX, set_head(layout=[7, 2, 24])), "steps_per_block must be a multiple"),
    ("index.chunks", arrays(INDEX, add_to("chunks.video", (0, 1))), "a video chunk at byte"),
    ("index.chunks", arrays(INDEX, add_to("chunks.state", (1, 0))), "a chunk of .* bytes, as the index says"),
    ("index.chunks", arrays(INDEX, add_to("chunks.video", (2, 1), 12)), "steps 24-35 in the chunk"),
    (
        "index.frames",
        message(TOP, lambda m: None),
        "steps 12-49: expected a frame at bytes .*; found no frame",
    ),
    ("index.frames", arrays(INDEX, add_to("frame_bytes", (1, 3))), "/camera/left.wrist/video, steps 3-8"),
    ("index.crcs", message(TOP, nals(lambda units: units[::-1])), "/camera/top/video, GOP 2"),
    ("index.crcs", arrays(INDEX, add_to("gop_crc", (0, 2))), "/camera/top/video, GOP 2: expected crc32"),
    ("index.crcs", arrays(INDEX, add_to("block_crc", (1,))), "state chunk with crc32"),
    ("index.crcs", arrays(INDEX, add_to("depth_crc", (0,))), "depth chunk with crc32"),
    ("capture.times", attachment(CAPTURE, lambda data: None), f"attachment {CAPTURE}; found no"),
    (
        "capture.times",
        message(ARM, lambda m: replace(m, publish_time=m.publish_time + 8)),
        "/state/arm, step 12",
    ),
    (
        "capture.times",
        arrays(CAPTURE, add_to(TOP, (12,))),
        f"{TOP}, step 12: expected capture 0 ns after grid time, as publish_time says; found capture 1 ns",
    ),
    ("sync.record", message(ARM, lambda m: replace(m, publish_time=m.publish_time + 10**8)), "max_abs_ns"),
    (
        "sync.record",
        record_with("dyna.sync", **{"/state/arm.max_abs_ns": "0"}),
        "/state/arm: expected max_abs_ns",
    ),
    ("summary.places", in_record(Opcode.FOOTER, 0, summary_offset_start=77), "found summary_offset_start 77"),
    (
        "summary.places",
        in_record(Opcode.SUMMARY_OFFSET, 2, group_start=77),
        "STATISTICS group .*found byte 77",
    ),
    ("summary.repeats", in_record(Opcode.CHANNEL, -1, topic="/umi"), "topic '/imu'; found topic '/umi'"),
    ("summary.repeats", in_record(Opcode.SCHEMA, -1, name="Umi"), "name 'Imu'; found name 'Umi'"),
    *(
        ("summary.statistics", in_record(Opcode.STATISTICS, 0, **{name: 77}), f"found {name} 77")
        for name in ("message_count", "chunk_count", "attachment_count", "message_end_time")
    ),
    *(
        ("summary.chunks", in_record(Opcode.CHUNK_INDEX, 3, **{name: 77}), f"found {name} 77")
        for name in ("chunk_length", "message_start_time", "message_index_length", "uncompressed_size")
    ),
    (
        "summary.chunks",
        in_record(Opcode.CHUNK_INDEX, 3, chunk_start_offset=77),
        "an index record of the chunk",
    ),
    ("summary.attachments", in_record(Opcode.ATTACHMENT_INDEX, 1, data_size=77), "found data_size 77"),
    (
        "summary.attachments",
        in_record(Opcode.ATTACHMENT_INDEX, 1, name="dyna.index/2"),
        "found name 'dyna.index/2",
    ),
    ("summary.metadata", in_record(Opcode.METADATA_INDEX, 0, length=77), "found length 77"),
    ("summary.metadata", in_record(Opcode.METADATA_INDEX, 0, offset=77), "an index record of the metadata"),
]


@pytest.mark.parametrize(
    ("check", "make", "text"), BROKEN, ids=[f"{n}-{check}" for n, (check, _, _) in enumerate(BROKEN)]
)
def test_a_broken_promise_is_found(
    rich_episode: Path, tmp_path: Path, check: str, make: Break, text: str
) -> None:
    path = tmp_path / "changed.mcap"
    make(rich_episode, path)
    lines = found(path)
    assert any(re.search(text, line) for line in lines.get(check, [])), lines


def test_every_check_has_a_file_that_breaks_its_promise() -> None:
    assert {check for check, _, _ in BROKEN} == {check.name for check in CHECKS}


@pytest.mark.parametrize("make", [make for check, make, _ in BROKEN if check.startswith("summary.")])
def test_a_summary_that_lies_is_found_by_its_check_alone(
    rich_episode: Path, tmp_path: Path, make: Break
) -> None:
    """Its checksums are right: they say nothing of it."""
    path = tmp_path / "changed.mcap"
    make(rich_episode, path)
    assert len({name for name in found(path) if name.startswith("crc.")}) == 0
    assert len(found(path)) == 1, found(path)


def test_b_frames_are_found_where_another_checker_lets_them_pass(rich_episode: Path, tmp_path: Path) -> None:
    changed, path = tmp_path / "changed.mcap", tmp_path / "b.mcap"
    encoded()(rich_episode, changed)
    stock(attachments=True)(changed, path)
    assert "expected I and P slices only; found B slices" in found(path)["video.nal"][0]
    if RERUN.is_file():
        checked = subprocess.run(
            [RERUN, "mcap", "check", "--full", path],
            env={"HOME": str(tmp_path), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_file_that_a_stock_writer_copied_breaks_many_promises(rich_episode: Path, tmp_path: Path) -> None:
    path = tmp_path / "stock.mcap"
    stock()(rich_episode, path)
    broken = {
        "record.order",
        "crc.data",
        "chunk.groups",
        "chunk.compression",
        "index.attachment",
        "capture.times",
    }
    assert broken <= found(path).keys()
