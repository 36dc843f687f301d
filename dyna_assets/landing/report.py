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

from dyna_assets.corpus import Rejection, rejections
from dyna_assets.landing.file_fates import Episodes, FileLine, file_lines, file_problems
from dyna_assets.landing.recording import FileInfo
from dyna_assets.stamps import STEPS
from dyna_assets.warehouse.store import Warehouse, fetch

VIDEO_CODECS = frozenset({"h264", "hevc", "av1", "vp8", "vp9"})
"""A topic in one of these is counted in frames, which its messages need not be."""


@dataclass(frozen=True, slots=True)
class EpisodeLine:
    """One recording. state: made, waiting, or 'rejected in gate_before'; see `RefusedLine`."""

    episode_id: int
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """A step that refused a recording (rejected), or failed at it (error). reasons: each finding once, with advice."""

    episode_id: int
    name: str
    step: str
    status: str
    reasons: tuple[str, ...]


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
        return sum(_parts(self).values())

    @property
    def became(self) -> str:
        """What became of its messages: '89 used, 6 outside the common time'; parts without any are left out."""
        parts = [f"{count:,} {said}" for said, count in _parts(self).items() if count]
        if self.num_in != self.num_out:
            parts.append(f"{abs(self.num_in - self.num_out):,} not accounted for")
        return ", ".join(parts) or "none"


@dataclass(frozen=True, slots=True)
class UploadReport:
    """Everything of one upload.

    tasks, notes (what readers left out or assumed): text -> how many recordings. num_unreadable: recordings of which
    no topic is known, as the probe could not read them. problems: what a person has to look at.
    """

    files: tuple[FileLine, ...]
    episodes: tuple[EpisodeLine, ...]
    refused: tuple[RefusedLine, ...]
    num_unreadable: int
    tasks: Mapping[str, int]
    notes: Mapping[str, int]
    topics: tuple[TopicLine, ...]
    problems: tuple[str, ...]

    @property
    def balance(self) -> str:
        """Counts in and counts out in one line."""
        num_in, sums = sum(line.num_in for line in self.topics), Counter[str]()
        for line in self.topics:
            sums.update(_parts(line))
        out = " + ".join(f"{sums[said]:,} {said}" for said in _PARTS)
        sign = "=" if num_in == sums.total() else "is not"
        unknown = f"; not counted: {_unreadable(self.num_unreadable)}" if self.num_unreadable else ""
        return f"{num_in:,} messages in {sign} {out}{unknown}"


_PARTS = {
    "used": "num_used",
    "outside the common time": "num_outside",
    "between two steps": "num_surplus",
    "left out": "num_left_out",
    "in recordings without an episode": "num_unmade",
}
"""What can become of a message, as it is said -> the count of a topic's line."""


def _parts(line: TopicLine) -> dict[str, int]:
    return {said: getattr(line, count) for said, count in _PARTS.items()}


def _unreadable(number: int) -> str:
    return f"{number:,} {'recording that is' if number == 1 else 'recordings that are'} not readable"


@dataclass(frozen=True, slots=True)
class ReportRows:
    """Rows of the warehouse about the upload's episodes; see `read_rows`."""

    accounts: Sequence[Mapping[str, Any]] = ()
    made: Collection[int] = ()
    """ids of the episodes that have a file"""
    recordings: Sequence[Mapping[str, Any]] = ()
    rejections: Sequence[Rejection] = ()


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
    refused = [one for one in rows.rejections if not one.is_of_upload]
    facts = [
        json.loads(row["facts"] or "{}") for row in rows.recordings
    ]  # a row of an earlier version has none
    known = {row["episode_id"] for row in rows.accounts}
    unreadable = [one for one in refused if one.step == "recordings" and one.episode_id not in known]
    problems = (
        *file_problems(files_out),
        *_refusal_problems(refused, len(episodes), unreadable),
        *_topic_problems(topics),
    )
    return UploadReport(
        files_out,
        tuple(_episode_lines(episodes, rows.made, refused)),
        tuple(RefusedLine(one.episode_id, one.name, one.step, one.status, one.reasons) for one in refused),
        len(unreadable),
        _tasks(rows.recordings, facts),
        _notes(facts),
        topics,
        problems,
    )


def read_rows(warehouse: Warehouse, shards: Collection[int], episode_ids: Collection[int]) -> ReportRows:
    """What the warehouse holds of these episodes, which lie in these shards."""
    accounts, made, recordings, refused = [], [], [], []
    mine = set(episode_ids)
    wanted = ", ".join(str(int(number)) for number in mine) or "NULL"
    for shard in sorted(shards):
        with duckdb.connect() as connection:
            for table in ("accounts", "version_stamps", "recordings"):
                warehouse.view(connection, warehouse.pin(table, shard=shard))
            accounts += fetch(connection, _ACCOUNTS.format(wanted=wanted))
            made += [row["episode_id"] for row in fetch(connection, _MADE.format(wanted=wanted))]
            recordings += fetch(connection, _RECORDINGS.format(wanted=wanted))
        refused += [one for one in rejections(warehouse, shard=shard) if one.episode_id in mine]
    return ReportRows(accounts, made, recordings, refused)


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
_MADE = """
    SELECT episode_id FROM (
        SELECT * FROM version_stamps WHERE episode_id IN ({wanted}) AND step = 'episodes'
        QUALIFY seq = max(seq) OVER (PARTITION BY episode_id)
    ) WHERE status = 'ok' ORDER BY episode_id
"""
_RECORDINGS = """
    SELECT episode_id, task, facts FROM recordings WHERE episode_id IN ({wanted})
    QUALIFY seq = max(seq) OVER (PARTITION BY episode_id) ORDER BY episode_id
"""


def _episode_lines(
    episodes: Episodes, made: Collection[int], refused: Sequence[Rejection]
) -> Iterator[EpisodeLine]:
    """How far each recording came. What a step failed at that no episode needs is no state of it."""
    critical = [one for one in refused if one.step not in STEPS or STEPS[one.step].critical]
    first = {one.episode_id: f"{one.status} in {one.step}" for one in reversed(critical)}
    for episode_id, (name, _) in episodes.items():
        yield EpisodeLine(
            episode_id, name, first.get(episode_id, "made" if episode_id in made else "waiting")
        )


def _refusal_problems(
    refused: Sequence[Rejection], num_recordings: int, unreadable: Sequence[Rejection]
) -> Iterator[str]:
    names = list(dict.fromkeys(one.name for one in refused))
    if names:
        verb = "was" if len(names) == 1 else "were"
        yield f"{len(names):,} of {num_recordings:,} recordings {verb} refused or failed. First: {names[0]}"
    if unreadable:
        yield f"topics unknown of {_unreadable(len(unreadable))}. First: {unreadable[0].name}"


def _tasks(recordings: Sequence[Mapping[str, Any]], facts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Task texts, also of tasks that hold for a part of a recording only; most frequent first."""
    counts: Counter[str] = Counter()
    for row, said in zip(recordings, facts, strict=True):
        texts = said.get("texts", ())
        counts.update({row["task"], *(text["text"] for text in texts if text["key"] == "task")} - {""})
    return dict(counts.most_common())


def _notes(facts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What readers left out or assumed; most frequent first."""
    return dict(Counter(note for said in facts for note in said.get("notes", ())).most_common())


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
