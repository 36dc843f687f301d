"""Checks of the layout: which messages lie in which chunk."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from dyna_train.doctor.case import Case
from dyna_train.doctor.check import Finding, check
from dyna_train.doctor.survey import Chunk
from dyna_train.episode.profile import STATE_GROUP, VIDEO_GROUP
from dyna_train.episode.stretches import steps_at

_RANK = {STATE_GROUP: 0, VIDEO_GROUP: 1}
"""Within the steps of one state block."""


def chunk_groups(case: Case, chunk: Chunk) -> list[str]:
    """The topic groups whose messages a chunk holds."""
    return sorted({case.groups.get(number, "") for number in np.unique(chunk.messages["channel"]).tolist()})


@check("chunk.channel")
def known_channels(case: Case) -> Iterator[Finding]:
    """Every message belongs to a channel of the file."""
    for number, messages in case.by_channel.items():
        if number not in case.survey.channels:
            what = f"{len(messages):,} messages of channel {number}, which is not there"
            yield Finding("messages of known channels", what, byte=case.byte_of(messages[0]))


@check("chunk.groups")
def one_group_per_chunk(case: Case) -> Iterator[Finding]:
    """No chunk mixes topic groups."""
    for chunk in case.survey.chunks:
        groups = [group or "none" for group in chunk_groups(case, chunk)]
        if len(groups) > 1:
            yield Finding("one topic group in a chunk", ", ".join(groups), byte=chunk.record.at)


@check("chunk.compression")
def chunk_compression(case: Case) -> Iterator[Finding]:
    """Chunks with video are not compressed, so that a range of them can be read; all others are, with zstd."""
    for chunk in case.survey.chunks:
        groups = chunk_groups(case, chunk)
        if not groups:
            continue  # a stretch in which no camera has a frame
        expected = "" if VIDEO_GROUP in groups else "zstd"
        found = chunk.raw.compression
        if found != expected:
            what = f"compression {expected or 'none'} in a chunk of group {groups[-1] or 'none'}"
            yield Finding(what, found or "none", byte=chunk.record.at)


@check("chunk.times")
def chunk_times(case: Case) -> Iterator[Finding]:
    """A chunk states the times of its first and its last message."""
    for chunk in case.survey.chunks:
        times = chunk.messages["log_ns"]
        expected = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        found = (chunk.raw.start_ns, chunk.raw.end_ns)
        if found != expected and not chunk.problem:
            what = f"messages from {expected[0]} to {expected[1]} ns"
            yield Finding(what, f"{found[0]} to {found[1]} ns", byte=chunk.record.at)


@check("chunk.overlap", level="warning")
def chunk_overlap(case: Case) -> Iterator[Finding]:
    """No more chunks overlap in time than there are groups: a reader in time order holds them all."""
    filled = [chunk for chunk in case.survey.chunks if len(chunk.messages)]
    starts = [(chunk.raw.start_ns, 0, 1) for chunk in filled]
    ends = [(chunk.raw.end_ns, 1, -1) for chunk in filled]  # after the starts of the same instant
    depth = max(accumulate(edge for _, _, edge in sorted(starts + ends)), default=0)
    allowed = len({group for chunk in filled for group in chunk_groups(case, chunk)})
    if depth > allowed:
        yield Finding(f"at most {allowed} chunks at any time, one per group", f"{depth}")


@check("chunk.steps")
def chunk_steps(case: Case) -> Iterator[Finding]:
    """A chunk of video or state holds the steps of one stretch of the layout, and a GOP lies in one chunk."""
    for group, length in _stretch_lengths(case).items():
        for chunk in case.survey.chunks:
            steps = chunk.messages["sequence"]
            if chunk_groups(case, chunk) == [group] and len(np.unique(steps // length)) > 1:
                what = f"{group} of one stretch of {length} steps, as the index says"
                found = f"of {len(np.unique(steps // length))}"
                yield Finding(what, found, steps=steps_at(steps), byte=chunk.record.at)
    home: dict[int, int] = {}
    for topic, gop in case.gops.items():
        messages = case.of_topic(topic)
        pairs = {(int(one["sequence"]) // gop, int(one["chunk"])) for one in messages}
        for number, chunk_number in sorted(pairs):
            first = home.setdefault(number, chunk_number)
            if first != chunk_number:
                found = f"in chunks {first} and {chunk_number}"
                yield Finding("a GOP of all cameras in one chunk", found, topic=topic, gop=number)


@check("chunk.order")
def chunk_order(case: Case) -> Iterator[Finding]:
    """State blocks come in order of their steps, and each before the video chunks of its steps."""
    if case.index is None:
        return
    block = case.index.layout.steps_per_block
    last, before = (-1, -1, -1), 0
    for chunk in case.survey.chunks:
        groups = chunk_groups(case, chunk)
        if len(groups) != 1 or groups[0] not in _RANK:
            continue
        first = int(chunk.messages["sequence"].min())
        key = (first // block, _RANK[groups[0]], first)
        if key <= last:
            what = f"{groups[0]} of step {first} before the chunk at byte {before:,}"
            yield Finding(what, "after it", byte=chunk.record.at)
        last, before = max(key, last), chunk.record.at


def _stretch_lengths(case: Case) -> dict[str, int]:
    """Steps of one chunk by group, as the index says."""
    if case.index is None:
        return {}
    layout = case.index.layout
    return {VIDEO_GROUP: layout.steps_per_chunk, STATE_GROUP: layout.steps_per_block}
