"""The report on an upload: where each of its files, topics and tasks went, and whether counts in equal counts out.

A pure function over a listing and rows, and the queries that fetch the rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from dyna_assets.landing.file_fates import Episodes, FileLine, file_lines, file_problems
from dyna_assets.landing.recording import FileInfo
from dyna_assets.warehouse.store import Warehouse, fetch

VIDEO_CODECS = frozenset({"h264", "h265", "hevc", "av1", "vp8", "vp9"})
"""A topic in one of these is counted in frames, which its messages need not be."""


@dataclass(frozen=True, slots=True)
class EpisodeLine:
    """One recording. state: made, waiting, or 'rejected in gate_before' with the reason."""

    episode_id: int
    name: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic over all recordings: its messages, and what became of them.

    num_left_out: ignored by a rule, or unmapped. num_unmade: of recordings that have no episode (yet).
    """

    topic: str
    kind: str
    encoding: str
    use: str
    role: str
    num_recordings: int
    num_in: int
    num_used: int
    num_outside: int
    num_surplus: int
    num_left_out: int
    num_unmade: int

    @property
    def num_out(self) -> int:
        """Messages of which the account says what became of them."""
        return self.num_used + self.num_outside + self.num_surplus + self.num_left_out + self.num_unmade


@dataclass(frozen=True, slots=True)
class UploadReport:
    """Everything of one upload. tasks: text -> how many recordings. problems: what a person has to look at."""

    files: tuple[FileLine, ...]
    episodes: tuple[EpisodeLine, ...]
    tasks: Mapping[str, int]
    topics: tuple[TopicLine, ...]
    problems: tuple[str, ...]

    @property
    def balance(self) -> str:
        """Counts in and counts out in one line."""
        sums = {part: sum(getattr(line, f"num_{part}") for line in self.topics) for part in _PARTS}
        out = " + ".join(f"{sums[part]:,} {said}" for part, said in _PARTS.items() if part != "in")
        sign = "=" if sums["in"] == sum(line.num_out for line in self.topics) else "is not"
        return f"{sums['in']:,} messages in {sign} {out}"


_PARTS = {
    "in": "in",
    "used": "used",
    "outside": "outside the common time",
    "surplus": "between two steps",
    "left_out": "left out",
    "unmade": "in recordings without an episode",
}


@dataclass(frozen=True, slots=True)
class ReportRows:
    """Rows of the warehouse about the upload's episodes; see `read_rows`."""

    accounts: Sequence[Mapping[str, Any]]
    stamps: Sequence[Mapping[str, Any]]
    recordings: Sequence[Mapping[str, Any]]


def upload_report(
    files: Mapping[str, FileInfo],
    listed: Collection[str] | None,
    episodes: Episodes,
    metadata: Sequence[str],
    ignore: Sequence[str],
    rows: ReportRows,
) -> UploadReport:
    """The report.

    files: the upload's, without its marker. listed: those that the marker lists, None without one. episodes: id ->
    (name, its files). metadata, ignore: patterns of the reader and of the source.
    """
    files_out = tuple(file_lines(files, listed, episodes, metadata, ignore))
    topics = tuple(_topic_lines(rows.accounts))
    return UploadReport(
        files_out,
        tuple(_episode_lines(episodes, rows.stamps)),
        _tasks(rows.recordings),
        topics,
        tuple([*file_problems(files_out), *_topic_problems(topics)]),
    )


def read_rows(warehouse: Warehouse, shards: Collection[int], episode_ids: Collection[int]) -> ReportRows:
    """What the warehouse holds of these episodes, which lie in these shards."""
    accounts, stamps, recordings = [], [], []
    wanted = ", ".join(str(int(number)) for number in episode_ids) or "NULL"
    for shard in sorted(shards):
        with duckdb.connect() as connection:
            for table in ("accounts", "version_stamps", "recordings"):
                warehouse.view(connection, warehouse.pin(table, shard=shard))
            accounts += fetch(connection, _ACCOUNTS.format(wanted=wanted))
            stamps += fetch(connection, _STAMPS.format(wanted=wanted))
            recordings += fetch(connection, _RECORDINGS.format(wanted=wanted))
    return ReportRows(accounts, stamps, recordings)


