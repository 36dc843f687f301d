"""Write an episode file anew from the messages of another one: frames copied bit for bit, layout and index new.

`Content` is what can be taken over, by topic and step, however the messages lie in the old file; `write` puts
it through `EpisodeWriter`, so that the result is what our writer makes and nothing else.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from mcap.records import Channel

from dyna_train.doctor.case import Case
from dyna_train.doctor.channel_rules import unknown_metadata
from dyna_train.doctor.records import Messages
from dyna_train.episode.channels import ExtraTopic, is_extra
from dyna_train.episode.index import CAPTURE_NAME, INDEX_NAME
from dyna_train.episode.layout import PATTERNS, EpisodeLayout
from dyna_train.episode.planning import layout_with_gop
from dyna_train.episode.profile import (
    EVENT_GROUP,
    RECORD_EPISODE,
    RECORD_PROFILE,
    RECORD_QC,
    RECORD_SYNC,
    RECORD_VERSIONS,
    EpisodeHeader,
    episode_records,
    grid_times_ns,
    read_layout,
)
from dyna_train.episode.schemas import Event, parse_depth, parse_event, parse_video, vector_head
from dyna_train.episode.sizes import SizeModel
from dyna_train.episode.sparse import stored_topic, without_group
from dyna_train.episode.tracks import DepthTrack, VectorTrack
from dyna_train.episode.writer import EpisodeFile, EpisodeWriter, Vector
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError
from dyna_train.video.encode import QUALITIES

OUR_RECORDS = (RECORD_PROFILE, RECORD_VERSIONS, RECORD_EPISODE, RECORD_QC, RECORD_SYNC)
_OPEN_CHUNKS = 32  # uncompressed chunks to keep: a topic-by-topic file is read at as many places as topics


@dataclass(frozen=True)
class Content:
    """What a new file is made of.

    header: of the new file. messages: by topic of the header, ascending in step, one at most for a step,
    PLACED_DTYPE with the new step in `sequence`. others: those of events and extra topics, in file order.
    old: where all of them lie.
    """

    old: Case
    header: EpisodeHeader
    layout: EpisodeLayout
    messages: Mapping[str, Messages]
    others: Messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A file that was written anew. source: the old one; dropped: what an episode file has no place for."""

    source: str
    made: EpisodeFile
    dropped: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "file": self.source,
            "out": str(self.made.path),
            "sha256": self.made.sha256,
            "num_steps": self.made.num_steps,
            "dropped": list(self.dropped),
        }

    def lines(self) -> Iterator[str]:
        """What was written, in words."""
        yield f"{self.made.path}: {self.made.num_steps:,} steps of {self.source} in their own layout"
        yield from (f"dropped: {name}" for name in self.dropped)


def target_path(uri: str, out: Path | None, suffix: str) -> Path:
    """Where the new file goes: `out`, or beside the old one, `<name>.<suffix>.mcap`.

    Raises BadInput if something is there already, or if the old one is remote and `out` is not given.
    """
    if out is None and "://" in uri:
        raise BadInput(f"{uri}: a remote file; say with --out where to write the new one")
    source = Path(uri)
    if out is None and not source.name:
        raise BadInput(f"{uri!r}: not a file; expected an episode file")
    target = out if out is not None else source.with_name(f"{source.stem}.{suffix}.mcap")
    if os.path.lexists(target):
        raise BadInput(f"{target}: exists already; remove it, or name another place with --out")
    return target


def on_grid(case: Case, header: EpisodeHeader, topic: str, messages: Messages) -> Messages:
    """The messages of one topic in order of their steps, with the step in `sequence`.

    Steps by log_time: tools that copy messages need not keep sequence. Raises EpisodeError for a message that
    is on no step of the episode, and for two on one.
    """
    since_s = (messages["log_ns"] - header.start_ns) / 1e9
    step_M = np.clip(np.rint(since_s * header.rate_hz), 0, header.num_steps - 1).astype(np.int64)
    off = np.flatnonzero(case.grid_of(step_M) != messages["log_ns"])
    if len(off):
        raise EpisodeError(
            f"{case.survey.uri}: {topic}: a message at {messages[off[0]]['log_ns']} ns is on none of the "
            f"{header.num_steps:,} steps from {header.start_ns} ns at {header.rate_hz:g} Hz; "
            "another tool may have changed its time"
        )
    order = np.argsort(step_M, kind="stable")
    placed, ordered_M = messages[order], step_M[order]
    twice = np.flatnonzero(np.diff(ordered_M) == 0)
    if len(twice):
        step = ordered_M[twice[0]]
        raise EpisodeError(f"{case.survey.uri}: {topic}, step {step}: two messages, expected one at most")
    placed["sequence"] = ordered_M
    return placed


