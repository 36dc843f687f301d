"""A source profile as commented TOML."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dyna_assets.derive import DERIVED, DerivedRole
from dyna_assets.landing.draft import Draft
from dyna_assets.landing.profile import SourceProfile, TopicRole
from dyna_assets.quality import CHECKS
from dyna_assets.quality.registry import Limits
from dyna_train.config import Config


def render_draft(draft: Draft) -> str:
    """The TOML of a draft, with what a person has to know and to choose in it."""
    return render_toml(draft.profile, draft.ignored, notes=draft.notes, choose=draft.choose)


def render_toml(
    profile: SourceProfile,
    ignored: Mapping[str, str] | None = None,
    *,
    notes: Sequence[str] = (),
    choose: Mapping[str, Any] | None = None,
) -> str:
    """The profile as commented TOML that `load_config(SourceProfile, path)` reads back to an equal one.

    ignored: why each of its `ignore` patterns is there. choose: options of the reader, to be chosen by a person.
    """
    why = ignored or {}
    lines = [
        f"# Source '{profile.name}', drafted from its recordings. Check the roles and the rate.",
        *(f"# note: {_one_line(note)}" for note in notes),
        f"name = {_value(profile.name)}",
        f"landing = {_value(profile.landing)}",
        f"reader = {_value(profile.reader)}",
        *_quiet_period(profile.quiet_period_s),
        "# used where the recordings do not say it themselves",
        f"robot = {_value(profile.robot)}",
        f"task = {_value(profile.task)}",
        *_patterns("extra", profile.extra, "kept as they came, in the episode file's group 'extra'", {}),
        *_patterns("ignore", profile.ignore, "topics, columns and files that are known and left out", why),
        *([] if profile.cameras else ["cameras = []"]),
        *_options(profile.reader_options, choose or {}),
        "",
        "# the common time grid: one step every 1 / rate_hz seconds, or one for every frame of a reference camera",
        "[grid]",
        f"rate_hz = {_value(profile.grid.rate_hz)}",
        f"reference = {_value(profile.grid.reference)}  # the name of a camera below",
        f"max_gap_s = {_value(profile.grid.max_gap_s)}  # what is older is missing: its steps are in no window",
        *_roles("cameras", profile.cameras, "name: in the episode file; topic: in the recordings"),
        *_roles("states", profile.states, 'what the robot measures; units = "rad" or one for each dimension'),
        *_roles("actions", profile.actions, "what the robot is told"),
        *_derived(profile.derived),
        *_gates(profile.gates),
        *_section("encoding", profile.encoding, "how episode files are encoded"),
        *_section("labels", profile.labels, "models that label episodes"),
    ]
    return "\n".join(lines) + "\n"


def _quiet_period(quiet_period_s: float | None) -> list[str]:
    if quiet_period_s is None:
        return ["# an upload is read once its upload.json is there; without one set quiet_period_s = 10.0"]
    return [
        "# without an upload.json, an upload is read once nothing in it has changed for this long",
        f"quiet_period_s = {_value(quiet_period_s)}",
    ]


def _patterns(key: str, patterns: Sequence[str], comment: str, why: Mapping[str, str]) -> list[str]:
    if not patterns:
        return [f"{key} = []  # {comment}"]
    entries = [f"  {_value(p)}," + (f"  # {_one_line(why[p])}" if p in why else "") for p in patterns]
    return [f"{key} = [  # {comment}", *entries, "]"]


def _roles(role: str, topics: Sequence[TopicRole], comment: str) -> list[str]:
    lines = ["", f"# {comment}"] if topics else []
    for topic in topics:
        lines += [f"[[{role}]]", *_entries(topic, always=("name", "topic"))]
    return lines


def _derived(roles: Sequence[DerivedRole]) -> list[str]:
    """The derived signals; without any an example, as a comment."""
    lines = ["", "# computed on the grid from the vectors above"]
    if not roles:
        example = ('# name = "left_velocity"', '# function = "velocity"', '# of = ["state/left"]')
        return [*lines, f"# [[derived]]  functions: {', '.join(DERIVED)}", *example]
    for role in roles:
        lines += ["[[derived]]", *_entries(role, always=("name", "function", "of"))]
    return lines


def _entries(values: Config, always: Collection[str]) -> list[str]:
    """The keys of a table that differ from their defaults, and those of `always`."""
    fields = type(values).model_fields
    return [
        f"{key} = {_value(getattr(values, key))}"
        for key, field in fields.items()
        if key in always or getattr(values, key) != field.get_default(call_default_factory=True)
    ]


def _options(values: Mapping[str, Any], choose: Mapping[str, Any]) -> list[str]:
    if not values and not choose:
        return []
    return [
        "",
        "# options of the reader",
        "[reader_options]",
        *(f"{_value(key)} = {_value(value)}" for key, value in values.items()),
        *(
            f"# {key} = {_value(value)}  # to choose; nothing is read without"
            for key, value in choose.items()
        ),
    ]


def _gates(gates: Mapping[str, Limits]) -> list[str]:
    """Every check with its limits: those that this source sets, the others as comments."""
    lines = [
        "",
        "# limits of the quality checks for this source; after a change run: dyna-assets regate",
        "[gates]",
    ]
    for rule in CHECKS.values():
        limits, comment = gates.get(rule.name), f"  # {rule.unit}: {rule.says}"
        mark = "# " if limits is None else ""
        lines.append(
            f"{mark}{_value(rule.name)} = {_value((limits or rule.limits).model_dump(exclude_none=True))}{comment}"
        )
    return lines


def _section(name: str, values: Config, comment: str) -> list[str]:
    """A table of plain values, each with its description."""
    lines = ["", f"# {comment}", f"[{name}]"]
    for key, field in type(values).model_fields.items():
        comment = f"  # {field.description}" if field.description else ""
        value = getattr(values, key)
        if value is not None:  # TOML has no null: what is not set is left out
            lines.append(f"{key} = {_value(value)}{comment}")
    return lines


def _one_line(text: str) -> str:
    """The text as a comment can hold it: TOML forbids control characters there."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _value(value: Any) -> str:
    """A TOML value. JSON's strings are TOML's, but for DEL, which TOML wants escaped."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_value(str(key))} = {_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
