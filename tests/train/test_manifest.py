from __future__ import annotations

import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dyna_train.errors import ManifestError
from dyna_train.manifest import Features, Manifest, ManifestInfo, Statistics, VectorStatistics, write_manifest
from dyna_train.manifest.schema import HEAD_KEY, SCHEMA, TAIL_KEY

ONE = VectorStatistics(mean=(0.0,), std=(1.0,), min=(-1.0,), max=(1.0,))
INFO = ManifestInfo(
    name="demo",
    root="s3://bucket/corpus/",
    features=Features(
        cameras={"top": {"height": 48, "width": 64}}, state=("arm.a",), action=("arm.a",), rate_hz=30
    ),
    statistics=Statistics(state=ONE, action=ONE),
    query="select * from episodes",
    table_versions={"episodes": 4},
)


def rows_of(lengths, *, start=0, tasks=None):
    """A batch of rows with these numbers of steps."""
    numbers = range(start, start + len(lengths))
    return pa.RecordBatch.from_pydict(
        {
            "dataset": [f"set{number % 2}" for number in numbers],
            "shard": [number // 3 for number in numbers],
            "episode_id": [1000 + number for number in numbers],
            "content_hash": pa.array([2**64 - 1 - number for number in numbers], pa.uint64()),
            "start_step": [number % 5 for number in numbers],
            "num_steps": list(lengths),
            "task": tasks or [f"task {number // 4}" for number in numbers],
        }
    )


def written(path, lengths, *, batch_rows=4, info=INFO):
    write_manifest(path, [rows_of(lengths)], info=info, batch_rows=batch_rows)
    return Manifest.open(path)


lengths_of_rows = st.lists(st.integers(1, 50), min_size=1, max_size=30)
quick = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_what_was_written_is_read_back(tmp_path):
    totals = write_manifest(tmp_path / "m.arrow", [rows_of([3, 1, 4]), rows_of([1, 5], start=3)], info=INFO)
    manifest = Manifest.open(tmp_path / "m.arrow")
    assert manifest.info == INFO
    assert manifest.totals == totals
    assert (manifest.num_rows, manifest.num_steps) == (5, 14)
    assert manifest.datasets == ("set0", "set1")
    assert manifest.tasks == ("task 0", "task 1")
    row = manifest.row(4)
    assert (row.dataset, row.shard, row.episode_id, row.task, row.task_index) == (
        "set0",
        1,
        1004,
        "task 1",
        1,
    )
    assert (row.start_step, row.num_steps, row.stop_anchor, row.content_hash) == (4, 5, 14, 2**64 - 5)
    assert manifest.episode_uri(4) == "s3://bucket/corpus/episodes/shard-000001/1004-fffffffffffffffb.mcap"
    assert manifest.episode_uri(0, root="/data").startswith("/data/episodes/shard-000000/1000-")
    assert "5 rows, 14 steps" in repr(manifest)


@quick
@given(lengths=lengths_of_rows, cuts=st.lists(st.integers(0, 30)), batch_rows=st.integers(1, 9))
def test_file_and_hash_do_not_depend_on_how_the_rows_arrive(tmp_path, lengths, cuts, batch_rows):
    whole = rows_of(lengths)
    edges = sorted({0, len(lengths), *(cut for cut in cuts if cut < len(lengths))})
    parts = [whole.slice(start, stop - start) for start, stop in itertools.pairwise(edges)]
    one, other = tmp_path / "one.arrow", tmp_path / "other.arrow"
    first = write_manifest(one, [whole], info=INFO, batch_rows=batch_rows)
    second = write_manifest(other, [*parts, whole.slice(0, 0)], info=INFO, batch_rows=batch_rows)
    assert first == second
    assert one.read_bytes() == other.read_bytes()
    third = write_manifest(other, parts, info=INFO, batch_rows=batch_rows + 1)
    assert third.sha256 == first.sha256
    Manifest.open(other).verify()


def test_another_row_order_or_value_is_another_hash(tmp_path):
    hashes = {
        written(tmp_path / "m.arrow", lengths).sha256 for lengths in ([1, 2, 3], [1, 3, 2], [1, 2, 4], [1, 2])
    }
    assert len(hashes) == 4


def test_any_arrow_reader_sees_the_rows_the_texts_and_the_query(tmp_path):
    written(tmp_path / "m.arrow", [3, 1, 4, 1, 5])
    table = pa.ipc.open_file(tmp_path / "m.arrow").read_all()
    assert table["task"].to_pylist() == ["task 0"] * 4 + ["task 1"]
    assert table["cum_steps"].to_pylist() == [3, 4, 8, 9, 14]
    assert json.loads(table.schema.metadata[HEAD_KEY])["info"]["query"] == INFO.query


@quick
@given(lengths=lengths_of_rows, batch_rows=st.integers(1, 9))
def test_every_anchor_is_located_in_its_row_and_step(tmp_path, lengths, batch_rows):
    manifest = written(tmp_path / "m.arrow", lengths, batch_rows=batch_rows)
    rows, steps = manifest.locate(np.arange(manifest.num_steps))
    expected = [
        (row.index, row.start_step + place) for row in manifest.rows() for place in range(row.num_steps)
    ]
    assert list(zip(rows.tolist(), steps.tolist(), strict=True)) == expected


@quick
@given(lengths=lengths_of_rows, world=st.integers(1, 40), batch_rows=st.integers(1, 9))
def test_slices_cover_every_row_once_and_are_balanced_to_within_one_row(tmp_path, lengths, world, batch_rows):
    manifest = written(tmp_path / "m.arrow", lengths, batch_rows=batch_rows)
    slices = [manifest.slice(rank, world) for rank in range(world)]
    assert [row for part in slices for row in range(part.start_row, part.stop_row)] == list(
        range(len(lengths))
    )
    assert sum(part.num_steps for part in slices) == manifest.num_steps
    assert all(abs(part.num_steps - manifest.num_steps / world) < max(lengths) + 1 for part in slices)
    for part in slices:
        assert [n for view in part.views["num_steps"] for n in view] == lengths[
            part.start_row : part.stop_row
        ]
        assert part.table().num_rows == part.num_rows


def test_views_and_slices_point_into_the_mapped_file(tmp_path):
    manifest = written(tmp_path / "m.arrow", [2] * 20, batch_rows=8)
    mapped = [
        line.split()[0].split("-")
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "m.arrow" in line
    ]
    ranges = [(int(start, 16), int(stop, 16)) for start, stop in mapped]
    part = manifest.slice(1, 2)
    for name in SCHEMA.names:
        for view in (*manifest.views[name], *part.views[name]):
            address = view.__array_interface__["data"][0]
            assert any(start <= address < stop for start, stop in ranges), name
            assert not view.flags.writeable
    whole, half = manifest.views["episode_id"][1], part.views["episode_id"][0]
    assert half.__array_interface__["data"][0] == whole.__array_interface__["data"][0] + 2 * whole.itemsize


def test_a_pickled_manifest_is_its_path_and_opens_again(tmp_path):
    manifest = written(tmp_path / "m.arrow", [5] * 1000)
    assert manifest.views["shard"]
    data = pickle.dumps(manifest)
    assert len(data) < 500
    assert pickle.loads(data).row(999) == manifest.row(999)


def test_a_pickled_manifest_whose_path_holds_another_one_is_refused(tmp_path):
    data = pickle.dumps(written(tmp_path / "m.arrow", [5, 6]))
    written(tmp_path / "m.arrow", [5, 7])
    with pytest.raises(ManifestError, match="was replaced while in use"):
        pickle.loads(data)


def test_a_manifest_without_rows_opens_and_slices_to_nothing(tmp_path):
    write_manifest(tmp_path / "m.arrow", [], info=INFO)
    manifest = Manifest.open(tmp_path / "m.arrow")
    manifest.verify()
    assert (manifest.num_rows, manifest.num_steps, manifest.tasks) == (0, 0, ())
    assert manifest.slice(1, 2).num_steps == 0


def test_rows_anchors_and_ranks_outside_are_refused(tmp_path):
    manifest = written(tmp_path / "m.arrow", [2, 3])
    with pytest.raises(IndexError, match="row 2 is outside the 2 rows"):
        manifest.row(2)
    with pytest.raises(IndexError, match="anchors 0 to 5 leave the 5 of"):
        manifest.locate(np.array([0, 5]))
    with pytest.raises(ValueError, match="rank 2 is outside a world of 2"):
        manifest.slice(2, 2)


def test_integers_of_other_types_and_string_views_are_taken_where_no_value_changes(tmp_path):
    wide = rows_of([3, 1])
    for name, kind in [
        ("shard", pa.int64()),
        ("num_steps", pa.uint64()),
        ("task", pa.large_string()),
        ("dataset", pa.string_view()),
    ]:
        index = wide.schema.get_field_index(name)
        wide = wide.set_column(index, name, wide.column(name).cast(kind))
    assert write_manifest(tmp_path / "a", [wide], info=INFO) == write_manifest(
        tmp_path / "b", [rows_of([3, 1])], info=INFO
    )


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("num_steps", pa.array([1, 0]), "column 'num_steps' holds 0, expected at least 1"),
        ("start_step", pa.array([-1, 0]), "column 'start_step' holds -1, expected at least 0"),
        ("task", pa.array(["a", None]), "column 'task' has 1 nulls; every row needs a value"),
        ("shard", pa.array([0, 2**40]), "column 'shard' is int64, expected int32"),
        ("shard", pa.array(["x", "y"]), "column 'shard' is string, expected int32"),
    ],
)
def test_a_column_that_cannot_be_is_named_and_nothing_is_left(tmp_path, name, column, message):
    batch = rows_of([3, 1])
    batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    with pytest.raises(ManifestError, match=message):
        write_manifest(tmp_path / "m.arrow", [batch], info=INFO)
    assert list(tmp_path.iterdir()) == []


