"""What is said in the rows of a LeRobot episode: numbers of texts that a table of the data set lists, and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import pyarrow.parquet as pq

from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.base import damage_named, json_line
from dyna_assets.landing.sources.facts import text_of
from dyna_assets.landing.sources.lerobot.language import event_texts, persistent_texts
from dyna_assets.landing.sources.lerobot.metadata import Episode
from dyna_assets.landing.sources.lerobot.rows import DAMAGE, EpisodeRows
from dyna_assets.landing.sources.texts import Said, num_runs, runs

Times = Callable[[], Sequence[int]]
TASK_INDEX = "task_index"
PERSISTENT, EVENTS = "language_persistent", "language_events"
TABLES = {TASK_INDEX: ("task", "tasks"), "subtask_index": ("subtask", "subtasks")}
"""Column of numbers -> (what its texts are, the table under meta/ that lists them)."""
ANNOTATION = "annotation."
"""Columns that begin so are numbers of texts in the table of tasks, as data sets for GR00T have them."""
MOST_RUNS = 256
"""A column of texts that changes more often is data of its rows (paths, codes), not something said of them."""
MALFORMED = (KeyError, StopIteration, TypeError, ValueError, AttributeError, OverflowError)


def texts_of(
    folder: Folder, episode: Episode, rows: EpisodeRows, fps: Fraction
) -> tuple[list[Said], list[str]]:
    """(the episode's texts in time order, notes on numbers without a text). Raises RecordingError."""
    # read only where there is something to place in time
    times_ns: Times = cache(lambda: rows.times_ns(fps).tolist())
    notes: list[str] = []
    said: list[Said] = []
    for name in rows.names:
        if rows.num_numbers(name) and (name in TABLES or name.startswith(ANNOTATION)):
            said += _listed(folder, episode, rows, name, times_ns, notes)
        elif name in (PERSISTENT, EVENTS):
            said += _language(rows, name, times_ns)
        elif rows.holds_texts(name):
            found = [str(text or "") for text in rows.values(name)]
            said += runs(name, found, times_ns()) if 0 < num_runs(found) <= MOST_RUNS else []
    spoken = {text["text"] for text in said if text["key"] == "task"}
    also = [task for task in episode.tasks[1:] if task not in spoken]  # listed for the episode, on no row
    said += [text for task in also for text in runs("task", [task] * rows.num_rows, times_ns())]
    return sorted(said, key=lambda text: int(text["time_ns"])), notes


def first_task(folder: Folder, rows: EpisodeRows) -> str:
    """The task of the first row by its number; '' where there is none. Raises RecordingError."""
    if TASK_INDEX not in rows.names or not rows.num_rows:
        return ""
    return read_table(folder, TABLES[TASK_INDEX][1]).get(int(rows.vector(TASK_INDEX)[0, 0]), "")


def read_table(folder: Folder, stem: str) -> dict[int, str]:
    """number -> text as meta/<stem>.jsonl or .parquet lists them; {} without either. Raises RecordingError."""
    lines, table = f"meta/{stem}.jsonl", f"meta/{stem}.parquet"
    if folder.exists(lines):
        with folder.open(lines) as file:
            found = [
                json_line(line, f"{folder.at(lines)} line {n}")
                for n, line in enumerate(file, 1)
                if line.strip()
            ]
    elif folder.exists(table):
        with (
            damage_named(DAMAGE, lambda error: f"{folder.at(table)}: not readable as parquet ({error})"),
            folder.open(table) as file,
        ):
            found = pq.read_table(file).to_pylist()
    else:
        return {}
    with damage_named(
        MALFORMED, lambda error: f"{folder.at('meta')}/{stem}: its rows are malformed: {error!r}"
    ):
        return dict(_numbered(row, stem.removesuffix("s")) for row in found)


def _listed(
    folder: Folder, episode: Episode, rows: EpisodeRows, name: str, times_ns: Times, notes: list[str]
) -> list[Said]:
    """The texts of a column of numbers; of tasks only where the episode has several, else its task says it."""
    key, stem = TABLES.get(name, (name, "tasks"))
    numbers = rows.vector(name)[:, 0].tolist()
    distinct = sorted(set(numbers))
    if name == TASK_INDEX and len(distinct) < 2:
        return []
    listed = read_table(folder, stem)
    unknown = [number for number in distinct if number >= 0 and number not in listed]
    if unknown:
        notes.append(f"{episode.name}: {name} {unknown[0]:g} stands in no table meta/{stem}.*")
    return runs(key, [listed.get(number, "") for number in numbers], times_ns())


def _language(rows: EpisodeRows, name: str, times_ns: Times) -> list[Said]:
    """Of what persists every row says all of it: the first one will do."""
    with damage_named(MALFORMED, lambda error: f"{rows.where}: column '{name}' is malformed: {error!r}"):
        if name == EVENTS:
            return event_texts(rows.values(name), times_ns())
        first: Any = next(rows.values(name), None)
        return persistent_texts(first, max(times_ns(), default=0)) if first else []


def _numbered(row: Mapping[str, Any], what: str) -> tuple[int, str]:
    """(number, text) of a row of a table; pandas names the column of texts after nothing where it is the index."""
    others = (value for value in row.values() if isinstance(value, str))
    return int(row[f"{what}_index"]), text_of(row[what] if what in row else next(others))
