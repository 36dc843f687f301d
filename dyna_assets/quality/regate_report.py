"""What a policy changes, counted: per check, and per episode."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from dyna_assets.quality.policy import LEVELS, Level
from dyna_assets.quality.registry import CHECKS, GATES, Gate, checks_of
from dyna_assets.warehouse.store import fetch


@dataclass(frozen=True, slots=True)
class CheckCounts:
    """One check over the current evidence; num_checked of num_rows episodes were measured by it."""

    check: str
    gate: Gate
    num_checked: int
    num_rows: int
    warned_before: int
    warned_after: int
    rejected_before: int
    rejected_after: int


@dataclass(frozen=True, slots=True)
class LevelCounts:
    """Episodes at one level: the worst verdict of their gates. Hours are those of the recordings."""

    level: Level
    episodes_before: int
    episodes_after: int
    hours_before: float
    hours_after: float


def count_checks(connection: duckdb.DuckDBPyConnection) -> tuple[CheckCounts, ...]:
    """Counts of every check, from the tables `judged` and `worth_a_look`."""
    rows = fetch(connection, "SELECT gate, checked, count(*) AS num FROM judged GROUP BY ALL")
    num_rows = {gate: sum(row["num"] for row in rows if row["gate"] == gate) for gate in GATES}
    num_checked = {
        rule.name: sum(row["num"] for row in rows if row["gate"] == rule.gate and row["checked"] >> bit & 1)
        for gate in GATES
        for bit, rule in enumerate(checks_of(gate))
    }
    named = {
        column: {
            row["name"]: row["num"]
            for row in fetch(
                connection,
                f"SELECT name, count(*) AS num FROM (SELECT unnest({column}) AS name FROM worth_a_look) GROUP BY name",
            )
        }
        for column in ("old_warned", "warned", "old_rejected", "rejected")
    }
    return tuple(
        CheckCounts(
            rule.name,
            rule.gate,
            num_checked[rule.name],
            num_rows[rule.gate],
            *(named[column].get(rule.name, 0) for column in named),
        )
        for rule in CHECKS.values()
    )


def count_levels(connection: duckdb.DuckDBPyConnection) -> tuple[LevelCounts, ...]:
    """Episodes and hours at every level, from the tables `judged` and `recordings`."""
    rows = fetch(
        connection,
        """
        WITH each AS (
            SELECT episode_id, max(old_verdict) AS before, max(verdict) AS after FROM judged GROUP BY episode_id
        ), lasting AS (
            SELECT episode_id, arg_max(duration_s, seq) / 3600 AS hours FROM recordings GROUP BY episode_id
        )
        SELECT before, after, count(*) AS num, coalesce(sum(hours), 0) AS hours
        FROM each LEFT JOIN lasting USING (episode_id) GROUP BY before, after
        """,
    )
    return tuple(
        LevelCounts(
            level,
            sum(row["num"] for row in rows if row["before"] == level),
            sum(row["num"] for row in rows if row["after"] == level),
            sum(row["hours"] for row in rows if row["before"] == level),
            sum(row["hours"] for row in rows if row["after"] == level),
        )
        for level in LEVELS
    )
