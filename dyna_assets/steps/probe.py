"""Step `recordings`: what the raw files, clocks and vectors of one recording say, before anything is made."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.clocks import WALL_CLOCK_NS, clock_facts, difference_s, drift_against
from dyna_assets.landing.profile import SourceProfile, TopicRole, VectorRole
from dyna_assets.landing.recording import ArrivalRecording, Recording
from dyna_assets.landing.sources.base import nearest_first
from dyna_assets.landing.sources.texts import Said, said_at
from dyna_assets.quality.spans import longest
from dyna_assets.quality.vector_facts import next_state_facts, vector_facts
from dyna_assets.stamps import OF_ITS_UPLOAD
from dyna_assets.steps.accounts import account_rows
from dyna_assets.steps.align import Series
from dyna_assets.steps.series import read_vectors
from dyna_assets.steps.work import Row, StepResult
from dyna_train.episode.stretches import stretches

Facts = dict[str, Any]
Times = NDArray[np.int64]


def probe(row: Row) -> StepResult:
    """Read the clocks of every topic with a role, and the vectors. Raises RecordingError."""
    if row.upload_problem:
        return StepResult(row.episode_id, "rejected", f"{OF_ITS_UPLOAD}{row.upload_problem}")
    with row.recording() as recording:
        facts = measure(recording, row.source, now_ns=time.time_ns())
        facts["texts"] += _own_task(row, recording, facts)
        found = _recording_row(row, recording, facts)
        accounts = account_rows(row.episode_id, row.name, row.upload_name, recording, row.source)
    return StepResult(
        row.episode_id,
        "ok",
        robot_software_version=found["robot_software_version"],
        rows={"recordings": [found], "accounts": accounts},
    )


def measure(recording: Recording, profile: SourceProfile, *, now_ns: int) -> Facts:
    """The facts that the checks before the transform measure; see `dyna_assets.quality.before`.

    now_ns: the time at which nothing can be captured yet. Seconds count from the first message of any role.
    """
    roles = {role.topic: role for role in profile.topic_roles}
    missing = {topic: reason for topic in roles if (reason := _why_missing(recording, topic, roles[topic]))}
    present = [topic for topic in roles if topic not in missing]
    vectors = [topic for topic in present if _kind_of(roles[topic]) == "vector"]
    confidences = {
        vector.confidence for vector in profile.vectors if _is_vector(recording, vector.confidence)
    }
    series = read_vectors(recording, [*vectors, *sorted(confidences)])
    times = {
        topic: series[topic].times_ns if topic in series else recording.times(topic) for topic in present
    }
    for topic in [topic for topic in present if not len(times[topic])]:
        missing[topic] = "holds no message"
        del times[topic]
    start_ns = min((int(times_N[0]) for times_N in times.values()), default=0)
    topics = {
        topic: {
            "role": roles[topic].role,
            "name": roles[topic].name,
            **clock_facts(times_N, start_ns),
            **_arrival_facts(recording, topic, times_N),
            "declared_hz": recording.meta.rate_hz,
            **_apart(recording, profile, roles[topic], times),
        }
        for topic, times_N in times.items()
    }
    for topic, found in _of_vectors(recording, profile, series, start_ns).items():
        topics[topic] |= found
    return {
        "start_ns": start_ns,
        "ahead_s": _ahead_s(times, now_ns),
        "paired_by": recording.meta.paired_by,
        "num_listed": recording.meta.num_listed,
        "missing": {
            topic: {"role": roles[topic].role, "name": roles[topic].name, "reason": reason}
            for topic, reason in missing.items()
        },
        "unmapped": {
            topic: info.num_messages
            for topic, info in recording.topics.items()
            if profile.use_of(topic) == "unmapped"
        },
        "topics": topics,
        "texts": list(recording.meta.texts),
        "notes": list(recording.meta.notes),
        **_shared_facts(topics, times, start_ns, profile.grid.max_gap_s),
    }


def _kind_of(role: TopicRole) -> str:
    """The kind of topic that a role takes."""
    return "image" if role.role == "camera" else "vector"


def _is_vector(recording: Recording, topic: str) -> bool:
    info = recording.topics.get(topic)
    return info is not None and info.kind == "vector"


def _why_missing(recording: Recording, topic: str, role: TopicRole) -> str:
    """Why a topic with a role cannot be used, and what is there instead; '' if it can."""
    if topic in recording.meta.missing:
        return recording.meta.missing[topic]
    info = recording.topics.get(topic)
    if info is None:
        others = ", ".join(nearest_first(topic, recording.topics)) or "none"
        return f"not in the recording; topics there: {others}. Correct the source profile or the recorder"
    if info.kind != _kind_of(role):
        return f"is of kind {info.kind} ({info.encoding or 'unknown encoding'}), expected {_kind_of(role)}"
    return "" if info.num_messages else "holds no message"


def _of_vectors(
    recording: Recording, profile: SourceProfile, series: Mapping[str, Series], start_ns: int
) -> dict[str, Facts]:
    """topic -> what its values say, for every vector with a role that has a message."""
    found: dict[str, Facts] = {}
    for role in profile.vectors:
        if role.topic not in series or not len(series[role.topic].times_ns):
            continue
        rows = series[role.topic]
        found[role.topic] = vector_facts(
            difference_s(rows.times_ns, np.int64(start_ns)),
            rows.values_MD,
            recording.topics[role.topic].names,
            limits=role.range,
            confidence_MK=_confidence(rows, series.get(role.confidence)),
            commands=_commands(recording, profile, role, series, start_ns),
        )
    for action in profile.actions:
        for state in profile.states:
            if recording.meta.paired_by == "number" and action.topic in found and state.topic in found:
                copies = next_state_facts(series[action.topic].values_MD, series[state.topic].values_MD)
                if copies and copies["copies_share"] >= found[action.topic].get("copies_share", 0.0):
                    found[action.topic] |= copies
    return found


def _confidence(rows: Series, confidence: Series | None) -> NDArray[np.float64] | None:
    """The confidence of each row: the latest one at or before it; None where there is none at all."""
    if confidence is None or not len(confidence.times_ns):
        return None
    latest_M = np.searchsorted(confidence.times_ns, rows.times_ns, side="right") - 1
    return confidence.values_MD[np.maximum(latest_M, 0)]


def _commands(
    recording: Recording,
    profile: SourceProfile,
    role: VectorRole,
    series: Mapping[str, Series],
    start_ns: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Times and values of the action that has the dimensions of this state; None for an action, or without one."""
    names = recording.topics[role.topic].names
    for action in profile.actions:
        rows = series.get(action.topic)
        if action is role or rows is None or not len(rows.times_ns):
            continue
        if recording.topics[action.topic].names == names:
            return difference_s(rows.times_ns, np.int64(start_ns)), rows.values_MD
    return None


