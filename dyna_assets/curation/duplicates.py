"""Episodes that the corpus holds more than once: uploaded again, encoded anew, cut or stamped otherwise.

Compared are the digests that the step `labels` left in the table `annotations` (see `dyna_assets.labels.digest`); no
episode file is opened. Episodes meet where they share a code, in one hash join: time and memory grow with the number
of episodes, not of their pairs, since a code that more than MOST_HOLDERS of them have brings nobody together. 50,000
episodes with three digests each take 3 CPU-s.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import duckdb

from dyna_assets.curation.curate import READS, CurationSpec, open_confined, select
from dyna_assets.errors import CurationError
from dyna_assets.labels.digest import CODE_CHARACTERS, VERSION
from dyna_assets.labels.registry import CURRENT_ANNOTATIONS
from dyna_assets.warehouse.store import Warehouse, fetch

NEAR_STATE, NEAR_CAMERA = 0.45, 0.125
"""Share of codes from which on two digests agree. Of 84 teleoperated episodes of one task a copy without its first or
last second shares 0.75 of the state's at least, two different ones share 0.125 at most, scripted ones of a simulator
0.35. Pictures lose more to the encoder: of a head camera's, encoded at crf 38, 0.25 are left; two episodes of the
task share 0.03."""
LEAST_SHARED = 4
"""Fewer codes in common are chance."""
MOST_HOLDERS = 20


@dataclass(frozen=True, slots=True)
class Copy:
    """One episode of a pair. start_ns: when it began, ns since the epoch."""

    episode_id: int
    source: str
    name: str
    start_ns: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many codes of a digest two episodes share. subject: 'state' or 'camera/<name>'."""

    subject: str
    num_shared: int
    num_codes: int

    @property
    def similarity(self) -> float:
        """Share of the codes, 0 to 1."""
        return self.num_shared / self.num_codes

    @property
    def says(self) -> str:
        """For a person: 'camera/top 30 of 32'."""
        return f"{self.subject} {self.num_shared} of {self.num_codes}"


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Two episodes that are the same one, the earlier id first.

    kind: 'exact' if their states are equal, 'near' if a digest agrees. evidence: every digest that both have.
    """

    kind: Literal["exact", "near"]
    one: Copy
    other: Copy
    evidence: tuple[Agreement, ...]

    @property
    def similarity(self) -> float:
        """1 for equal states, else that of the digest which agrees best."""
        return 1.0 if self.kind == "exact" else max(agreed.similarity for agreed in self.evidence)


@dataclass(frozen=True, slots=True)
class Duplicates:
    """What was found among num_episodes, the surest pairs first; num_without of them have no digest to compare."""

    pairs: tuple[Duplicate, ...]
    num_episodes: int
    num_without: int


def find_duplicates(warehouse: Warehouse, where: str = "true") -> Duplicates:
    """The pairs among the episodes that `where` selects, an SQL condition over the corpus as of `curate`.

    Copies with equal states are paired with the first of them only, and of these only the first is compared further:
    so all copies of one recording hang together. Raises CurationError for a condition that is none or selects nothing.
    """
    if not where.strip():
        raise CurationError("duplicates: the condition is empty; expected SQL, as in: source = 'lab'")
    spec = CurationSpec(name="duplicates", where=where, passed=False)
    with duckdb.connect() as connection:
        open_confined(warehouse, connection, (*READS, "annotations"))
        select(connection, spec)
        connection.execute(_EPISODES)
        connection.execute(_DIGESTS)
        pair_up(connection)
        rows = fetch(connection, _EVIDENCE)
        (counts,) = fetch(connection, _COUNTS)
    pairs = [
        _duplicate(list(lines)) for _, lines in groupby(rows, key=lambda row: (row["one"], row["other"]))
    ]
    surest = sorted(pairs, key=lambda pair: (pair.kind, -pair.similarity, pair.one.episode_id))
    return Duplicates(tuple(surest), **counts)


def pair_up(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table `pairs` (one, other, kind; one < other) from the table `digests` (episode_id, subject, key, text).

    O(episodes x codes): see the head of this module.
    """
    connection.execute(_PAIRS)


_EPISODES = """
CREATE TEMP TABLE compared AS
SELECT episode_id, source, name, start_ns, duration_s FROM selected WHERE stretch = 0"""
_DIGESTS = f"""
CREATE TEMP TABLE digests AS
SELECT episode_id, subject, key, text FROM ({CURRENT_ANNOTATIONS}) SEMI JOIN compared USING (episode_id)
WHERE labeller = 'digest' AND labeller_version = {VERSION}"""
_CODES = (
    f"list_transform(range(len(text) // {CODE_CHARACTERS}), "
    f"lambda place: substr(text, {CODE_CHARACTERS} * place + 1, {CODE_CHARACTERS}))"
)
_AGREES = f"""
num_shared >= {LEAST_SHARED}
AND num_shared >= num_codes * CASE subject WHEN 'state' THEN {NEAR_STATE} ELSE {NEAR_CAMERA} END"""
_SHARED = """
SELECT one, other, mine.subject, len(list_intersect(mine.codes, its.codes)) AS num_shared,
       least(len(mine.codes), len(its.codes)) AS num_codes
FROM {pairs} JOIN coded AS mine ON mine.episode_id = one
JOIN coded AS its ON its.episode_id = other AND its.subject = mine.subject"""
_PAIRS = f"""
CREATE TEMP TABLE coded AS
SELECT episode_id, subject, {_CODES} AS codes FROM digests WHERE key <> 'digest.state';
CREATE TEMP TABLE equals AS
SELECT episode_id AS other, min(episode_id) OVER (PARTITION BY text) AS one FROM digests WHERE key = 'digest.state';
CREATE TEMP TABLE pairs AS
WITH held AS (
    SELECT episode_id, subject, unnest(list_transform(codes, lambda code: hash(subject, code))) AS code FROM coded
    WHERE episode_id NOT IN (SELECT other FROM equals WHERE one <> other)
), rare AS MATERIALIZED (
    SELECT * FROM held
    SEMI JOIN (SELECT code FROM held GROUP BY code HAVING count(*) BETWEEN 2 AND {MOST_HOLDERS}) USING (code)
), met AS (
    SELECT DISTINCT mine.episode_id AS one, its.episode_id AS other FROM rare AS mine JOIN rare AS its USING (code)
    WHERE mine.episode_id < its.episode_id
    GROUP BY mine.subject, mine.episode_id, its.episode_id HAVING count(*) >= {LEAST_SHARED}
)
SELECT one, other, 'exact' AS kind FROM equals WHERE one <> other
UNION ALL
SELECT DISTINCT one, other, 'near' FROM ({_SHARED.format(pairs="met")}) WHERE {_AGREES}"""
_EVIDENCE = f"""
SELECT one, other, kind, mine, its, subject, num_shared, num_codes
FROM pairs JOIN compared AS mine ON mine.episode_id = one JOIN compared AS its ON its.episode_id = other
LEFT JOIN ({_SHARED.format(pairs="pairs")}) USING (one, other)
ORDER BY one, other, subject = 'state' DESC, subject"""
_COUNTS = """
SELECT count(*) AS num_episodes, count(*) FILTER (episode_id NOT IN (SELECT episode_id FROM digests)) AS num_without
FROM compared"""


def _duplicate(lines: list[dict[str, Any]]) -> Duplicate:
    first = lines[0]
    evidence = (
        Agreement(line["subject"], line["num_shared"], line["num_codes"])
        for line in lines
        if line["subject"] is not None
    )
    return Duplicate(first["kind"], Copy(**first["mine"]), Copy(**first["its"]), tuple(evidence))
