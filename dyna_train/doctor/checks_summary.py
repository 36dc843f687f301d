"""Checks of MCAP's own indexes: the summary and the message indexes say what is in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np
from mcap.opcode import Opcode
from mcap.records import ChunkIndex, Statistics
from numpy.typing import NDArray

from dyna_train.doctor.case import Case
from dyna_train.doctor.check import Finding, check
from dyna_train.doctor.records import Record
from dyna_train.doctor.survey import Chunk, mcap_chunk
from dyna_train.episode.container import (
    MESSAGE_HEAD_BYTES,
    Place,
    attachment_index,
    chunk_index,
    metadata_index,
)


@check("summary.places")
def summary_places(case: Case) -> Iterator[Finding]:
    """Footer and summary offsets point at the groups of the summary."""
    survey = case.survey
    if survey.footer is None or survey.is_damaged(survey.summary_at, len(survey.data)):
        return
    ends = survey.of_kind(Opcode.DATA_END)
    offsets = survey.of_kind(Opcode.SUMMARY_OFFSET)
    at = survey.of_kind(Opcode.FOOTER)[-1].at
    if ends:
        yield from _differences(
            {
                "summary_start": ends[0].end,
                "summary_offset_start": offsets[0].at if offsets else 0,
            },
            {name: getattr(survey.footer, name) for name in ("summary_start", "summary_offset_start")},
            at,
            "footer",
        )
    first = offsets[0].at if offsets else at
    inside = [record for record in survey.records if survey.summary_at <= record.at < first]
    groups = {}
    for opcode, group in groupby(inside, key=lambda record: record.opcode):
        members = list(group)
        groups[opcode] = (members[0].at, members[-1].end - members[0].at)
    stated = {record.content.group_opcode: record for record in offsets}
    for opcode, (start, length) in groups.items():
        record = stated.get(opcode)
        found = (record.content.group_start, record.content.group_length) if record else None
        if found != (start, length):
            kind = Opcode(opcode).name if opcode in set(Opcode) else hex(opcode)
            said = f"byte {found[0]:,}, {found[1]:,} bytes" if found else "none"
            yield Finding(
                f"a summary offset of the {kind} group at byte {start:,}, {length:,} bytes",
                said,
                byte=record.at if record else first,
            )


@check("summary.repeats")
def summary_repeats(case: Case) -> Iterator[Finding]:
    """The summary repeats every schema and channel as it stands before the chunks."""
    survey = case.survey
    if survey.is_cut:
        return
    for opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
        records = survey.of_kind(opcode)
        front = {record.content.id: record for record in records if record.at < survey.summary_at}
        back = {record.content.id: record for record in records if record.at >= survey.summary_at}
        for number in sorted(front.keys() | back.keys()):
            what = f"{opcode.name} {number}"
            if number not in back and not survey.is_damaged(survey.summary_at, len(survey.data)):
                yield Finding(f"{what} repeated in the summary", "none", byte=survey.summary_at)
            elif number not in front and not survey.is_damaged(0, survey.summary_at):
                yield Finding(f"{what} before the chunks", "only in the summary", byte=back[number].at)
            elif number in front and number in back:
                expected, found = asdict(front[number].content), asdict(back[number].content)
                yield from _differences(expected, found, back[number].at, f"{what} in the summary")


@check("summary.statistics")
def summary_statistics(case: Case) -> Iterator[Finding]:
    """The statistics count what the file holds."""
    survey = case.survey
    if survey.damages:
        return  # what lies in a damaged stretch cannot be counted
    found = survey.of_kind(Opcode.STATISTICS)
    if not found:
        yield Finding("a STATISTICS record", "none", byte=survey.summary_at)
        return
    times = case.messages["log_ns"]
    front = [record for record in survey.records if record.at < survey.summary_at]
    inside = [record for chunk in survey.chunks for record in chunk.others]
    defined = {
        opcode: len({record.content.id for record in (*front, *inside) if record.opcode == opcode})
        for opcode in (Opcode.SCHEMA, Opcode.CHANNEL)
    }
    counted = {number: len(messages) for number, messages in case.by_channel.items()}
    expected = Statistics(
        attachment_count=len(survey.of_kind(Opcode.ATTACHMENT)),
        channel_count=defined[Opcode.CHANNEL],
        channel_message_counts={channel.id: counted.get(channel.id, 0) for channel in case.channels},
        chunk_count=len(survey.chunks),
        message_count=len(case.messages),
        message_end_time=int(times.max(initial=0)),
        message_start_time=int(times.min()) if len(times) else 0,
        metadata_count=len(survey.of_kind(Opcode.METADATA)),
        schema_count=defined[Opcode.SCHEMA],
    )
    stated = asdict(found[0].content)
    counts = stated["channel_message_counts"]  # channels without messages may be left out
    stated["channel_message_counts"] = {channel.id: counts.get(channel.id, 0) for channel in case.channels}
    yield from _differences(asdict(expected), stated, found[0].at, "statistics")


@check("summary.chunks")
def summary_chunks(case: Case) -> Iterator[Finding]:
    """Every chunk has an index record that says where it and its message indexes lie."""
    expected = {chunk.record.at: asdict(_chunk_index(chunk)) for chunk in case.survey.chunks}
    yield from _indexed(case, Opcode.CHUNK_INDEX, "chunk", expected, "chunk_start_offset")


@check("summary.attachments")
def summary_attachments(case: Case) -> Iterator[Finding]:
    """Every attachment has an index record."""
    expected = {
        record.at: asdict(attachment_index(record.content, _place(record)))
        for record in case.survey.of_kind(Opcode.ATTACHMENT)
    }
    yield from _indexed(case, Opcode.ATTACHMENT_INDEX, "attachment", expected, "offset")


@check("summary.metadata")
def summary_metadata(case: Case) -> Iterator[Finding]:
    """Every metadata record has an index record."""
    expected = {
        record.at: asdict(metadata_index(record.content.name, _place(record)))
        for record in case.survey.of_kind(Opcode.METADATA)
    }
    yield from _indexed(case, Opcode.METADATA_INDEX, "metadata", expected, "offset")


@check("chunk.message_index")
def message_indexes(case: Case) -> Iterator[Finding]:
    """After every chunk stand the time and place of each of its messages, by channel."""
    for chunk in case.survey.chunks:
        stated = {record.content.channel_id: record for record in chunk.indexes}
        for number in sorted(set(chunk.messages["channel"].tolist()) | stated.keys()):
            record = stated.get(number)
            expected = _entries(chunk, number)
            if record is None:
                if not case.survey.is_damaged(chunk.record.end, _indexes_end(chunk) + 1):
                    what = f"a message index of channel {number}"
                    yield Finding(what, "none", byte=chunk.record.end)
            elif not np.array_equal(record.content.entries, expected):
                found = f"{len(record.content.entries)} that differ"
                yield Finding(f"the {len(expected)} messages of channel {number}", found, byte=record.at)


def _entries(chunk: Chunk, channel: int) -> NDArray[np.uint64]:
    """Time and place of a channel's messages, uint64 [messages, 2]; a place is where the record begins."""
    mine = chunk.messages[chunk.messages["channel"] == channel]
    pairs = np.stack([mine["log_ns"], mine["at"] - MESSAGE_HEAD_BYTES], axis=1)
    return pairs.astype(np.uint64)


