"""Coded frames out of the messages of one topic, and which instant each of them shows.

A frame's time is the stamp of the message in which its first slice begins. Nothing is spaced anew: where the stamps
do not say when a frame was taken, the topic is refused.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import RecordingError
from dyna_assets.landing.sources.video import DECODABLE
from dyna_train.video.access_units import AccessUnits, CodedFrame, FrameParser, Syntax
from dyna_train.video.bits import BadBitstream
from dyna_train.video.frames_h264 import H264
from dyna_train.video.frames_h265 import H265
from dyna_train.video.framing import MAX_UNIT_BYTES, framing_of
from dyna_train.video.nal import join_annexb
from dyna_train.video.temporal_units import Av1, TemporalUnits, read_vp9

FRAME_TIMES = "video.times"
MOST_COUNTED = 1000  # frames in one message
_SYNTAXES: dict[str, Callable[[], Syntax]] = {"h264": H264, "hevc": H265}
_UNITS: dict[str, Callable[[], FrameParser]] = {
    "av1": lambda: TemporalUnits(Av1().read),
    "vp9": lambda: TemporalUnits(read_vp9),
}
CODECS = (*_SYNTAXES, *_UNITS)
"""The codecs whose frames are found in messages, as FFmpeg calls them."""

Messages = Callable[[], Iterator[tuple[int, bytes]]]
"""Gives (stamp in ns, payload) of one topic in file order, anew at every call."""


@dataclass(frozen=True, slots=True)
class StampedFrame:
    """A coded frame and the stamp of its message, in ns."""

    frame: CodedFrame
    stamp_ns: int


@dataclass(frozen=True, slots=True)
class MessageStream:
    """The messages of one topic as coded frames. codec: one of CODECS. where: file and topic, for errors."""

    messages: Messages
    codec: str
    where: str

    def frames(self, watch: Callable[[bytes], None] = lambda payload: None) -> Iterator[StampedFrame]:
        """Every frame in decoding order, those included that cannot be decoded; holds one at a time.

        watch: is shown every payload. Raises RecordingError at what cannot be told apart.
        """
        stamps, parser = array("q"), self._parser()
        for number, (stamp_ns, payload) in enumerate(self._limited()):
            stamps.append(stamp_ns)
            watch(payload)
            with self.named(number, stamp_ns):
                for frame in parser.feed(number, payload):
                    yield StampedFrame(frame, stamps[frame.piece])
        with self.named(len(stamps) - 1, stamps[-1] if stamps else 0):
            for frame in parser.finish():
                yield StampedFrame(frame, stamps[frame.piece])

    @contextmanager
    def named(self, number: int, stamp_ns: int) -> Iterator[None]:
        """Bytes inside that are no video become a RecordingError that names the message."""
        try:
            yield
        except BadBitstream as error:
            raise RecordingError(
                f"{self.where}: message {number} at {stamp_ns} ns: {error}. The video is damaged, or no {self.codec} "
                "as the topic says; record or upload it again",
                check=DECODABLE,
            ) from None

    def _limited(self) -> Iterator[tuple[int, bytes]]:
        """The messages. Raises RecordingError at one that is too large to be a frame."""
        for number, (stamp_ns, payload) in enumerate(self.messages()):
            if len(payload) > MAX_UNIT_BYTES:
                with self.named(number, stamp_ns):
                    raise BadBitstream(f"{len(payload):,} bytes, expected at most {MAX_UNIT_BYTES:,}")
            yield stamp_ns, payload

    def _parser(self) -> FrameParser:
        if self.codec in _UNITS:
            return _UNITS[self.codec]()
        if self.codec not in _SYNTAXES:
            raise RecordingError(
                f"{self.where}: video of format '{self.codec}', expected one of {', '.join(CODECS)}",
                check=DECODABLE,
            )
        syntax = _SYNTAXES[self.codec]()
        heads = ((number, stamp_ns) for number, (stamp_ns, payload) in enumerate(self._limited()) if payload)
        with self.named(*next(heads, (0, 0))):
            framing = framing_of((payload for _, payload in self._limited()), syntax)
        return AccessUnits(syntax, framing)


@dataclass(frozen=True, slots=True)
class MessageSurvey:
    """What is known of a topic's N decodable frames before one is decoded.

    stamps_N: int64, ns, and places_N: int64, how many of them are shown before; both in decoding order.
    extradata: the parameter sets in force at the first of them, as Annex B. note: what was joined or left out.
    """

    stamps_N: NDArray[np.int64]
    places_N: NDArray[np.int64]
    extradata: bytes
    note: str

    @property
    def times_N(self) -> NDArray[np.int64]:
        """int64 [N], ns: the stamps in order of presentation."""
        times_N = np.empty_like(self.stamps_N)
        times_N[self.places_N] = self.stamps_N
        return times_N

    @property
    def is_reordered(self) -> bool:
        """True if frames are shown in another order than they are decoded (B-frames)."""
        return bool((np.diff(self.places_N) < 0).any())


def survey_messages(stream: MessageStream) -> MessageSurvey:
    """Read every message once, decode none, hold numbers only. Raises RecordingError."""
    tally = _Tally(stream)
    for stamped in stream.frames(tally.see_payload):
        tally.see(stamped)
    return tally.result()


@dataclass(slots=True)
class _Tally:
    """Counts and numbers of what went by."""

    stream: MessageStream
    messages: array[int] = field(default_factory=lambda: array("q"))
    stamps: array[int] = field(default_factory=lambda: array("q"))
    sequences: array[int] = field(default_factory=lambda: array("q"))
    orders: array[int] = field(default_factory=lambda: array("q"))
    extradata: bytes = b""
    num_messages: int = 0
    num_empty: int = 0
    num_undecodable: int = 0
    num_bare_keys: int = 0
    last: StampedFrame | None = None
    num_in_last: int = 0
    """Frames that begin in the message of the last one."""

    def see_payload(self, payload: bytes) -> None:
        self.num_messages += 1
        self.num_empty += not payload

    def see(self, stamped: StampedFrame) -> None:
        """Take the next frame in decoding order. Raises RecordingError for a message with several."""
        frame = stamped.frame
        if self.last is None or frame.piece != self.last.frame.piece:
            self._refuse_several()
            self.num_in_last = 0
        self.last, self.num_in_last = stamped, self.num_in_last + 1
        if self.num_in_last == MOST_COUNTED:
            self._refuse_several()
        self.num_bare_keys += frame.picture.lacks_sets
        if not frame.is_decodable:
            self.num_undecodable += 1
            return
        with self.stream.named(frame.piece, stamped.stamp_ns):
            if frame.picture.fault:
                raise BadBitstream(f"its frame cannot be decoded: {frame.picture.fault}")
            if not self.stamps:
                self.extradata = join_annexb(frame.sets)
        self.messages.append(frame.piece)
        self.stamps.append(stamped.stamp_ns)
        self.sequences.append(frame.sequence)
        self.orders.append(frame.picture.order)

    def result(self) -> MessageSurvey:
        """Raises RecordingError if nobody knows when a frame was taken."""
        self._refuse_several()
        if not self.stamps:
            raise RecordingError(f"{self.stream.where}: {self._nothing()}", check=DECODABLE)
        stamps_N = np.array(self.stamps, np.int64)
        places_N = presentation_places(np.array(self.sequences), np.array(self.orders))
        survey = MessageSurvey(stamps_N, places_N, self.extradata, self._note())
        messages_N = np.array(self.messages, np.int64)
        fault = _reordered_fault(stamps_N, places_N, np.array(self.sequences), messages_N)
        fault = fault or _equal_fault(survey, messages_N)
        if fault:
            raise RecordingError(f"{self.stream.where}: {fault}", check=FRAME_TIMES)
        return survey

    def _refuse_several(self) -> None:
        if self.last is not None and self.num_in_last > 1:
            raise RecordingError(
                f"{self.stream.where}: message {self.last.frame.piece} at {self.last.stamp_ns} ns holds "
                f"{self.num_in_last}{' or more' * (self.num_in_last == MOST_COUNTED)} frames, expected at most 1: "
                "one stamp does not say when each was taken. "
                "Publish one frame per message",
                check=FRAME_TIMES,
            )

    def _nothing(self) -> str:
        """Why no frame can be decoded."""
        if not self.num_undecodable:
            return f"no frame of {self.stream.codec} in {self.num_messages:,} messages ({self.num_empty:,} empty)"
        if self.num_bare_keys:
            return (
                f"no keyframe (of {self.num_bare_keys:,}) comes with its parameter sets (SPS, PPS): nothing can be "
                "decoded. Let the encoder repeat them at every keyframe (x264: repeat-headers=1), or publish them "
                "before the first one"
            )
        return (
            f"no keyframe among {self.num_undecodable:,} frames: nothing can be decoded. Let the encoder make one at "
            "least every second, and start the recorder before the camera"
        )

    def _note(self) -> str:
        without = self.num_messages - len(self.stamps) - self.num_undecodable - self.num_empty
        found = [
            (self.num_empty, "empty"),
            (without, "without the start of a frame (parameter sets, marks, the rest of a frame)"),
            (self.num_undecodable, "left out with frames that need one before the first keyframe"),
        ]
        parts = [f"{count:,} {what}" for count, what in found if count]
        return f"{self.num_messages:,} messages: " + ", ".join(parts) if parts else ""


def presentation_places(sequence_N: NDArray[np.int64], order_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 [N]: how many frames are shown before each of N frames in decoding order.

    sequence_N: which coded video sequence, ascending: one is shown after the other. order_N: place within it.
    """
    shown_N = np.lexsort((order_N, sequence_N))
    places_N = np.empty(len(shown_N), np.int64)
    places_N[shown_N] = np.arange(len(shown_N))
    return places_N