def layout_of(case: Case, header: EpisodeHeader) -> EpisodeLayout:
    """The layout of the new file: the old one's, if it still says it, else what suits its GOP and sizes."""
    stated = case.index.layout if case.index else read_layout(case.records.get(RECORD_PROFILE, {}))
    if stated is not None:
        return stated
    gop = next(iter(case.gops.values()), 1)
    sizes = SizeModel.assumed(
        [(camera.width, camera.height) for camera in header.cameras],
        QUALITIES["default"],
        dims=[vector.dim for vector in header.vectors],
    )
    return layout_with_gop(gop, PATTERNS["mixed"], header.rate_hz, sizes=sizes)


def other_channels(case: Case) -> list[Channel]:
    """The channels whose topics are not on the grid and not our events: they are kept as they are."""
    return [one for one in case.channels if is_extra(one.topic, one.metadata)]


def other_messages(case: Case, messages: Messages) -> Messages:
    """Those among `messages` that are events or of extra topics."""
    kept = [channel.id for channel in other_channels(case)]
    events = [number for number, group in case.groups.items() if group == EVENT_GROUP]
    return messages[np.isin(messages["channel"], [*kept, *events])]


def dropped(content: Content) -> Iterator[str]:
    """What of the old file an episode file has no place for: attachments, metadata records and entries of them."""
    survey = content.old.survey
    yield from (f"attachment {name}" for name in survey.attachments if name not in (INDEX_NAME, CAPTURE_NAME))
    yield from (f"metadata record {name}" for name in survey.metadata if name not in OUR_RECORDS)
    ours = episode_records(content.header, content.layout)
    for name in (RECORD_PROFILE, RECORD_EPISODE):
        unknown = content.old.records.get(name, {}).keys() - ours[name].keys()
        yield from (f"'{key}' of metadata record {name}" for key in sorted(unknown))
    for channel in content.old.channels:
        yield from (f"'{key}' of channel {channel.topic}" for key in unknown_metadata(channel))


def write(content: Content, target: Path) -> EpisodeFile:
    """Write the new file; it appears under `target` whole or not at all.

    Raises BadInput naming camera and step if a frame breaks the GOP rules, or if a file appeared under
    `target` meanwhile; CorruptEpisode for a message that is not readable.
    """
    header, payloads = content.header, Payloads(content.old)
    grid_T = grid_times_ns(header.start_ns, header.rate_hz, header.num_steps)
    extras = {channel.id: channel for channel in other_channels(content.old)}
    writer = EpisodeWriter.create(
        target,
        header,
        content.layout,
        quality=QUALITIES["default"],  # nothing is encoded here
        vectors={
            track.topic: _vector(content.messages[track.topic], header.num_steps, track, payloads)
            for track in header.vectors
        },
        copied={camera.name: _codec(content.old, camera.topic) for camera in header.cameras},
        events=list(_events(content, payloads)),
        extras=[_extra_topic(content.old, channel) for channel in extras.values()],
        is_new=True,
    )
    with writer:
        later = deque(row for row in content.others if int(row["channel"]) in extras)
        pictures = {topic: _by_step(content.messages[topic]) for topic in header.topics}
        for step, time_ns in enumerate(grid_T.tolist()):
            while later and later[0]["log_ns"] <= time_ns:
                _copy_extra(writer, extras, later.popleft(), payloads)
            for camera in header.cameras:
                _copy_frame(writer, camera.name, pictures[camera.topic].get(step), payloads)
            for depth in header.depths:
                _copy_depth(writer, depth, pictures[depth.topic].get(step), payloads)
        while later:
            _copy_extra(writer, extras, later.popleft(), payloads)
        return writer.finish()


