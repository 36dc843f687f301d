"""Rows of evidence as shard runs leave them, without any recording: for the tests of what reads verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import duckdb
from catalog_samples import NOW, recordings, register, upload

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.quality import CHECKS, Gate, Limits, Measured, evidence_row
from dyna_assets.quality.policy import DEFAULT, Policy, judge
from dyna_assets.quality.regate import Regated, regate
from dyna_assets.settings import ShardLimits
from dyna_assets.warehouse.store import Warehouse, fetch
from dyna_assets.warehouse.tables import (
    EPISODES,
    QC_EVIDENCE,
    RECORDINGS,
    TABLES,
    VERDICTS,
    VERSION_STAMPS,
    Table,
)
from dyna_train.episode.address import shard_key

GAP = "time.gap"
DARK = "camera.dark"
SOURCE = "lab"


@dataclass
class Lake:
    """A warehouse and its catalog, with shards of two episodes each."""

    catalog: Catalog
    warehouse: Warehouse
    gates: dict[str, dict[str, Limits]] = field(default_factory=dict)

    @classmethod
    def make(cls, catalog: Catalog, warehouse: Warehouse, *, num_shards: int = 1) -> Lake:
        """Empty tables, and shards whose rows are settled: nobody has anything to do."""
        warehouse.create()
        catalog.add_source(SOURCE, landing_uri="/landing/lab", reader="aloha", now=NOW)
        limits = ShardLimits(max_episodes=2, max_bytes=1000, quiet_s=60)
        for number in range(num_shards):
            register(catalog, upload(f"u{number}"), recordings(f"u{number}/0", f"u{number}/1"), limits=limits)
            catalog.settle(shard_key(number), 1)
        return cls(catalog, warehouse)

    def gap(self, episode_id: int, gap_s: float, *, policy: Policy = DEFAULT) -> int:
        """Probe an episode and judge it by its longest gap, as the steps do; the number of the append."""
        found = {"episode_id": episode_id, "source": SOURCE, "duration_s": 3600.0}
        self.append(RECORDINGS, episode_id, self.draw(episode_id), found)
        return self.judged(
            episode_id, "before", {GAP: [Measured("top", gap_s, f"/top: nothing for {gap_s:g} s")]}, policy
        )

    def judged(
        self,
        episode_id: int,
        gate: Gate,
        measured: dict[str, list[Measured]],
        policy: Policy = DEFAULT,
        **stamp: Any,
    ) -> int:
        """What a gate leaves: evidence, verdict, stamp."""
        seq = self.draw(episode_id)
        verdict = judge(policy, self.gates.get(SOURCE, {}), gate, measured)
        about = {"episode_id": episode_id, "source": SOURCE, "gate": gate, "evidence_seq": seq}
        said = {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(verdict).items()
        }
        self.append(QC_EVIDENCE, episode_id, seq, evidence_row(episode_id, SOURCE, gate, measured))
        self.append(VERDICTS, episode_id, seq, {**about, **said})
        status = "rejected" if verdict.rejected else "ok"
        self.stamp(episode_id, f"gate_{gate}", seq, status=status, reason=verdict.reason, **stamp)
        return seq

    def stamp(self, episode_id: int, step: str, seq: int, **more: Any) -> None:
        row = {
            "episode_id": episode_id,
            "source": SOURCE,
            "name": f"recording {episode_id}",
            "step": step,
            "step_version": "part:1",
            "fingerprint": f"fingerprint of {step}",
            "reads": "recordings=fingerprint of recordings" if step == "gate_before" else "",
            "input_hash": "input",
            "result_seq": seq,
            "status": "ok",
            "reason": "",
            "schema_version": 1,
            "profile": "ingest_online",
            "run_id": "a run",
            "processed_ns": 5,
        }
        self.append(VERSION_STAMPS, episode_id, seq, {**row, **more})

    def draw(self, episode_id: int) -> int:
        return self.catalog.next_seq(shard_key(shard_of(episode_id)))

    def append(self, table: Table, episode_id: int, seq: int, row: dict[str, Any]) -> None:
        self.warehouse.append(
            table, shard_of(episode_id), seq, [{"episode_id": episode_id, **row}], run_id="a run"
        )

    def regate(self, policy: Policy, *, text: str = "", dry_run: bool = False) -> Regated:
        written = text or toml(policy)
        return regate(
            self.catalog,
            self.warehouse,
            self.gates,
            policy,
            text=written,
            run_id="regate",
            now=NOW,
            dry_run=dry_run,
        )

    def stamps(self, *, step: str = "gate_before") -> dict[int, dict[str, Any]]:
        """episode -> its current stamp of the step."""
        return {row["episode_id"]: row for row in self.current("version_stamps") if row["step"] == step}

    def verdicts(self, *, gate: Gate = "before") -> dict[int, tuple[str, str]]:
        """episode -> what the newest verdict about its stamped evidence is, and by which policy."""
        stamps = self.stamps(step=f"gate_{gate}")
        rows = [row for row in self.current("verdicts") if row["gate"] == gate]
        assert all(row["evidence_seq"] == stamps[row["episode_id"]]["result_seq"] for row in rows)
        return {row["episode_id"]: (row["verdict"], row["policy"]) for row in rows}

    def current(self, table: str) -> list[dict[str, Any]]:
        with duckdb.connect() as connection:
            self.warehouse.view(connection, self.warehouse.pin(table), "versions")
            newest = f"seq = max(seq) OVER (PARTITION BY {TABLES[table].key})"
            return fetch(connection, f"SELECT * FROM versions QUALIFY {newest}")

    def versions(self) -> dict[str, int]:
        return {table: self.warehouse.pin(table).version for table in TABLES}

    def due(self) -> list[int]:
        return [shard.number for shard in self.catalog.due_shards()]


def shard_of(episode_id: int) -> int:
    return (episode_id - 1) // 2


def gap_policy(
    name: str, *, warn: float | None = None, reject: float | None = None, version: int = 1
) -> Policy:
    """A policy that limits the gaps of a recording."""
    return Policy(name=name, version=version, checks={GAP: Limits(warn=warn, reject=reject)})


def toml(policy: Policy) -> str:
    """The policy as a person would write it."""
    lines = [f'name = "{policy.name}"', f"version = {policy.version}"]
    for check, limits in policy.checks.items():
        lines.append(f'[checks."{check}"]')
        lines += [f"{kind} = {limit}" for kind, limit in limits if limit is not None]
    return "\n".join(lines) + "\n"


def checked_by(gate: Gate) -> Sequence[str]:
    return [rule.name for rule in CHECKS.values() if rule.gate == gate]


def episode_row(episode_id: int, **more: Any) -> dict[str, Any]:
    """A row of `episodes` that says nothing but what is asked."""
    return {
        "source": SOURCE,
        "content_hash": f"{episode_id:064x}",
        "rate_hz": 10.0,
        "num_steps": 100,
        "duration_s": 10.0,
        "cameras": ["top"],
        "camera_heights": [4],
        "camera_widths": [4],
        "state_names": ["arm.0"],
        "action_names": [],
        "state_mean": [0.0],
        "state_m2": [0.0],
        "state_min": [0.0],
        "state_max": [0.0],
        "action_mean": [],
        "action_m2": [],
        "action_min": [],
        "action_max": [],
        **more,
    }


__all__ = ["DARK", "EPISODES", "GAP", "SOURCE", "Lake", "checked_by", "episode_row", "gap_policy", "toml"]