def _arrival_facts(recording: Recording, topic: str, times_N: Times) -> Facts:
    """Arrival at the recorder against capture; None where the recording does not tell it of each message."""
    arrivals_N = recording.arrivals(topic) if isinstance(recording, ArrivalRecording) else None
    if arrivals_N is None or len(arrivals_N) != len(times_N):
        return {"latency_s": None, "drift_s": None}
    against = drift_against(times_N, arrivals_N)
    span_s = float(difference_s(times_N.max(), times_N.min()))
    return {"latency_s": against["latency_s"], "drift_s": 1e-6 * against["drift_ppm"] * span_s}


def _apart(
    recording: Recording, profile: SourceProfile, role: TopicRole, times: Mapping[str, Times]
) -> Facts:
    """How far a camera's clock is from that of the rows it is paired with by number."""
    rows = next((times[vector.topic] for vector in profile.vectors if vector.topic in times), None)
    if recording.meta.paired_by != "number" or role.role != "camera" or rows is None:
        return {}
    own = times[role.topic]
    num = min(len(own), len(rows))
    return {"apart_s": float(np.abs(difference_s(own[:num], rows[:num])).max())}


def _shared_facts(
    topics: Mapping[str, Facts], times: Mapping[str, Times], start_ns: int, max_gap_s: float
) -> Facts:
    """The time that all topics have in common, and the share of it in which none is silent for too long."""
    first_ns = max((int(times_N[0]) for times_N in times.values()), default=0)
    last_ns = min((int(times_N[-1]) for times_N in times.values()), default=0)
    gap_ns = round(min(max_gap_s, 1e9) * 1e9)
    silent = []
    for topic, times_N in times.items():
        if topics[topic]["role"] == "action":  # a command holds until the next one
            continue
        for number in np.flatnonzero(difference_s(times_N[1:], times_N[:-1]) > max_gap_s).tolist():
            begin_ns, end_ns = int(times_N[number]) + gap_ns, int(times_N[number + 1])
            silent.append(range(max(begin_ns, first_ns), min(end_ns, last_ns)))
    invalid = stretches(stretch for stretch in silent if stretch)
    shared_ns = max(last_ns - first_ns, 0)
    lost_ns = sum(stretch.stop - stretch.start for stretch in invalid)
    return {
        "shared_s": shared_ns / 1e9,
        "valid_share": 1 - lost_ns / shared_ns if shared_ns else None,
        "invalid_spans": longest(
            [[(end - start_ns) / 1e9 for end in (one.start, one.stop)] for one in invalid]
        ),
    }


