"""One file as the checks see it: what its records say, read as an episode as far as that goes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from mcap.opcode import Opcode
from mcap.records import Channel
from numpy.typing import NDArray

from dyna_train.doctor.channel_rules import group_of, is_complete
from dyna_train.doctor.payload import Payload, file_byte, is_packed
from dyna_train.doctor.records import MESSAGE_DTYPE, Messages
from dyna_train.doctor.survey import Survey
from dyna_train.doctor.video import CameraVideo, read_video
from dyna_train.episode.index import INDEX_NAME, EpisodeIndex
from dyna_train.episode.profile import (
    PROFILE,
    RECORD_PROFILE,
    RECORD_QC,
    RECORD_VERSIONS,
    VIDEO_GROUP,
    EpisodeHeader,
    grid_ns_of,
    read_header,
)
from dyna_train.errors import BadInput, CorruptEpisode

PLACED_DTYPE = np.dtype([*MESSAGE_DTYPE.descr, ("chunk", "<i4")])
"""A message and the number of its chunk, -1 outside chunks."""
_MAX_NS = 2**63 - 1


@dataclass(frozen=True)
class Case:
    """A surveyed file; a part that cannot be made out is None or empty, and a check says why."""

    survey: Survey

    @cached_property
    def channels(self) -> Sequence[Channel]:
        """Channels in order of their ids, which is file order."""
        return [channel for _, channel in sorted(self.survey.channels.items())]

    @cached_property
    def groups(self) -> Mapping[int, str]:
        """Topic group by channel id; '' for a channel that names none of ours."""
        return {channel.id: group_of(channel) for channel in self.channels}

    @property
    def header(self) -> EpisodeHeader | None:
        """What the file says of itself, with the topics whose channels are complete."""
        return self._header[0]

    @property
    def header_problem(self) -> str:
        """Why there is no header, or nothing."""
        return self._header[1]

    @property
    def index(self) -> EpisodeIndex | None:
        """The index attachment."""
        return self._index[0]

    @property
    def index_problem(self) -> str:
        """Why there is no index, or nothing."""
        return self._index[1]

    @cached_property
    def records(self) -> Mapping[str, Mapping[str, str]]:
        """Metadata records by name: the last of each, or the first where the last ones fail their checksum."""
        found = self.survey.of_kind(Opcode.METADATA)
        if self.index is not None and self.end_crc != self.index.metadata_crc:
            found = found[::-1]
        return {record.content.name: record.content.metadata for record in found}

    @cached_property
    def end_crc(self) -> int:
        """crc32 of the last metadata record of each name, in file order."""
        last = {record.content.name: record for record in self.survey.of_kind(Opcode.METADATA)}
        places = sorted((record.at, record.end) for record in last.values())
        return zlib.crc32(b"".join(self.survey.data[start:end] for start, end in places))

    @cached_property
    def gops(self) -> Mapping[str, int]:
        """GOP length in steps of every complete camera, by topic, as its channel says."""
        return {
            channel.topic: int(channel.metadata["gop"])
            for channel in self.channels
            if group_of(channel) == VIDEO_GROUP and is_complete(channel)
        }

    @cached_property
    def messages(self) -> Messages:
        """All messages, chunk by chunk, PLACED_DTYPE."""
        parts = [np.empty(0, PLACED_DTYPE)]
        for chunk, _, messages in self.survey.batches():
            placed = np.empty(len(messages), PLACED_DTYPE)
            for name in MESSAGE_DTYPE.names or ():
                placed[name] = messages[name]
            placed["chunk"] = chunk.number if chunk else -1
            parts.append(placed)
        return np.concatenate(parts)

    @cached_property
    def by_channel(self) -> Mapping[int, Messages]:
        """The messages of every channel that has some, in file order."""
        numbers = np.unique(self.messages["channel"]).tolist()
        return {number: self.messages[self.messages["channel"] == number] for number in numbers}

    @cached_property
    def videos(self) -> Mapping[str, CameraVideo]:
        """The frames of every complete camera, by topic."""
        return read_video(self.payloads(VIDEO_GROUP), self.gops)

    def of_topic(self, topic: str) -> Messages:
        """The messages of one topic in file order."""
        ids = [channel.id for channel in self.channels if channel.topic == topic]
        found = [self.by_channel[number] for number in ids if number in self.by_channel]
        return np.concatenate([np.empty(0, PLACED_DTYPE), *found])

    def payloads(self, group: str) -> Iterator[Payload]:
        """The messages of the complete channels of a group, chunk by chunk."""
        topics = {
            channel.id: channel.topic
            for channel in self.channels
            if group_of(channel) == group and is_complete(channel)
        }
        for chunk, data, messages in self.survey.batches():
            for at, size, channel, step, log_ns, publish_ns in messages.tolist():
                if channel in topics:
                    yield Payload(
                        channel=channel,
                        topic=topics[channel],
                        step=step,
                        byte=file_byte(chunk, at),
                        is_packed=is_packed(chunk),
                        log_ns=log_ns,
                        publish_ns=publish_ns,
                        data=data[at : at + size],
                    )

    def byte_of(self, message: np.void) -> int:
        """Where the data of a message lies in the file; its chunk's first byte if that is compressed."""
        number = int(message["chunk"])
        return file_byte(self.survey.chunks[number] if number >= 0 else None, int(message["at"]))

    def grid_of(self, steps: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Grid time of each of `steps`, int64 ns; needs a header.

        For the steps that messages name, not 0 .. num_steps: a damaged number must not fill the memory.
        """
        header = self.header
        assert header is not None
        distinct, row = np.unique(steps, return_inverse=True)
        times = grid_ns_of(header.start_ns, header.rate_hz, distinct.tolist())
        grid: NDArray[np.int64] = np.array([min(time, _MAX_NS) for time in times], np.int64)[row]
        return grid

    @cached_property
    def _header(self) -> tuple[EpisodeHeader | None, str]:
        name, version = PROFILE.split("/")
        records = {
            RECORD_VERSIONS: {},
            RECORD_QC: {},
            **self.records,
            RECORD_PROFILE: {"name": name, "version": version},
        }
        channels = {channel.topic: channel.metadata for channel in self.channels if is_complete(channel)}
        try:
            return read_header(self.survey.uri, channels, records), ""
        except (CorruptEpisode, BadInput) as error:
            return None, str(error).removeprefix(f"{self.survey.uri}: ")

    @cached_property
    def _index(self) -> tuple[EpisodeIndex | None, str]:
        attachment = self.survey.attachments.get(INDEX_NAME)
        if attachment is None:
            return None, f"no attachment {INDEX_NAME}"
        stated, found = self.survey.crc_of(attachment)
        if stated != found:
            return None, "its crc32 differs"
        try:
            return EpisodeIndex.from_bytes(attachment.content.data, uri=self.survey.uri), ""
        except CorruptEpisode as error:
            return None, str(error).removeprefix(f"{self.survey.uri}: ")
