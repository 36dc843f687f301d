"""Restore the layout of an episode file that another tool rewrote: same frames, values, times, metadata."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from mcap.opcode import Opcode

from dyna_train.doctor.case import Case
from dyna_train.doctor.channel_rules import problems_of
from dyna_train.doctor.rewrite import (
    Content,
    Rewritten,
    dropped,
    layout_of,
    on_grid,
    other_messages,
    target_path,
    write,
)
from dyna_train.doctor.survey import Survey
from dyna_train.episode.channels import is_extra
from dyna_train.episode.profile import (
    PROFILE,
    RECORD_EPISODE,
    RECORD_PROFILE,
    RECORD_QC,
    RECORD_VERSIONS,
    EpisodeHeader,
)
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError

_MOST_SILENT_STEPS = 10_000_000  # a day at 100 Hz in which no camera had a frame; each takes memory
NEEDED_RECORDS = (RECORD_PROFILE, RECORD_VERSIONS, RECORD_EPISODE, RECORD_QC)


def regroup(uri: str | Path, out: Path | None = None) -> Rewritten:
    """Write the episode at `uri` in its own layout to `out`, by default beside it as `<name>.regrouped.mcap`.

    Raises EpisodeError with what is missing if the file does not hold a whole episode, CorruptEpisode if it is
    damaged, BadInput if the target exists, or naming camera and step if frames were left out or are not ours.
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
    content = _content(case, case.header)
    try:
        made = write(content, target)
    except BadInput as error:  # the writer takes no frame that a reader would show wrong
        raise BadInput(
            f"{uri} cannot be written anew: {error}. Ingest the recording again, or keep what can be shown: "
            f"dyna-train recover {uri}"
        ) from error
    return Rewritten(source=str(uri), made=made, dropped=tuple(dropped(content)))


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
        if not is_extra(channel.topic, channel.metadata):
            for expected, problem in problems_of(channel):
                yield f"{channel.topic}: expected {expected}, found {problem}"


def _content(case: Case, header: EpisodeHeader) -> Content:
    messages = {topic: on_grid(case, header, topic, case.of_topic(topic)) for topic in header.topics}
    reached = max((int(found["sequence"][-1]) + 1 for found in messages.values() if len(found)), default=0)
    if header.num_steps - reached > _MOST_SILENT_STEPS:
        raise EpisodeError(
            f"{case.survey.uri}: {RECORD_EPISODE} says {header.num_steps:,} steps, the messages end before step "
            f"{reached:,}; expected at most {_MOST_SILENT_STEPS:,} more; ingest the recording again"
        )
    for track in header.vectors:
        present = len(messages[track.topic])
        if present != header.num_steps:
            raise EpisodeError(
                f"{case.survey.uri}: {track.topic}: {present:,} messages, expected one for each of "
                f"{header.num_steps:,} steps; ingest the recording again"
            )
    return Content(case, header, layout_of(case, header), messages, other_messages(case, case.messages))
