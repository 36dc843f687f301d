"""Checks of MCAP itself: whole records in their order, checksums, and indexes that say what is there."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from mcap.opcode import Opcode

from dyna_train.doctor.case import Case
from dyna_train.doctor.check import Finding, check
from dyna_train.episode.container import CRC_BYTES

_OUTSIDE = (Opcode.SCHEMA, Opcode.CHANNEL)


@check("record.whole")
def whole_records(case: Case) -> Iterator[Finding]:
    """Records follow one another from the opening to the closing magic."""
    for damage in case.survey.damages:
        yield Finding(damage.expected, damage.found, byte=damage.at)


@check("record.later", level="warning")
def later_parts(case: Case) -> Iterator[Finding]:
    """No record has parts or a kind that this version of the format does not know."""
    for record in case.survey.records:
        if record.trailing:
            what = f"a {record.kind} record without more"
            yield Finding(what, f"{record.trailing:,} bytes after its parts", byte=record.at)
        elif record.content is None and record.opcode != Opcode.MESSAGE:
            yield Finding("records of the format's kinds", f"a private {record.kind} record", byte=record.at)


@check("record.order")
def record_order(case: Case) -> Iterator[Finding]:
    """Header first, schemas and channels before the first chunk, messages in chunks, one data end, a footer."""
    survey = case.survey
    records = survey.records
    if records and records[0].opcode != Opcode.HEADER and not survey.damages:
        yield Finding("a HEADER record first", f"a {records[0].kind} record", byte=records[0].at)
    first_chunk = survey.chunks[0].record.at if survey.chunks else len(survey.data)
    for record in records:
        if record.opcode in _OUTSIDE and first_chunk < record.at < survey.summary_at:
            yield Finding("schemas and channels before the first chunk", f"a {record.kind}", byte=record.at)
    for chunk in survey.chunks:
        if chunk.others:
            kinds = ", ".join(sorted({record.kind for record in chunk.others}))
            yield Finding("messages only in a chunk", f"{kinds} records", byte=chunk.record.at)
    if len(survey.loose):
        at = int(survey.loose[0]["at"])
        yield Finding("every message in a chunk", f"{len(survey.loose):,} outside chunks", byte=at)
    for kind in (Opcode.DATA_END, Opcode.FOOTER):
        count = len(survey.of_kind(kind))
        if count > 1 or (count == 0 and not survey.damages):
            yield Finding(f"one {kind.name} record", f"{count}")


@check("crc.data")
def data_crc(case: Case) -> Iterator[Finding]:
    """The data section has the checksum that its end states."""
    for record in case.survey.of_kind(Opcode.DATA_END)[:1]:
        yield from _crc(record.content.data_section_crc, zlib.crc32(case.survey.data[: record.at]), record.at)


@check("crc.summary")
def summary_crc(case: Case) -> Iterator[Finding]:
    """Summary and footer have the checksum that the footer states."""
    for record in case.survey.of_kind(Opcode.FOOTER)[-1:]:
        start, end = record.content.summary_start, record.end - CRC_BYTES
        if 0 < start <= record.at:
            yield from _crc(record.content.summary_crc, zlib.crc32(case.survey.data[start:end]), record.at)


@check("crc.chunk")
def chunk_crcs(case: Case) -> Iterator[Finding]:
    """Every chunk holds the records that were put into it."""
    for chunk in case.survey.chunks:
        if chunk.problem:
            yield Finding("readable records", chunk.problem, byte=chunk.record.at)
        if chunk.crc != chunk.raw.uncompressed_crc and len(chunk.records()):
            yield from _crc(chunk.raw.uncompressed_crc, chunk.crc, chunk.record.at)


@check("crc.attachment")
def attachment_crcs(case: Case) -> Iterator[Finding]:
    """Every attachment has the checksum it ends with."""
    for record in case.survey.of_kind(Opcode.ATTACHMENT):
        yield from _crc(*case.survey.crc_of(record), record.at, f"of attachment {record.content.name}")


def _crc(stated: int, found: int, byte: int, what: str = "") -> Iterator[Finding]:
    if stated != found:
        expected = f"crc32 {stated:08x}" if stated else "a crc32"
        yield Finding(f"{expected} {what}".rstrip(), f"{found:08x}" if stated else "none stated", byte=byte)
