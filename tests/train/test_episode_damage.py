"""A damaged file raises one typed error that names the file and the place; never a wrong frame or value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import places_of, put, records
from episode_samples import CAMERAS, VECTORS, write_painted
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.opcode import Opcode
from mcap.writer import CompressionType, Writer

from dyna_train.episode.container import MAGIC
from dyna_train.episode.open import open_episode
from dyna_train.episode.reader import Episode
from dyna_train.episode.source import open_source
from dyna_train.episode.tail import cut_error
from dyna_train.errors import CorruptEpisode, EpisodeError, TruncatedEpisode

NUM_STEPS = 26


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("episode") / "whole.mcap"
    write_painted(path, NUM_STEPS, cameras=CAMERAS[:2])
    return path.read_bytes()


@pytest.fixture(scope="module")
def content(whole, tmp_path_factory) -> dict[str, Any]:
    return read_everything(put(tmp_path_factory.mktemp("damaged"), whole))


def read_everything(path: Path) -> dict[str, Any]:
    with Episode.open(path) as episode:
        found = {"header": episode.header, "state": episode.state_TD, "action": episode.action_TA}
        for camera in episode.header.cameras:
            found[camera.topic] = episode.capture_ns(camera.topic)
            found[camera.name] = episode.frames(camera.name, range(episode.num_steps))
        return found


@pytest.mark.parametrize("content", ["plain", "every group"])
def test_a_file_cut_at_any_record_or_inside_one_raises_truncated_and_names_the_byte(
    whole, full, tmp_path, content
):
    whole = whole if content == "plain" else full[1]
    cuts = {0, 5, len(MAGIC), len(whole) - 1}
    for _, start, end in records(whole):
        cuts |= {start, start + 1, start + 9, (start + end) // 2, end - 1}
    path = tmp_path / "cut.mcap"
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        with pytest.raises(TruncatedEpisode, match=rf"cut\.mcap: .*byte {cut:,}"):
            Episode.open(path)


def test_a_cut_inside_a_video_chunk_says_how_many_bytes_it_needs(whole, tmp_path):
    chunks = places_of(whole, Opcode.CHUNK)
    start, end = chunks[1]
    path = tmp_path / "cut.mcap"
    path.write_bytes(whole[: end - 7])
    message = rf"ends at byte {end - 7:,}, inside the CHUNK record at byte {start:,} that needs byte {end:,}"
    with pytest.raises(TruncatedEpisode, match=message):
        Episode.open(path)


@given(data=st.data())
@settings(max_examples=250)
def test_a_flipped_byte_raises_the_typed_error_or_changes_nothing(whole, content, tmp_path_factory, data):
    """Every record is hit alike, however small; a byte that nobody reads may change without harm."""
    _, start, end = data.draw(st.sampled_from(records(whole)))
    at = data.draw(st.integers(start, end - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    path = put(tmp_path_factory.mktemp("damaged"), bytes(damaged))
    try:
        found = read_everything(path)
    except EpisodeError as error:
        assert str(path) in str(error)
        return
    assert found.keys() == content.keys()
    for name, value in content.items():
        assert np.array_equal(found[name], value) if isinstance(value, np.ndarray) else found[name] == value


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def test_a_flipped_byte_of_a_frame_names_camera_and_gop_and_spares_the_others(whole, tmp_path):
    path = tmp_path / "flipped.mcap"
    path.write_bytes(whole)
    with Episode.open(path) as episode:
        first, end = episode.index.frame_ranges(1, 2)[4].tolist()
    path.write_bytes(_flip(whole, (first + end) // 2))
    with Episode.open(path) as episode:
        with pytest.raises(
            CorruptEpisode, match=r"flipped\.mcap: camera left\.wrist, GOP 2 from byte [\d,]+: crc32"
        ):
            episode.frames("left.wrist", [12])  # a frame before the damage: the whole GOP is checked
        assert len(episode.frames("left.wrist", [11, 18])) == 2
        assert len(episode.frames("top", [12])) == 1


def test_a_flipped_byte_of_a_state_block_names_its_steps(whole, tmp_path):
    blocks = places_of(whole, Opcode.CHUNK)
    start, end = blocks[0]
    path = tmp_path / "flipped.mcap"
    path.write_bytes(_flip(whole, (start + end) // 2))
    with (
        Episode.open(path) as episode,
        pytest.raises(CorruptEpisode, match=rf"state block of steps 0-23 from byte {start + 53:,}"),
    ):
        _ = episode.state_TD


@pytest.mark.parametrize(
    ("opcode", "which", "message"),
    [
        (Opcode.METADATA, 5, "the metadata records from byte .* have crc32"),
        (Opcode.ATTACHMENT, 1, "the attachment at byte .* fails its crc32"),
        (Opcode.CHANNEL, -1, "the summary from byte .* has crc32"),
        (Opcode.STATISTICS, 0, "the summary from byte .* has crc32"),
        (Opcode.FOOTER, 0, "the footer names a summary|the summary from byte"),
    ],
)
def test_a_flipped_byte_of_the_tail_names_the_part_that_is_damaged(whole, tmp_path, opcode, which, message):
    places = places_of(whole, opcode)
    start, end = places[which]
    path = tmp_path / "flipped.mcap"
    path.write_bytes(_flip(whole, (start + 9 + end) // 2))
    with pytest.raises(CorruptEpisode, match=rf"flipped\.mcap: {message}"):
        Episode.open(path)


def test_a_damaged_end_magic_is_corruption_not_truncation(whole, tmp_path):
    path = tmp_path / "flipped.mcap"
    path.write_bytes(_flip(whole, len(whole) - 3))
    with pytest.raises(CorruptEpisode, match=rf"the footer before byte {len(whole):,} is damaged"):
        Episode.open(path)


@pytest.mark.parametrize("data", [b"RIFF....WAVEfmt " * 20, b"{}", b"MCAP"])
def test_a_file_that_is_no_mcap_is_called_that(tmp_path, data):
    path = tmp_path / "sound.wav"
    path.write_bytes(data)
    with pytest.raises(EpisodeError, match=r"sound\.wav: not an MCAP file; expected an episode file"):
        Episode.open(path)


@pytest.mark.parametrize("num_messages", [0, 1, 3000])
def test_a_foreign_mcap_is_told_from_an_episode_file(tmp_path, num_messages):
    path = tmp_path / "bag.mcap"
    with path.open("wb") as stream:
        writer = Writer(stream, chunk_size=256, compression=CompressionType.NONE)
        writer.start()
        channel = writer.register_channel("/tf", "json", writer.register_schema("any", "jsonschema", b"{}"))
        for time_ns in range(num_messages):
            writer.add_message(channel, time_ns, b"{}", time_ns)
        writer.finish()
    with pytest.raises(EpisodeError, match=r"bag\.mcap: an MCAP file without the attachment dyna\.index/1"):
        Episode.open(path)


def test_a_file_that_shrank_after_it_was_opened_raises_truncated(whole, tmp_path):
    path = tmp_path / "shrinks.mcap"
    path.write_bytes(whole)
    with Episode.open(path) as episode:
        path.write_bytes(whole[:4000])
        with pytest.raises(
            TruncatedEpisode, match=r"shrinks\.mcap: file ends at byte 4,000, a read needs byte"
        ):
            episode.frames("top", [NUM_STEPS - 1])


def test_a_read_error_of_one_vector_topic_does_not_hide_the_frames(whole, tmp_path):
    assert [track.role for track in VECTORS] == ["state", "state", "action"]
    start = places_of(whole, Opcode.CHUNK)[0][0]
    path = tmp_path / "flipped.mcap"
    path.write_bytes(_flip(whole, start + 100))
    with Episode.open(path) as episode:
        with pytest.raises(CorruptEpisode, match="state block of steps 0-23"):
            episode.vector("/action/arm")
        assert len(episode.frames("top", range(NUM_STEPS))) == NUM_STEPS


@pytest.mark.parametrize("num_zeros", [9, 1 << 22])
def test_zeros_behind_a_cut_are_not_walked_but_named(whole, tmp_path, num_zeros):
    data = whole
    start, end = records(data)[2][1:]
    path = put(tmp_path, data[:end] + bytes(num_zeros))
    text = rf"no record at byte {end:,}, which is 0, and no closing magic at the end of the {end + num_zeros:,} bytes"
    for read in (Episode.open, open_episode):
        with pytest.raises(CorruptEpisode, match=text):
            read(path)
    source = open_source(path, None)
    cut_error(source, source.size())
    assert start < end and source.counters.requests < 4
    source.close()


def test_bytes_after_the_closing_magic_are_counted(whole, tmp_path):
    data = whole
    for more in (b"x", bytes(1 << 20)):
        text = rf"{len(more):,} bytes after the closing magic, which ends at byte {len(data):,}"
        for read in (Episode.open, open_episode):
            with pytest.raises(CorruptEpisode, match=text):
                read(put(tmp_path, data + more))
