"""NAL units out of a stream that comes in pieces, framed by start codes or by lengths (pure).

*Piece*: the bytes of one message. Start codes (Annex B) make one stream of all pieces, which may be cut anywhere;
lengths (as in mp4) are whole in every piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from dyna_train.video.nal import START, Avcc, BadBitstream, Nal, split_avcc

MAX_UNIT_BYTES = 256 << 20
"""No NAL unit and no frame is larger; level 6.2 of H.264 allows 100 MB for a raw picture."""

MAX_UNITS = 1 << 14
"""Of one frame, with everything around its slices; H.265 allows 600 slices in the largest picture."""

LENGTHS = (4, 2, 1)
_START_CODES = 0  # among LENGTHS, for the framing without a length
_ZEROS = 2  # of a start code: what is held back at the end of a piece


class Rules(Protocol):
    """What framing needs to know of a format."""

    name: str

    def is_plausible(self, nal: Nal) -> bool:
        """True if the header of the unit is one that an encoder writes."""
        ...

    def configuration(self, data: bytes) -> Avcc | None:
        """The decoder configuration record (avcC, hvcC) that `data` is; None if it is none."""
        ...


@dataclass(frozen=True, slots=True)
class Unit:
    """A NAL unit, and the number of the piece in which its first byte stands."""

    nal: Nal
    piece: int


class Framing(Protocol):
    """Takes a stream apart, piece by piece."""

    def feed(self, piece: int, data: bytes) -> Iterator[Unit]:
        """The units that are complete with piece number `piece`. Raises BadBitstream."""
        ...

    def finish(self) -> Iterator[Unit]:
        """The units that the end of the stream completes. Raises BadBitstream."""
        ...


class StartCodes:
    """Annex B; a unit ends where the next start code stands, in whatever piece. Units without a byte are left out."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._data = bytearray()
        """Of the unit that is being read."""
        self._piece: int | None = None
        """Where its first byte stands."""
        self._started = False
        self._held = 0

    def feed(self, piece: int, data: bytes) -> Iterator[Unit]:
        """The units that are complete with this piece; its own last one comes with a later piece."""
        if self._started and not _begins_with_start_code(data) and _fits(data, LENGTHS[0], self._rules):
            raise BadBitstream(
                "units behind start codes before, here behind their lengths: a mix of Annex B and AVCC"
            )
        stream, begin = bytes(self._held) + data, 0
        while (at := stream.find(START, begin)) >= 0:
            self._append(piece, stream[begin:at])
            yield from self.finish()
            self._started, begin = True, at + len(START)
        rest = stream[begin:]
        self._held = min(_ZEROS, len(rest) - len(rest.rstrip(b"\0")))
        if rest and self._piece is None:
            self._piece = piece
        self._append(piece, rest[: len(rest) - self._held])

    def finish(self) -> Iterator[Unit]:
        """The unit that is being read, if it has a byte; zero bytes at its end are not its own (B.1.1)."""
        data, piece = bytes(self._data).rstrip(b"\0"), self._piece
        self._data, self._piece, self._held = bytearray(), None, 0
        if not data or piece is None:
            return
        if data[0] & 0x80:
            raise BadBitstream(f"0x{data[0]:02x} behind a start code is no NAL header, its first bit is set")
        yield Unit(Nal(memoryview(data)), piece)

    def _append(self, piece: int, data: bytes) -> None:
        if not self._started:
            if data.strip(b"\0"):
                raise BadBitstream(f"expected a start code (00 00 01), found {data[:4].hex(' ')}")
            return
        if len(self._data) + len(data) > MAX_UNIT_BYTES:
            raise BadBitstream(f"a NAL unit of more than {MAX_UNIT_BYTES >> 20} MiB")
        self._data += data
        if data and self._piece is None:
            self._piece = piece


class Lengths:
    """Every unit behind its length of length_bytes, whole in its piece; configuration records may stand between."""

    def __init__(self, rules: Rules, length_bytes: int) -> None:
        self._rules = rules
        self._length_bytes = length_bytes

    def feed(self, piece: int, data: bytes) -> Iterator[Unit]:
        """The units of this piece."""
        record = self._rules.configuration(data)
        if record is not None:
            if record.length_bytes != self._length_bytes:
                raise BadBitstream(
                    f"a configuration record with lengths of {record.length_bytes} bytes, "
                    f"before it they had {self._length_bytes}"
                )
            return (Unit(nal, piece) for nal in record.parameter_sets)
        try:
            _refuse_too_many(data, self._length_bytes)
            return (Unit(nal, piece) for nal in split_avcc(data, self._length_bytes))
        except BadBitstream as error:
            if _begins_with_start_code(data):
                raise BadBitstream(
                    "units behind their lengths before, here behind start codes: a mix of AVCC and Annex B"
                ) from None
            raise BadBitstream(f"lengths of {self._length_bytes} bytes: {error}") from None

    def finish(self) -> Iterator[Unit]:
        """Nothing: every piece is whole."""
        return iter(())


def framing_of(pieces: Iterable[bytes], rules: Rules) -> Framing:
    """How a stream is framed; looks at pieces from the start until only one way is left.

    Raises BadBitstream if the first piece that is not empty fits none.
    """
    left: tuple[int, ...] = (_START_CODES, *LENGTHS)
    for data in filter(None, pieces):
        record = rules.configuration(data)
        if record is not None:
            return Lengths(rules, record.length_bytes)
        fitting = tuple(way for way in left if _fits(data, way, rules))
        if not fitting and len(left) > len(LENGTHS):
            raise BadBitstream(
                f"no {rules.name}: expected a start code (00 00 01) or the length of a NAL unit, "
                f"found {data[:8].hex(' ')} in {len(data):,} bytes"
            )
        left = fitting or left
        if len(left) == 1 or not fitting:
            break
    return StartCodes(rules) if left[0] == _START_CODES else Lengths(rules, left[0])


def _begins_with_start_code(data: bytes) -> bool:
    rest = data.lstrip(b"\0")
    return rest[:1] == b"\1" and len(data) - len(rest) >= _ZEROS


def _fits(data: bytes, way: int, rules: Rules) -> bool:
    """True if a whole piece can be framed this way, by the headers of its units."""
    if way == _START_CODES:
        first = Nal(memoryview(data)[data.find(START) + len(START) :])
        return _begins_with_start_code(data) and len(first.data) > 0 and rules.is_plausible(first)
    if not data:
        return False
    try:
        _refuse_too_many(data, way)
        return all(map(rules.is_plausible, split_avcc(data, way)))
    except BadBitstream:
        return False


def _refuse_too_many(data: bytes, length_bytes: int) -> None:
    """Raises BadBitstream for a piece of so many units that the list of them would fill memory."""
    at = num_units = 0
    while at < len(data):
        at += length_bytes + int.from_bytes(data[at : at + length_bytes], "big")
        num_units += 1
        if num_units > MAX_UNITS:
            raise BadBitstream(f"more than {MAX_UNITS:,} NAL units in one message")
