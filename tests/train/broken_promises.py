"""Ways to break one promise of an episode file: a `Break` writes a healthy file anew with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from damage import flipped, places_of, with_record, with_right_crcs
from doctor_samples import remade, stock_copy
from episode_samples import paint
from mcap.opcode import Opcode
from mcap.records import Channel, Message, Schema

from dyna_train.episode.arrays import pack_arrays, unpack_arrays
from dyna_train.episode.container import RECORD_HEAD_BYTES, chunk_head_bytes
from dyna_train.episode.schemas import encode_video, parse_video
from dyna_train.video.nal import Nal, join_annexb, split_annexb

TOP = "/camera/top/video"
ARM = "/state/arm"
Break = Callable[[Path, Path], None]
"""Writes the healthy file (first) with something wrong (second)."""
Arrays = Callable[[dict[str, Any], dict[str, Any]], None]
"""Changes the head and the arrays of an attachment."""


# -- messages --------------------------------------------------------------------------------------------------


def messages(change: Callable[[str, Message], Any]) -> Break:
    """Other messages, by topic."""
    return lambda source, target: remade(source, target, messages=change)


def message(topic: str, change: Callable[[Message], Any], step: int = 12) -> Break:
    """Another message of one topic at one step."""
    return messages(lambda name, one: change(one) if (name, one.sequence) == (topic, step) else one)


def nals(change: Callable[[list[Nal]], list[Nal]]) -> Callable[[Message], Message]:
    """A change of the NAL units of a frame."""
    return lambda one: video_of(one, join_annexb(change(split_annexb(parse_video(one.data).data))))


def video_of(message: Message, data: bytes, *, name: str = "top") -> Message:
    """A message with these H.264 bytes."""
    return replace(message, data=encode_video(message.publish_time, name, data))


def as_avcc(message: Message) -> Message:
    """The frame as mp4 holds it, lengths instead of start codes."""
    units = split_annexb(parse_video(message.data).data)
    return video_of(message, b"".join(len(unit.data).to_bytes(4, "big") + bytes(unit.data) for unit in units))


def encoded(x264_params: str = "", **fields: Any) -> Break:
    """The camera top by another encoder, in its GOPs of 6 steps."""
    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt = 64, 48, "yuv420p"
    context.time_base, context.framerate = Fraction(1, 30), Fraction(30)
    for name, value in fields.items():
        setattr(context, name, value)
    always = "annexb=1:repeat-headers=1:keyint=6:min-keyint=6:scenecut=0:threads=1"
    context.options = {"x264-params": f"{always}:{x264_params}".rstrip(":")}
    packets = []
    for step in [*range(50), None]:
        frame = None if step is None else paint(step, step, 64, 48)
        packets += [bytes(packet) for packet in context.encode(frame)]
    return messages(lambda name, one: video_of(one, packets[one.sequence]) if name == TOP else one)


def with_moved_keyframe(source: Path, target: Path) -> None:
    """The keyframe of step 12 stands at step 15, what was before it in its place."""
    frames: dict[int, bytes] = {}

    def swap(name: str, one: Message) -> Message:
        if name != TOP:
            return one
        frames[one.sequence] = bytes(parse_video(one.data).data)
        moved = {12: 11, 15: 12}.get(one.sequence)
        return one if moved is None else video_of(one, frames[moved])

    remade(source, target, messages=swap)


def swapped_blocks(name: str, message: Message) -> Message:
    """The first two state blocks say they are each other."""
    is_swapped = name.startswith(("/state", "/action")) and message.sequence < 48
    return replace(message, sequence=(message.sequence + 24) % 48) if is_swapped else message


# -- channels, schemas, metadata, attachments ------------------------------------------------------------------


def channels(change: Callable[[Channel], Channel]) -> Break:
    """Other channels."""
    return lambda source, target: remade(source, target, channels=change)


def without(name: str) -> Break:
    """The channels without one entry of their metadata."""
    return channels(
        lambda one: replace(one, metadata={key: text for key, text in one.metadata.items() if key != name})
    )


def with_value(name: str, value: str) -> Break:
    """The channels that have this entry with another value."""
    return channels(
        lambda one: replace(one, metadata={**one.metadata, name: value}) if name in one.metadata else one
    )


def schema(number: int, change: Callable[[Schema], Schema]) -> Break:
    """Another schema."""
    return lambda source, target: remade(
        source, target, schemas=lambda one: change(one) if one.id == number else one
    )


def record(name: str, change: Callable[[dict[str, str]], dict[str, str] | None]) -> Break:
    """Another metadata record, or none, wherever it stands."""
    return lambda source, target: remade(
        source, target, metadata=lambda one, values: change(values) if one == name else values
    )


def record_with(name: str, **values: str) -> Break:
    """A metadata record with other values."""
    return record(name, lambda found: {**found, **values})


def another_task_in_front(source: Path, target: Path) -> None:
    """The front record of the episode says another task than the one at the end."""
    seen: set[str] = set()

    def change(name: str, values: dict[str, str]) -> dict[str, str]:
        is_first = name not in seen
        seen.add(name)
        return {**values, "task": "another"} if name == "dyna.episode" and is_first else values

    remade(source, target, metadata=change)


def attachment(name: str, change: Callable[[bytes], bytes | None]) -> Break:
    """Another attachment, or none."""
    return lambda source, target: remade(
        source, target, attachments=lambda one, data: change(data) if one == name else data
    )


def arrays(name: str, change: Arrays) -> Break:
    """An attachment of arrays, changed."""

    def edit(data: bytes) -> bytes:
        head, found = unpack_arrays(data, what=name)
        change(head, found)
        return pack_arrays(head, found)

    return attachment(name, edit)


def add_to(array: str, index: tuple[int, ...], amount: int = 1) -> Arrays:
    """One entry of an array of the attachment becomes another one."""

    def change(head: dict[str, Any], found: dict[str, Any]) -> None:
        found[array] = found[array].copy()
        found[array][index] += amount

    return change


def set_head(**values: Any) -> Arrays:
    """Another value in the head of the attachment."""
    return lambda head, found: head.update(values)


# -- the container ---------------------------------------------------------------------------------------------


def in_bytes(change: Callable[[bytes], bytes]) -> Break:
    """Other bytes; the checksums of the file stay as they are."""
    return lambda source, target: target.write_bytes(change(source.read_bytes())) and None


def in_record(kind: Opcode, number: int, **values: Any) -> Break:
    """Another value in one record of a kind; the checksums are right."""
    return in_bytes(lambda data: with_record(data, kind, number, **values))


def flip(kind: Opcode, number: int, place: int) -> Break:
    """A bit of byte `place` of one record, from its end if negative."""
    return in_bytes(lambda data: flipped(data, _byte(data, kind, number, place)))


def flip_unseen(kind: Opcode, number: int, place: int) -> Break:
    """The same, with the checksums of data section and summary right again."""
    return in_bytes(
        lambda data: with_right_crcs(
            flipped(data, _byte(data, kind, number, place)), places_of(data, Opcode.DATA_END)[0]
        )
    )


def unknown_channel(data: bytes) -> bytes:
    """The first message of the third chunk is of channel 77."""
    at = _byte(data, Opcode.CHUNK, 2, chunk_head_bytes("") + RECORD_HEAD_BYTES)
    return data[:at] + bytes([77]) + data[at + 1 :]


def private_record(data: bytes) -> bytes:
    """A record of a private kind before the end of the data."""
    ((at, _),) = places_of(data, Opcode.DATA_END)
    return data[:at] + b"\x90" + (4).to_bytes(8, "little") + b"mine" + data[at:]


def stock(**options: Any) -> Break:
    """What another tool makes of the file."""
    return lambda source, target: stock_copy(source, target, **options)


def _byte(data: bytes, kind: Opcode, number: int, place: int) -> int:
    start, end = places_of(data, kind)[number]
    return start + place if place >= 0 else end + place
