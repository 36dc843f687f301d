"""Delta tables: appended exactly once, read at one version."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

from dyna_assets.errors import CurationError, SetupError, ShardBusy
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import GOP_TABLES, LABELS, SHARDS_PER_BUCKET


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
