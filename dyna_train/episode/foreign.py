"""Any MCAP file, read by the stock reader: slowly and right. Topics, times, messages, and frames of H.264.

Array axes: N messages or asked frames, H W pixels.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import fsspec
import numpy as np
from numpy.typing import NDArray

from dyna_train.episode.channels import ExtraTopic
from dyna_train.episode.gop import GopFrames
from dyna_train.episode.schemas import PROTOBUF, VIDEO_SCHEMA, parse_video
from dyna_train.episode.source import ByteSource, ReadCounters, open_source
from dyna_train.episode.span import Steps, whole_numbers
from dyna_train.episode.sparse import StoredMessage, stored_message, stored_topic
from dyna_train.episode.stock import Contents, read_contents, read_messages, stock_errors
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError, MissingFrame
from dyna_train.video.nal import AccessUnit, BadBitstream, parse_access_unit
from dyna_train.video.pixels import FrameConverter, room_for


@dataclass(frozen=True, slots=True)
class _Video:
    """Times of the frames of a topic, ns, and the numbers of its keyframes."""

    times_ns: list[int]
    keys: list[int]


class ForeignFile:
    """An open MCAP file of whatever kind. Not for two threads at once."""

    def __init__(self, source: ByteSource, fs: fsspec.AbstractFileSystem | None, contents: Contents) -> None:
        self.uri = source.uri
        self.contents = contents
        self.source = source
        self._fs = fs
        self._converter = FrameConverter()
        self._videos: dict[str, _Video] = {}

    @classmethod
    def open(cls, uri: str | Path, fs: fsspec.AbstractFileSystem | None = None) -> ForeignFile:
        """Open the file at `uri` by its summary, or, where that says too little, by reading all of it.

        Raises EpisodeError for an absent file or one that is no MCAP, TruncatedEpisode, CorruptEpisode.
        """
        source = open_source(uri, fs)
        try:
            return cls(source, fs, read_contents(source))
        except EpisodeError:
            source.close()
            raise

    @property
    def counters(self) -> ReadCounters:
        """What reading cost since the file was opened."""
        return self.source.counters

    @property
    def metadata(self) -> Mapping[str, Mapping[str, str]]:
        """The metadata records by name, the last of each; MCAP has no checksum for them."""
        return self.contents.metadata

    @property
    def topics(self) -> tuple[ExtraTopic, ...]:
        """The topics in order of their channels, each once."""
        found: dict[str, ExtraTopic] = {}
        for _, channel in sorted(self.contents.channels.items()):
            topic = stored_topic(channel, self.contents.schemas)
            found.setdefault(channel.topic, topic)
        return tuple(found.values())

    @property
    def num_messages(self) -> Mapping[str, int]:
        """Messages by topic."""
        counts: Counter[str] = Counter()
        for number, channel in self.contents.channels.items():
            counts[channel.topic] += self.contents.num_messages[number]
        return counts

    def messages(
        self, topic: str, *, start_ns: int | None = None, end_ns: int | None = None
    ) -> Iterator[StoredMessage]:
        """The messages of `topic` in order of log time, those from start_ns and before end_ns.

        Raises BadInput for an unknown topic, CorruptEpisode for what the stock reader cannot read.
        """
        if topic not in self.num_messages:
            raise BadInput(
                f"{self.uri}: no topic '{topic}'; its topics: {', '.join(self.num_messages) or 'none'}"
            )
        return self._messages(topic, start_ns, end_ns)

    def times_ns(self, topic: str) -> NDArray[np.int64]:
        """Log times of the messages of `topic`, ascending, int64 [N] ns."""
        return np.array([message.log_ns for message in self.messages(topic)], np.int64)

    def frames(
        self,
        topic: str,
        numbers: Steps,
        size: tuple[int, int] | None = None,
        *,
        out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """RGB of messages `numbers` (from 0, in order of log time) of a video topic, uint8 [N, H, W, 3].

        size: (height, width) to resize to. The first call reads the whole topic to find its keyframes. Raises
        BadInput for a number that is none, EpisodeError for a topic that is not H.264 in
        foxglove.CompressedVideo or that has B-frames, MissingFrame before the first keyframe, CorruptEpisode.
        """
        video = self._video(topic)
        asked = whole_numbers(numbers, where=f"{self.uri}: {topic}: numbers")
        outside = asked[(asked < 0) | (asked >= len(video.times_ns))]
        if len(outside):
            raise BadInput(f"{self.uri}: {topic} has {len(video.times_ns)} messages, no number {outside[0]}")
        pictures: dict[int, NDArray[np.uint8]] = {}
        for key, wanted in self._by_key(topic, video, sorted(set(asked.tolist()))).items():
            what = f"{self.uri}: {topic}, GOP from message {key}"
            gop = GopFrames(self._packets(topic, video, key, wanted[-1]), frozenset(), self.counters, what)
            for number in wanted:
                frame = gop.frame(number)
                assert frame is not None  # every message is a frame
                pictures[number] = self._converter.to_rgb(frame, frame.width, frame.height, size)
        self.counters.kept += len(pictures)
        return stacked(self.uri, pictures, asked, size, out)

    def close(self) -> None:
        """Release the file handle."""
        self.source.close()

    def __enter__(self) -> ForeignFile:
        """Itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """A copy reopens the file, in whatever process it wakes up."""
        return ForeignFile.open, (self.uri, self._fs)

    def __repr__(self) -> str:
        """What it is, not what is in it."""
        counts = ", ".join(f"{topic} {count}" for topic, count in self.num_messages.items())
        return f"{type(self).__name__}({self.uri!r}: {counts or 'no topics'})"

    def _messages(self, topic: str, start_ns: int | None, end_ns: int | None) -> Iterator[StoredMessage]:
        with stock_errors(self.uri):
            for message in read_messages(self.source, self.contents, topic, start_ns, end_ns):
                yield stored_message(message)

    def _video(self, topic: str) -> _Video:
        """Where the frames of a topic are; reads all of it once."""
        if topic not in self._videos:
            _check_is_video(self.uri, topic, next((t for t in self.topics if t.topic == topic), None))
            video = _Video([], [])
            for number, message in enumerate(self.messages(topic)):
                _, unit = video_packet(f"{self.uri}: {topic}, message {number}", message.data)
                if unit.is_idr:
                    video.keys.append(number)
                video.times_ns.append(message.log_ns)
            self._videos[topic] = video
        return self._videos[topic]

    def _by_key(self, topic: str, video: _Video, numbers: Sequence[int]) -> dict[int, list[int]]:
        """The numbers by that of the keyframe they are decoded from."""
        groups: dict[int, list[int]] = {}
        for number in numbers:
            place = bisect_right(video.keys, number) - 1
            if place < 0:
                raise MissingFrame(f"{self.uri}: {topic}, message {number} comes before the first keyframe")
            groups.setdefault(video.keys[place], []).append(number)
        return groups

    def _packets(self, topic: str, video: _Video, key: int, last: int) -> dict[int, memoryview]:
        """The H.264 bytes of messages `key` to `last`, by number."""
        start_ns, end_ns = video.times_ns[key], video.times_ns[last] + 1
        first = video.times_ns.index(start_ns)  # messages of one time come together, the earlier ones too
        found = enumerate(self.messages(topic, start_ns=start_ns, end_ns=end_ns), start=first)
        return {
            number: video_packet(f"{self.uri}: {topic}, message {number}", message.data)[0]
            for number, message in found
            if key <= number <= last
        }


