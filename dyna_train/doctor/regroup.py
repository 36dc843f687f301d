"""Restore the layout of an episode file that another tool rewrote: same frames, values, times, metadata."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcap.opcode import Opcode

from dyna_train.doctor.case import Case
from dyna_train.doctor.channels import looks_ours, problems_of
from dyna_train.doctor.rewrite import (
    Content,
    dropped,
    layout_of,
    on_grid,
    other_messages,
    target_path,
    write,
)
from dyna_train.doctor.survey import Survey
from dyna_train.episode.profile import (
    PROFILE,
    RECORD_EPISODE,
    RECORD_PROFILE,
    RECORD_QC,
    RECORD_VERSIONS,
    EpisodeHeader,
)
from dyna_train.episode.writer import EpisodeFile
from dyna_train.errors import CorruptEpisode, EpisodeError

NEEDED_RECORDS = (RECORD_PROFILE, RECORD_VERSIONS, RECORD_EPISODE, RECORD_QC)


@dataclass(frozen=True, slots=True)
class Regrouped:
    """A file whose layout was restored; dropped: what stood in the old one and has no place in an episode."""

    source: str
    made: EpisodeFile
    dropped: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "file": self.source,
            "out": str(self.made.path),
            "sha256": self.made.sha256,
            "num_steps": self.made.num_steps,
            "dropped": list(self.dropped),
        }

    def lines(self) -> Iterator[str]:
        """What was written, in words."""
        yield f"{self.made.path}: {self.made.num_steps:,} steps of {self.source} in their own layout"
        for name in self.dropped:
            yield f"dropped: {name}"


def regroup(uri: str | Path, out: Path | None = None) -> Regrouped:
    """Write the episode at `uri` in its own layout to `out`, by default beside it as `<name>.regrouped.mcap`.

    Raises EpisodeError with what is missing if the file does not hold a whole episode, CorruptEpisode if it is
    damaged, BadInput if the target exists.
    """
    target = target_path(str(uri), out, "regrouped")
    case = Case(Survey.open(uri))
    _check_whole(case.survey)
    missing = list(_missing(case))
    if missing or case.header is None:
        raise EpisodeError(
            f"{uri}: not the messages of an episode file: {'; '.join(missing) or case.header_problem}. Ingest "
            "the recording again, or copy the file with a tool that keeps channels and metadata records"
        )
    made = write(_content(case, case.header), target)
    return Regrouped(str(uri), made, tuple(dropped(case)))


def _check_whole(survey: Survey) -> None:
    """Refuse a file with damage: what is written from it would look healthy."""
    places = [damage.at for damage in survey.damages]
    places += [chunk.record.at for chunk in survey.chunks if not (chunk.is_whole or chunk.is_unchecked)]
    for record in survey.of_kind(Opcode.DATA_END)[:1]:
        stated = record.content.data_section_crc
        if not places and stated and zlib.crc32(survey.data[: record.at]) != stated:
            places.append(record.at)
    if places:
        raise CorruptEpisode(
            f"{survey.uri}: damaged, first at byte {min(places):,} (dyna-train doctor says more); fetch it "
            f"again, or save what is whole: dyna-train recover {survey.uri}"
        )


def _missing(case: Case) -> Iterator[str]:
    """What an episode needs and the file does not have."""
    records = case.survey.metadata
    for name in NEEDED_RECORDS:
        if name not in records:
            yield f"no metadata record {name}"
    found = records.get(RECORD_PROFILE, {})
    if found and f"{found.get('name')}/{found.get('version')}" != PROFILE:
        yield f"expected profile {PROFILE}, found {dict(found)}"
    for number in case.by_channel.keys() - case.survey.channels.keys():
        yield f"messages of channel {number}, which the file does not describe"
    for channel in case.channels:
        if looks_ours(channel):
            for expected, problem in problems_of(channel):
                yield f"{channel.topic}: expected {expected}, found {problem}"


def _content(case: Case, header: EpisodeHeader) -> Content:
    messages = {topic: on_grid(case, header, topic, case.of_topic(topic)) for topic in header.topics}
    for track in header.vectors:
        present = len(messages[track.topic])
        if present != header.num_steps:
            raise EpisodeError(
                f"{case.survey.uri}: {track.topic}: {present:,} messages, expected one for each of "
                f"{header.num_steps:,} steps; ingest the recording again"
            )
    return Content(case, header, layout_of(case, header), messages, other_messages(case, case.messages))
