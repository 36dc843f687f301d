"""Coded frames out of messages: NAL units joined into access units, of H.264 and H.265 (pure).

An access unit is what decodes to one frame. Where one begins is a matter of the format (`Syntax`); what is done
with the units around it is the same for both: parameter sets, messages and marks before a slice go with the
frame that follows, everything else with the frame before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dyna_train.video.framing import MAX_UNIT_BYTES, MAX_UNITS, Framing, Rules, Unit
from dyna_train.video.nal import BadBitstream, Nal, join_annexb

Role = Literal["slice", "set", "before", "after", "either"]
"""Of a NAL unit: 'set' and 'before' end a frame and go with the next, 'after' stays with its frame."""


@dataclass(frozen=True, slots=True)
class Head:
    """What tells slices of different frames apart: the first one of a frame, and what all of a frame have equal."""

    is_first: bool
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """What the first slice of a frame says.

    is_start: decoding can start here. lacks_sets: it could, if its parameter sets had come. restarts: a coded
    video sequence begins, all of which is shown after everything before. order: place among the frames of its
    sequence as they are shown. is_skipped: predicted from frames before the start. fault: why it is not whole, or
    does not follow the one before.
    """

    order: int
    is_start: bool = False
    lacks_sets: bool = False
    restarts: bool = False
    is_skipped: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True)
class CodedFrame:
    """One frame as it was coded. piece: number of the piece in which its first slice begins.

    is_decodable: False before the first keyframe with its parameter sets, and for what is predicted from there.
    sequence: of the coded video sequences, counted. sets: the parameter sets in force, of a frame that starts one.
    """

    piece: int
    nals: tuple[Nal, ...]
    picture: Picture
    is_decodable: bool
    sequence: int
    sets: tuple[Nal, ...] = ()
    is_annexb: bool = True

    def data(self) -> bytes:
        """Its bytes for a decoder. Raises BadBitstream for units that lack emulation prevention."""
        return join_annexb(self.nals) if self.is_annexb else bytes(self.nals[0].data)


class FrameParser(Protocol):
    """Takes the messages of one topic in order, gives coded frames in decoding order."""

    def feed(self, piece: int, data: bytes) -> Iterator[CodedFrame]:
        """The frames that are complete with this message. Raises BadBitstream."""
        ...

    def finish(self) -> Iterator[CodedFrame]:
        """The frames that the end completes. Raises BadBitstream."""
        ...


class Syntax(Rules, Protocol):
    """What a format says of its NAL units; keeps the parameter sets that came."""

    def role(self, nal: Nal) -> Role:
        """Where the unit belongs. Raises BadBitstream for kinds that are not supported."""
        ...

    def take(self, nal: Nal) -> None:
        """Take a parameter set over. Raises BadBitstream."""
        ...

    def head(self, nal: Nal) -> Head:
        """Of a slice. Raises BadBitstream."""
        ...

    def open(self, before: Sequence[Nal], nal: Nal) -> Picture:
        """The frame that begins with the slice `nal`, after the units `before`; frames come in order."""
        ...

    def sets(self) -> tuple[Nal, ...]:
        """The parameter sets in force."""
        ...


@dataclass(slots=True)
class _Open:
    """The frame that is being put together."""

    piece: int
    head: Head
    picture: Picture
    nals: list[Nal]
    num_bytes: int = 0


@dataclass(slots=True)
class AccessUnits:
    """The frame parser of a format whose messages hold NAL units."""

    syntax: Syntax
    framing: Framing
    _open: _Open | None = None
    _before: list[Nal] = field(default_factory=list)
    _started: bool = False
    _num_sequences: int = 0

    def feed(self, piece: int, data: bytes) -> Iterator[CodedFrame]:
        """The frames that are complete with this message."""
        for unit in self.framing.feed(piece, data):
            yield from self._add(unit)

    def finish(self) -> Iterator[CodedFrame]:
        """The last frame."""
        for unit in self.framing.finish():
            yield from self._add(unit)
        yield from self._closed()

    def _add(self, unit: Unit) -> list[CodedFrame]:
        """Put one unit where it belongs; the frame that it ends, if it does."""
        role = self.syntax.role(unit.nal)
        if role == "slice":
            return self._add_slice(unit)
        if role == "after" and self._open is not None:
            self._keep(unit.nal)
            return []
        ended = [] if role in ("after", "either") else self._closed()
        if role == "set":
            self.syntax.take(unit.nal)
        self._before.append(unit.nal)
        if len(self._before) > MAX_UNITS:
            raise BadBitstream(f"more than {MAX_UNITS:,} NAL units without a frame")
        return ended

    def _add_slice(self, unit: Unit) -> list[CodedFrame]:
        head = self.syntax.head(unit.nal)
        if self._open is not None and not head.is_first and head.key == self._open.head.key:
            for nal in (*self._before, unit.nal):
                self._keep(nal)
            self._before = []
            return []
        ended = self._closed()
        picture = self.syntax.open(self._before, unit.nal)
        self._open = _Open(unit.piece, head, picture, [])
        for nal in (*self._before, unit.nal):
            self._keep(nal)
        self._before = []
        return ended

    def _keep(self, nal: Nal) -> None:
        assert self._open is not None
        self._open.nals.append(nal)
        self._open.num_bytes += len(nal.data)
        if self._open.num_bytes > MAX_UNIT_BYTES or len(self._open.nals) > MAX_UNITS:
            raise BadBitstream(f"a frame of more than {MAX_UNIT_BYTES >> 20} MiB or {MAX_UNITS:,} NAL units")

    def _closed(self) -> list[CodedFrame]:
        """The open frame, if there is one."""
        if self._open is None:
            return []
        done, self._open = self._open, None
        picture = done.picture
        self._started = self._started or picture.is_start
        self._num_sequences += picture.restarts
        decodable = self._started and not picture.is_skipped
        sets = self.syntax.sets() if picture.is_start else ()
        return [CodedFrame(done.piece, tuple(done.nals), picture, decodable, self._num_sequences, sets)]