def _reordered_fault(
    stamps_N: NDArray[np.int64],
    places_N: NDArray[np.int64],
    sequence_N: NDArray[np.int64],
    messages_N: NDArray[np.int64],
) -> str:
    """Why nobody knows the times of a sequence with B-frames; '' if its stamps ascend as its frames are shown.

    A clock that goes backwards where frames keep their order is another matter: times are clear, and judged later.
    """
    if (np.diff(places_N) > 0).all():
        return ""
    starts = np.flatnonzero(np.diff(sequence_N, prepend=sequence_N[0] - 1))
    for start, stop in zip(starts, [*starts[1:], len(sequence_N)], strict=True):
        inside = slice(int(start), int(stop))
        if (np.diff(places_N[inside]) > 0).all():
            continue
        shown = stamps_N[inside][np.argsort(places_N[inside])]
        if (np.diff(shown) > 0).all():
            continue
        coded = (
            "they ascend in decoding order"
            if (np.diff(stamps_N[inside]) > 0).all()
            else "they ascend in no order"
        )
        return (
            f"messages {messages_N[start]} to {messages_N[stop - 1]}: frames are shown in another order than they "
            f"are coded (B-frames), and their stamps do not ascend as they are shown: {coded}, so nobody knows when "
            "a frame was taken. Encode without B-frames (x264: bframes=0), or stamp each message with the time at "
            "which its frame was captured"
        )
    return ""


def _equal_fault(survey: MessageSurvey, messages_N: NDArray[np.int64]) -> str:
    """Frames one after the other that have one stamp."""
    shown_N = np.argsort(survey.places_N)
    equal = np.flatnonzero(np.diff(survey.times_N) == 0)
    if not len(equal):
        return ""
    first, second = (int(messages_N[shown_N[equal[0] + step]]) for step in (0, 1))
    return (
        f"messages {first} and {second} hold different frames with one stamp, {survey.times_N[equal[0]]} ns"
        f" ({len(equal):,} such pairs): nobody knows when they were taken. Stamp each frame with its capture time"
    )
