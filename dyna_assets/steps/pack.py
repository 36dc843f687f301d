"""Step `episodes`: align, derive, encode and pack a recording into its episode file, in one streaming pass.

Pictures are decoded, looked at, encoded and dropped one by one, or copied as coded; what is held is the
compressed video of the chunk being filled. The file is made beside this process and put into the lake under its
final name, which holds its hash, in one move.
"""

from __future__ import annotations

import heapq
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dyna_assets.derive import apply_derived, signals_of
from dyna_assets.errors import RecordingError
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.landing.recording import ExtraRecording, RawMessage, Recording
from dyna_assets.quality.trace import CameraEye
from dyna_assets.steps.accounts import account_rows
from dyna_assets.steps.align import Alignment, Counts, align, units_of
from dyna_assets.steps.frames import CameraStep, camera_steps
from dyna_assets.steps.header import episode_header, episode_row, gop_table_row
from dyna_assets.steps.series import read_vectors
from dyna_assets.steps.video import COPIED, VideoPlan, plan_video
from dyna_assets.steps.work import Row, StepResult
from dyna_train.episode.channels import ExtraTopic
from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter, Event
from dyna_train.files import put_file

BATCH, BATCH_BYTES = 256, 1 << 20
"""So many extra messages, or bytes of them, are read ahead."""


class ExtraStep(NamedTuple):
    """A message that is kept as it came, when it was captured and where it lies in the file."""

    time_ns: int
    log_ns: int
    message: RawMessage


@dataclass(frozen=True, slots=True)
class Extras:
    """The topics of a recording that are kept as they came. kept_as: topic -> the name it is kept under."""

    described: Sequence[ExtraTopic] = ()
    messages: Iterable[RawMessage] = ()
    kept_as: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, recording: Recording, source: SourceProfile, where: str) -> Extras:
        """Those under `extra`, and confidences that are no vector of their own.

        Raises RecordingError if the reader cannot give them.
        """
        confidences = {role.confidence for role in source.vectors} - {
            role.topic for role in source.topic_roles
        }
        topics = [
            topic for topic in recording.topics if topic in confidences or source.use_of(topic) == "extra"
        ]
        if not topics:
            return cls()
        if not isinstance(recording, ExtraRecording):
            raise RecordingError(
                f"{where}: {', '.join(topics)}: this reader cannot keep topics as they came; "
                "give them a role, or name them under 'ignore' in the source's TOML"
            )
        return cls(recording.extra_topics(topics), recording.extras(topics), recording.kept_as(topics))


@dataclass(frozen=True, slots=True)
class Packed:
    """An episode file, what its encoded cameras showed, and how many messages of each extra topic it holds."""

    file: EpisodeFile
    eyes: Mapping[str, CameraEye]
    extras: Mapping[str, int]


def pack(row: Row) -> StepResult:
    """Write the episode file of one recording. Raises RecordingError, and OSError if the lake refuses it."""
    found = row.upstream["recordings"]
    facts = json.loads(found["facts"])
    with tempfile.TemporaryDirectory(prefix="dyna-pack-") as scratch:
        with row.recording() as recording:
            plan, vectors = plan_steps(recording, row.source)
            video = plan_video(recording, row.source, plan)
            cameras = _camera_tracks(recording, row.source)
            header = episode_header(row, plan, cameras, vectors, video.notes, facts)
            packed = write_episode(recording, row, plan, video, header, Path(scratch) / "episode.mcap")
            kept = {topic: Counts(num, num, 0, 0) for topic, num in packed.extras.items()}
            counts = {**plan.counts, **kept}
            accounts = account_rows(row.episode_id, row.name, row.upload_name, recording, row.source, counts)
        # leaving the recording refuses files that were replaced meanwhile: nothing of them gets into the lake
        made = packed.file
        uri = row.episode_uri(made.sha256)
        put_file(made.path, uri, **row.settings.storage_options(uri))
    return StepResult(
        row.episode_id,
        "ok",
        rows={
            "episodes": [episode_row(row, header, plan, made)],
            "gop_tables": [gop_table_row(row, header, made)],
            "traces": [_trace_row(row, made, name, eye) for name, eye in packed.eyes.items()],
            "accounts": accounts,
        },
        robot_software_version=found["robot_software_version"],
    )


