"""The labellers by name: each a small function from one episode to facts about it.

A labeller sees what the episode file's state group and the camera traces hold (it opens nothing), and gives
annotations. One that fails marks its own rows and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dyna_assets.errors import bug_text
from dyna_assets.labels.view import EpisodeView
from dyna_train.errors import DynaError


@dataclass(frozen=True, slots=True)
class Annotation:
    """One fact: a number in its unit, a text, or both; of all of the episode or of [start_s, end_s) of it.

    subject: the camera, vector or joint; '' for the whole episode. start_s and end_s count from the episode's
    start. Raises ValueError for a number that is not finite, which no query could compare.
    """

    subject: str
    key: str
    value: float | None = None
    unit: str = ""
    text: str = ""
    start_s: float | None = None
    end_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no query could compare."""
        for name in ("value", "start_s", "end_s"):
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                raise ValueError(
                    f"annotation '{self.key}' of '{self.subject}': {name} is {number}, expected a number"
                )


Find = Callable[[EpisodeView], Iterable[Annotation]]


@dataclass(frozen=True, slots=True)
class Labeller:
    """A registered labeller."""

    name: str
    version: int
    find: Find


LABELLERS: dict[str, Labeller] = {}
CURRENT_ANNOTATIONS = """
    SELECT annotations.* FROM annotations
    SEMI JOIN (SELECT episode_id, max(seq) AS seq FROM annotations GROUP BY episode_id) USING (episode_id, seq)
    WHERE status = 'ok'
"""
"""What the newest labelling of each episode found."""


def labeller(name: str, *, version: int) -> Callable[[Find], Find]:
    """Register the decorated function; raise `version` whenever its annotations change."""

    def register(find: Find) -> Find:
        LABELLERS[name] = Labeller(name, version, find)
        return find

    return register


def labeller_versions() -> dict[str, int]:
    """labeller -> its version."""
    return {one.name: one.version for one in LABELLERS.values()}


@dataclass(frozen=True, slots=True)
class Labelled:
    """Rows of the table `annotations` (without episode_id), and labeller -> why it failed."""

    rows: tuple[dict[str, Any], ...]
    failed: Mapping[str, str]


def annotate(view: EpisodeView, labellers: Mapping[str, Labeller] | None = None) -> Labelled:
    """What every labeller finds. One that fails gives one row of status 'error' and none of its own.

    Raises OSError and MemoryError, which are the machine's fault and no labeller's.
    """
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for one in (LABELLERS if labellers is None else labellers).values():
        try:
            found = list(one.find(view))
        except (OSError, MemoryError):
            raise
        except Exception as error:  # the edge of a labeller, which may be a plug-in: the others' facts stand
            failed[one.name] = str(error) if isinstance(error, DynaError) else bug_text(error)
            rows.append(_row(one, "error", Annotation("", "", text=failed[one.name])))
        else:
            rows += _rows(one, found)
    return Labelled(tuple(rows), failed)


def _rows(one: Labeller, found: Iterable[Annotation]) -> Iterator[dict[str, Any]]:
    for annotation in found:
        yield _row(one, "ok", annotation)


def _row(one: Labeller, status: str, annotation: Annotation) -> dict[str, Any]:
    return {
        "labeller": one.name,
        "labeller_version": one.version,
        "status": status,
        **asdict(annotation),
    }
