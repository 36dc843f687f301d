"""Compressed video inside messages: frames with their times, decoded or as they were coded."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.messages.frames import (
    Messages,
    MessageStream,
    MessageSurvey,
    survey_messages,
)
from dyna_assets.landing.sources.video import DECODABLE
from dyna_assets.landing.stills import MAX_PIXELS
from dyna_train.errors import BadInput
from dyna_train.video.coded import Appearance, CodedVideo, Packet
from dyna_train.video.pixels import UPRIGHT, Orientation, orientation_of, turned

_DECODERS = {"av1": "libdav1d"}  # FFmpeg's own decoder of AV1 needs hardware
# What a decoder paints over becomes an error, or marks the frame: see dyna_train.video.decode.
_OPTIONS = {"err_detect": "explode+aggressive", "max_pixels": str(MAX_PIXELS)}


@dataclass(frozen=True, slots=True)
class MessageVideo:
    """The video of one topic, whose messages hold coded frames, parts of them, or nothing.

    A lost frame that others need is found in H.264 and H.265. AV1 and VP9 do not number their frames: what follows
    a lost one until the next keyframe is wrong, and only the gap in the times tells. So it is with a lost slice of
    H.265 that is not the first of its frame: no decoder looks for it.
    """

    stream: MessageStream
    found: MessageSurvey
    appearance: Appearance
    orientation: Orientation

    @classmethod
    def survey(cls, messages: Messages, codec: str, *, where: str) -> MessageVideo:
        """Read every message once and decode the first frame; holds numbers, and no payload.

        messages: gives (stamp in ns, payload) of the topic in file order, anew at every call. codec: one of
        `frames.CODECS`. where: file and topic, for errors. Raises RecordingError.
        """
        stream = MessageStream(messages, codec, where)
        found = survey_messages(stream)
        with closing(_decoded(stream, found)) as frames:
            first = next(frames)
        orientation = _orientation(first, where)  # raises what `Appearance.of` would, with the topic's name
        return cls(stream, found, Appearance.of(first), orientation)

    @property
    def codec(self) -> str:
        """One of `frames.CODECS`."""
        return self.stream.codec

    @property
    def times_ns(self) -> NDArray[np.int64]:
        """int64 [N]: the stamp of every frame, in order of presentation."""
        return self.found.times_N

    @property
    def width(self) -> int:
        """Pixels across, of the upright picture that `frames` gives."""
        return self.orientation.size(self.appearance.width, self.appearance.height)[0]

    @property
    def height(self) -> int:
        """Pixels down, of the upright picture that `frames` gives."""
        return self.orientation.size(self.appearance.width, self.appearance.height)[1]

    @property
    def num_frames(self) -> int:
        """Frames that are decoded and shown."""
        return len(self.found.stamps_N)

    @property
    def note(self) -> str:
        """What was joined or left out, as a sentence; '' if every message holds one frame."""
        return self.found.note

    def frames(self) -> Iterator[av.VideoFrame]:
        """Decoded frames in order of presentation and upright; pts is the number of the frame.

        Exactly `num_frames`, or RecordingError at the one that does not decode whole.
        """
        shown = self.appearance
        times_N = self.times_ns
        for number, frame in enumerate(_decoded(self.stream, self.found)):
            if (frame.width, frame.height) != (shown.width, shown.height):
                raise RecordingError(
                    f"{self.stream.where}: frame {number} at {times_N[number]} ns has {frame.width}x{frame.height} "
                    f"pixels, the first one {shown.width}x{shown.height}: one topic is one camera of one size. "
                    "Record it again, or publish the other size under another topic",
                    check=DECODABLE,
                )
            yield turned(frame, self._orientation(frame, number))

    def _orientation(self, frame: av.VideoFrame, number: int) -> Orientation:
        """How the first frame is turned. FFmpeg tells it of the frame only that the stream tells it with."""
        stated = _orientation(frame, self.stream.where)
        if stated not in (UPRIGHT, self.orientation):
            raise RecordingError(
                f"{self.stream.where}: frame {number} at {self.times_ns[number]} ns is to be turned otherwise than "
                "the first one: one topic is one camera that is mounted once. Publish the pictures upright",
                check=DECODABLE,
            )
        return self.orientation

    def coded(self) -> CodedVideo:
        """Its packets from the first keyframe on, one for each frame; pts is the number of the frame."""
        return CodedVideo(
            self.codec,
            self.found.extradata,
            self.appearance,
            lambda: _packets(self.stream, self.found),
        )


def _packets(stream: MessageStream, found: MessageSurvey) -> Iterator[Packet]:
    """The decodable frames in decoding order. Raises RecordingError if they are not those that were found."""
    number = 0
    for stamped in stream.frames():
        frame = stamped.frame
        if not frame.is_decodable:
            continue
        if number == len(found.stamps_N) or stamped.stamp_ns != found.stamps_N[number]:
            raise _changed(stream, number)
        with stream.named(frame.piece, stamped.stamp_ns):
            data = frame.data()
        yield Packet(data, int(found.places_N[number]), is_keyframe=frame.picture.is_start)
        number += 1
    if number != len(found.stamps_N):
        raise _changed(stream, number)


def _decoded(stream: MessageStream, found: MessageSurvey) -> Generator[av.VideoFrame, None, None]:
    """Every frame as it is stored, in order of presentation. Raises RecordingError at one that is not whole."""
    context, times_N, number = _decoder(stream.codec, found), found.times_N, 0

    def problem(at: int, what: str) -> RecordingError:
        stamp = f" at {times_N[at]} ns" if at < len(times_N) else ""
        return RecordingError(
            f"{stream.where}: frame {at}{stamp} {what}; the video is damaged, or a message was lost: "
            "record or upload it again",
            check=DECODABLE,
        )

    for packet in chain(_packets(stream, found), (None,)):
        try:
            frames = context.decode(_fed(packet))
        except av.FFmpegError as error:
            raise problem(packet.pts if packet else number, f"does not decode ({error.strerror})") from None
        for frame in frames:
            if frame.pts != number or number == len(times_N):
                raise problem(number, f"is not what the decoder gave, that is frame {frame.pts}")
            if frame.is_corrupt:
                raise problem(number, "decodes in part only")
            yield frame
            number += 1
    if number != len(times_N):
        raise problem(number, f"is missing: the decoder gave {number} frames of {len(times_N)}")


def _fed(packet: Packet | None) -> av.Packet[Any] | None:
    """What the decoder takes; None makes it give what it holds back."""
    if packet is None:
        return None
    fed = av.Packet(packet.data)
    fed.pts = packet.pts
    return fed


def _decoder(codec: str, found: MessageSurvey) -> VideoCodecContext:
    context = av.CodecContext.create(_DECODERS.get(codec, codec), "r")
    assert isinstance(context, VideoCodecContext)
    context.thread_count = 1  # frame threads would hold frames back
    # Where a stream does not state how far frames are reordered, FFmpeg guesses and gives the first ones in the
    # wrong order; a strict decoder holds back as many as the level allows.
    context.options = {**_OPTIONS, **({"strict": "strict"} if found.is_reordered else {})}
    if found.extradata:
        context.extradata = found.extradata
    return context


def _orientation(frame: av.VideoFrame, where: str) -> Orientation:
    try:
        return orientation_of(frame)
    except BadInput as error:
        raise RecordingError(f"{where}: {error}", check=DECODABLE) from None


def _changed(stream: MessageStream, number: int) -> RecordingError:
    return RecordingError(
        f"{stream.where}: frame {number} is another one than a moment ago: the file was replaced while it was read. "
        "Upload it again under another name",
        check="recording.complete",
    )
