"""Small files that say they are large, or are when unpacked: refused by name, and no memory taken for them."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from pathlib import Path

import lz4.frame
import numpy as np
import pytest
import zstandard
from damage import put
from doctor_samples import remade, write_rich
from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode
from mcap.records import Chunk, Header

from dyna_train.doctor.recover import recover
from dyna_train.doctor.regroup import regroup
from dyna_train.doctor.report import examine
from dyna_train.doctor.survey import Survey
from dyna_train.episode.arrays import MOST_BYTES, pack_arrays, unpack_arrays
from dyna_train.episode.container import (
    MAGIC,
    MOST_UNPACKED_BYTES,
    RECORD_HEAD_BYTES,
    chunk_records,
    finished,
)
from dyna_train.episode.index import CAPTURE_NAME, INDEX_NAME
from dyna_train.episode.open import open_episode
from dyna_train.episode.profile import EVENT_GROUP, EXTRA_GROUP
from dyna_train.episode.reader import Episode
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError
from dyna_train.look.summary import summarize

NO_SUMMARY = struct.pack("<BQQQI", Opcode.FOOTER, 20, 0, 0, 0) + MAGIC
DATA_END = struct.pack("<BQI", Opcode.DATA_END, 4, 0)
PEAK_BYTES = 32 << 20  # what reading a small file may take, buffers and all


def zeros(num_bytes: int, *, says_size: bool = True) -> bytes:
    """A zstd frame of so many zeros."""
    packer = zstandard.ZstdCompressor(level=1).compressobj(size=num_bytes if says_size else -1)
    piece = bytes(1 << 24)
    parts = [
        packer.compress(piece[: min(len(piece), num_bytes - at)]) for at in range(0, num_bytes, len(piece))
    ]
    return b"".join([*parts, packer.flush()])


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return zeros(MOST_UNPACKED_BYTES + 1)


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rich(tmp_path_factory.mktemp("rich") / "rich.mcap").path


def one_chunk(path: Path, compression: str, data: bytes, size_bytes: int) -> Path:
    """A file of one chunk, without a summary, whose head says that it holds so many bytes."""
    builder = RecordBuilder()
    Header(profile="", library="x").write(builder)
    Chunk(compression, data, 0, 0, 0, size_bytes).write(builder)
    path.write_bytes(MAGIC + finished(builder) + DATA_END + NO_SUMMARY)
    return path


def test_a_chunk_that_holds_more_than_is_ever_unpacked_is_refused_with_the_most(bomb, tmp_path):
    path = one_chunk(tmp_path / "bomb.mcap", "zstd", bomb, MOST_UNPACKED_BYTES + 1)
    text = "holds 1,073,741,825 bytes, expected at most 1,073,741,824"
    (chunk,) = Survey.open(path).chunks
    assert text in chunk.problem
    assert any(text in str(fault) for fault in examine(path).faults)
    with pytest.raises(
        CorruptEpisode, match=rf"bomb\.mcap: record 1, a chunk: .*{text}; fetch the file again"
    ):
        open_episode(path)
    with pytest.raises(CorruptEpisode, match=r"bomb\.mcap: damaged, first at byte 2"):
        regroup(path, tmp_path / "out.mcap")
    with pytest.raises(EpisodeError, match=r"bomb\.mcap: nothing can be saved"):
        recover(path, tmp_path / "out.mcap")


@pytest.mark.parametrize("says_size", [True, False])
def test_a_zstd_chunk_that_holds_more_than_its_head_says_is_not_unpacked(tmp_path, says_size):
    data = zeros(1 << 28, says_size=says_size)
    path = one_chunk(tmp_path / "zstd.mcap", "zstd", data, 100)
    assert_refused_in_little_memory(path, "a chunk: not readable as zstd: ")


def test_an_lz4_chunk_that_holds_more_than_its_head_says_is_not_unpacked(tmp_path):
    path = one_chunk(tmp_path / "lz4.mcap", "lz4", lz4.frame.compress(bytes(1 << 28)), 100)
    assert_refused_in_little_memory(path, "a chunk: the lz4 frame holds more than 100 bytes")


def test_an_lz4_chunk_whose_head_says_too_much_takes_no_memory(tmp_path):
    path = one_chunk(tmp_path / "lz4.mcap", "lz4", lz4.frame.compress(b"abc"), 1 << 60)
    assert_refused_in_little_memory(path, "the stock MCAP reader cannot read it")


def test_a_cut_lz4_frame_is_called_that():
    with pytest.raises(CorruptEpisode, match="the lz4 frame is cut after 0 bytes"):
        chunk_records("lz4", lz4.frame.compress(b"abc" * 100)[:-8], 300)


def assert_refused_in_little_memory(path: Path, text: str) -> None:
    for read in (open_episode, summarize):
        tracemalloc.start()
        try:
            with pytest.raises(EpisodeError, match=text):
                read(path)
            assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES
        finally:
            tracemalloc.stop()
    tracemalloc.start()
    try:
        assert examine(path).faults
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES
    finally:
        tracemalloc.stop()


LYING = {
    "a name in the header": bytes([Opcode.HEADER]) + struct.pack("<QI", 20, 1 << 31) + b"x" * 16,
    "a header": bytes([Opcode.HEADER]) + struct.pack("<QI", 1 << 31, 1 << 31) + b"x" * 16,
    "a name in an attachment": bytes([Opcode.ATTACHMENT])
    + struct.pack("<QQQI", 60, 0, 0, (1 << 32) - 1)
    + b"x" * 40,
    "a compression": bytes([Opcode.CHUNK])
    + struct.pack("<QQQQII", 60, 0, 0, 1 << 60, 0, (1 << 32) - 1)
    + b"x" * 28,
    "the data of a chunk": bytes([Opcode.CHUNK])
    + struct.pack("<QQQQII4sQ", 72, 0, 0, 1 << 60, 0, 4, b"zstd", 1 << 31)
    + b"x" * 32,
    "a record": bytes([Opcode.CHUNK]) + struct.pack("<Q", 1 << 60) + b"x" * 60,
}


@pytest.mark.parametrize("what", LYING)
def test_no_memory_is_taken_for_a_length_that_the_file_does_not_have(tmp_path, what):
    path = put(tmp_path, MAGIC + LYING[what] + NO_SUMMARY)
    assert_refused_in_little_memory(path, r"damaged\.mcap: ")


@pytest.mark.parametrize("name", [INDEX_NAME, CAPTURE_NAME])
def test_an_attachment_that_unpacks_to_more_than_it_may_is_refused(rich, tmp_path, bomb, name):
    def bombed(one: str, data: bytes) -> bytes:
        (length,) = struct.unpack_from("<I", data)
        head = json.loads(data[8 : 8 + length])
        head["arrays"] = {array: ["|u1", [MOST_BYTES + 1]] for array in head["arrays"]}
        text = json.dumps(head).encode()
        body = text + zeros(MOST_BYTES + 1)
        return struct.pack("<II", len(text), zlib.crc32(body)) + body if one == name else data

    path = tmp_path / "bomb.mcap"
    remade(rich, path, attachments=bombed)
    with pytest.raises(CorruptEpisode, match="expected at most 536,870,912"), Episode.open(path) as episode:
        episode.capture_ns(episode.tracks.topics[0])
    assert examine(path).faults


def test_arrays_that_could_not_be_read_again_are_not_written():
    many = np.broadcast_to(np.zeros(1, np.uint8), (MOST_BYTES + 1,))
    with pytest.raises(BadInput, match="arrays of 536,870,913 bytes, expected at most 536,870,912"):
        pack_arrays({}, {"a": many})
    assert unpack_arrays(pack_arrays({}, {"a": np.arange(3)}), what="x")[1]["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("group", [EVENT_GROUP, EXTRA_GROUP])
def test_a_flipped_bit_in_the_head_of_a_chunk_of_events_or_extras_is_a_typed_error(rich, tmp_path, group):
    data = rich.read_bytes()
    with Episode.open(rich) as episode:
        start = int(episode.index.chunks[group].offset_K[0])
    num_refused = 0
    for place in range(start, start + RECORD_HEAD_BYTES + 44 + 8):
        damaged = bytearray(data)
        damaged[place] ^= 0x80
        with Episode.open(put(tmp_path, bytes(damaged))) as episode:
            try:
                episode.events() if group == EVENT_GROUP else list(episode.extra_messages("/imu"))
            except CorruptEpisode as error:
                assert f"in the {group} chunk from byte {start:,}" in str(error)
                num_refused += 1
    # The two times say nothing here, and a length of the data that is too long still reads all there is.
    assert num_refused >= RECORD_HEAD_BYTES + 44 + 8 - 16 - 8
