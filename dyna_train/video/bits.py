"""Bits of coded video: emulation prevention undone, fixed-length and Exp-Golomb fields."""

from __future__ import annotations

from dyna_train.errors import BadInput

MAX_GOLOMB_ZEROS = 31  # the longest code of H.264 (9.1) stands for 2**32 - 2


class BadBitstream(BadInput):
    """Bytes that are not of the format they should be; the message says where."""


def unescape(data: bytes | bytearray | memoryview) -> bytes:
    """The raw bytes of a NAL unit: without the 03 that stands after every two zero bytes."""
    return bytes(data).replace(b"\0\0\3", b"\0\0")


class BitReader:
    """Reads fields from the highest bit of the first byte on. what: the structure, for messages."""

    def __init__(self, data: bytes, what: str) -> None:
        self._value = int.from_bytes(data, "big")
        self._num_bits = 8 * len(data)
        self._at = 0
        self._what = what

    def bits(self, num_bits: int) -> int:
        """The next num_bits as an unsigned number. Raises BadBitstream past the end."""
        end = self._at + num_bits
        if end > self._num_bits:
            raise self.fault(f"ends after {self._num_bits // 8} bytes, inside a field of {num_bits} bits")
        self._at = end
        return self._value >> (self._num_bits - end) & ((1 << num_bits) - 1)

    def flag(self) -> bool:
        """The next bit."""
        return self.bits(1) == 1

    def ue(self, name: str, most: int | None = None) -> int:
        """An unsigned Exp-Golomb number. Raises BadBitstream if `name` is more than `most`."""
        left = self._num_bits - self._at
        zeros = left - (self._value & ((1 << left) - 1)).bit_length()
        if zeros > MAX_GOLOMB_ZEROS or 2 * zeros + 1 > left:
            raise self.fault(f"{name} is no Exp-Golomb number, or cut")
        self._at += zeros
        value = self.bits(zeros + 1) - 1
        if most is not None and value > most:
            raise self.fault(f"{name} is {value}, expected at most {most}")
        return value

    def se(self, name: str) -> int:
        """A signed Exp-Golomb number."""
        value = self.ue(name)
        return (value + 1) // 2 if value % 2 else -(value // 2)

    def fault(self, problem: str) -> BadBitstream:
        """An error at the present byte; bytes of emulation prevention do not count."""
        return BadBitstream(f"{self._what}: byte {self._at // 8}: {problem}")
