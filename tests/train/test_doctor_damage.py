"""The doctor finds damaged bytes wherever they are, and says which."""

from __future__ import annotations

import pytest
from damage import flipped, places_of, put, records, with_right_crcs
from doctor_samples import found
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.opcode import Opcode

from dyna_train.doctor.report import examine


def test_a_file_cut_anywhere_has_one_fault_that_names_the_byte(rich_episode, tmp_path):
    data, path = rich_episode.read_bytes(), tmp_path / "cut.mcap"
    cuts = {0, 3, 8, len(data) - 1, len(data) - 8}
    kinds = {kind: (start, end) for kind, start, end in records(data)}  # the last of each
    for start, end in [*kinds.values(), *((start, end) for _, start, end in records(data)[::9])]:
        cuts |= {start, start + 4, (start + end) // 2}
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        faults = found(path)
        assert list(faults) == ["record.whole"], faults
        assert f"file ends at byte {cut:,}" in faults["record.whole"][0]


def test_a_cut_inside_a_chunk_says_which_record_needs_which_byte(rich_episode, tmp_path):
    data, path = rich_episode.read_bytes(), tmp_path / "cut.mcap"
    start, end = places_of(data, Opcode.CHUNK)[0]
    path.write_bytes(data[: end - 7])
    (line,) = found(path)["record.whole"]
    assert f"inside the CHUNK record at byte {start:,} that needs byte {end:,}" in line


@given(data=st.data())
@settings(max_examples=120)
def test_a_flipped_bit_in_any_record_is_found_even_behind_right_checksums(
    rich_episode, tmp_path_factory, data
):
    """Every kind of record is hit alike, its head and its parts. The header is free text, which nothing repeats."""
    healthy = rich_episode.read_bytes()
    kinds = sorted({kind for kind, _, _ in records(healthy)} - {Opcode.HEADER})
    kind = data.draw(st.sampled_from(kinds))
    start, end = data.draw(st.sampled_from(places_of(healthy, kind)))
    at = data.draw(st.integers(start, min(end - 1, start + 60)) | st.integers(start, end - 1))
    damaged = bytearray(healthy)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    hidden = with_right_crcs(bytes(damaged), places_of(healthy, Opcode.DATA_END)[0])
    folder = tmp_path_factory.mktemp("flipped")
    assert examine(put(folder, bytes(damaged))).level == "fault"
    if hidden != healthy:  # else it was one of the two checksums
        assert examine(put(folder, hidden)).level == "fault"


def test_a_damaged_record_does_not_hide_what_is_wrong_behind_it(rich_episode, tmp_path):
    data, path = rich_episode.read_bytes(), tmp_path / "damaged.mcap"
    chunks, metadata = places_of(data, Opcode.CHUNK), places_of(data, Opcode.METADATA)
    # a length that leads into nothing, a byte of a frame, the length of a text, a checksum of the summary
    path.write_bytes(flipped(data, chunks[0][0] + 3, chunks[5][1] - 40, metadata[-1][0] + 11, len(data) - 10))
    faults = found(path)
    assert [line.split(": ")[1] for line in faults["record.whole"]] == [
        f"byte {chunks[0][0]:,}",
        f"byte {metadata[-1][0]:,}",
    ]
    assert any(f"byte {chunks[5][0]:,}" in line for line in faults["crc.chunk"])
    assert "crc.summary" in faults


def test_a_flipped_byte_of_a_frame_names_camera_and_gop(rich_episode, tmp_path):
    data, path = rich_episode.read_bytes(), tmp_path / "flipped.mcap"
    start, end = places_of(data, Opcode.CHUNK)[2]
    path.write_bytes(flipped(data, end - 5))
    faults = found(path)
    assert f"byte {start:,}: expected crc32" in faults["crc.chunk"][0]
    assert any("/video, GOP" in line for line in faults["index.crcs"])


@pytest.mark.parametrize("data", [b"", b"RIFF....WAVEfmt " * 20, b"{}", b"\x89MCAP0\r\n" * 30])
def test_a_file_that_is_no_mcap_is_a_fault(tmp_path, data):
    path = tmp_path / "sound.wav"
    path.write_bytes(data)
    assert "record.whole" in found(path)


def test_bytes_after_the_closing_magic_are_a_fault(rich_episode, tmp_path):
    path = tmp_path / "longer.mcap"
    path.write_bytes(rich_episode.read_bytes() + b"more of something")
    size = rich_episode.stat().st_size
    assert found(path)["record.whole"] == [
        f"record.whole: byte {size:,}: expected the file's end; found 17 bytes after the closing magic"
    ]
