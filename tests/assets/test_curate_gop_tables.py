"""GOP tables on their way from the warehouse to a manifest's side, over rows that no recording was needed for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dyna_assets.curation.curate import Curated, CurationSpec, curate
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import EPISODES, GOP_TABLES
from dyna_train.config import parse_config
from dyna_train.errors import ConfigError
from dyna_train.manifest import Manifest, gop_tables_path

Hashes = Sequence[tuple[int, str]]
"""Episode and content hash."""


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path / "lake"))
    made.create()
    return made


def hash_of(episode_id: int, version: int = 0) -> str:
    return hashlib.sha256(f"{episode_id} {version}".encode()).hexdigest()


def add_episodes(warehouse: Warehouse, shard: int, seq: int, hashes: Hashes, *, source: str = "a") -> None:
    nothing: dict[str, Any] = {
        name: [] if pa.types.is_list(kind) else "" if kind == pa.string() else 0
        for name, kind in EPISODES.columns
    }
    facts = {**nothing, "source": source, "rate_hz": 30.0, "num_steps": 3, "duration_s": 0.1}
    facts |= {"valid_starts": [0], "valid_ends": [3]}
    rows = [{**facts, "episode_id": episode_id, "content_hash": digest} for episode_id, digest in hashes]
    warehouse.append(EPISODES, shard, seq, rows, run_id="run")


def add_tables(warehouse: Warehouse, shard: int, seq: int, hashes: Hashes) -> None:
    """A table whose bytes are the content hash it is true of."""
    rows = [
        {"episode_id": episode_id, "content_hash": digest, "tracks": "{}", "gop_table": digest.encode()}
        for episode_id, digest in hashes
    ]
    warehouse.append(GOP_TABLES, shard, seq, rows, run_id="run")


def curated(warehouse: Warehouse, path: Path) -> Curated:
    with duckdb.connect() as connection:
        return curate(
            CurationSpec(name="all", passed=False), warehouse, connection, path, lake=warehouse.root
        )


def tables_beside(path: Path) -> list[bytes | None]:
    table = pa.ipc.open_file(gop_tables_path(path)).read_all()
    found: list[bytes | None] = table["gop_table"].to_pylist()
    return found


def test_tables_follow_the_order_of_the_manifest_over_many_stretches_shards_and_sources(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    for shard in (5, 0, 300, 2):
        hashes = [(10_000 * shard + number, hash_of(10_000 * shard + number)) for number in range(6_000)]
        add_episodes(warehouse, shard, 1, hashes, source="ab"[shard % 2])
        add_tables(warehouse, shard, 1, hashes[::-1])
    made = curated(warehouse, tmp_path / "m.arrow")
    assert (made.totals.num_rows, made.num_without_gops) == (24_000, 0)
    ids = [episode_id for view in Manifest.open(made.uri).views["episode_id"] for episode_id in view.tolist()]
    assert tables_beside(tmp_path / "m.arrow") == [hash_of(episode_id).encode() for episode_id in ids]


def test_a_table_is_that_of_the_files_bytes_whatever_else_was_made_of_the_episode(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    old, new, other = hash_of(1), hash_of(1, 1), hash_of(2)
    add_episodes(warehouse, 0, 1, [(1, old), (2, other)])
    add_tables(warehouse, 0, 1, [(1, old), (2, other)])
    add_episodes(warehouse, 0, 2, [(1, new)])
    add_tables(warehouse, 0, 2, [(1, new)])
    add_episodes(warehouse, 0, 3, [(2, other)])  # made again after a killed run: the same bytes twice
    add_tables(warehouse, 0, 3, [(2, other)])
    made = curated(warehouse, tmp_path / "m.arrow")
    assert (made.totals.num_rows, made.num_without_gops) == (2, 0)
    assert tables_beside(tmp_path / "m.arrow") == [new.encode(), other.encode()]


def test_rows_without_a_table_stay_and_are_counted(warehouse: Warehouse, tmp_path: Path) -> None:
    add_episodes(warehouse, 0, 1, [(number, hash_of(number)) for number in range(4)])
    add_tables(warehouse, 0, 1, [(2, hash_of(2)), (3, hash_of(3, 1))])
    made = curated(warehouse, tmp_path / "m.arrow")
    assert made.num_without_gops == 3
    assert tables_beside(tmp_path / "m.arrow") == [None, None, hash_of(2).encode(), None]


def test_a_manifest_may_not_take_the_name_of_what_lies_beside_another() -> None:
    with pytest.raises(ConfigError, match=r"key 'name' = 'folding\.gops': .*choose a name without '\.gops'"):
        parse_config(CurationSpec, {"name": "folding.gops"}, where="curation")