def _indexes_end(chunk: Chunk) -> int:
    return chunk.indexes[-1].end if chunk.indexes else chunk.record.end


def _chunk_index(chunk: Chunk) -> ChunkIndex:
    places = {record.content.channel_id: record.at for record in chunk.indexes}
    index_bytes = _indexes_end(chunk) - chunk.record.end
    return chunk_index(mcap_chunk(chunk.raw), _place(chunk.record), places, index_bytes)


def _place(record: Record) -> Place:
    return Place(record.at, record.end - record.at)


def _indexed(
    case: Case, kind: Opcode, what: str, expected: Mapping[int, Mapping[str, Any]], key: str
) -> Iterator[Finding]:
    """Index records of one kind against what they should say, by the byte they point at."""
    if case.survey.is_cut:
        return
    stated: dict[int, Record] = {getattr(record.content, key): record for record in case.survey.of_kind(kind)}
    for at, values in expected.items():
        if at in stated:
            yield from _differences(values, asdict(stated[at].content), stated[at].at, f"index of the {what}")
        elif not case.survey.damages:
            yield Finding(
                f"an index record of the {what} at byte {at:,}", "none", byte=case.survey.summary_at
            )
    for at in stated.keys() - expected.keys():
        if not case.survey.is_damaged(at, at + 1):
            yield Finding(f"a {what} at byte {at:,}, as its index says", "none", byte=stated[at].at)


def _differences(
    expected: Mapping[str, Any], found: Mapping[str, Any], byte: int, what: str
) -> Iterator[Finding]:
    """One finding for a record some of whose values differ."""
    wrong = [name for name in expected if expected[name] != found.get(name)]
    if wrong:
        yield Finding(f"{what}: {_values(expected, wrong)}", _values(found, wrong), byte=byte)


def _values(values: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {_short(values.get(name))}" for name in names)


def _short(value: object, length: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}..."
