"""The GOP tables beside a manifest: what they hold, and that they belong to it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_corpus import Stretch, build, tables_of

from dyna_train.episode.index import GopTable, Pieces
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack, Tracks, VectorTrack
from dyna_train.errors import CorruptEpisode, ManifestError
from dyna_train.loader import EpisodeDataset
from dyna_train.manifest import Manifest, Totals, fetch_manifest, gop_tables_path
from dyna_train.manifest.gop_tables import HEAD_KEY, GopTables, write_gop_tables
from dyna_train.window import WindowSpec

SPEC = WindowSpec(frames=(-3, 0, 2), state=(-1, 0), action=tuple(range(6)))
TRACKS = tuple(
    Tracks(30.0, (CameraTrack(name, 64, 48),), (VectorTrack("arm", "state", ("a",), ("rad",)),))
    for name in ("top", "größe")
)


def table_of(number: int) -> bytes:
    """A table that no other number has."""
    ranges = np.array([[100 + number, 900], [900, 1000]], np.int64)
    pieces = Pieces(5, ranges, np.full((1, 2), number, np.uint32))
    return GopTable(10, EpisodeLayout(5, 1, 5), {"video": pieces}).to_bytes()


def totals_of(num_rows: int, sha256: str = "ab" * 32) -> Totals:
    return Totals(num_rows=num_rows, num_steps=num_rows, batch_rows=7, sha256=sha256, info_sha256="")


def written(path: Path, known, *, batch_rows: int = 4) -> GopTables:
    totals = totals_of(len(known))
    write_gop_tables(path, [tables_of(known)], totals=totals, batch_rows=batch_rows)
    tables = GopTables.open(path, totals=totals)
    assert tables is not None
    return tables


rows_of_a_file = st.lists(
    st.none()
    | st.tuples(st.sampled_from([one.to_json() for one in TRACKS]), st.integers(0, 2).map(table_of)),
    max_size=25,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows_of_a_file, cuts=st.lists(st.integers(0, 25)), batch_rows=st.integers(1, 9))
def test_every_row_gets_back_its_own_table_however_the_rows_arrive(tmp_path, rows, cuts, batch_rows):
    whole = tables_of([row or (None, None) for row in rows])
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = [whole.slice(start, stop - start) for start, stop in itertools.pairwise(edges)]
    totals = totals_of(len(rows))
    write_gop_tables(tmp_path / "m.gops.arrow", parts, totals=totals, batch_rows=batch_rows)
    tables = GopTables.open(tmp_path / "m.gops.arrow", totals=totals)
    for number, row in enumerate(rows):
        found = tables.get(number)
        assert (found is None) == (row is None)
        if found is not None:
            assert (found.tracks.to_json(), found.table.to_bytes()) == row
    assert tables.num_known == sum(row is not None for row in rows)
    tables.verify()


def test_stretches_of_one_episode_share_one_table(tmp_path):
    one, other = (os.urandom(10_000) for _ in range(2))
    text = TRACKS[0].to_json()
    shared = tmp_path / "shared.gops.arrow"
    write_gop_tables(shared, [tables_of([(text, one)] * 50 + [(text, other)] * 50)], totals=totals_of(100))
    assert shared.stat().st_size < 3 * 10_000


def test_no_row_is_read_at_opening_and_only_its_batch_when_asked_for(tmp_path):
    row = tables_of([(TRACKS[0].to_json(), table_of(1))] * 4096)
    totals = totals_of(20 * 4096)
    write_gop_tables(tmp_path / "m.gops.arrow", [row] * 20, totals=totals)
    tables = GopTables.open(tmp_path / "m.gops.arrow", totals=totals)
    assert tables._batches == {}
    for number in (0, 5, 4095, 4096, 20 * 4096 - 1):
        assert tables.get(number) is not None
    assert sorted(tables._batches) == [0, 1, 19]


def test_tables_of_another_manifest_are_refused_with_what_to_do(tmp_path):
    written(tmp_path / "m.gops.arrow", [(None, None)] * 3)
    for other in (totals_of(3, "cd" * 32), totals_of(4)):
        with pytest.raises(
            ManifestError,
            match=r"m\.gops\.arrow: GOP tables of manifest abab.* 3 rows, beside .*Copy both files",
        ):
            GopTables.open(tmp_path / "m.gops.arrow", totals=other)


def test_more_or_fewer_tables_than_rows_are_refused_and_nothing_is_left(tmp_path):
    for num in (2, 4):
        with pytest.raises(ManifestError, match=f"{num} GOP tables for 3 manifest rows"):
            write_gop_tables(tmp_path / "m", [tables_of([(None, None)] * num)], totals=totals_of(3))
    assert list(tmp_path.iterdir()) == []


def test_a_newer_format_asks_for_an_upgrade(tmp_path):
    written(tmp_path / "m.gops.arrow", [(None, None)])
    reader = pa.ipc.open_file(tmp_path / "m.gops.arrow")
    head = reader.schema.metadata[HEAD_KEY].replace(b"dyna.gops/1", b"dyna.gops/2")
    with pa.ipc.new_file(tmp_path / "newer", reader.schema.with_metadata({HEAD_KEY: head})):
        pass
    with pytest.raises(
        ManifestError, match=r"written as 'dyna\.gops/2'.* reads 'dyna\.gops/1'\. Upgrade dyna"
    ):
        GopTables.open(tmp_path / "newer", totals=totals_of(1))


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "m.gops.arrow"
    written(path, [(TRACKS[0].to_json(), table_of(number)) for number in range(6)])
    for size in range(path.stat().st_size - 1, 5, -1):
        os.truncate(path, size)
        with pytest.raises(ManifestError, match=r"m\.gops\.arrow: (ends at byte|its|not an Arrow)"):
            GopTables.open(path, totals=totals_of(6))


def test_a_flip_of_any_byte_is_refused_or_changes_no_table(tmp_path):
    path = tmp_path / "m.gops.arrow"
    text, other = (one.to_json() for one in TRACKS)
    rows = [(text, table_of(1)), (text, table_of(1)), (None, None), (other, table_of(2)), (text, table_of(3))]
    written(path, rows)
    data, num_refused = path.read_bytes(), 0
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            tables = GopTables.open(path, totals=totals_of(len(rows)))
            found = [tables.get(number) for number in range(len(rows))]
        except (ManifestError, CorruptEpisode) as error:
            assert str(path) in str(error)
            num_refused += 1
            continue
        for one, row in zip(found, rows, strict=True):  # a table that is not there is looked for in the file
            assert one is None or (one.tracks.to_json(), one.table.to_bytes()) == row, place
    assert num_refused > len(data) // 2


def test_a_manifest_finds_its_tables_and_reads_well_without(tmp_path):
    corpus = build(
        tmp_path, lengths=(12, 6), stretches=[Stretch(0, 0, 4), Stretch(0, 6, 6), Stretch(1, 0, 6)]
    )
    manifest = Manifest.open(corpus.manifest)
    for row in manifest.rows():
        tracks, table = manifest.gops(row.index)
        with Episode.open(manifest.episode_uri(row.index)) as episode:
            assert tracks == episode.tracks
            assert table.to_bytes() == episode.table.to_bytes()
    manifest.verify()
    with pytest.raises(IndexError, match="row 3 is outside the 3 rows"):
        manifest.gops(3)
    Path(gop_tables_path(corpus.manifest)).unlink()
    alone = Manifest.open(corpus.manifest)
    assert alone.gop_tables is None
    assert alone.gops(0) is None


def test_a_manifest_written_without_tables_leaves_none_of_its_predecessor(tmp_path):
    with_tables = build(tmp_path / "one", lengths=(6,))
    assert Path(gop_tables_path(with_tables.manifest)).exists()
    build(tmp_path / "one", lengths=(6,), with_tables=False)
    assert not Path(gop_tables_path(with_tables.manifest)).exists()


def test_a_dataset_over_a_pair_that_does_not_belong_together_is_refused_at_once(tmp_path):
    one, other = build(tmp_path / "one", lengths=(6,)), build(tmp_path / "other", lengths=(7,))
    Path(gop_tables_path(other.manifest)).replace(gop_tables_path(one.manifest))
    with pytest.raises(ManifestError, match=r"GOP tables of manifest .* beside manifest"):
        EpisodeDataset(Manifest.open(one.manifest), SPEC)


def test_a_flipped_table_is_found_by_verify(tmp_path):
    corpus = build(tmp_path, lengths=(6,))
    path = Path(gop_tables_path(corpus.manifest))
    table = Manifest.open(corpus.manifest).gops(0).table.to_bytes()
    data = bytearray(path.read_bytes())
    data[data.index(table) + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptEpisode, match=r"manifest\.gops\.arrow: row 0: its GOP table has crc32"):
        Manifest.open(corpus.manifest).verify()


def test_a_writer_killed_while_tables_stream_leaves_the_old_pair(tmp_path):
    corpus = build(tmp_path / "old", lengths=(6,))
    program = textwrap.dedent("""
        import sys
        sys.path.insert(0, sys.argv[2])
        from small_corpus import tables_of
        from test_manifest import INFO, rows_of
        from dyna_train.manifest import write_manifest
        def tables():
            while True:
                yield tables_of([("t", b"x" * 1000)] * 1000)
                print("more", flush=True)
        write_manifest(sys.argv[1], [rows_of([3])], info=INFO, gop_tables=tables())
    """)
    command = [sys.executable, "-c", program, str(corpus.manifest), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        for _ in range(20):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert EpisodeDataset(Manifest.open(corpus.manifest), SPEC)[0]["episode_id"] == 100
    assert Manifest.open(corpus.manifest).gops(0) is not None


def test_a_fetched_manifest_brings_its_tables_and_replaces_those_of_another(tmp_path):
    corpus = build(tmp_path / "lake", lengths=(6,))
    fs, local = fsspec.filesystem("file"), tmp_path / "node" / "m.arrow"
    fetch_manifest(fs, str(corpus.manifest), local)
    assert Manifest.open(local).gops(0) is not None
    bare = build(tmp_path / "bare", lengths=(7,), with_tables=False)
    fetch_manifest(fs, str(bare.manifest), local)
    assert Manifest.open(local).gops(0) is None
    assert [path.name for path in local.parent.iterdir()] == ["m.arrow"]
