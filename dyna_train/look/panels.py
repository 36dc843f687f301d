"""Which lines share a plot: one plan for the contact sheet and for every viewer (pure).

A panel holds the dimensions of one state vector with one unit and, where names match, those of its action
vector: the same colour for the same name, state solid and action dashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dyna_train.episode.tracks import Role, VectorTrack
from dyna_train.look.palette import LINES


@dataclass(frozen=True, slots=True)
class Line:
    """Dimension number `index` of the vector topic `topic`, as it is drawn."""

    topic: str
    index: int
    name: str
    role: Role
    colour: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot; part: its number among `num_parts` panels of the same vectors, from 1. unit: '' if unknown."""

    title: str
    unit: str
    part: int
    num_parts: int
    lines: tuple[Line, ...]

    @property
    def label(self) -> str:
        """Its title with part and unit, in one line."""
        part = f" {self.part}/{self.num_parts}" if self.num_parts > 1 else ""
        unit = f" [{self.unit}]" if self.unit else ""
        return f"{self.title}{part}{unit}"

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Name and colour of each dimension, in the order of the lines."""
        return tuple(dict.fromkeys((line.name, line.colour) for line in self.lines))


def plan_panels(vectors: Sequence[VectorTrack]) -> tuple[Panel, ...]:
    """The panels that show every dimension of `vectors` once, at most seven names in each."""
    return tuple(panel for group in _groups(vectors) for panel in _panels(group))


def _groups(vectors: Sequence[VectorTrack]) -> Iterator[tuple[VectorTrack, ...]]:
    """Each state vector with its action vector: of the same name, or else of the same dimensions."""
    free = [vector for vector in vectors if vector.role == "action"]
    for state in vectors:
        if state.role != "state":
            continue
        partners = [action for action in free if action.name == state.name] or [
            action for action in free if action.names == state.names
        ]
        free = [action for action in free if action not in partners[:1]]
        yield (state, *partners[:1])
    for action in free:
        yield (action,)


def _panels(group: Sequence[VectorTrack]) -> Iterator[Panel]:
    """The panels of vectors that belong together: by unit, then in equal parts."""
    by_key: dict[tuple[str, str, int], list[tuple[VectorTrack, int]]] = {}
    for vector in group:
        for index, (name, unit) in enumerate(zip(vector.names, vector.units, strict=True)):
            repeat = vector.names[:index].count(name)  # nobody promises that names are unique
            by_key.setdefault((unit, name, repeat), []).append((vector, index))
    units = dict.fromkeys(unit for unit, _, _ in by_key)
    parts = [(unit, part) for unit in units for part in _in_parts([key for key in by_key if key[0] == unit])]
    title = " + ".join(dict.fromkeys(vector.name for vector in group))
    for number, (unit, keys) in enumerate(parts, start=1):
        lines = [
            Line(vector.topic, index, vector.names[index], vector.role, colour)
            for key, colour in zip(keys, LINES, strict=False)
            for vector, index in by_key[key]
        ]
        yield Panel(title, unit, number, len(parts), tuple(sorted(lines, key=_states_first)))


def _states_first(line: Line) -> bool:
    return line.role == "action"


def _in_parts(keys: Sequence[tuple[str, str, int]]) -> Iterator[Sequence[tuple[str, str, int]]]:
    """As few parts as colours allow, of nearly equal length, longer ones first: two arms of seven joints and
    two hands of six are four parts.
    """
    num_parts = -(-len(keys) // len(LINES))
    short, num_long = divmod(len(keys), num_parts)
    start = 0
    for part in range(num_parts):
        end = start + short + (part < num_long)
        yield keys[start:end]
        start = end
