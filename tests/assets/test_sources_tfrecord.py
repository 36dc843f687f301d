from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tf_records import episode, example, write_records

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder, Recording, RecordingRef
from dyna_assets.landing.sources.rlds.reader import RldsReader
from dyna_assets.landing.sources.rlds.tf_example import parse_example
from dyna_assets.landing.sources.rlds.tfrecord import record_spans
from dyna_train.errors import CorruptEpisode

READER = RldsReader(10.0)
FILE = "set-train.tfrecord-00000-of-00001"


def opened(path: Path, number: int = 0) -> Recording:
    return READER.open(Folder.of(path.parent), RecordingRef(f"{path.name}:{number:05d}", (path.name,)))


def test_a_cut_file_keeps_its_whole_records_and_refuses_the_last_by_its_byte(tmp_path: Path) -> None:
    path = write_records(tmp_path / FILE, [example(episode(k, 4)) for k in range(3)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert len(READER.recordings(Folder.of(tmp_path))) == 3
    assert opened(path, 1).topics["action"].num_messages == 4
    with pytest.raises(
        RecordingError,
        match=rf"record 2: the file ends at byte {len(whole) - 10:,}, inside the record at byte ",
    ):
        opened(path, 2)


@pytest.mark.parametrize("keep", [0, 5, 13])
def test_a_file_cut_at_its_start_is_one_refused_recording(tmp_path: Path, keep: int) -> None:
    path = write_records(tmp_path / FILE, [example(episode(0, 4))])
    path.write_bytes(path.read_bytes()[:keep])
    (ref,) = READER.recordings(Folder.of(tmp_path))
    reason = "the file is empty" if not keep else f"the file ends at byte {keep}, inside the "
    with pytest.raises(RecordingError, match=f"record 0: {reason}"):
        READER.open(Folder.of(tmp_path), ref)


def test_a_damaged_record_is_refused_and_the_others_stay(tmp_path: Path) -> None:
    path = write_records(tmp_path / FILE, [example(episode(k, 4)) for k in range(3)])
    span = record_spans(Folder.of(tmp_path), FILE)[1]
    damaged = bytearray(path.read_bytes())
    damaged[span.start + 100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(
        RecordingError, match=rf"record 1: the {span.num_bytes:,} bytes at byte {span.start:,} have"
    ):
        opened(path, 1)
    assert opened(path, 2).topics["action"].num_messages == 4


def test_a_damaged_length_hides_what_follows_and_says_how_much(tmp_path: Path) -> None:
    path = write_records(tmp_path / FILE, [example(episode(k, 4)) for k in range(3)])
    start = record_spans(Folder.of(tmp_path), FILE)[1].start - 12
    damaged = bytearray(path.read_bytes())
    damaged[start + 1] ^= 1
    path.write_bytes(damaged)
    lost = f"{len(damaged) - start:,} bytes from here on cannot be told apart"
    assert len(READER.recordings(Folder.of(tmp_path))) == 2
    with pytest.raises(
        RecordingError, match=rf"record 1: byte {start:,}: expected a record's length .* The {lost}"
    ):
        opened(path, 1)
    assert opened(path, 0).topics["action"].num_messages == 4


def test_a_compressed_file_is_refused_by_its_kind(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(gzip.compress(b"records"))
    with pytest.raises(RecordingError, match="byte 0: the file is compressed with gzip; unpack it"):
        opened(path)


def test_bytes_with_a_right_checksum_that_are_no_example_are_refused(tmp_path: Path) -> None:
    path = write_records(tmp_path / FILE, [b"\x0a\xff\xff\xff\xff\x0f"])
    with pytest.raises(RecordingError, match=r"record 0: no tf\.train\.Example: protobuf field 1 of"):
        opened(path)


def test_a_record_or_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = write_records(tmp_path / FILE, [example(episode(0, 4))])
    with pytest.raises(RecordingError, match="holds 1 records, no record 7"):
        opened(path, 7)
    with pytest.raises(
        RecordingError, match=r"expected a recording named like train\.tfrecord:00003, found 'ep'"
    ):
        READER.open(Folder.of(tmp_path), RecordingRef("ep", (FILE,)))
    path.unlink()
    with pytest.raises(RecordingError, match="no such file; it was there when"):
        opened(path)


def test_a_file_replaced_by_a_longer_one_is_read_anew(tmp_path: Path) -> None:
    path = write_records(tmp_path / FILE, [example(episode(0, 4))])
    assert len(READER.recordings(Folder.of(tmp_path))) == 1
    write_records(path, [example(episode(0, 4))] * 2)
    assert len(READER.recordings(Folder.of(tmp_path))) == 2


values_in_lists = some.dictionaries(
    some.text(max_size=8),
    some.one_of(
        some.lists(some.binary(max_size=20), min_size=1, max_size=5),
        some.lists(some.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
        some.lists(some.floats(width=32, allow_nan=False), min_size=1, max_size=5),
    ),
    max_size=5,
)


@given(values=values_in_lists, packed=some.booleans())
def test_any_example_that_protobuf_writes_is_read_back(values: dict[str, Any], packed: bool) -> None:
    found = parse_example(memoryview(example(values, packed=packed)))
    assert sorted(found) == sorted(values)
    for name, items in values.items():
        feature = found[name]
        read = list(map(bytes, feature.items)) if feature.kind == "bytes" else feature.numbers.tolist()
        assert read == items and len(feature) == len(items)


def test_damaged_examples_are_refused_or_read_and_never_crash() -> None:
    whole = example(episode(0, 3))
    dice = random.Random(4)
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(min(len(damaged), 600))] = dice.randrange(256)
        try:
            parse_example(memoryview(bytes(damaged[: dice.randint(1, len(damaged))])))
        except CorruptEpisode as error:
            assert "protobuf" in str(error) or "integer" in str(error) or "floats" in str(error)