def plan_steps(recording: Recording, source: SourceProfile) -> tuple[Alignment, tuple[VectorTrack, ...]]:
    """Every topic of the source on one grid, with what is derived from them, states first. Raises RecordingError."""
    series = read_vectors(recording, [role.topic for role in source.vectors])
    times = {camera.topic: recording.times(camera.topic) for camera in source.cameras}
    plan = align(source, times, series)
    tracks = _vector_tracks(recording, source, plan)
    made = apply_derived(source.derived, signals_of(plan.vectors, plan.missing, tracks))
    vectors = {name: (signal.values_TD.astype(np.float32), signal.times_T) for name, signal in made.items()}
    derived = [
        VectorTrack(role.name, role.role, signal.names, signal.units)
        for role, signal in zip(source.derived, made.values(), strict=True)
    ]
    every = sorted([*tracks, *derived], key=lambda track: track.role, reverse=True)
    return replace(plan, vectors={**plan.vectors, **vectors}), tuple(every)


def write_episode(
    recording: Recording, row: Row, plan: Alignment, video: VideoPlan, header: EpisodeHeader, path: Path
) -> Packed:
    """Stream the cameras and extra topics of `recording` into an episode file at `path`."""
    source = row.source
    eyes = {
        camera.name: CameraEye(plan.num_steps) for camera in source.cameras if camera.name not in video.copies
    }
    extra = Extras.of(recording, source, row.where())
    kept: Counter[str] = Counter()
    topics = {camera.name: camera.topic for camera in source.cameras}
    steps = camera_steps(recording, plan, topics, video.copies, where=row.where())
    with EpisodeWriter.create(
        path,
        header,
        video.layout,
        quality=source.encoding.chosen,
        vectors={f"/{name}": series for name, series in plan.vectors.items()},
        copied={name: f"{COPIED}: {copy.description}" for name, copy in video.copies.items()},
        events=_events(recording, plan),
        extras=extra.described,
        watch={name: eye.see for name, eye in eyes.items()},
    ) as writer:
        lines: list[Iterable[CameraStep | ExtraStep]] = [steps, _laid(extra.messages, plan)]
        for item in heapq.merge(*lines, key=lambda item: item.time_ns):
            if isinstance(item, ExtraStep):
                topic = item.message.topic
                writer.add_extra(topic, item.log_ns, item.time_ns, item.message.data, kept[topic])
                kept[topic] += 1
            else:
                _add(writer, item)
        return Packed(writer.finish(), eyes, {topic: kept[name] for topic, name in extra.kept_as.items()})


def _laid(messages: Iterable[RawMessage], plan: Alignment) -> Iterator[ExtraStep]:
    """The messages on the file's log times; many at once, since one by one costs more than all the rest of them."""
    for batch in _batches(messages):
        times_M = np.array([message.time_ns for message in batch], np.int64) + plan.shift_ns
        yield from map(ExtraStep, times_M.tolist(), plan.log_ns(times_M).tolist(), batch)


def _batches(messages: Iterable[RawMessage]) -> Iterator[list[RawMessage]]:
    batch: list[RawMessage] = []
    num_bytes = 0
    for message in messages:
        batch.append(message)
        num_bytes += len(message.data)
        if len(batch) == BATCH or num_bytes > BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch


def _add(writer: EpisodeWriter, step: CameraStep) -> None:
    if step.content is None:
        writer.skip_steps(step.camera)
    elif isinstance(step.content, bytes):
        writer.add_packet(step.camera, step.content, step.time_ns)
    else:
        writer.add_frame(step.camera, step.content, step.time_ns)


def _events(recording: Recording, plan: Alignment) -> list[Event]:
    """Texts that the recording gives with their times, such as a data set's language columns."""
    texts = recording.meta.texts
    times_M = np.array([text["time_ns"] + plan.shift_ns for text in texts], np.int64)
    return [
        Event(
            log_ns,
            text["key"],
            {k: v for k, v in text.items() if k not in ("time_ns", "key")},
            capture_ns=capture_ns,
        )
        for text, log_ns, capture_ns in zip(
            texts, plan.log_ns(times_M).tolist(), times_M.tolist(), strict=True
        )
    ]


def _camera_tracks(recording: Recording, source: SourceProfile) -> tuple[CameraTrack, ...]:
    infos = {camera.name: recording.topics[camera.topic] for camera in source.cameras}
    return tuple(CameraTrack(name=name, width=info.width, height=info.height) for name, info in infos.items())


def _vector_tracks(recording: Recording, source: SourceProfile, plan: Alignment) -> list[VectorTrack]:
    tracks = []
    for role in source.vectors:
        num_dims = plan.vectors[role.key][0].shape[1]
        names = recording.topics[role.topic].names or tuple(str(dim) for dim in range(num_dims))
        tracks.append(VectorTrack(role.name, role.role, names, units_of(role, num_dims)))
    return tracks


def _trace_row(row: Row, made: EpisodeFile, camera: str, eye: CameraEye) -> dict[str, Any]:
    return {
        "episode_id": row.episode_id,
        "content_hash": made.sha256,
        "camera": camera,
        "trace": eye.trace.to_bytes(),
    }