_ACCOUNTS = """
    WITH mine AS (
        SELECT * FROM accounts WHERE episode_id IN ({wanted})
    ), stated AS (
        SELECT * FROM mine WHERE num_used IS NULL QUALIFY seq = max(seq) OVER (PARTITION BY episode_id)
    ), made AS (
        SELECT * FROM mine WHERE num_used IS NOT NULL QUALIFY seq = max(seq) OVER (PARTITION BY episode_id)
    )
    SELECT stated.episode_id, stated.topic, stated.kind, stated.encoding, stated.use, stated.role,
           stated.num_in AS num_stated, made.num_in AS num_read, made.num_used, made.num_outside, made.num_surplus
    FROM stated LEFT JOIN made
        ON made.episode_id = stated.episode_id AND made.topic = stated.topic AND made.seq > stated.seq
    ORDER BY stated.episode_id, stated.topic
"""
"""What the probe found of each topic, and what the episode made of that very recording took of it, if there is one."""
_STAMPS = """
    SELECT episode_id, step, status, reason FROM version_stamps WHERE episode_id IN ({wanted})
    QUALIFY seq = max(seq) OVER (PARTITION BY episode_id, step) ORDER BY episode_id, step
"""
_RECORDINGS = """
    SELECT episode_id, task, evidence FROM recordings WHERE episode_id IN ({wanted})
    QUALIFY seq = max(seq) OVER (PARTITION BY episode_id) ORDER BY episode_id
"""


def _episode_lines(episodes: Episodes, stamps: Sequence[Mapping[str, Any]]) -> Iterator[EpisodeLine]:
    by_episode: dict[int, dict[str, Mapping[str, Any]]] = {}
    for stamp in stamps:
        by_episode.setdefault(stamp["episode_id"], {})[stamp["step"]] = stamp
    for episode_id, (name, _) in episodes.items():
        steps = by_episode.get(episode_id, {})
        bad = [stamp for stamp in steps.values() if stamp["status"] != "ok"]
        if bad:
            yield EpisodeLine(episode_id, name, f"{bad[0]['status']} in {bad[0]['step']}", bad[0]["reason"])
        else:
            yield EpisodeLine(episode_id, name, "made" if "episodes" in steps else "waiting")


def _tasks(recordings: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Task texts, also of tasks that hold for a part of a recording only; most frequent first."""
    counts: Counter[str] = Counter()
    for row in recordings:
        texts = json.loads(row["evidence"]).get("texts", ())
        counts.update({row["task"], *(text["text"] for text in texts if text["key"] == "task")} - {""})
    return dict(counts.most_common())


def _topic_lines(accounts: Sequence[Mapping[str, Any]]) -> Iterator[TopicLine]:
    """A line for each topic and use: an upload's recordings may have been read by different versions of its source."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in accounts:
        groups.setdefault((row["topic"], row["use"]), []).append(row)
    for (topic, use), rows in sorted(groups.items()):
        is_left_out, first = use in ("ignored", "unmapped"), rows[0]
        made = [row for row in rows if row["num_used"] is not None and not is_left_out]
        unmade = [row for row in rows if row["num_used"] is None and not is_left_out]
        yield TopicLine(
            topic,
            first["kind"],
            first["encoding"],
            use,
            first["role"],
            num_recordings=len(rows),
            num_in=sum(map(_num_in, rows)),
            num_used=sum(row["num_used"] for row in made),
            num_outside=sum(row["num_outside"] for row in made),
            num_surplus=sum(row["num_surplus"] for row in made),
            num_left_out=sum(map(_num_in, rows)) if is_left_out else 0,
            num_unmade=sum(map(_num_in, unmade)),
        )


def _num_in(row: Mapping[str, Any]) -> int:
    """As the probe found it; of video that was read, its frames."""
    is_video = row["kind"] == "image" and row["encoding"].lower() in VIDEO_CODECS
    return int(row["num_read"] if is_video and row["num_read"] is not None else row["num_stated"])


def _topic_problems(lines: Sequence[TopicLine]) -> Iterator[str]:
    unmapped = [line for line in lines if line.use == "unmapped"]
    if unmapped:
        names = ", ".join(f"{line.topic} ({line.num_in:,} messages)" for line in unmapped)
        yield (
            f"no role, and neither extra nor ignored by the source's TOML: {names}. Name them there, then "
            "reprocess the source"
        )
    for line in lines:
        if line.num_in != line.num_out:
            yield (
                f"{line.topic}: {line.num_in:,} messages came in, what became of them is said of {line.num_out:,}: "
                "its recordings state another number than they hold"
            )