def test_missing_and_unknown_columns_are_named(tmp_path):
    batch = rows_of([3]).rename_columns(
        ["dataset", "shard", "episode", "content_hash", "start_step", "num_steps", "task"]
    )
    with pytest.raises(ManifestError, match="missing: episode_id, unknown: episode"):
        write_manifest(tmp_path / "m.arrow", [batch], info=INFO)


def test_statistics_must_cover_the_features():
    with pytest.raises(ValueError, match=r"statistics\.state\.mean has 1 values, features 2"):
        ManifestInfo(
            root="x",
            features=INFO.features.model_copy(update={"state": ("a", "b")}),
            statistics=INFO.statistics,
        )


# ---- damaged files


def test_a_missing_file_and_a_folder_say_so(tmp_path):
    with pytest.raises(ManifestError, match=r"m\.arrow: no such file"):
        Manifest.open(tmp_path / "m.arrow")
    with pytest.raises(ManifestError, match="is a folder"):
        Manifest.open(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"PAR1....PAR1", b"some text, longer than both magics together"]
)
def test_another_kind_of_file_is_not_an_arrow_file(tmp_path, content):
    (tmp_path / "m.arrow").write_bytes(content)
    with pytest.raises(ManifestError, match="not an Arrow file: it begins with"):
        Manifest.open(tmp_path / "m.arrow")


