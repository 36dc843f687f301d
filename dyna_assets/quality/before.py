"""Checks before the transform, over what the probe measured.

Evidence: {"start_ns", "shared_s", "paired_by", "num_listed",
"topics": {topic: {role, name, num_messages, rate_hz, first_s, last_s, max_gap_s, num_backwards, drop_share, and
for vectors names, num_nan, still}}, "missing": {topic: {role, name, reason}}}. Times are seconds since the
recording's first message; `still` names dimensions that never change.
"""

from __future__ import annotations

from collections.abc import Iterator

from dyna_assets.landing.profile import Gates
from dyna_assets.quality.checks import Evidence, Finding, check


@check("topics.present", "before", severity="reject")
def topics_present(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Every topic that the source profile gives a role is there and has messages."""
    for topic, facts in evidence["missing"].items():
        yield Finding(
            facts["name"],
            True,
            0,
            1,
            "messages",
            f"{facts['role']} '{facts['name']}' ({topic}): {facts['reason']}",
        )
    for facts in evidence["topics"].values():
        yield Finding(facts["name"], False, facts["num_messages"], 1, "messages", "")


@check("time.monotonic", "before", severity="reject")
def time_monotonic(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Capture times of a topic never go back."""
    for topic, facts in evidence["topics"].items():
        yield Finding(
            facts["name"],
            facts["num_backwards"] > 0,
            facts["num_backwards"],
            0,
            "messages",
            f"{topic}: capture time goes back at {facts['num_backwards']} of {facts['num_messages']} messages; "
            "the clock was set or two recordings were joined. Split the recording there",
        )


@check("time.duration", "before", severity="reject")
def time_duration(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """The topics have long enough a time in common."""
    shared_s = evidence["shared_s"]
    yield Finding(
        "",
        shared_s < gates.min_duration_s,
        shared_s,
        gates.min_duration_s,
        "s",
        f"all topics together cover {shared_s:.2f} s, expected at least {gates.min_duration_s:g} s",
    )


@check("time.length_mismatch", "before", severity="reject")
def length_mismatch(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """No topic stops long before the others."""
    topics = evidence["topics"]
    end_s = max((facts["last_s"] for facts in topics.values()), default=0.0)
    longest = next((topic for topic, facts in topics.items() if facts["last_s"] == end_s), "")
    for topic, facts in topics.items():
        short_s = end_s - facts["last_s"]
        yield Finding(
            facts["name"],
            short_s > gates.max_length_mismatch_s,
            short_s,
            gates.max_length_mismatch_s,
            "s",
            f"{topic} ends at {facts['last_s']:.2f} s ({facts['num_messages']} messages), {longest} at {end_s:.2f} s "
            f"({topics[longest]['num_messages'] if longest else 0} messages): {short_s:.2f} s are missing, "
            f"at most {gates.max_length_mismatch_s:g} s may be",
        )


@check("rows.paired", "before", severity="reject")
def rows_paired(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Where a format pairs pictures and rows by their number, there are as many of each, and as listed.

    One that is missing shifts all that come after it, and no clock tells.
    """
    if evidence["paired_by"] != "number":
        return
    counts = {topic: facts["num_messages"] for topic, facts in evidence["topics"].items()}
    expected = evidence["num_listed"]
    if expected is None:
        expected = max(counts.values(), default=0)
    for topic, count in counts.items():
        yield Finding(
            evidence["topics"][topic]["name"],
            abs(count - expected) > gates.max_unpaired_rows,
            count - expected,
            gates.max_unpaired_rows,
            "rows",
            f"{topic} has {count} messages, expected {expected} as the recording's other topics or its list: they "
            "are paired by number, so a missing one shifts all after it. Record or convert it again",
        )


@check("time.gap", "before", severity="reject")
def time_gap(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """No camera and no state is silent for long; commands may be, they hold until the next one."""
    for topic, facts in evidence["topics"].items():
        if facts["role"] != "action":
            yield Finding(
                facts["name"],
                facts["max_gap_s"] > gates.max_gap_s,
                facts["max_gap_s"],
                gates.max_gap_s,
                "s",
                f"{topic}: nothing for {facts['max_gap_s']:.2f} s, at most {gates.max_gap_s:g} s may pass",
            )


@check("camera.drops", "before", severity="warn")
def camera_drops(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """A camera delivers the frames its own rate promises."""
    for topic, facts in evidence["topics"].items():
        if facts["role"] == "camera":
            yield Finding(
                facts["name"],
                facts["drop_share"] > gates.max_drop_share,
                facts["drop_share"],
                gates.max_drop_share,
                "share",
                f"{topic}: {facts['drop_share']:.0%} of the frames expected at {facts['rate_hz']:.1f} Hz are missing",
            )


@check("vector.finite", "before", severity="reject")
def vector_finite(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """State and action hold numbers."""
    for topic, facts in evidence["topics"].items():
        if facts["role"] != "camera":
            yield Finding(
                facts["name"],
                facts["num_nan"] > 0,
                facts["num_nan"],
                0,
                "rows",
                f"{topic}: {facts['num_nan']} of {facts['num_messages']} rows hold NaN, infinity or too large numbers",
            )


@check("state.moves", "before", severity="warn")
def state_moves(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """The robot moves at all. A warning: some tasks hold still."""
    states = [facts for facts in evidence["topics"].values() if facts["role"] == "state"]
    num_dims = sum(len(facts["names"]) for facts in states)
    num_still = sum(len(facts["still"]) for facts in states)
    if num_dims:
        yield Finding(
            "",
            num_still == num_dims,
            num_dims - num_still,
            1,
            "dimensions",
            f"none of the {num_dims} state dimensions ever changes: the robot stands still or was not read",
        )


@check("state.frozen_joint", "before", severity="warn")
def state_frozen_joint(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """No single joint stands still while the others move."""
    for topic, facts in evidence["topics"].items():
        if facts["role"] == "state":
            still, num_dims = facts["still"], len(facts["names"])
            yield Finding(
                facts["name"],
                0 < len(still) < num_dims,
                len(still),
                0,
                "dimensions",
                f"{topic}: {', '.join(still)} never change{'s' if len(still) == 1 else ''} while "
                f"{num_dims - len(still)} other dimensions do",
            )


@check("time.action_gap", "before", severity="warn")
def time_action_gap(evidence: Evidence, gates: Gates) -> Iterator[Finding]:
    """Commands come often enough that holding the last one is no guess."""
    for topic, facts in evidence["topics"].items():
        if facts["role"] == "action":
            yield Finding(
                facts["name"],
                facts["max_gap_s"] > gates.max_gap_s,
                facts["max_gap_s"],
                gates.max_gap_s,
                "s",
                f"{topic}: no command for {facts['max_gap_s']:.2f} s, the last one is held",
            )
