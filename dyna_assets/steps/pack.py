"""Step `episodes`: align, encode and pack a recording into its episode file, in one streaming pass.

Pictures are decoded, encoded and dropped one by one, or copied as coded; what is held is the compressed
video of the chunk being filled. The file is made beside this process and put into the lake under its final
name, which holds its hash, in one move.
"""

from __future__ import annotations

import heapq
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import VectorRole
from dyna_assets.landing.recording import Message, Recording
from dyna_assets.landing.stills import decode_still
from dyna_assets.quality import judge
from dyna_assets.stamps import SCHEMA_VERSION, STEPS
from dyna_assets.steps.align import Alignment, align
from dyna_assets.steps.probe import read_vectors
from dyna_assets.steps.video import COPIED, CameraCopy, VideoPlan, plan_video
from dyna_assets.steps.work import Row, StepResult
from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter
from dyna_train.files import put_file
from dyna_train.manifest import Features
from dyna_train.video.coded import copied_packets


def pack(row: Row) -> StepResult:
    """Write the episode file of one recording. Raises RecordingError, and OSError if the lake refuses it."""
    found = row.upstream["recordings"]
    with row.recording() as recording, tempfile.TemporaryDirectory(prefix="dyna-pack-") as scratch:
        plan = _plan(recording, row)
        video = plan_video(recording, row.source, plan)
        header = _header(row, recording, plan, video)
        path = Path(scratch) / "episode.mcap"
        made = write_episode(recording, row, plan, video, header, path)
        uri = row.episode_uri(made.sha256)
        put_file(path, uri, **row.settings.storage_options(uri))
    return StepResult(
        row.episode_id,
        "ok",
        rows={
            "episodes": [_episode_row(row, found, header, plan, made)],
            "gop_tables": [_gop_table_row(row, header, made)],
        },
        robot_software_version=found["robot_software_version"],
    )


def write_episode(
    recording: Recording, row: Row, plan: Alignment, video: VideoPlan, header: EpisodeHeader, path: Path
) -> EpisodeFile:
    """Stream the cameras of `recording`, copied or through the encoder, into an episode file at `path`."""
    vectors = {f"/{name}": series for name, series in plan.vectors.items()}
    copied = {name: f"{COPIED}: {copy.description}" for name, copy in video.copies.items()}
    with EpisodeWriter.create(
        path, header, video.layout, quality=row.source.encoding.chosen, vectors=vectors, copied=copied
    ) as writer:
        for step in _in_time_order(recording, row, plan, video):
            if isinstance(step.content, bytes):
                writer.add_packet(step.camera, step.content, step.time_ns)
            else:
                writer.add_frame(step.camera, step.content, step.time_ns)
        return writer.finish()


@dataclass(frozen=True, slots=True)
class _Step:
    """The next step of a camera: a packet that is copied, or a picture to encode, and its capture time."""

    time_ns: int
    camera: str
    content: bytes | av.VideoFrame


def _in_time_order(recording: Recording, row: Row, plan: Alignment, video: VideoPlan) -> Iterator[_Step]:
    """The steps of all cameras, merged, so that none runs ahead and waits in memory."""
    topic_of = {camera.name: camera.topic for camera in row.source.cameras}
    copies = [_copied(copy, name, recording.times(topic_of[name])) for name, copy in video.copies.items()]
    encoded = {topic: name for name, topic in topic_of.items() if name not in video.copies}
    return heapq.merge(_pictures(recording, row, plan, encoded), *copies, key=lambda step: step.time_ns)


def _copied(copy: CameraCopy, camera: str, times_N: NDArray[np.int64]) -> Iterator[_Step]:
    for number, (_, packet) in enumerate(copied_packets(copy.video, copy.frames), copy.frames.start):
        yield _Step(int(times_N[number]), camera, packet)


def _pictures(
    recording: Recording, row: Row, plan: Alignment, camera_of: Mapping[str, str]
) -> Iterator[_Step]:
    """What the cameras show at each step, from the topics of camera_of; a picture may stand for several."""
    shows = {topic: Counter(plan.frames[name].tolist()) for topic, name in camera_of.items()}
    seen: Counter[str] = Counter()
    for message in recording.read(list(camera_of)) if camera_of else ():
        num_steps = shows[message.topic].get(seen[message.topic], 0)
        seen[message.topic] += 1
        if num_steps == 0:
            continue
        picture = _picture(message, row.where())
        for _ in range(num_steps):
            yield _Step(message.time_ns, camera_of[message.topic], picture)
    for topic in camera_of:
        num_times = len(recording.times(topic))
        if seen[topic] != num_times:
            raise RecordingError(
                f"{row.where()}: {topic} gave {seen[topic]} pictures, its clock has {num_times} times: "
                "the video is cut or damaged. Record or upload it again",
                check="camera.decodes",
            )


