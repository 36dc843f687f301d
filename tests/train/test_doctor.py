"""The doctor finds every broken promise of an episode file, says where, and has nothing to say of a healthy one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import fsspec
import pytest
import typer
from doctor_samples import (
    EXTRA,
    found,
    records,
    remade,
    stock_copy,
    write_rich,
)
from episode_samples import LAYOUT, header, paint, vectors_of
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.opcode import Opcode
from mcap.records import Channel, Message
from typer.testing import CliRunner

from dyna_train.commands.doctor import doctor, recover, regroup
from dyna_train.doctor.report import examine
from dyna_train.doctor.stretches import missing_from, steps_text, stretches
from dyna_train.episode.arrays import pack_arrays, unpack_arrays
from dyna_train.episode.container import RECORD_HEAD_BYTES, chunk_head_bytes
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import CameraTrack, VectorTrack, grid_times_ns
from dyna_train.episode.schemas import encode_video, parse_video
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import Quality
from dyna_train.video.nal import PPS, SPS, Nal, join_annexb, split_annexb

TOP = "/camera/top/video"
ARM = "/state/arm"
RERUN = Path(sys.executable).with_name("rerun")

app = typer.Typer()
for command in (doctor, recover, regroup):
    app.command()(command)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("episode") / "whole.mcap"
    write_rich(path, gaps={"left.wrist": range(9, 31)})
    return path


# -- healthy files ---------------------------------------------------------------------------------------------

SIZES = st.tuples(st.integers(16, 40), st.integers(16, 40))


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_healthy_file_of_any_layout_has_no_fault(tmp_path_factory, data):
    gop, gops, chunks = (
        data.draw(st.integers(1, 5)),
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(1, 3)),
    )
    sizes = data.draw(st.lists(SIZES, max_size=2))
    cameras = tuple(CameraTrack(f"c{i}", *size) for i, size in enumerate(sizes))
    dims = data.draw(st.lists(st.integers(1, 40), min_size=0 if cameras else 1, max_size=3))
    vectors = tuple(VectorTrack(f"v{i}", "state", ("q",) * dim, ("rad",) * dim) for i, dim in enumerate(dims))
    num_steps = data.draw(st.integers(1, 30))
    gaps = {
        one.name: range(*sorted(data.draw(st.tuples(*[st.integers(0, num_steps)] * 2)))) for one in cameras
    }
    path = tmp_path_factory.mktemp("healthy") / "healthy.mcap"
    write_rich(
        path,
        num_steps,
        cameras=cameras,
        vectors=vectors,
        layout=EpisodeLayout(gop, gops, gop * gops * chunks),
        rate_hz=data.draw(st.sampled_from([30.0, 29.97, 10.0, 333.3])),
        gaps=gaps,
    )
    report = examine(path)
    assert list(report.lines()) == [report.summary]
    assert f"ok: {num_steps} steps" in report.summary


# -- damaged bytes ---------------------------------------------------------------------------------------------


def test_a_file_cut_anywhere_has_one_fault_that_names_the_byte(whole, tmp_path):
    data, path = whole.read_bytes(), tmp_path / "cut.mcap"
    cuts = {0, 3, 8, len(data) - 1, len(data) - 8}
    kinds = {kind: (start, end) for kind, start, end in records(data)}  # the last of each
    for start, end in [*kinds.values(), *((start, end) for _, start, end in records(data)[::9])]:
        cuts |= {start, start + 4, (start + end) // 2}
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        faults = found(path)
        assert list(faults) == ["record.whole"], faults
        assert f"file ends at byte {cut:,}" in faults["record.whole"][0]


def test_a_cut_inside_a_chunk_says_which_record_needs_which_byte(whole, tmp_path):
    data, path = whole.read_bytes(), tmp_path / "cut.mcap"
    start, end = next((start, end) for kind, start, end in records(data) if kind == Opcode.CHUNK)
    path.write_bytes(data[: end - 7])
    (line,) = found(path)["record.whole"]
    assert f"inside the CHUNK record at byte {start:,} that needs byte {end:,}" in line


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_a_flipped_bit_in_any_record_is_found(whole, tmp_path_factory, data):
    """Every kind of record is hit alike, its head and its parts."""
    healthy = whole.read_bytes()
    kind = data.draw(st.sampled_from(sorted({kind for kind, _, _ in records(healthy)})))
    start, end = data.draw(
        st.sampled_from([(start, end) for one, start, end in records(healthy) if one == kind])
    )
    at = data.draw(st.integers(start, min(end - 1, start + 60)) | st.integers(start, end - 1))
    damaged = bytearray(healthy)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("flipped") / "flipped.mcap"
    path.write_bytes(damaged)
    assert examine(path).level == "fault"


def flipped(data: bytes, *places: int) -> bytes:
    damaged = bytearray(data)
    for place in places:
        damaged[place] ^= 0x40
    return bytes(damaged)


def test_a_damaged_record_does_not_hide_what_is_wrong_behind_it(whole, tmp_path):
    data, path = whole.read_bytes(), tmp_path / "damaged.mcap"
    chunks = [(start, end) for kind, start, end in records(data) if kind == Opcode.CHUNK]
    metadata = [start for kind, start, _ in records(data) if kind == Opcode.METADATA]
    # a length that leads into nothing, a byte of a frame, the length of a text, a checksum of the summary
    path.write_bytes(flipped(data, chunks[0][0] + 3, chunks[5][1] - 40, metadata[-1] + 11, len(data) - 10))
    faults = found(path)
    assert [line.split(": ")[1] for line in faults["record.whole"]] == [
        f"byte {chunks[0][0]:,}",
        f"byte {metadata[-1]:,}",
    ]
    assert any(f"byte {chunks[5][0]:,}" in line for line in faults["crc.chunk"])
    assert "crc.summary" in faults


def test_a_flipped_byte_of_a_frame_names_camera_and_gop(whole, tmp_path):
    data, path = whole.read_bytes(), tmp_path / "flipped.mcap"
    start, end = [(start, end) for kind, start, end in records(data) if kind == Opcode.CHUNK][2]
    path.write_bytes(flipped(data, end - 5))
    faults = found(path)
    assert f"byte {start:,}: expected crc32" in faults["crc.chunk"][0]
    assert any("/video, GOP" in line for line in faults["index.crcs"])


@pytest.mark.parametrize("data", [b"", b"RIFF....WAVEfmt " * 20, b"{}", b"\x89MCAP0\r\n" * 30])
def test_a_file_that_is_no_mcap_is_a_fault(tmp_path, data):
    path = tmp_path / "sound.wav"
    path.write_bytes(data)
    assert "record.whole" in found(path)


def test_bytes_after_the_closing_magic_are_a_fault(whole, tmp_path):
    path = tmp_path / "longer.mcap"
    path.write_bytes(whole.read_bytes() + b"more of something")
    assert "found none up to the file's end" in found(path)["record.whole"][0]


# -- a healthy container with something wrong in it --------------------------------------------------------------


def of_topic(topic: str, change: Callable[[Message], Any], step: int = 12) -> Callable[[str, Message], Any]:
    """A change of the message of one topic at one step."""
    return lambda name, one: change(one) if (name, one.sequence) == (topic, step) else one


def nals(change: Callable[[list[Nal]], list[Nal]]) -> Callable[[Message], Message]:
    """A change of the NAL units of a frame."""

    def changed(message: Message) -> Message:
        video = parse_video(message.data)
        return video_of(message, join_annexb(change(split_annexb(video.data))))

    return changed


def video_of(message: Message, data: bytes, *, name: str = "top", shift_ns: int = 0) -> Message:
    return replace(message, data=encode_video(message.publish_time + shift_ns, name, data))


def as_avcc(message: Message) -> Message:
    units = split_annexb(parse_video(message.data).data)
    return video_of(message, b"".join(len(unit.data).to_bytes(4, "big") + bytes(unit.data) for unit in units))


MESSAGE_CHANGES = [
    (
        "topic.grid",
        of_topic(ARM, lambda m: replace(m, log_time=m.log_time + 5)),
        r"/state/arm, step 12.*log_time",
    ),
    ("topic.grid", of_topic(TOP, lambda m: replace(m, sequence=13)), r"/camera/top/video, step 13"),
    (
        "topic.order",
        of_topic(TOP, lambda m: replace(m, log_time=m.log_time - 10**9)),
        "log_time that ascends",
    ),
    ("topic.count", of_topic(ARM, lambda m: None), "/state/arm, step 12: expected a message for every step"),
    (
        "topic.count",
        of_topic(ARM, lambda m: [m, m]),
        "/state/arm, step 12: expected one message for a step; found 2",
    ),
    ("topic.count", of_topic(TOP, lambda m: replace(m, sequence=999)), "expected steps below 50"),
    (
        "state.stride",
        of_topic(ARM, lambda m: replace(m, data=m.data[:-4])),
        "/state/arm, step 12.*3 packed floats",
    ),
    ("state.stride", of_topic(ARM, lambda m: replace(m, data=b"\x10" + m.data[1:])), "bytes of another form"),
    ("video.nal", of_topic(TOP, as_avcc), "step 12.*Annex B"),
    (
        "video.nal",
        of_topic(TOP, nals(lambda units: [*units, *units])),
        "expected one frame in a message; found 2",
    ),
    (
        "video.gop",
        of_topic(TOP, nals(lambda units: [one for one in units if one.type != PPS])),
        "SPS and PPS",
    ),
    (
        "video.gop",
        of_topic(TOP, nals(lambda units: [one for one in units if one.type != SPS])),
        "SPS and PPS",
    ),
    ("video.message", of_topic(TOP, lambda m: replace(m, publish_time=m.publish_time + 8)), "-8 ns off"),
    ("video.message", of_topic(TOP, lambda m: replace(m, data=b"\xff" + m.data)), "foxglove.CompressedVideo"),
    (
        "video.message",
        of_topic(TOP, lambda m: replace(m, data=m.data.replace(b"h264", b"h265"))),
        "format h264",
    ),
    (
        "video.message",
        of_topic(TOP, lambda m: video_of(m, bytes(parse_video(m.data).data), name="pot")),
        "expected frame_id top; found 'pot'",
    ),
    ("depth.message", of_topic("/depth/top", lambda m: replace(m, data=m.data[:-3])), "/depth/top, step 12"),
    ("event.message", lambda name, m: replace(m, data=b"{") if name == "/event" else m, "dyna.Event"),
    (
        "capture.times",
        of_topic(ARM, lambda m: replace(m, publish_time=m.publish_time + 8)),
        "/state/arm, step 12",
    ),
    ("sync.record", of_topic(ARM, lambda m: replace(m, publish_time=m.publish_time + 10**8)), "max_abs_ns"),
    ("index.crcs", of_topic(TOP, nals(lambda units: units[::-1])), "/camera/top/video, GOP 2"),
    (
        "index.frames",
        of_topic(TOP, lambda m: None),
        "steps 12-49: expected a frame at bytes .*; found no frame",
    ),
]


@pytest.mark.parametrize(("check", "change", "text"), MESSAGE_CHANGES)
def test_a_wrong_message_is_found(whole, tmp_path, check, change, text):
    path = tmp_path / "changed.mcap"
    remade(whole, path, messages=change)
    lines = found(path).get(check, [])
    assert any(re.search(text, line) for line in lines), found(path)


def test_an_idr_picture_inside_a_gop_and_none_at_its_start_are_found(whole, tmp_path):
    frames: dict[int, bytes] = {}

    def swap(name: str, message: Message) -> Message:
        if name != TOP:
            return message
        frames[message.sequence] = bytes(parse_video(message.data).data)
        if message.sequence == 12:
            return video_of(message, frames[11])
        return video_of(message, frames[12]) if message.sequence == 15 else message

    path = tmp_path / "swapped.mcap"
    remade(whole, path, messages=swap)
    first, second = found(path)["video.gop"]
    assert "step 12" in first and "expected an IDR picture first in a GOP of 6 steps; found none" in first
    assert "step 15" in second and "found one inside it" in second


def b_frames(num_frames: int) -> list[bytes]:
    """What libx264 makes by default of moving stripes: P and B frames, in the order of decoding."""
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = 64, 48, "yuv420p"
    context.time_base, context.framerate = Fraction(1, 30), Fraction(30)
    context.options = {"x264-params": "annexb=1:repeat-headers=1:keyint=6:min-keyint=6:scenecut=0:threads=1"}
    packets = []
    for step in [*range(num_frames), None]:
        frame = None if step is None else paint(step, step, 64, 48)
        packets += [bytes(packet) for packet in context.encode(frame)]
    return packets


def test_b_frames_are_found_where_another_checker_lets_them_pass(whole, tmp_path):
    packets, path = b_frames(50), tmp_path / "b.mcap"

    def swap(name: str, message: Message) -> Message:
        return video_of(message, packets[message.sequence]) if name == TOP else message

    stock_copy(whole, path, messages=swap, attachments=True)
    (line,) = found(path)["video.nal"]
    assert "/camera/top/video, steps " in line and "expected no B slices; found B slices" in line
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


def without(name: str) -> Callable[[Channel], Channel]:
    """The channels of cameras and vectors without one entry of their metadata."""
    return lambda one: replace(one, metadata={key: text for key, text in one.metadata.items() if key != name})


def with_value(name: str, value: str) -> Callable[[Channel], Channel]:
    """The channels that have this entry with another value."""
    return lambda one: replace(
        one, metadata={**one.metadata, name: value} if name in one.metadata else one.metadata
    )


CHANNEL_CHANGES = [
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
        lambda one: replace(one, topic=one.topic.replace("/video", "")),
        "a topic /camera/<name>",
    ),
    ("channel.rate", with_value("rate_hz", "31.0"), "rate_hz 30.0, as the episode; found 31.0"),
    ("channel.rate", with_value("gop", "7"), "expected GOP 6"),
    (
        "video.size",
        with_value("width", "80"),
        "SPS with 80x48, 4:2:0, 8 bit, whole frames; found SPS with 64x48",
    ),
    ("video.decode", with_value("height", "80"), "expected pictures of 64x80; found 64x48"),
    (
        "channel.schema",
        lambda one: replace(one, message_encoding="cdr"),
        "message encoding protobuf; found 'cdr'",
    ),
    ("channel.schema", lambda one: replace(one, schema_id=2), "expected schema foxglove.CompressedVideo"),
    ("channel.order", lambda one: replace(one, id=20) if one.id == 2 else one, "expected channel id 2|id 3"),
]


@pytest.mark.parametrize(("check", "change", "text"), CHANNEL_CHANGES)
def test_a_wrong_channel_is_found(whole, tmp_path, check, change, text):
    path = tmp_path / "changed.mcap"
    remade(whole, path, channels=change, messages=lambda name, one: one)
    assert any(re.search(text, line) for line in found(path).get(check, [])), found(path)


def test_a_message_of_no_channel_is_found(whole, tmp_path):
    path, data = tmp_path / "changed.mcap", bytearray(whole.read_bytes())
    start = [start for kind, start, _ in records(bytes(data)) if kind == Opcode.CHUNK][2]
    data[start + chunk_head_bytes("") + RECORD_HEAD_BYTES] = 77
    path.write_bytes(data)
    assert "1 messages of channel 77, which is not there" in found(path)["chunk.channel"][0]


def test_a_wrong_schema_is_found(whole, tmp_path):
    path = tmp_path / "changed.mcap"
    remade(whole, path, schemas=lambda one: replace(one, data=one.data[:-2]) if one.id == 1 else one)
    assert "bytes of our schema foxglove.CompressedVideo" in found(path)["channel.schema"][0]


@pytest.mark.parametrize("name", ["dyna.profile", "dyna.versions", "dyna.episode", "dyna.qc", "dyna.sync"])
def test_an_absent_metadata_record_is_found(whole, tmp_path, name):
    path = tmp_path / "changed.mcap"
    remade(whole, path, metadata=lambda one, values: None if one == name else values)
    assert any(
        f"metadata record {name} after the last chunk; found none" in line
        for line in found(path)["profile.records"]
    )


@pytest.mark.parametrize(
    ("check", "record", "change", "text"),
    [
        ("profile.name", "dyna.profile", {"version": "9"}, "expected profile dyna.episode/1"),
        ("profile.stamps", "dyna.versions", {"pipeline_version": ""}, "dyna.versions with pipeline_version"),
        ("profile.header", "dyna.episode", {"rate_hz": "fast"}, "could not convert"),
        ("topic.grid", "dyna.episode", {"start_ns": "5"}, "the grid time of step 0"),
        ("topic.count", "dyna.episode", {"num_steps": "9000000000000"}, "a message for every step"),
        ("index.attachment", "dyna.episode", {"num_steps": "51"}, "index of 51 steps"),
        ("sync.record", "dyna.sync", {"/state/arm.max_abs_ns": "0"}, "/state/arm: expected max_abs_ns"),
    ],
)
def test_a_wrong_metadata_record_is_found(whole, tmp_path, check, record, change, text):
    path = tmp_path / "changed.mcap"
    remade(whole, path, metadata=lambda name, values: {**values, **change} if name == record else values)
    assert any(text in line for line in found(path).get(check, [])), found(path)


def test_a_front_record_that_differs_from_the_end_is_found(whole, tmp_path):
    path, seen = tmp_path / "changed.mcap", set()

    def change(name: str, values: dict[str, str]) -> dict[str, str]:
        first = name not in seen
        seen.add(name)
        return {**values, "task": "another"} if name == "dyna.episode" and first else values

    remade(whole, path, metadata=change)
    assert "'task': 'another'" in found(path)["profile.records"][0]


@pytest.mark.parametrize(
    ("name", "check"), [("dyna.index/1", "index.attachment"), ("dyna.capture/1", "capture.times")]
)
def test_an_absent_attachment_is_found(whole, tmp_path, name, check):
    path = tmp_path / "changed.mcap"
    remade(whole, path, attachments=lambda one, data: None if one == name else data)
    assert f"attachment {name}; found no" in found(path)[check][0]


def edited(
    name: str, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> Callable[[str, bytes], bytes]:
    """An attachment of arrays, changed."""

    def edit(one: str, data: bytes) -> bytes:
        if one != name:
            return data
        head, arrays = unpack_arrays(data, what=name)
        change(head, arrays)
        return pack_arrays(head, arrays)

    return edit


def add_to(
    array: str, index: tuple[int, ...], amount: int = 1
) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """One entry of an array of the attachment becomes another one."""

    def change(head: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[array] = arrays[array].copy()
        arrays[array][index] += amount

    return change


def set_head(**values: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Another value in the head of the attachment."""
    return lambda head, arrays: head.update(values)