def video_packet(what: str, data: bytes) -> tuple[memoryview, AccessUnit]:
    """H.264 bytes of a foxglove.CompressedVideo, and what they are. Raises EpisodeError that starts with `what`."""
    try:
        video = parse_video(data)
        if video.format != "h264":
            raise EpisodeError(f"{what}: video format '{video.format}', expected h264; ingest the recording")
        unit = parse_access_unit(video.data)
    except (CorruptEpisode, BadBitstream) as error:
        raise CorruptEpisode(f"{what}: {error}") from error
    if any(part.kind == "B" for part in unit.slices):
        raise EpisodeError(
            f"{what}: a B-frame, and messages of {VIDEO_SCHEMA} have no other order than that of time; "
            "ingest the recording, which encodes it anew"
        )
    return video.data, unit


def stacked(
    uri: str,
    pictures: Mapping[int, NDArray[np.uint8]],
    asked: NDArray[np.int64],
    size: tuple[int, int] | None,
    out: NDArray[np.uint8] | None,
) -> NDArray[np.uint8]:
    """The pictures in the asked order, uint8 [N, H, W, 3]; size: theirs, where there may be none.

    Raises EpisodeError if they differ in size, BadInput if `out` does not fit.
    """
    shapes = {picture.shape for picture in pictures.values()} or {(*(size or (0, 0)), 3)}
    if len(shapes) > 1:
        raise EpisodeError(f"{uri}: frames of different sizes, {sorted(shapes)}; give the size you want")
    frames = room_for(out, (len(asked), *shapes.pop()))
    for place, number in enumerate(asked.tolist()):
        frames[place] = pictures[number]
    return frames


def _check_is_video(uri: str, topic: str, found: ExtraTopic | None) -> None:
    """Refuse a topic that does not hold foxglove.CompressedVideo. Raises EpisodeError, BadInput if None."""
    if found is None:
        raise BadInput(f"{uri}: no topic '{topic}'")
    if (found.schema_name, found.message_encoding) != (VIDEO_SCHEMA, PROTOBUF):
        raise EpisodeError(
            f"{uri}: {topic} holds '{found.schema_name}' in {found.message_encoding}, expected {VIDEO_SCHEMA} "
            f"in {PROTOBUF}"
        )