class Payloads:
    """The data of messages, wherever they lie; keeps some uncompressed chunks."""

    def __init__(self, case: Case) -> None:
        self._survey = case.survey
        self.chunk = lru_cache(_OPEN_CHUNKS)(self._records)
        """The bytes that the `at` of a chunk's messages counts in, by number of the chunk."""

    def of(self, message: np.void) -> memoryview:
        """Its data."""
        at = int(message["at"])
        return self.chunk(int(message["chunk"]))[at : at + int(message["size"])]

    def _records(self, number: int) -> memoryview:
        return self._survey.chunks[number].records() if number >= 0 else self._survey.data


def _by_step(messages: Messages) -> Mapping[int, np.void]:
    return dict(zip(messages["sequence"].tolist(), messages, strict=True))


def _vector(messages: Messages, num_steps: int, track: VectorTrack, payloads: Payloads) -> Vector:
    """Values and capture times of one vector topic; `messages` has every step once."""
    head = np.frombuffer(vector_head(track.dim), np.uint8)
    size = len(head) + 4 * track.dim
    values_TD = np.empty((num_steps, track.dim), np.float32)
    for number in np.unique(messages["chunk"]).tolist():
        mine = messages[messages["chunk"] == number]
        data = np.frombuffer(payloads.chunk(number), np.uint8)
        if (mine["size"] != size).any():
            raise _unreadable(track, mine[mine["size"] != size][0])
        rows = data[mine["at"][:, None] + np.arange(size)]
        wrong = (rows[:, : len(head)] != head).any(axis=1)
        if wrong.any():
            raise _unreadable(track, mine[wrong][0])
        values_TD[mine["sequence"]] = np.ascontiguousarray(rows[:, len(head) :]).view("<f4")
    return values_TD, messages["publish_ns"].astype(np.int64)


def _unreadable(track: VectorTrack, message: np.void) -> CorruptEpisode:
    return CorruptEpisode(
        f"{track.topic}, step {message['sequence']}: {message['size']} bytes that are no dyna.JointVector of "
        f"{track.dim} floats; expected what an episode writer wrote"
    )


def _codec(case: Case, topic: str) -> str:
    """What the channel says of the encoder."""
    return next(one.metadata["codec_params"] for one in case.channels if one.topic == topic)


def _events(content: Content, payloads: Payloads) -> Iterator[Event]:
    groups = content.old.groups
    for row in content.others:
        if groups.get(int(row["channel"])) == EVENT_GROUP:
            yield parse_event(int(row["log_ns"]), int(row["publish_ns"]), payloads.of(row))


def _extra_topic(case: Case, channel: Channel) -> ExtraTopic:
    """As it was declared; one that another tool added has no group of ours to take out."""
    return without_group(stored_topic(channel, case.survey.schemas))


def _copy_extra(
    writer: EpisodeWriter, extras: Mapping[int, Channel], row: np.void, payloads: Payloads
) -> None:
    topic, times = extras[int(row["channel"])].topic, (int(row["log_ns"]), int(row["publish_ns"]))
    writer.add_extra(topic, *times, bytes(payloads.of(row)), sequence=int(row["sequence"]))


def _copy_frame(writer: EpisodeWriter, camera: str, row: np.void | None, payloads: Payloads) -> None:
    if row is None:
        writer.skip_steps(camera)
    else:
        writer.add_packet(camera, bytes(parse_video(payloads.of(row)).data), int(row["publish_ns"]))


def _copy_depth(writer: EpisodeWriter, depth: DepthTrack, row: np.void | None, payloads: Payloads) -> None:
    if row is None:
        writer.skip_depth(depth.name)
        return
    image = parse_depth(payloads.of(row))
    if len(image.data) != 2 * depth.width * depth.height:
        raise CorruptEpisode(
            f"{depth.topic}, step {row['sequence']}: {len(image.data):,} bytes, expected "
            f"{depth.width}x{depth.height} uint16"
        )
    picture_HW = np.frombuffer(image.data, "<u2").reshape(depth.height, depth.width)
    writer.add_depth(depth.name, picture_HW, int(row["publish_ns"]))
