"""Checks before the transform of topics and clocks, over the facts that the probe wrote down.

Facts: {"start_ns", "shared_s", "valid_share", "invalid_spans", "paired_by", "num_listed", "ahead_s", "unmapped":
{topic: messages}, "missing": {topic: {role, name, reason}}, "topics": {topic: {role, name, num_messages, ...}}}; see
`dyna_assets.steps.probe.measure`. Times are seconds since the recording's first message.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from dyna_assets.quality.registry import Facts, Measured, check
from dyna_assets.quality.spans import as_pairs

DAY_S = 86_400.0


@check("topics.present", "before", unit="topics", reject=0, version=2)
def topics_present(facts: Facts) -> Iterator[Measured]:
    """Every topic that the source profile gives a role is there and has messages."""
    for topic, missing in facts["missing"].items():
        yield Measured(
            missing["name"], 1, f"{missing['role']} '{missing['name']}' ({topic}): {missing['reason']}"
        )
    for _, found in topics_of(facts):
        yield Measured(found["name"], 0)


@check("topics.unmapped", "before", unit="topics", warn=0)
def topics_unmapped(facts: Facts) -> Iterator[Measured]:
    """The source profile says of every topic what becomes of it."""
    unmapped = facts["unmapped"]
    names = ", ".join(f"{topic} ({num} messages)" for topic, num in sorted(unmapped.items()))
    note = f"no role, and neither extra nor ignored by the source profile: {names}. Name them there"
    yield Measured("", len(unmapped), note if unmapped else "")


@check("time.monotonic", "before", unit="messages", reject=0)
def time_monotonic(facts: Facts) -> Iterator[Measured]:
    """Capture times of a topic never go back."""
    for topic, found in topics_of(facts):
        note = (
            f"{topic}: capture time goes back at {found['num_backwards']} of {found['num_messages']} messages; "
            "the clock was set or two recordings were joined. Split the recording there"
        )
        yield Measured(found["name"], found["num_backwards"], note, _restarts(found))


@check("time.duration", "before", unit="s", reject=0.5, worse="below")
def time_duration(facts: Facts) -> Iterator[Measured]:
    """The topics have long enough a time in common."""
    yield Measured("", facts["shared_s"], f"all topics together cover {facts['shared_s']:.2f} s")


@check("time.length_mismatch", "before", unit="s", reject=0.5)
def length_mismatch(facts: Facts) -> Iterator[Measured]:
    """No topic stops long before the others."""
    ends = {topic: found["last_s"] for topic, found in topics_of(facts)}
    longest = max(ends, key=lambda topic: ends[topic], default="")
    for topic, found in topics_of(facts):
        short_s = ends[longest] - ends[topic]
        note = (
            f"{topic} ends at {ends[topic]:.2f} s ({found['num_messages']} messages), {longest} at "
            f"{ends[longest]:.2f} s ({facts['topics'][longest]['num_messages']} messages): "
            f"{short_s:.2f} s are missing"
        )
        yield Measured(found["name"], short_s, note, ((ends[topic], ends[longest]),) if short_s else ())


@check("time.late_start", "before", unit="s", warn=0.5, reject=1.0)
def late_start(facts: Facts) -> Iterator[Measured]:
    """No topic starts long after most of the others."""
    starts = {topic: found["first_s"] for topic, found in topics_of(facts)}
    usual_s = statistics.median_low(starts.values()) if starts else 0.0
    for topic, found in topics_of(facts):
        late_s = max(starts[topic] - usual_s, 0.0)
        note = (
            f"{topic} starts at {starts[topic]:.2f} s, most topics by {usual_s:.2f} s: what came before is lost. "
            "Start the recorder when every sensor runs"
        )
        yield Measured(found["name"], late_s, note, ((usual_s, starts[topic]),) if late_s else ())


@check("rows.paired", "before", unit="rows", reject=0)
def rows_paired(facts: Facts) -> Iterator[Measured]:
    """Where a format pairs pictures and rows by their number, there are as many of each, and as listed."""
    if facts["paired_by"] != "number":
        return
    expected = facts["num_listed"]
    if expected is None:
        expected = max((found["num_messages"] for _, found in topics_of(facts)), default=0)
    for topic, found in topics_of(facts):
        note = (
            f"{topic} has {found['num_messages']} messages, expected {expected} as the recording's other topics or "
            "its list: they are paired by number, so a missing one shifts all after it. Record or convert it again"
        )
        yield Measured(found["name"], abs(found["num_messages"] - expected), note)


@check("time.gap", "before", unit="s", warn=0.5)
def time_gap(facts: Facts) -> Iterator[Measured]:
    """No camera and no state is silent for long: those stretches become invalid."""
    for topic, found in topics_of(facts, "camera", "state"):
        note = f"{topic}: nothing for {found['max_gap_s']:.2f} s"
        yield Measured(found["name"], found["max_gap_s"], note, _silences(found))


@check("time.valid_share", "before", unit="share", warn=0.9, reject=0.5, worse="below")
def valid_share(facts: Facts) -> Iterator[Measured]:
    """Enough of the episode is left where every camera and every state was seen."""
    share = facts["valid_share"]
    if share is not None:
        note = f"only {share:.0%} of the common time has every camera and state within the source's max_gap_s"
        yield Measured("", share, note, as_pairs(facts["invalid_spans"]))


@check("time.action_gap", "before", unit="s", warn=0.5)
def time_action_gap(facts: Facts) -> Iterator[Measured]:
    """Commands come often enough that holding the last one is no guess."""
    for topic, found in topics_of(facts, "action"):
        note = f"{topic}: no command for {found['max_gap_s']:.2f} s, the last one is held"
        yield Measured(found["name"], found["max_gap_s"], note, _silences(found))


@check("time.jitter", "before", unit="steps", warn=0.6, version=2)
def time_jitter(facts: Facts) -> Iterator[Measured]:
    """Messages come evenly: how far half of the steps between them are from the mean step, in mean steps."""
    for topic, found in topics_of(facts):
        if found["unevenness"] is not None:
            note = (
                f"{topic}: half of the steps between its messages are {found['unevenness']:.0%} or more off the mean "
                "step: they are stamped in batches, as they are read. Stamp them at capture"
            )
            yield Measured(found["name"], found["unevenness"], note)


@check("time.rate", "before", unit="share", warn=0.05)
def time_rate(facts: Facts) -> Iterator[Measured]:
    """A topic runs at the rate that the recording's metadata declares."""
    for topic, found in topics_of(facts):
        declared_hz = found["declared_hz"]
        if declared_hz and found["lattice_hz"]:
            off = abs(found["lattice_hz"] / declared_hz - 1)
            note = f"{topic} runs at {found['lattice_hz']:.2f} Hz, its metadata says {declared_hz:g} Hz: one is wrong"
            yield Measured(found["name"], off, note)


