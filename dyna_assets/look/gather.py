"""The rows of the warehouse that pages are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from dyna_assets.errors import CurationError
from dyna_assets.look.facts import EpisodeRows, Outcome, PageFacts, RowDict, badness, facts_of, outcome_of
from dyna_assets.quality.policy import LimitsOf
from dyna_assets.warehouse.store import Warehouse, fetch
from dyna_assets.warehouse.tables import TABLES
from dyna_train.episode.address import shard_key

_TABLES = ("recordings", "episodes", "qc_evidence", "verdicts", "traces", "version_stamps")
_LIGHT = {"recordings": "facts", "qc_evidence": "details"}
"""Columns that only the page of an episode needs."""


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """A shard at a glance. outcomes: how many rows ended how. worst: facts of the worst rows, worst first."""

    key: str
    num_rows: int
    outcomes: Mapping[Outcome, int]
    num_checked: int
    num_checks: int
    worst: tuple[PageFacts, ...]


def page_facts(warehouse: Warehouse, episode_id: int, limits_of: LimitsOf) -> PageFacts:
    """What the page of one episode says. Raises CurationError if no step has met such an episode."""
    with duckdb.connect() as connection:
        warehouse.view(connection, warehouse.pin("version_stamps"))
        found = fetch(
            connection, "SELECT DISTINCT shard FROM version_stamps WHERE episode_id = ?", episode_id
        )
    if not found:
        raise CurationError(
            f"no episode {episode_id}: no step has met it. What there is: dyna-assets status, dyna-assets verdicts"
        )
    with _views_of(warehouse, found[0]["shard"]) as views:
        (facts,) = _facts(views, [episode_id], limits_of)
    return facts


def shard_facts(warehouse: Warehouse, shard: int, limits_of: LimitsOf, *, most: int) -> ShardFacts:
    """The shard's counts, and the facts of its `most` worst episodes."""
    with _views_of(warehouse, shard) as views:
        light = {table: views.current(table, light=True) for table in _TABLES if table != "traces"}
        ranked = sorted(
            _rows_by_episode(light).items(),
            key=lambda item: (badness(item[1], limits_of(_named(item[1])[0])), item[0]),
        )
        worst = _facts(views, [number for number, _ in ranked[:most]], limits_of)
    return ShardFacts(
        key=shard_key(shard),
        num_rows=len(ranked),
        outcomes=Counter(outcome_of(rows) for _, rows in ranked),
        num_checked=sum(row["num_checked"] for row in light["verdicts"]),
        num_checks=sum(row["num_checks"] for row in light["verdicts"]),
        worst=tuple(worst),
    )


@dataclass(frozen=True, slots=True)
class _Views:
    """The tables of one shard, open for questions."""

    connection: duckdb.DuckDBPyConnection
    shard: int

    def current(
        self, table: str, *, only: Iterable[int] | None = None, light: bool = False
    ) -> list[dict[str, Any]]:
        """The rows that hold now, of the episodes `only`. light: without the columns that are long."""
        columns = f"* EXCLUDE ({_LIGHT[table]})" if light and table in _LIGHT else "*"
        among = "" if only is None else f"AND episode_id IN ({', '.join(map(str, only)) or 'NULL'})"
        query = (
            f"SELECT {columns} FROM {table} WHERE shard = ? {among} "
            f"QUALIFY seq = max(seq) OVER (PARTITION BY {TABLES[table].key})"
        )
        return fetch(self.connection, query, self.shard)


@contextmanager
def _views_of(warehouse: Warehouse, shard: int) -> Iterator[_Views]:
    with duckdb.connect() as connection:
        for table in _TABLES:
            warehouse.view(connection, warehouse.pin(table, shard=shard))
        yield _Views(connection, shard)


def _facts(views: _Views, episode_ids: Sequence[int], limits_of: LimitsOf) -> list[PageFacts]:
    """The facts of some episodes of a shard, in the order asked for."""
    rows = _rows_by_episode({table: views.current(table, only=episode_ids) for table in _TABLES})
    return [
        facts_of(number, *_named(rows[number]), rows[number], limits_of(_named(rows[number])[0]))
        for number in episode_ids
    ]


def _named(rows: EpisodeRows) -> tuple[str, str]:
    """Source and name; every episode has a stamp."""
    return rows.stamps[0]["source"], rows.stamps[0]["name"]


def _rows_by_episode(tables: Mapping[str, Sequence[RowDict]]) -> dict[int, EpisodeRows]:
    """Every episode that has a stamp, with its rows of all tables."""
    found: dict[int, dict[str, list[RowDict]]] = {}
    for table, rows in tables.items():
        for row in rows:
            found.setdefault(row["episode_id"], {}).setdefault(table, []).append(row)
    return {
        number: _episode_rows(by_table) for number, by_table in found.items() if "version_stamps" in by_table
    }


def _episode_rows(by_table: Mapping[str, Sequence[RowDict]]) -> EpisodeRows:
    return EpisodeRows(
        recording=next(iter(by_table.get("recordings", ())), None),
        episode=next(iter(by_table.get("episodes", ())), None),
        evidence=by_table.get("qc_evidence", ()),
        verdicts=by_table.get("verdicts", ()),
        traces=by_table.get("traces", ()),
        stamps=by_table.get("version_stamps", ()),
    )
