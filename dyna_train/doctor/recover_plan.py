"""Which steps of a damaged episode file can be saved, topic by topic.

A *whole* chunk is one whose checksum holds. The *reach* of a topic are the steps of which the file still tells
whether they had a frame; so a step within reach that has none is a gap of the camera, and nothing lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from mcap.opcode import Opcode

from dyna_train.doctor.case import Case
from dyna_train.doctor.checks_chunks import chunk_groups
from dyna_train.doctor.records import Messages
from dyna_train.doctor.rewrite import Payloads
from dyna_train.doctor.survey import Chunk
from dyna_train.episode.profile import PROFILE, EpisodeHeader
from dyna_train.episode.schemas import parse_video
from dyna_train.episode.stretches import Stretches, missing_from, steps_at, stretches
from dyna_train.errors import BadInput, CorruptEpisode
from dyna_train.video.frame_numbers import FrameNumbers
from dyna_train.video.nal import AccessUnit, parse_access_unit


def saved_messages(case: Case) -> Messages:
    """The messages of all whole chunks, in file order."""
    whole = [chunk.number for chunk in case.survey.chunks if chunk.is_whole]
    return case.messages[np.isin(case.messages["chunk"], whole)]


def decodable(case: Case, messages: Messages, gop: int) -> Messages:
    """The frames of one camera that a decoder can start from or get to: `messages` has them in step order.

    Of a GOP whose keyframe is lost nothing is left; of one with a hole, or a frame taken out, what stands before
    it. Only files that another tool wrote have such GOPs.
    """
    numbers = FrameNumbers()
    payloads, lost_at = Payloads(case), np.array(list(_lost_places(case)), np.int64)
    keep = np.zeros(len(messages), bool)
    number, place, is_good = -1, 0, False
    for row, message in enumerate(messages):
        unit = _unit_of(payloads.of(message))
        here = case.survey.chunks[int(message["chunk"])].record.at
        if int(message["sequence"]) // gop != number:
            number = int(message["sequence"]) // gop
            is_good = unit is not None and unit.is_idr and unit.has_parameter_sets
        elif ((lost_at > place) & (lost_at < here)).any():
            is_good = False
        is_good = is_good and unit is not None and not numbers.fault(unit)
        keep[row], place = is_good, here
    return messages[keep]


def kept_steps(case: Case, header: EpisodeHeader, messages: Mapping[str, Messages], gop: int) -> range:
    """The longest stretch of steps that have every vector; it starts where a GOP starts. Empty if there is none.

    Without vectors: all steps that the index counts, or where it is lost those up to the last picture; without
    a picture none, unless the file is whole.
    """
    if not header.vectors:
        last = max((int(found["sequence"].max()) + 1 for found in messages.values() if len(found)), default=0)
        return range(
            min(case.index.num_steps, header.num_steps)
            if case.index and (last or case.survey.is_sound)
            else last
        )
    counts: Counter[int] = Counter()
    for track in header.vectors:
        counts.update(messages[track.topic]["sequence"].tolist())
    complete = [step for step, count in counts.items() if count == len(header.vectors)]
    runs = steps_at(np.array(complete, np.int64))
    return max((range(-(-run.start // gop) * gop, run.stop) for run in runs), key=len, default=range(0))


def reach_of(case: Case, header: EpisodeHeader, group: str, messages: Messages) -> Stretches:
    """The steps of which the old file still says whether one topic of `group` had a frame there.

    messages: those of the topic that are saved. As the index says; where it is lost, or the chunks are another
    tool's: the steps between two messages with no lost bytes between them, and those of a chunk of this group.
    """
    if case.index is not None and _is_ours(case) and group in case.index.chunks:
        table = case.index.chunks[group]
        rows = zip(
            table.offset_K.tolist(), table.first_step_K.tolist(), table.num_steps_K.tolist(), strict=True
        )
        whole = {chunk.record.at for chunk in case.survey.chunks if chunk.is_whole}
        named = [range(first, first + num) for at, first, num in rows if at in whole]
        return stretches([*named, *steps_at(messages["sequence"])])
    pure = [chunk.messages["sequence"] for chunk in _whole(case, group)] if _is_ours(case) else []
    hulls = [range(int(steps.min()), int(steps.max()) + 1) for steps in pure]
    return stretches([*hulls, *_between_losses(case, header, messages)])


def lost_steps(header: EpisodeHeader, kept: range, reach: Stretches, undecodable: Stretches) -> Stretches:
    """The steps of the old file that the new one does not have, of a topic with this reach."""
    inside = [range(max(part.start, kept.start), min(part.stop, kept.stop)) for part in reach]
    missing = missing_from(range(header.num_steps), [part for part in inside if len(part)])
    return stretches([*missing, *undecodable])


def _between_losses(case: Case, header: EpisodeHeader, messages: Messages) -> Iterator[range]:
    """From the first to the last step of the messages that lie between two lost places of the file."""
    lost_at = sorted(_lost_places(case))
    places = np.array([chunk.record.at for chunk in case.survey.chunks], np.int64)
    stretch_M = np.searchsorted(lost_at, places[messages["chunk"]])
    for number in np.unique(stretch_M).tolist():
        steps = messages["sequence"][stretch_M == number]
        first = 0 if number == 0 else int(steps.min())
        stop = header.num_steps if number == len(lost_at) else int(steps.max()) + 1
        yield range(first, stop)


def _is_ours(case: Case) -> bool:
    """True if it was our writer that cut the file into chunks."""
    headers = case.survey.of_kind(Opcode.HEADER)
    return bool(headers) and headers[0].content.library == PROFILE


def _lost_places(case: Case) -> Iterator[int]:
    """Where in the file bytes are lost."""
    yield from (damage.at for damage in case.survey.damages)
    yield from (chunk.record.at for chunk in case.survey.chunks if not chunk.is_whole)


def _whole(case: Case, group: str) -> list[Chunk]:
    return [one for one in case.survey.chunks if one.is_whole and chunk_groups(case, one) == [group]]


def _unit_of(payload: memoryview) -> AccessUnit | None:
    """The frame of one message; None for bytes that are none."""
    try:
        return parse_access_unit(parse_video(payload).data)
    except (CorruptEpisode, BadInput):
        return None
