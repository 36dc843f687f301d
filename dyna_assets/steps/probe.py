"""Step `recordings`: look at a recording without decoding a picture, and write down what is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import Recording, TopicInfo
from dyna_assets.steps.align import Series
from dyna_assets.steps.work import Row, StepResult


def probe(row: Row) -> StepResult:
    """Read the clocks of every topic with a role, and the vectors. Raises RecordingError."""
    if row.upload_problem:
        return StepResult(row.episode_id, "rejected", f"upload quarantined: {row.upload_problem}")
    with row.recording() as recording:
        evidence = measure(recording, row.source)
        meta, num_topics = recording.meta, len(recording.topics)
    marker = row.marker or {}
    return StepResult(
        row.episode_id,
        "ok",
        robot_software_version=marker.get("robot_software_version") or meta.robot_software_version,
        rows={
            "recordings": [
                {
                    "episode_id": row.episode_id,
                    "source": row.source.name,
                    "name": row.name,
                    "upload": row.upload_name,
                    "robot": marker.get("robot") or meta.robot or row.source.robot,
                    "operator": meta.operator,
                    "robot_software_version": marker.get("robot_software_version")
                    or meta.robot_software_version,
                    "kind": marker.get("kind", ""),
                    "task": marker.get("task") or meta.task or row.source.task,
                    "success": _success(marker.get("outcome"), meta.success),
                    "start_ns": evidence["start_ns"],
                    "duration_s": evidence["shared_s"],
                    "raw_bytes": row.size_bytes,
                    "num_topics": num_topics,
                    "evidence": json.dumps(evidence),
                }
            ]
        },
    )


def measure(recording: Recording, profile: SourceProfile) -> dict[str, Any]:
    """The evidence that the gate before judges; see `dyna_assets.quality.before`."""
    roles = roles_of(profile)
    wanted = {topic: recording.topics[topic] for topic in roles if topic in recording.topics}
    kinds = {topic: "image" if role == "camera" else "vector" for topic, (role, _) in roles.items()}
    missing = {
        topic: {"role": role, "name": name, "reason": _why_missing(recording, topic, kinds[topic])}
        for topic, (role, name) in roles.items()
        if topic not in wanted or wanted[topic].kind != kinds[topic] or wanted[topic].num_messages == 0
    }
    present = [topic for topic in wanted if topic not in missing]
    series = read_vectors(recording, [topic for topic in present if kinds[topic] == "vector"])
    times = {
        topic: series[topic].times_ns if topic in series else recording.times(topic) for topic in present
    }
    for topic in [topic for topic in present if len(times[topic]) == 0]:
        missing[topic] = {"role": roles[topic][0], "name": roles[topic][1], "reason": "holds no message"}
        del times[topic]
    start_ns = min((int(t[0]) for t in times.values()), default=0)
    topics = {
        topic: {
            "role": roles[topic][0],
            "name": roles[topic][1],
            **clock_facts(times[topic], start_ns),
            **(vector_facts(series[topic], wanted[topic]) if topic in series else {}),
        }
        for topic in times
    }
    shared_s = min((f["last_s"] for f in topics.values()), default=0.0) - max(
        (f["first_s"] for f in topics.values()), default=0.0
    )
    return {
        "start_ns": start_ns,
        "shared_s": max(shared_s, 0.0),
        "topics": topics,
        "missing": missing,
        "paired_by": recording.meta.paired_by,
        "num_listed": recording.meta.num_listed,
    }


def roles_of(profile: SourceProfile) -> dict[str, tuple[str, str]]:
    """topic -> (role, name) for every topic the profile gives a role."""
    return {
        **{camera.topic: ("camera", camera.name) for camera in profile.cameras},
        **{state.topic: ("state", state.name) for state in profile.states},
        **{action.topic: ("action", action.name) for action in profile.actions},
    }


def read_vectors(recording: Recording, topics: list[str]) -> dict[str, Series]:
    """All messages of the vector `topics`, in one pass."""
    times: dict[str, list[int]] = {topic: [] for topic in topics}
    values: dict[str, list[NDArray[np.float64]]] = {topic: [] for topic in topics}
    for message in recording.read(topics) if topics else ():
        assert isinstance(message.payload, np.ndarray)
        times[message.topic].append(message.time_ns)
        values[message.topic].append(message.payload)
    return {
        topic: Series(
            np.array(times[topic], dtype=np.int64),
            np.stack(values[topic]).astype(np.float64)
            if values[topic]
            else np.empty((0, len(recording.topics[topic].names))),
        )
        for topic in topics
    }


def clock_facts(times_N: NDArray[np.int64], start_ns: int) -> dict[str, Any]:
    """Count, rate, ends, gaps and drops of one topic. The rate is that of the median period, in Hz."""
    period_s = np.diff(times_N) / 1e9
    median_s = float(np.median(period_s)) if len(period_s) else 0.0
    span_s = float(times_N.max() - times_N.min()) / 1e9
    num_expected = round(span_s / median_s) + 1 if median_s > 0 else len(times_N)
    return {
        "num_messages": len(times_N),
        "rate_hz": 1 / median_s if median_s > 0 else 0.0,
        "first_s": (int(times_N[0]) - start_ns) / 1e9,
        "last_s": (int(times_N[-1]) - start_ns) / 1e9,
        "max_gap_s": float(period_s.max()) if len(period_s) else 0.0,
        "num_backwards": int((period_s < 0).sum()),
        "drop_share": max(0.0, 1 - len(times_N) / num_expected),
    }


def vector_facts(series: Series, info: TopicInfo) -> dict[str, Any]:
    """Dimensions, rows that are not finite, and the dimensions that never change."""
    values_MD = series.values_MD
    names = list(info.names) or [str(dim) for dim in range(values_MD.shape[1])]
    still = (values_MD == values_MD[:1]).all(axis=0)
    with np.errstate(over="ignore"):
        kept_MD = values_MD.astype(np.float32)  # as the episode file will hold them
    return {
        "names": names,
        "num_nan": int((~np.isfinite(kept_MD)).any(axis=1).sum()),
        "still": [name for name, is_still in zip(names, still, strict=True) if is_still],
    }


def _why_missing(recording: Recording, topic: str, kind: str) -> str:
    """Why a topic with a role cannot be used, and what is there instead."""
    said: Mapping[str, str] = recording.meta.extra.get("missing", {})
    if topic in said:
        return said[topic]
    info = recording.topics.get(topic)
    if info is None:
        others = ", ".join(sorted(recording.topics)) or "none"
        return f"not in the recording; topics there: {others}. Correct the source profile or the recorder"
    if info.kind != kind:
        return f"is of kind {info.kind} ({info.encoding or 'unknown encoding'}), expected {kind}"
    return "holds no message"


def _success(outcome: str | None, said: bool | None) -> bool | None:
    """The upload's marker before the recording's own word."""
    return {"success": True, "failure": False}.get(outcome or "", said)
