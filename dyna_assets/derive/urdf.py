"""The joints of a robot, from the text of its URDF. Metres and radians."""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from dyna_assets.derive.registry import refused
from dyna_assets.names import repeated

MOST_CHARACTERS = 1 << 25
"""Real ones have a few hundred thousand at most; meshes are other files."""
TURNING, SLIDING, FIXED = ("revolute", "continuous"), ("prismatic",), ("fixed",)

Triple = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Joint:
    """One joint. xyz, rpy: its place in the parent link (turns about the fixed x, y, z axes, in this order).

    axis: unit vector in its own frame. mimics: (joint, multiplier, offset) that it follows; None if it has a value.
    """

    name: str
    kind: str
    parent: str
    child: str
    xyz: Triple
    rpy: Triple
    axis: Triple
    mimics: tuple[str, float, float] | None

    @property
    def moves(self) -> bool:
        """It has a value, of its own or another's."""
        return self.kind not in FIXED


def read_urdf(text: str) -> dict[str, Joint]:
    """All joints by name.

    Raises RecordingError for what is no URDF, also for any document type, whose entities could ask for gigabytes.
    """
    joints = [_joint(element) for element in _root(text).findall("joint")]
    names, links = [joint.name for joint in joints], [joint.child for joint in joints]
    for what, values in (("joints called", names), ("joints that lead to link", links)):
        twice = repeated(values)
        if twice:
            raise refused(f"the URDF has two {what} {', '.join(twice)}; expected one")
    return {joint.name: joint for joint in joints}


class _NoDocumentType(ET.TreeBuilder):
    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise refused("the URDF declares a document type, which no URDF needs; remove <!DOCTYPE ...>")


def _root(text: str) -> ET.Element:
    if len(text) > MOST_CHARACTERS:
        raise refused(f"the URDF has {len(text):,} characters, expected at most {MOST_CHARACTERS:,}")
    parser = ET.XMLParser(target=_NoDocumentType())
    try:
        parser.feed(text)
        root = parser.close()
    except ET.ParseError as error:
        raise refused(f"the URDF is not XML: {error}") from None
    if root.tag != "robot":
        raise refused(f"the URDF begins with <{root.tag}>, expected <robot>; expand xacro files first")
    return root


def _joint(element: ET.Element) -> Joint:
    name, kind = element.get("name", ""), element.get("type", "")
    parent, child = (_attribute(element, part, "link", "") for part in ("parent", "child"))
    lacking = [part for part, value in (("name", name), ("parent", parent), ("child", child)) if not value]
    if lacking:
        raise refused(f"joint '{name}' of the URDF has no {' and no '.join(lacking)}")
    return Joint(
        name,
        kind,
        parent,
        child,
        _triple(name, "origin xyz", _attribute(element, "origin", "xyz", "0 0 0")),
        _triple(name, "origin rpy", _attribute(element, "origin", "rpy", "0 0 0")),
        (1.0, 0.0, 0.0) if kind in FIXED else _axis(name, _attribute(element, "axis", "xyz", "1 0 0")),
        _mimic(name, element.find("mimic")),
    )


def _mimic(name: str, element: ET.Element | None) -> tuple[str, float, float] | None:
    if element is None:
        return None
    text = f"{element.get('multiplier', '1')} {element.get('offset', '0')}"
    factor, offset = _numbers(name, "mimic", text, 2)
    return element.get("joint", ""), factor, offset


def _axis(name: str, text: str) -> Triple:
    x, y, z = _triple(name, "axis", text)
    length = math.sqrt(x * x + y * y + z * z)
    if not 0 < length < math.inf:
        raise refused(f"joint '{name}' of the URDF has the axis '{text}', which points nowhere")
    return x / length, y / length, z / length


def _attribute(element: ET.Element, part: str, key: str, otherwise: str) -> str:
    found = element.find(part)
    return otherwise if found is None else found.get(key, otherwise)


def _triple(name: str, what: str, text: str) -> Triple:
    x, y, z = _numbers(name, what, text, 3)
    return x, y, z


def _numbers(name: str, what: str, text: str, count: int) -> list[float]:
    try:
        numbers = [float(part) for part in text.split()]
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise refused(f"joint '{name}' of the URDF: {what} is '{text}', expected {count} numbers")
    return numbers