@check("time.future", "before", unit="s", reject=DAY_S)
def time_future(facts: Facts) -> Iterator[Measured]:
    """Nothing was captured after it was looked at."""
    if facts["ahead_s"] is not None:
        ahead_s = max(0.0, facts["ahead_s"])
        note = f"the last capture is {ahead_s / DAY_S:,.1f} days in the future: the recorder's clock is wrong, set it"
        yield Measured("", ahead_s, note)


@check("time.latency", "before", unit="s", warn=0.25)
def time_latency(facts: Facts) -> Iterator[Measured]:
    """A topic's messages take no longer to the recorder than those of the others."""
    latency = {
        topic: found["latency_s"] for topic, found in topics_of(facts) if found["latency_s"] is not None
    }
    least_s = min(latency.values(), default=0.0)
    for topic, latency_s in latency.items():
        note = (
            f"{topic} arrives {latency_s - least_s:.3f} s later after its capture than the quickest topic: its clock "
            "is not the others', or its driver is slow. Set the clocks by one source, or give the role a latency_ms"
        )
        yield Measured(facts["topics"][topic]["name"], latency_s - least_s, note)


@check("time.drift", "before", unit="s", warn=0.1)
def time_drift(facts: Facts) -> Iterator[Measured]:
    """A topic's clock does not run away from the recorder's."""
    for topic, found in topics_of(facts):
        if found["drift_s"] is not None:
            note = (
                f"{topic}: its capture clock moves {found['drift_s']:+.3f} s against the recorder's in the time of the "
                "recording: it runs at another rate, or the recorder falls behind"
            )
            yield Measured(found["name"], abs(found["drift_s"]), note)


@check("video.clock", "before", unit="s", warn=0.02, reject=0.1)
def video_clock(facts: Facts) -> Iterator[Measured]:
    """Where pictures and rows are paired by number, the video's clock says the same as the rows' times."""
    for topic, found in topics_of(facts, "camera"):
        apart_s = found.get("apart_s")
        if apart_s is not None:
            note = (
                f"{topic}: the video's clock and the times of the rows it is paired with are up to {apart_s:.3f} s "
                "apart: its frame rate is not the rows', or frames are missing. Record or convert it again"
            )
            yield Measured(found["name"], apart_s, note)


@check("camera.drops", "before", unit="share", warn=0.15, version=3)
def camera_drops(facts: Facts) -> Iterator[Measured]:
    """A camera delivers the frames that its own steps promise."""
    for topic, found in topics_of(facts, "camera"):
        share = found["lost_share"]
        if share is not None:
            note = f"{topic}: {share:.0%} of the frames of a {found['lattice_hz']:.4g} Hz camera are missing"
            yield Measured(found["name"], share, note, _silences(found))


def topics_of(facts: Facts, *roles: str) -> Iterator[tuple[str, Any]]:
    """(topic, facts) of the topics that were read, or only of those with one of `roles`."""
    for topic, found in facts["topics"].items():
        if not roles or found["role"] in roles:
            yield topic, found


def _restarts(found: Facts) -> tuple[tuple[float, float], ...]:
    """From the time a clock was set to, to the time it had shown."""
    return tuple((after_s, before_s) for _, before_s, after_s in found["restarts"])


def _silences(found: Facts) -> tuple[tuple[float, float], ...]:
    """The gaps that are about as long as the longest."""
    return as_pairs([gap for gap in found["gaps"] if gap[1] - gap[0] > found["max_gap_s"] / 2])
