"""What a channel of an episode file must say of its topic, and what is wrong with one that does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from mcap.records import Channel

from dyna_train.episode.channels import TOPICS
from dyna_train.episode.profile import DEPTH_GROUP, EXTRA_GROUP, GROUPS, STATE_GROUP, VIDEO_GROUP

Problem = tuple[str, str]
"""What was expected, what was found."""

_MAX_DIGITS = 10  # far more pixels, dimensions or steps than there are


def _count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS and int(text) > 0


def _positive(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False


def _texts(text: str) -> bool:
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, list) and all(isinstance(one, str) for one in found)


_COUNT = ("a count of 1 or more", _count)
_POSITIVE = ("a number above 0", _positive)
_TEXTS = ("a JSON list of texts", _texts)
_TEXT = ("what the encoder was told", bool)
_FIELDS: Mapping[str, Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    VIDEO_GROUP: {
        "rate_hz": _POSITIVE,
        "fps": _POSITIVE,
        "width": _COUNT,
        "height": _COUNT,
        "gop": _COUNT,
        "codec_params": _TEXT,
    },
    STATE_GROUP: {"rate_hz": _POSITIVE, "dim": _COUNT, "names": _TEXTS, "units": _TEXTS},
    DEPTH_GROUP: {"rate_hz": _POSITIVE, "width": _COUNT, "height": _COUNT, "unit_m": _POSITIVE},
}


def group_of(channel: Channel) -> str:
    """The topic group a channel names; '' for none of ours."""
    group: str = channel.metadata.get("group", "")
    return group if group in GROUPS else ""


def problems_of(channel: Channel) -> Iterator[Problem]:
    """What keeps a channel from describing its topic."""
    group = group_of(channel)
    if not group:
        yield f"group, one of {', '.join(GROUPS)}", repr(channel.metadata.get("group"))
        return
    if group in TOPICS and not TOPICS[group][0].fullmatch(channel.topic):
        yield f"a topic {TOPICS[group][1]} in group {group}", channel.topic
    fields = _FIELDS.get(group, {})
    for name, (meaning, is_good) in fields.items():
        value = channel.metadata.get(name)
        if value is None or not is_good(value):
            yield f"metadata {name}, {meaning}", "none" if value is None else repr(value)
    if group == STATE_GROUP and all(name in channel.metadata for name in fields):
        yield from _dimension_problems(channel)


def is_complete(channel: Channel) -> bool:
    """True if nothing is wrong with what the channel says."""
    return not any(problems_of(channel))


def unknown_metadata(channel: Channel) -> list[str]:
    """What a channel of ours says beside what its group does; extra topics may say anything."""
    group = group_of(channel)
    known = _FIELDS.get(group, {})
    return [] if group in ("", EXTRA_GROUP) else sorted(channel.metadata.keys() - {"group", *known})


def _dimension_problems(channel: Channel) -> Iterator[Problem]:
    """Names and units hold one entry per dimension."""
    dim = channel.metadata["dim"]
    for name in ("names", "units"):
        text = channel.metadata[name]
        if _count(dim) and _texts(text) and len(json.loads(text)) != int(dim):
            yield f"{dim} {name}, one per dimension", f"{len(json.loads(text))}"
