"""Which dimensions of a vector move as one, and which command belongs to which measured joint (pure, by names).

Names are read as words: 'kLeftShoulderPitch', 'left_shoulder_pitch' and 'l.shoulder.pitch' are one joint. A *part* is
the dimensions of one vector that belong to one limb and have one unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.tracks import VectorTrack

_LETTER = r"[^\W\d_]"
_SEAM = re.compile(
    rf"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?={_LETTER})|(?<={_LETTER})(?=\d)"
)
"""Where a word begins without anything between: aB, ABc, 1a, a1."""


def words(name: str) -> tuple[str, ...]:
    """The words and numbers of a name, lower case: 'kLeftWrist2' -> ('k', 'left', 'wrist', '2')."""
    return tuple(word.lower() for word in re.findall(r"[^\W_]+", _SEAM.sub(" ", name)))


SIDES = {"left": "left", "l": "left", "right": "right", "r": "right"}
GRIPPER_WORDS = frozenset(words("gripper grippers jaw jaws claw"))
LIMBS: dict[str, frozenset[str]] = {
    "gripper": GRIPPER_WORDS,
    "hand": frozenset(words("hand finger fingers thumb index middle ring pinky little palm")),
    "leg": frozenset(words("leg hip knee ankle foot")),
    "head": frozenset(words("head neck")),
    "arm": frozenset(words("arm shoulder elbow wrist forearm upperarm")),
}
"""limb -> the words that tell it; the first limb that has a word of the name wins."""
HOLDING = ("hand", "gripper")
"""Limbs that close on things: where they stop is the thing's doing."""
ROLE_WORDS = frozenset(
    words("leader follower master puppet teleop operator robot main state states action actions cmd command")
    + words("commands commanded target goal desired reference measured actual observation obs joint joints")
    + words("motor pos position positions qpos vel velocity velocities qvel k")
)
"""Words that say who reports a joint and what of it, not which joint it is."""
RATE_WORDS = frozenset(words("vel velocity velocities qvel speed acc acceleration"))
FORCE_WORDS = frozenset(words("effort efforts torque torques force forces wrench current"))
FORCE_UNITS = frozenset({"N", "Nm", "N·m", "N*m", "N.m", "A", "mA", "V", "W"})
Kind = Literal["place", "rate", "force"]
"""What a number says: where something is, how fast it moves, what it bears."""


@dataclass(frozen=True, slots=True)
class Part:
    """Dimensions `dims` of the vector `track`, of one limb ('right_arm') and one unit."""

    track: VectorTrack
    limb: str
    unit: str
    dims: tuple[int, ...]

    @property
    def subject(self) -> str:
        """How annotations name it: 'state/right_arm'."""
        return f"{self.track.role}/{self.limb}"

    @property
    def holds(self) -> bool:
        """True for hands and grippers."""
        return self.limb.endswith(HOLDING)


@dataclass(frozen=True, slots=True)
class Commanded:
    """A measured part and the action dimensions, in the same order, that command it."""

    state: Part
    action: Part

    @property
    def subject(self) -> str:
        """How annotations name the pair: 'action/right_arm→state/right_arm'."""
        return f"{self.action.subject}→{self.state.subject}"

    @property
    def same_unit(self) -> bool:
        """Whether the two may be subtracted."""
        return self.state.unit == self.action.unit


def places(header: EpisodeHeader) -> list[Part]:
    """The parts of all state vectors that say where something is, in file order."""
    return [part for track in header.vectors if track.role == "state" for part in _parts(track)]


def commanded(header: EpisodeHeader) -> list[Commanded]:
    """The measured parts that an action vector commands, joint by joint of the same name.

    Actions that say where to go are looked at before those that say how fast, and the vector of the same name first.
    Where names say nothing (numbers, or none in common), vectors of the same name and length are taken
    dimension by dimension.
    """
    actions = [track for track in header.vectors if track.role == "action"]
    actions.sort(key=lambda track: _kind(track, track.units[0]) != "place")
    found = []
    for part in places(header):
        nearest_first = sorted(actions, key=lambda track: track.name != part.track.name)
        pairs = (_pair(part, track) for track in nearest_first)
        found += [pair for pair in pairs if pair is not None][:1]
    return found


def _pair(part: Part, action: VectorTrack) -> Commanded | None:
    """The dimensions of `part` that `action` commands; None if none."""
    found = {_joint(action, dim): dim for dim in range(action.dim)}
    mine = [_joint(part.track, dim) for dim in part.dims]
    pairs = [(dim, found[key]) for dim, key in zip(part.dims, mine, strict=True) if key in found]
    if not pairs and (action.name, action.dim) == (part.track.name, part.track.dim):
        pairs = [(dim, dim) for dim in part.dims]
    units = {action.units[dim] for _, dim in pairs}
    if len(units) != 1 or _kind(action, *units) == "force":
        return None
    state = Part(part.track, part.limb, part.unit, tuple(dim for dim, _ in pairs))
    return Commanded(state, Part(action, part.limb, units.pop(), tuple(dim for _, dim in pairs)))


def _parts(track: VectorTrack) -> Iterator[Part]:
    dims: dict[tuple[str, str], list[int]] = {}
    for dim, unit in enumerate(track.units):
        if _kind(track, unit) == "place":
            dims.setdefault((_limb(track, dim), unit), []).append(dim)
    for (limb, unit), members in dims.items():
        yield Part(track, limb, unit, tuple(members))


def _limb(track: VectorTrack, dim: int) -> str:
    """'right_arm' by the words of the dimension's name, with the vector's side; else the vector's name."""
    mine, of_track = words(track.names[dim]), words(track.name)
    limb = next((limb for limb, told_by in LIMBS.items() if told_by & set(mine)), "")
    if not limb:
        return track.name
    side = _side(mine) or _side(of_track)
    return f"{side}_{limb}" if side else limb


def _joint(track: VectorTrack, dim: int) -> tuple[str, ...]:
    """What a dimension is called without the words that say who reports it; its vector's side comes in front."""
    mine, of_track = words(track.names[dim]), words(track.name)
    told = tuple(word for word in mine if word not in ROLE_WORDS and word not in SIDES)
    if all(word.isdigit() for word in told):  # a number says nothing without the limb it counts in
        told = (*(word for word in of_track if word not in ROLE_WORDS and word not in SIDES), *told)
    return (_side(mine) or _side(of_track), *told)


def _side(found: tuple[str, ...]) -> str:
    return next((SIDES[word] for word in found if word in SIDES), "")


def _kind(track: VectorTrack, unit: str) -> Kind:
    """By its unit; without one by the vector's name."""
    told_by = set(words(track.name))
    if unit in FORCE_UNITS or (not unit and FORCE_WORDS & told_by):
        return "force"
    return "rate" if "/s" in unit or (not unit and RATE_WORDS & told_by) else "place"