@pytest.mark.parametrize(
    ("check", "change", "text"),
    [
        ("index.crcs", add_to("gop_crc", (0, 2)), "/camera/top/video, GOP 2: expected crc32"),
        ("index.crcs", add_to("block_crc", (1,)), "state chunk with crc32"),
        ("index.crcs", add_to("depth_crc", (0,)), "depth chunk with crc32"),
        ("index.frames", add_to("frame_bytes", (1, 3)), "/camera/left.wrist/video, steps 3-8"),
        ("index.chunks", add_to("chunks.video", (0, 1)), "a video chunk at byte"),
        ("index.chunks", add_to("chunks.state", (1, 0)), "a chunk of .* bytes, as the index says"),
        ("index.chunks", add_to("chunks.video", (2, 1), 12), "steps 24-35 in the chunk"),
        ("index.attachment", set_head(metadata_crc=1), "metadata records with crc32 00000001"),
        ("index.attachment", set_head(layout=[7, 2, 24]), "steps_per_block must be a multiple"),
        ("chunk.steps", set_head(layout=[6, 1, 24]), "video of one stretch of 6 steps"),
    ],
)
def test_an_index_that_is_not_the_content_is_found(whole, tmp_path, check, change, text):
    path = tmp_path / "changed.mcap"
    remade(whole, path, attachments=edited("dyna.index/1", change))
    assert any(re.search(text, line) for line in found(path).get(check, [])), found(path)