def _plan(recording: Recording, row: Row) -> Alignment:
    source = row.source
    series = read_vectors(recording, [role.topic for role in (*source.states, *source.actions)])
    times = {camera.topic: recording.times(camera.topic) for camera in source.cameras}
    return align(source, times, series)


def _picture(message: Message, where: str) -> av.VideoFrame:
    payload = message.payload
    if isinstance(payload, av.VideoFrame):
        return payload
    assert isinstance(payload, bytes), f"{where}: {message.topic} is a camera but gave {type(payload)}"
    return decode_still(payload, where=f"{where}: {message.topic} at {message.time_ns} ns")


def _header(row: Row, recording: Recording, plan: Alignment, video: VideoPlan) -> EpisodeHeader:
    source, found = row.source, row.upstream["recordings"]
    judged = judge("before", json.loads(found["evidence"]), source.gates)
    warned = sorted({f"warn: {verdict.check}" for verdict in judged if verdict.verdict == "warn"})
    cameras = tuple(
        CameraTrack(
            name=camera.name,
            width=recording.topics[camera.topic].width,
            height=recording.topics[camera.topic].height,
        )
        for camera in source.cameras
    )
    vectors = []
    every: tuple[tuple[Literal["state", "action"], tuple[VectorRole, ...]], ...]
    every = (("state", source.states), ("action", source.actions))
    for role, roles in every:
        for entry in roles:
            num_dims = plan.vectors[f"{role}/{entry.name}"][0].shape[1]
            names = recording.topics[entry.topic].names or tuple(str(dim) for dim in range(num_dims))
            units = (entry.units,) * num_dims if isinstance(entry.units, str) else entry.units
            if len(units) != num_dims:
                raise RecordingError(
                    f"{row.where()}: {entry.topic} has {num_dims} dimensions, its profile names {len(units)} units",
                    check="topics.present",
                )
            vectors.append(VectorTrack(name=entry.name, role=role, names=names, units=units))
    return EpisodeHeader(
        episode_id=row.episode_id,
        source=source.name,
        name=row.name,
        robot=found["robot"],
        task=found["task"],
        success=found["success"],
        start_ns=plan.start_ns,
        rate_hz=plan.rate_hz,
        num_steps=plan.num_steps,
        cameras=cameras,
        vectors=tuple(vectors),
        versions={
            "schema_version": str(SCHEMA_VERSION),
            "pipeline_version": row.pipeline_version,
            "robot_software_version": found["robot_software_version"],
            **{f"step.{part}": str(number) for part, number in STEPS["episodes"].versions.items()},
            **{f"video.{name}": note for name, note in video.notes.items()},
        },
        quality={"gate_before": ", ".join(warned) or "pass"},
    )


def _episode_row(
    row: Row, found: Mapping[str, Any], header: EpisodeHeader, plan: Alignment, made: EpisodeFile
) -> dict[str, Any]:
    return {
        "episode_id": row.episode_id,
        **{
            key: found[key]
            for key in ("source", "name", "upload", "robot", "task", "kind", "robot_software_version")
        },
        "content_hash": made.sha256,
        "size_bytes": made.size_bytes,
        "video_bytes": sum(made.video_bytes.values()),
        "raw_bytes": row.size_bytes,
        "start_ns": plan.start_ns,
        "rate_hz": plan.rate_hz,
        "num_steps": plan.num_steps,
        "duration_s": plan.num_steps / plan.rate_hz,
        "cameras": [camera.name for camera in header.cameras],
        "camera_heights": [camera.height for camera in header.cameras],
        "camera_widths": [camera.width for camera in header.cameras],
        "max_skew_s": [plan.max_skew_ns[camera.name] / 1e9 for camera in header.cameras],
        **_vector_sums(header, plan, "state"),
        **_vector_sums(header, plan, "action"),
    }


def _gop_table_row(row: Row, header: EpisodeHeader, made: EpisodeFile) -> dict[str, Any]:
    return {
        "episode_id": row.episode_id,
        "content_hash": made.sha256,
        "tracks": header.tracks.to_json(),
        "gop_table": made.gop_table,
    }


def _vector_sums(header: EpisodeHeader, plan: Alignment, role: str) -> dict[str, Any]:
    """Names and moments of all vectors of one role, in header order, float64 over the episode's steps."""
    tracks = [track for track in header.vectors if track.role == role]
    parts: list[NDArray[np.float64]] = [
        plan.vectors[f"{role}/{t.name}"][0].astype(np.float64) for t in tracks
    ]
    values_TD = np.concatenate(parts, axis=1) if parts else np.empty((plan.num_steps, 0))
    mean_D = values_TD.mean(axis=0)
    return {
        f"{role}_names": list(getattr(Features.of(header.tracks), role)),
        f"{role}_mean": mean_D.tolist(),
        f"{role}_m2": ((values_TD - mean_D) ** 2).sum(axis=0).tolist(),
        f"{role}_min": values_TD.min(axis=0).tolist(),
        f"{role}_max": values_TD.max(axis=0).tolist(),
    }
