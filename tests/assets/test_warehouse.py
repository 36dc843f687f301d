"""Delta tables: appended exactly once, read at one version."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

from dyna_assets.errors import CurationError, SetupError, ShardBusy
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import GOP_TABLES, LABELS, QC_EVIDENCE, SHARDS_PER_BUCKET, VERDICTS, Table


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path / "a lake with spaces, ümlauts & 'quotes'"))
    made.create()
    return made


def label(episode_id: int, task: str = "fold") -> dict[str, Any]:
    return {"episode_id": episode_id, "task": task, "success": True, "origin": "test"}


def append(warehouse: Warehouse, shard: int, seq: int, *rows: dict[str, Any]) -> int:
    return warehouse.append(LABELS, shard, seq, rows, run_id="run")


def test_the_current_row_of_an_episode_is_that_of_the_latest_materialization(warehouse: Warehouse) -> None:
    append(warehouse, 3, 1, label(1, "old"), label(2, "kept"))
    append(warehouse, 3, 2, label(1, "new"))
    current = {row["episode_id"]: row["task"] for row in warehouse.current("labels", 3)}
    assert current == {1: "new", 2: "kept"}


def test_appending_a_materialization_again_writes_nothing(warehouse: Warehouse) -> None:
    assert append(warehouse, 3, 1, label(1)) == 1
    assert append(warehouse, 3, 1, label(1)) == 0
    assert warehouse.pin("labels").num_rows == 1


def test_an_append_behind_a_later_one_is_refused_since_somebody_took_the_shard_over(
    warehouse: Warehouse,
) -> None:
    append(warehouse, 3, 5, label(1))
    with pytest.raises(ShardBusy, match=r"table labels holds append 5 already, this one is 4"):
        append(warehouse, 3, 4, label(1, "late"))
    assert warehouse.pin("labels").num_rows == 1


def test_a_shard_reads_only_its_own_rows_also_within_a_bucket(warehouse: Warehouse) -> None:
    append(warehouse, 0, 1, label(1))
    append(warehouse, 1, 1, label(2))
    append(warehouse, SHARDS_PER_BUCKET, 1, label(3))
    assert [row["episode_id"] for row in warehouse.current("labels", 1)] == [2]
    assert len(warehouse.pin("labels", shard=1).files) == 2
    assert len(warehouse.pin("labels").files) == 3


def test_a_pinned_version_does_not_see_what_came_later(warehouse: Warehouse) -> None:
    append(warehouse, 0, 1, label(1))
    pinned = warehouse.pin("labels")
    append(warehouse, 0, 2, label(2))
    with duckdb.connect() as connection:
        warehouse.view(connection, pinned)
        assert connection.execute("SELECT episode_id FROM labels").fetchall() == [(1,)]
        warehouse.view(connection, warehouse.pin("labels", pinned.version + 1))
        assert connection.execute("SELECT count(*) FROM labels").fetchall() == [(2,)]


def test_a_gop_table_comes_back_byte_for_byte(warehouse: Warehouse) -> None:
    table = bytes(range(256)) * 8
    row = {"episode_id": 1, "content_hash": "ab" * 32, "tracks": '{"cameras":["größe"]}', "gop_table": table}
    warehouse.append(GOP_TABLES, 3, 1, [row], run_id="run")
    (found,) = warehouse.current("gop_tables", 3)
    assert {key: found[key] for key in row} == row


def test_an_empty_table_has_its_columns(warehouse: Warehouse) -> None:
    with duckdb.connect() as connection:
        warehouse.view(connection, warehouse.pin("labels"))
        assert connection.execute("SELECT task, bucket FROM labels").fetchall() == []


def test_compacting_keeps_every_row(warehouse: Warehouse) -> None:
    for seq in range(1, 6):
        append(warehouse, 0, seq, label(seq))
    assert warehouse.compact("labels", min_files=6) == 0
    assert warehouse.compact("labels", min_files=5) == 5
    assert {row["episode_id"] for row in warehouse.current("labels", 0)} == {1, 2, 3, 4, 5}
    assert len(warehouse.pin("labels").files) == 1


def test_a_table_with_deletion_vectors_is_refused_rather_than_read_wrong(warehouse: Warehouse) -> None:
    append(warehouse, 0, 1, label(1))
    table = DeltaTable(warehouse.uri("labels"))
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(
        CurationError, match=r"needs Delta reader version 3 .*deletionVectors.* knows version 1"
    ):
        warehouse.pin("labels")


def test_a_table_with_an_added_column_still_reads(warehouse: Warehouse) -> None:
    append(warehouse, 0, 1, label(1))
    extra = pa.Table.from_pylist([{"bucket": 0, "shard": 0, "seq": 2, **label(2), "note": "new column"}])
    schema = LABELS.schema.append(pa.field("note", pa.string()))
    write_deltalake(warehouse.uri("labels"), _cast(extra, schema), mode="append", schema_mode="merge")
    assert {row["episode_id"] for row in warehouse.current("labels", 0)} == {1, 2}


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.select(schema.names).cast(schema)


def older(warehouse: Warehouse, table: Table, *lacking: str, more: Sequence[pa.Field] = ()) -> None:
    """The table as an older version made it: without some columns, with others, with a row."""
    shutil.rmtree(warehouse.uri(table.name))
    schema = pa.schema([*(field for field in table.schema if field.name not in lacking), *more])
    row = {"bucket": 0, "shard": 0, "episode_id": 1, "seq": 1}
    DeltaTable.create(warehouse.uri(table.name), schema=schema, partition_by=["bucket"])
    write_deltalake(warehouse.uri(table.name), pa.Table.from_pylist([row], schema=schema), mode="append")


def test_a_table_of_an_older_version_gains_the_columns_it_lacks_and_reads_before_any_file_has_them(
    warehouse: Warehouse,
) -> None:
    older(warehouse, QC_EVIDENCE, "time_gap", "camera_dark")
    older(warehouse, VERDICTS, "warned")
    warehouse.create()
    (row,) = warehouse.current("qc_evidence", 0)
    assert (row["episode_id"], row["time_gap"]) == (1, None)
    assert warehouse.current("verdicts", 0)[0]["warned"] is None
    warehouse.append(VERDICTS, 0, 2, [{"episode_id": 1, "warned": ["time.gap"]}], run_id="run")
    assert warehouse.current("verdicts", 0, key="episode_id")[0]["warned"] == ["time.gap"]
    version = warehouse.pin("verdicts").version
    warehouse.create()
    assert warehouse.pin("verdicts").version == version


def test_a_column_that_this_version_no_longer_has_stays_and_is_written_empty(warehouse: Warehouse) -> None:
    older(warehouse, LABELS, more=[pa.field("mood", pa.string()), pa.field("scores", pa.list_(pa.float64()))])
    warehouse.create()
    assert append(warehouse, 0, 2, label(2)) == 1
    assert {row["episode_id"] for row in warehouse.current("labels", 0)} == {1, 2}
    assert DeltaTable(warehouse.uri("labels")).to_pyarrow_table()["mood"].to_pylist() == [None, None]


def test_a_column_of_another_type_is_refused(warehouse: Warehouse) -> None:
    older(warehouse, LABELS, "success", more=[pa.field("success", pa.string())])
    with pytest.raises(
        SetupError, match=r"labels: column 'success' is .*string.*, this version of dyna writes .*bool"
    ):
        warehouse.create()


def test_many_processes_may_add_the_columns_at_once(warehouse: Warehouse) -> None:
    older(warehouse, QC_EVIDENCE, "time_gap")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: warehouse.create(), range(4)))
    assert "time_gap" in {field.name for field in DeltaTable(warehouse.uri("qc_evidence")).schema().fields}


def test_rows_are_found_by_the_appends_that_brought_them(warehouse: Warehouse) -> None:
    append(warehouse, 3, 1, label(1, "first"), label(2, "kept"))
    append(warehouse, 3, 2, label(1, "stamped"))
    append(warehouse, 3, 4, label(1, "killed before its stamp"), label(2, "likewise"))
    found = warehouse.appended("labels", 3, {1: {1, 2}, 2: {1}, 9: set()})
    assert {row["episode_id"]: row["task"] for row in found} == {1: "stamped", 2: "kept"}
    assert warehouse.appended("labels", 3, {}) == []


def rows_across(*keys: tuple[int, int, int]) -> pa.Table:
    """(shard, seq, episode) -> rows of labels."""
    rows = [{"bucket": 0, "shard": shard, "seq": seq, **label(number)} for shard, seq, number in keys]
    return pa.Table.from_pylist(rows, schema=LABELS.schema)


def test_an_append_across_shards_is_one_commit_that_no_earlier_number_follows(warehouse: Warehouse) -> None:
    pinned = warehouse.pin("labels")
    assert (
        warehouse.append_across(pinned, rows_across((0, 5, 1), (7, 3, 2)), {0: 5, 7: 3}, run_id="r") == set()
    )
    assert warehouse.pin("labels").version == pinned.version + 1
    with pytest.raises(ShardBusy, match=r"table labels holds append 3 already, this one is 2"):
        append(warehouse, 7, 2, label(3))
    append(warehouse, 8, 1, label(4))
    assert warehouse.shards_since(pinned) == {0, 7, 8}


def test_shards_that_were_written_since_are_left_out_of_an_append_across_them(warehouse: Warehouse) -> None:
    pinned = warehouse.pin("labels")
    append(warehouse, 7, 1, label(9, "came first"))
    rows = rows_across((0, 5, 1), (7, 3, 2))
    assert warehouse.append_across(pinned, rows, {0: 5, 7: 3}, run_id="r") == {7}
    assert [row["episode_id"] for shard in (0, 7) for row in warehouse.current("labels", shard)] == [1, 9]
    pinned = warehouse.pin("labels")
    append(warehouse, 7, 4, label(9, "again"))
    assert warehouse.append_across(pinned, rows_across((7, 5, 2)), {7: 5}, run_id="r") == {7}
    nothing = rows_across()
    assert warehouse.append_across(pinned, nothing, {}, run_id="r") == set()


def test_a_table_that_does_not_exist_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(CurationError, match=r"labels: no such table.*dyna-assets worker --once"):
        Warehouse(str(tmp_path / "nowhere")).pin("labels")


def _append_many(root: str, shard: int) -> None:
    for seq in range(1, 9):
        append(Warehouse(root), shard, seq, label(shard * 100 + seq))


def test_four_writers_of_four_shards_lose_no_commit(warehouse: Warehouse) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(warehouse.root, shard)) for shard in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert warehouse.pin("labels").num_rows == 32


def test_a_path_with_a_percent_sign_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"100%25: expected a path without '%'.*Choose another DYNA_HOME"):
        Warehouse(str(tmp_path / "100%25")).create()
    assert not list(tmp_path.iterdir())