def test_wrong_capture_times_are_found(whole, tmp_path):
    path = tmp_path / "changed.mcap"
    remade(whole, path, attachments=edited("dyna.capture/1", add_to(TOP, (12,))))
    (line,) = found(path)["capture.times"]
    assert (
        f"{TOP}, step 12: expected capture 0 ns after grid time, as publish_time says; found capture 1 ns"
        in line
    )


def test_a_compressed_video_chunk_and_an_uncompressed_state_chunk_are_found(whole, tmp_path):
    path = tmp_path / "changed.mcap"
    remade(whole, path, compression=lambda stored: "" if stored else "zstd")
    lines = found(path)["chunk.compression"]
    assert any("compression none in a chunk of group video; found zstd" in line for line in lines)
    assert any("compression zstd in a chunk of group state; found none" in line for line in lines)


def test_a_file_that_a_stock_writer_copied_mixes_groups(whole, tmp_path):
    path = tmp_path / "stock.mcap"
    stock_copy(whole, path)
    faults = found(path)
    assert "expected one topic group in a chunk; found state, video" in faults["chunk.groups"][0]
    assert {"record.order", "crc.data", "chunk.compression", "index.attachment", "capture.times"} <= set(
        faults
    )


def test_many_overlapping_chunks_are_a_warning(whole, tmp_path):
    path = tmp_path / "stock.mcap"
    stock_copy(whole, path, chunk_size=100, by_time=False)
    assert "chunks at any time, one per group" in found(path)["chunk.overlap"][0]


