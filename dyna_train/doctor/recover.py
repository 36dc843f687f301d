"""Save what is whole of an episode file that was cut short or damaged, and say what was lost.

Every chunk whose checksum holds is kept. Steps without state cannot be served, so the new file is the longest
stretch of steps whose vectors are all there; of the cameras it has what there is, and records the gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dyna_train.doctor.case import Case
from dyna_train.doctor.checks_chunks import chunk_groups
from dyna_train.doctor.records import Messages
from dyna_train.doctor.recover_plan import (
    decodable,
    kept_steps,
    lost_steps,
    reach_of,
    saved_messages,
)
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
from dyna_train.episode.profile import (
    DEPTH_GROUP,
    RECORD_EPISODE,
    RECORD_QC,
    RECORD_VERSIONS,
    VIDEO_GROUP,
    EpisodeHeader,
    step_time_ns,
)
from dyna_train.episode.stretches import Stretches, steps_at, steps_text
from dyna_train.errors import EpisodeError

RECOVERED = "recovered"
"""The entry of the quality record that tells a recovered file, and what it kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Rewritten):
    """What was saved of a file, and what was lost.

    kept: steps of the old file that are steps 0, 1, ... of the new one. num_steps: of the old file. lost: by
    topic the steps of the old file that the new one does not have, by channel number where no channel record
    names the topic. records: metadata records that are lost. damages: where the old file is not whole.
    """

    kept: range
    num_steps: int
    rate_hz: float
    lost: Mapping[str, Stretches]
    records: tuple[str, ...]
    damages: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """True if the new file has all that the old one had."""
        return not (self.lost or self.records or self.dropped)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; steps as [first, end) pairs."""
        return {
            **Rewritten.to_dict(self),  # super() does not know a class with slots
            "steps": [self.kept.start, self.kept.stop],
            "num_steps": self.num_steps,
            "rate_hz": self.rate_hz,
            "lost": {topic: [[run.start, run.stop] for run in steps] for topic, steps in self.lost.items()},
            "lost_records": list(self.records),
            "damages": list(self.damages),
        }

    def lines(self) -> Iterator[str]:
        """What was saved and what was lost, in words."""
        second = 1 / self.rate_hz
        yield (
            f"{self.made.path}: {len(self.kept):,} of {self.num_steps:,} steps "
            f"({len(self.kept) * second:.1f} of {self.num_steps * second:.1f} s) of {self.source}"
        )
        if self.kept.start:
            yield f"shifted: step {self.kept.start} is step 0 now; the state before it is lost"
        for topic, steps in self.lost.items():
            yield f"lost: {topic}: {steps_text(steps)} ({sum(map(len, steps)) * second:.1f} s)"
        for name in self.records:
            yield f"lost: metadata record {name}"
        for name in self.dropped:
            yield f"dropped: {name}"
        for damage in self.damages:
            yield f"damaged: {damage}"


def recover(uri: str | Path, out: Path | None = None) -> Recovered:
    """Write every whole chunk of the file at `uri` to `out`, by default `<name>.recovered.mcap` beside it.

    Frames are copied bit for bit. Raises EpisodeError with the reason if nothing can be saved, BadInput if the
    target exists.
    """
    target = target_path(str(uri), out, "recovered")
    case = Case(Survey.open(uri))
    header, saved = _header(case), saved_messages(case)
    placed = {topic: on_grid(case, header, topic, _of(case, topic, saved)) for topic in header.topics}
    layout = layout_of(case, header)
    messages = placed | {
        camera.topic: decodable(case, placed[camera.topic], layout.gop) for camera in header.cameras
    }
    reach = _reach(case, header, placed)
    kept = kept_steps(case, header, messages, layout.gop)
    if not len(kept):
        raise EpisodeError(f"{uri}: nothing can be saved: {_why(case, header)}")
    lost = {}
    for topic, steps in reach.items():
        gone = np.setdiff1d(placed[topic]["sequence"], messages[topic]["sequence"])
        lost[topic] = lost_steps(header, kept, steps, steps_at(gone))
    others = other_messages(case, saved)
    lost |= _left_out(case, header, saved, others)
    lost = {topic: steps for topic, steps in lost.items() if steps}
    records = tuple(name for name in (RECORD_VERSIONS, RECORD_QC) if name not in case.records)
    content = Content(
        old=case,
        header=_shortened(header, kept) if lost or records else header,
        layout=layout,
        messages={topic: _shifted(found, kept) for topic, found in messages.items()},
        others=others,
    )
    return Recovered(
        source=str(uri),
        made=write(content, target),
        kept=kept,
        num_steps=header.num_steps,
        rate_hz=header.rate_hz,
        lost=lost,
        records=records,
        damages=tuple(_damages(case)),
        dropped=tuple(dropped(content)),
    )


def _header(case: Case) -> EpisodeHeader:
    """What the old file says of itself, at its front or its end."""
    uri = case.survey.uri
    if not case.survey.chunks:
        raise EpisodeError(f"{uri}: nothing can be saved: {_why(case, None)}")
    if RECORD_EPISODE not in case.records:
        raise EpisodeError(
            f"{uri}: nothing can be saved: no whole metadata record {RECORD_EPISODE} says which episode it is"
        )
    if case.header is None:
        raise EpisodeError(f"{uri}: nothing can be saved: {case.header_problem}")
    return case.header


def _why(case: Case, header: EpisodeHeader | None) -> str:
    """Why there are no steps."""
    whole = [chunk for chunk in case.survey.chunks if chunk.is_whole]
    damages = case.survey.damages
    first = f" ({damages[0].found})" if damages else ""
    if not case.survey.chunks and len(case.survey.loose):
        return (
            "its messages stand outside chunks, without a checksum to tell what is whole; if the file is not "
            "damaged, copy it with: dyna-train regroup"
        )
    if case.survey.chunks and all(chunk.is_unchecked for chunk in case.survey.chunks):
        return "its chunks have no checksum to tell what is whole; copy it with: dyna-train regroup"
    if not whole:
        return f"none of its {len(case.survey.chunks)} chunks is whole{first}"
    if header is not None and header.vectors:
        return f"no step has all {len(header.vectors)} vectors{first}"
    return f"no frame is whole{first}"


def _of(case: Case, topic: str, saved: Messages) -> Messages:
    ids = [channel.id for channel in case.channels if channel.topic == topic]
    return saved[np.isin(saved["channel"], ids)]


def _reach(case: Case, header: EpisodeHeader, placed: Mapping[str, Messages]) -> dict[str, Stretches]:
    """By topic the steps of which the old file still tells what was there; a vector has every step."""
    reach = {track.topic: steps_at(placed[track.topic]["sequence"]) for track in header.vectors}
    for group, tracks in ((VIDEO_GROUP, header.cameras), (DEPTH_GROUP, header.depths)):
        reach |= {track.topic: reach_of(case, header, group, placed[track.topic]) for track in tracks}
    return {topic: reach[topic] for topic in header.topics}


def _left_out(case: Case, header: EpisodeHeader, saved: Messages, others: Messages) -> dict[str, Stretches]:
    """The steps of channels whose record is lost, or does not say what a reader needs."""
    topics = {channel.id: channel.topic for channel in case.channels}
    taken = [number for number, topic in topics.items() if topic in header.topics]
    left = saved[~np.isin(saved["channel"], [*taken, *np.unique(others["channel"])])]
    return {
        topics.get(number, f"channel {number}"): steps_at(left[left["channel"] == number]["sequence"])
        for number in np.unique(left["channel"]).tolist()
    }


def _damages(case: Case) -> Iterator[str]:
    """Where the old file is not whole, in file order."""
    found = [(one.at, one.found) for one in case.survey.damages]
    for chunk in case.survey.chunks:
        if not chunk.is_whole:
            groups = " and ".join(name or "unknown" for name in chunk_groups(case, chunk)) or "unknown"
            found.append(
                (chunk.record.at, f"a chunk of group {groups}: {chunk.problem or 'its crc32 differs'}")
            )
    yield from (f"byte {at:,}: {what}" for at, what in sorted(found))


def _shortened(header: EpisodeHeader, kept: range) -> EpisodeHeader:
    """The header of the new file, which says that it was recovered."""
    return replace(
        header,
        start_ns=step_time_ns(header.start_ns, header.rate_hz, kept.start),
        num_steps=len(kept),
        quality={**header.quality, RECOVERED: f"steps {kept.start}-{kept.stop - 1} of {header.num_steps}"},
    )


def _shifted(messages: Messages, kept: range) -> Messages:
    """The messages of the steps that are kept, with their new steps."""
    steps = messages["sequence"]
    inside = messages[(steps >= kept.start) & (steps < kept.stop)].copy()
    inside["sequence"] -= kept.start
    return inside