def test_a_file_cut_anywhere_is_refused(tmp_path):
    written(tmp_path / "m.arrow", [2, 3, 4, 5, 6])
    for size in range((tmp_path / "m.arrow").stat().st_size - 1, 5, -1):
        os.truncate(tmp_path / "m.arrow", size)
        with pytest.raises(ManifestError, match=r"m\.arrow: (ends at byte|its|not an Arrow)"):
            Manifest.open(tmp_path / "m.arrow")


def test_a_flipped_header_is_refused(tmp_path):
    written(tmp_path / "m.arrow", [2, 3])
    data = bytearray((tmp_path / "m.arrow").read_bytes())
    data[2] ^= 0xFF
    (tmp_path / "m.arrow").write_bytes(data)
    with pytest.raises(ManifestError, match="not an Arrow file"):
        Manifest.open(tmp_path / "m.arrow")


def test_a_flip_of_any_byte_is_found_by_open_or_verify_or_changes_nothing(tmp_path):
    good = written(tmp_path / "m.arrow", [2, 3, 4, 5, 6])
    rows, data = list(good.rows()), (tmp_path / "m.arrow").read_bytes()
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path = tmp_path / f"flip{place}.arrow"
        path.write_bytes(flipped)
        try:
            manifest = Manifest.open(path)
            manifest.verify()
        except ManifestError:
            pass
        else:
            assert (list(manifest.rows()), manifest.info) == (rows, good.info), place
        path.unlink()