# -- the command -----------------------------------------------------------------------------------------------


def test_a_healthy_file_is_one_line_and_exit_0(whole):
    done = CliRunner().invoke(app, ["doctor", str(whole)])
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 1)
    assert f"{whole}: ok: 50 steps at 30 Hz, 3 cameras, 3 vectors" in done.stdout


def test_one_bad_file_among_several_exits_2_and_every_line_names_its_file(whole, tmp_path):
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole.read_bytes()[:5000])
    done = CliRunner().invoke(app, ["doctor", str(whole), str(cut), str(tmp_path / "absent.mcap")])
    assert done.exit_code == 2
    healthy, broken, absent = done.stdout.splitlines()
    assert healthy.startswith(f"{whole}: ok")
    assert broken.startswith(f"{cut}: record.whole: byte ") and "file ends at byte 5,000" in broken
    assert absent == f"{tmp_path}/absent.mcap: file: file: expected an episode file; found no such file"


def test_json_holds_every_fault_with_its_place(whole, tmp_path):
    path = tmp_path / "changed.mcap"
    remade(whole, path, messages=of_topic(ARM, lambda one: replace(one, log_time=one.log_time + 5)))
    done = CliRunner().invoke(app, ["doctor", "--json", str(whole), str(path)])
    healthy, broken = json.loads(done.stdout)["files"]
    assert healthy == {"file": str(whole), "ok": True, "level": None, "faults": []}
    (fault,) = [one for one in broken["faults"] if one["check"] == "topic.grid"]
    assert (fault["topic"], fault["steps"], fault["level"]) == (ARM, [[12, 13]], "fault")
    assert fault["found"].endswith(" ns") and fault["byte"] > 0


