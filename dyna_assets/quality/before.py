"""Checks before the transform, over what the probe measured.

Evidence: {"start_ns", "shared_s", "paired_by", "num_listed",
"topics": {topic: {role, name, num_messages, rate_hz, first_s, last_s, max_gap_s, num_backwards, drop_share, and
for vectors names, num_nan, still}}, "missing": {topic: {role, name, reason}}}. Times are seconds since the
recording's first message; `still` names dimensions that never change.
"""

from __future__ import annotations

from collections.abc import Iterator

from dyna_assets.landing.profile import Gates
from dyna_assets.quality.checks import Evidence, Finding, above, check


@check("topics.present", "before", severity="reject")
def topics_present(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Every topic that the source profile gives a role is there and has messages."""
    for topic, facts in evidence["missing"].items():
        reason = f"{facts['role']} '{facts['name']}' ({topic}): {facts['reason']}"
        yield Finding(facts["name"], True, 0, 1, "messages", reason)
    for _, facts in _topics(evidence):
        yield Finding(facts["name"], False, facts["num_messages"], 1, "messages", "")


@check("time.monotonic", "before", severity="reject")
def time_monotonic(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Capture times of a topic never go back."""
    for topic, facts in _topics(evidence):
        reason = (
            f"{topic}: capture time goes back at {facts['num_backwards']} of {facts['num_messages']} messages; "
            "the clock was set or two recordings were joined. Split the recording there"
        )
        yield above(facts["name"], facts["num_backwards"], 0, "messages", reason)


@check("time.duration", "before", severity="reject")
def time_duration(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """The topics have long enough a time in common."""
    shared_s, least_s = evidence["shared_s"], gates.min_duration_s
    reason = f"all topics together cover {shared_s:.2f} s, expected at least {least_s:g} s"
    yield Finding("", shared_s < least_s, shared_s, least_s, "s", reason)


@check("time.length_mismatch", "before", severity="reject")
def length_mismatch(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """No topic stops long before the others."""
    ends = {topic: facts["last_s"] for topic, facts in _topics(evidence)}
    longest = max(ends, key=lambda topic: ends[topic], default="")
    for topic, facts in _topics(evidence):
        short_s = ends[longest] - ends[topic]
        reason = (
            f"{topic} ends at {ends[topic]:.2f} s ({facts['num_messages']} messages), {longest} at "
            f"{ends[longest]:.2f} s ({evidence['topics'][longest]['num_messages']} messages): {short_s:.2f} s are "
            f"missing, at most {gates.max_length_mismatch_s:g} s may be"
        )
        yield above(facts["name"], short_s, gates.max_length_mismatch_s, "s", reason)


@check("rows.paired", "before", severity="reject")
def rows_paired(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Where a format pairs pictures and rows by their number, there are as many of each, and as listed.

    One that is missing shifts all that come after it, and no clock tells.
    """
    if evidence["paired_by"] != "number":
        return
    expected = evidence["num_listed"]
    if expected is None:
        expected = max((facts["num_messages"] for _, facts in _topics(evidence)), default=0)
    for topic, facts in _topics(evidence):
        reason = (
            f"{topic} has {facts['num_messages']} messages, expected {expected} as the recording's other topics or "
            "its list: they are paired by number, so a missing one shifts all after it. Record or convert it again"
        )
        difference = abs(facts["num_messages"] - expected)
        yield above(facts["name"], difference, gates.max_unpaired_rows, "rows", reason)


@check("time.gap", "before", severity="reject")
def time_gap(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """No camera and no state is silent for long."""
    for topic, facts in _topics(evidence, "camera", "state"):
        reason = f"{topic}: nothing for {facts['max_gap_s']:.2f} s, at most {gates.max_gap_s:g} s may pass"
        yield above(facts["name"], facts["max_gap_s"], gates.max_gap_s, "s", reason)


@check("time.action_gap", "before", severity="warn")
def time_action_gap(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Commands come often enough that holding the last one is no guess."""
    for topic, facts in _topics(evidence, "action"):
        reason = f"{topic}: no command for {facts['max_gap_s']:.2f} s, the last one is held"
        yield above(facts["name"], facts["max_gap_s"], gates.max_gap_s, "s", reason)


@check("camera.drops", "before", severity="warn")
def camera_drops(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """A camera delivers the frames its own rate promises."""
    for topic, facts in _topics(evidence, "camera"):
        missing = f"{facts['drop_share']:.0%} of the frames expected at {facts['rate_hz']:.1f} Hz"
        reason = f"{topic}: {missing} are missing"
        yield above(facts["name"], facts["drop_share"], gates.max_drop_share, "share", reason)


@check("vector.finite", "before", severity="reject")
def vector_finite(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """State and action hold numbers."""
    for topic, facts in _topics(evidence, "state", "action"):
        counts = f"{facts['num_nan']} of {facts['num_messages']}"
        reason = f"{topic}: {counts} rows hold NaN, infinity or too large numbers"
        yield above(facts["name"], facts["num_nan"], 0, "rows", reason)


@check("state.moves", "before", severity="warn")
def state_moves(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """The robot moves at all. A warning: some tasks hold still."""
    states = [facts for _, facts in _topics(evidence, "state")]
    num_dims = sum(len(facts["names"]) for facts in states)
    num_moving = num_dims - sum(len(facts["still"]) for facts in states)
    if num_dims:
        reason = (
            f"none of the {num_dims} state dimensions ever changes: the robot stands still or was not read"
        )
        yield Finding("", num_moving == 0, num_moving, 1, "dimensions", reason)


@check("state.frozen_joint", "before", severity="warn")
def state_frozen_joint(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """No single joint stands still while the others move."""
    for topic, facts in _topics(evidence, "state"):
        still, num_dims = facts["still"], len(facts["names"])
        verb = "changes" if len(still) == 1 else "change"
        reason = f"{topic}: {', '.join(still)} never {verb} while {num_dims - len(still)} other dimensions do"
        yield Finding(facts["name"], 0 < len(still) < num_dims, len(still), 0, "dimensions", reason)


def _topics(evidence: Evidence, *roles: str) -> Iterator[tuple[str, Evidence]]:
    """(topic, facts) of the topics that were read, or only of those with one of `roles`."""
    for topic, facts in evidence["topics"].items():
        if not roles or facts["role"] in roles:
            yield topic, facts