def _ahead_s(times: Mapping[str, Times], now_ns: int) -> float | None:
    """How far the last capture is after now; None where no clock tells the time of day."""
    last_ns = max((int(times_N.max()) for times_N in times.values()), default=0)
    return (last_ns - now_ns) / 1e9 if last_ns > WALL_CLOCK_NS else None


def _rounded(facts: Any) -> Any:
    """The same with numbers of eight digits: a microsecond in an hour, and half the bytes."""
    if isinstance(facts, dict):
        return {key: _rounded(value) for key, value in facts.items()}
    if isinstance(facts, list):
        return [_rounded(value) for value in facts]
    return float(f"{facts:.8g}") if isinstance(facts, float) else facts


def _own_task(row: Row, recording: Recording, facts: Facts) -> list[Said]:
    """What the recording calls its task, where the upload's marker calls it otherwise and so stands above it."""
    own, task = recording.meta.task, (row.marker or {}).get("task")
    if not own or not task or own == task or any(text["key"] == "task" for text in facts["texts"]):
        return []
    end_ns = facts["start_ns"] + round(facts["shared_s"] * 1e9)
    return [said_at("task", own, facts["start_ns"], end_ns)]


def _recording_row(row: Row, recording: Recording, facts: Facts) -> Facts:
    """The row of the table `recordings`; the upload's marker before the recording's own word."""
    marker, meta = row.marker or {}, recording.meta
    outcome = {"success": True, "failure": False}.get(marker.get("outcome", ""), meta.success)
    return {
        "episode_id": row.episode_id,
        "source": row.source.name,
        "name": row.name,
        "upload": row.upload_name,
        "robot": marker.get("robot") or meta.robot or row.source.robot,
        "operator": meta.operator,
        "robot_software_version": marker.get("robot_software_version") or meta.robot_software_version,
        "kind": marker.get("kind", ""),
        "task": marker.get("task") or meta.task or row.source.task,
        "success": outcome,
        "start_ns": facts["start_ns"],
        "duration_s": facts["shared_s"],
        "raw_bytes": row.size_bytes,
        "num_topics": len(recording.topics),
        "facts": json.dumps(_rounded(facts), separators=(",", ":")),
    }