def test_warnings_alone_exit_1(tmp_path):
    """An extra topic whose messages jump in time: valid, but a reader in time order must hold every chunk."""
    path, described = tmp_path / "jumps.mcap", header(50, cameras=())
    end_ns = int(grid_times_ns(described.start_ns, 30.0, 50)[-1])
    with EpisodeWriter.create(
        path, described, LAYOUT, quality=Quality(18), vectors=vectors_of(described), extras=[EXTRA]
    ) as writer:
        for number in range(12):
            time_ns = end_ns if number % 2 else described.start_ns
            writer.add_extra(EXTRA.topic, time_ns, time_ns, bytes(300_000))
        writer.finish()
    done = CliRunner().invoke(app, ["doctor", str(path)])
    assert done.exit_code == 1
    (line,) = done.stdout.splitlines()
    assert (
        "chunk.overlap (warning): file: expected at most 2 chunks at any time, one per group; found" in line
    )


def test_a_private_record_is_named(whole, tmp_path):
    data, path = whole.read_bytes(), tmp_path / "private.mcap"
    at = next(start for kind, start, _ in records(data) if kind == Opcode.DATA_END)
    path.write_bytes(data[:at] + b"\x90" + (4).to_bytes(8, "little") + b"mine" + data[at:])
    assert f"record.later (warning): byte {at:,}: expected" in found(path)["record.later"][0]


def test_a_remote_file_is_read_whole(whole):
    store = fsspec.filesystem("memory")
    store.pipe("/episodes/one.mcap", whole.read_bytes())
    assert "memory://episodes/one.mcap: ok" in "".join(examine("memory://episodes/one.mcap").lines())
    assert "no such file" in str(examine("memory://episodes/two.mcap").faults[0])


# -- stretches of steps ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 30)), st.integers(0, 30), st.integers(0, 30))
def test_stretches_hold_the_same_steps_and_what_is_missing_is_the_rest(steps, start, length):
    parts = stretches(range(step, step + 1) for step in steps)
    assert [step for part in parts for step in part] == sorted(set(steps))
    assert all(before.stop < after.start for before, after in pairwise(parts))
    whole = range(start, start + length)
    assert {step for part in missing_from(whole, parts) for step in part} == set(whole) - set(steps)


def test_steps_are_written_as_people_write_them():
    assert steps_text([range(3, 4)]) == "step 3"
    assert steps_text([range(3, 9), range(12, 13)]) == "steps 3-8, 12"
    assert steps_text([range(k, k + 1) for k in range(0, 20, 2)]) == "steps 0, 2, 4, 6 and 6 more"