def rewritten(path, *, schema=None, metadata=None, tail=None, batches=None):
    """The file at `path` with parts of it replaced, each whole in itself."""
    reader = pa.ipc.open_file(path)
    schema = reader.schema.with_metadata(metadata or reader.schema.metadata) if schema is None else schema
    found = [reader.get_batch_with_custom_metadata(index) for index in range(reader.num_record_batches)]
    target = path.with_name("rewritten.arrow")
    with pa.ipc.new_file(target, schema) as writer:
        for batch, custom in found if batches is None else batches(found):
            columns = [batch.column(name) for name in schema.names]
            custom = tail if custom is not None and tail is not None else custom
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema), custom_metadata=custom)
    return target


def test_a_newer_format_asks_for_an_upgrade(tmp_path):
    written(tmp_path / "m.arrow", [2, 3])
    newer = rewritten(tmp_path / "m.arrow", metadata={HEAD_KEY: b'{"format": "dyna.manifest/2", "rooms": 3}'})
    with pytest.raises(
        ManifestError, match=r"written as 'dyna\.manifest/2'; .* reads 'dyna\.manifest/1'\. Upgrade dyna"
    ):
        Manifest.open(newer)


def test_an_arrow_file_of_something_else_is_not_a_manifest(tmp_path):
    with pa.ipc.new_file(tmp_path / "m.arrow", pa.schema([("x", pa.int8())])):
        pass
    with pytest.raises(ManifestError, match=r"an Arrow file, but not a manifest: .* lacks 'dyna\.manifest'"):
        Manifest.open(tmp_path / "m.arrow")


def test_other_columns_are_listed_beside_the_expected_ones(tmp_path):
    written(tmp_path / "m.arrow", [2, 3])
    fewer = pa.ipc.open_file(tmp_path / "m.arrow").schema.remove(0)
    with pytest.raises(
        ManifestError, match=r"its columns are \[shard: int32, .*expected \[dataset: dictionary"
    ):
        Manifest.open(rewritten(tmp_path / "m.arrow", schema=fewer))


def test_a_lost_batch_is_missed_by_the_totals(tmp_path):
    written(tmp_path / "m.arrow", [2] * 10)
    lost = rewritten(tmp_path / "m.arrow", batches=lambda found: [found[0], *found[2:]])
    with pytest.raises(
        ManifestError, match="holds 6 rows in 2 batches and 20 steps; its totals say 10 rows in 3"
    ):
        Manifest.open(lost)


@pytest.mark.parametrize("tail", [{b"other": b""}, {TAIL_KEY: b"{}"}, {TAIL_KEY: b"not json"}])
def test_lost_totals_are_a_damaged_closing_batch(tmp_path, tail):
    written(tmp_path / "m.arrow", [2, 3])
    with pytest.raises(ManifestError, match="its closing batch is damaged"):
        Manifest.open(rewritten(tmp_path / "m.arrow", tail=tail))


def test_an_edited_query_does_not_pass_for_the_one_that_was_run(tmp_path):
    written(tmp_path / "m.arrow", [2, 3])
    head = pa.ipc.open_file(tmp_path / "m.arrow").schema.metadata[HEAD_KEY].replace(b"select *", b"select 1")
    with pytest.raises(ManifestError, match="its schema metadata is damaged"):
        Manifest.open(rewritten(tmp_path / "m.arrow", metadata={HEAD_KEY: head}))


def test_a_writer_killed_at_any_moment_leaves_no_manifest(tmp_path):
    program = textwrap.dedent("""
        import sys, time
        sys.path.insert(0, sys.argv[2])
        from test_manifest import INFO, rows_of, write_manifest
        def rows():
            for k in range(10**6):
                yield rows_of([3] * 10, start=10 * k)
                print(k, flush=True)
        write_manifest(sys.argv[1], rows(), info=INFO, batch_rows=16)
    """)
    target = tmp_path / "m.arrow"
    target.write_bytes(b"the old one")
    command = [sys.executable, "-c", program, str(target), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        for _ in range(20):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert target.read_bytes() == b"the old one"
