"""A zstd frame says how much it holds; memory for so much is not taken before somebody asked whether it can be."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import zstandard
from look_samples import write_rich

from dyna_train.doctor.survey import Survey
from dyna_train.episode.arrays import pack_arrays, unpack_arrays
from dyna_train.episode.container import RECORD_HEAD_BYTES, chunk_head_bytes, unpacked
from dyna_train.episode.profile import DEPTH_GROUP, EVENT_GROUP, EXTRA_GROUP, STATE_GROUP
from dyna_train.episode.reader import Episode
from dyna_train.episode.span import fetch
from dyna_train.errors import CorruptEpisode

TOO_MUCH = 1 << 45  # bytes: taking memory for them raises MemoryError anywhere
_HEAD = b"\x28\xb5\x2f\xfd\xe0"  # the magic number; one segment, and its size in the eight bytes that follow
_SIZE_AT = RECORD_HEAD_BYTES + 16  # of what is inside a chunk, uncompressed, in its record


def lying(frame: bytes, says_bytes: int = TOO_MUCH) -> bytes:
    """A frame of the same length that says it holds so many bytes."""
    return (_HEAD + struct.pack("<Q", says_bytes) + frame[len(_HEAD) + 8 :])[: len(frame)]


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rich(tmp_path_factory.mktemp("rich") / "rich.mcap")


def with_lying_chunk(rich: Path, group: str, target: Path, *, head_lies: bool = False) -> Path:
    """A copy in which the first chunk of `group` lies, and its record's head along with it if asked."""
    with Episode.open(rich) as episode:
        table = episode.index.chunks[group]
        at, end = int(table.offset_K[0]), int(table.offset_K[0] + table.length_K[0])
    data = bytearray(rich.read_bytes())
    start = at + chunk_head_bytes("zstd")
    data[start:end] = lying(bytes(data[start:end]))
    if head_lies:
        data[at + _SIZE_AT : at + _SIZE_AT + 8] = struct.pack("<Q", TOO_MUCH)
    target.write_bytes(data)
    return target


def test_a_frame_that_holds_what_it_says_is_unpacked_up_to_the_most_that_is_allowed():
    data = bytes(1000)
    frame = zstandard.ZstdCompressor().compress(data)
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert unpacked(frame, 1000) == unpacked(memoryview(frame), 2000) == unpacked(silent, 1000) == data


@pytest.mark.parametrize("says_size", [True, False])
def test_a_frame_that_holds_more_than_the_most_is_refused(says_size):
    frame = zstandard.ZstdCompressor(write_content_size=says_size).compress(bytes(10_000_000))
    with pytest.raises(zstandard.ZstdError, match="expected at most 10" if says_size else "decompress"):
        unpacked(frame, 10)


def test_no_frame_holds_more_than_its_own_bytes_can_whatever_its_reader_allows():
    frame = lying(zstandard.ZstdCompressor().compress(bytes(100)))
    with pytest.raises(zstandard.ZstdError, match=f"says it holds {TOO_MUCH:,} bytes, expected at most"):
        unpacked(frame, TOO_MUCH)


def test_the_most_that_a_frame_can_hold_is_allowed():
    zeros = bytes(64 << 20)
    assert unpacked(zstandard.ZstdCompressor(level=19).compress(zeros), len(zeros)) == zeros


def test_a_lying_state_block_is_named(rich, tmp_path):
    target = with_lying_chunk(rich, STATE_GROUP, tmp_path / "state.mcap")
    with Episode.open(target) as episode:
        (span,) = fetch([episode.plan(state_steps=[0])])
        with pytest.raises(CorruptEpisode, match=r"state block of steps 0-\d+ .*the frame says it holds"):
            span.state([0])


def test_a_lying_depth_chunk_is_named(rich, tmp_path):
    target = with_lying_chunk(rich, DEPTH_GROUP, tmp_path / "depth.mcap")
    with Episode.open(target) as episode:
        (span,) = fetch([episode.plan(depth_steps=[0])])
        with pytest.raises(CorruptEpisode, match=r"depth chunk of steps 0-\d+ .*the frame says it holds"):
            span.depth("head", [0])


@pytest.mark.parametrize("head_lies", [False, True])
def test_a_lying_chunk_of_events_or_extra_messages_is_named(rich, tmp_path, head_lies):
    target = with_lying_chunk(rich, EVENT_GROUP, tmp_path / "event.mcap", head_lies=head_lies)
    with Episode.open(target) as episode, pytest.raises(CorruptEpisode, match=r"event chunk .*says it holds"):
        episode.events()
    target = with_lying_chunk(rich, EXTRA_GROUP, tmp_path / "extra.mcap", head_lies=head_lies)
    with Episode.open(target) as episode, pytest.raises(CorruptEpisode, match=r"extra chunk .*says it holds"):
        list(episode.extra_messages("/tf"))


@pytest.mark.parametrize("shape", [[3], [TOO_MUCH]])
def test_arrays_in_a_lying_frame_are_refused(shape):
    blob = pack_arrays({}, {"a": np.arange(3)})
    (length,) = struct.unpack_from("<I", blob)
    text = json.dumps({"arrays": {"a": ["<i8", shape]}}).encode()
    body = text + lying(blob[8 + length :])
    with pytest.raises(CorruptEpisode, match=r"blob: not readable as arrays: .*the frame says it holds"):
        unpack_arrays(struct.pack("<II", len(text), zlib.crc32(body)) + body, what="blob")


@pytest.mark.parametrize("head_says_bytes", [None, 1 << 32])
def test_the_doctor_names_a_lying_chunk(rich, tmp_path, head_says_bytes):
    target = with_lying_chunk(rich, STATE_GROUP, tmp_path / "state.mcap")
    if head_says_bytes:
        data = bytearray(target.read_bytes())
        with Episode.open(rich) as episode:
            at = int(episode.index.chunks[STATE_GROUP].offset_K[0]) + _SIZE_AT
        data[at : at + 8] = struct.pack("<Q", head_says_bytes)
        target.write_bytes(data)
    problems = [chunk.problem for chunk in Survey.open(target).chunks if chunk.problem]
    assert len(problems) == 1 and "the frame says it holds" in problems[0]
