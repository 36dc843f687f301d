"""Checks of what is in the messages of vectors, depth and events, and of the grid that all topics lie on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from mcap.records import Channel

from dyna_train.doctor.case import Case
from dyna_train.doctor.channel_rules import group_of, is_complete
from dyna_train.doctor.check import Finding, check
from dyna_train.doctor.payload import Payload
from dyna_train.doctor.records import Messages
from dyna_train.doctor.survey import Chunk
from dyna_train.episode.profile import DEPTH_GROUP, EVENT_GROUP, GRID_GROUPS, STATE_GROUP
from dyna_train.episode.schemas import DEPTH_ENCODING, parse_depth, parse_event, vector_head
from dyna_train.episode.stretches import at_step, missing_from, steps_at
from dyna_train.errors import CorruptEpisode


@check("topic.order")
def ascending(case: Case) -> Iterator[Finding]:
    """log_time ascends in every topic on the grid and never falls among events, in file order."""
    for channel in case.channels:
        messages = case.by_channel.get(channel.id)
        if messages is None or group_of(channel) not in (*GRID_GROUPS, EVENT_GROUP):
            continue
        rise_M = np.diff(messages["log_ns"])
        wrong = np.flatnonzero(rise_M <= 0 if group_of(channel) in GRID_GROUPS else rise_M < 0) + 1
        if len(wrong):
            first = messages[wrong[0]]
            found = f"{first['log_ns']} ns after {messages[wrong[0] - 1]['log_ns']} ns"
            yield Finding(
                "log_time that ascends",
                found if len(wrong) == 1 else f"{found}, and {len(wrong) - 1:,} more falls",
                topic=channel.topic,
                steps=at_step(int(first["sequence"])),
                byte=case.byte_of(first),
            )


@check("topic.grid")
def on_the_grid(case: Case) -> Iterator[Finding]:
    """log_time is the grid time of the step that sequence names."""
    if case.header is None:
        return
    for channel in case.channels:
        messages = case.by_channel.get(channel.id)
        if messages is None or group_of(channel) not in GRID_GROUPS:
            continue
        grid_M = case.grid_of(messages["sequence"])
        wrong = np.flatnonzero(messages["log_ns"] != grid_M)
        for run in steps_at(wrong):
            first = messages[run.start]
            yield Finding(
                f"log_time {grid_M[run.start]} ns, the grid time of step {first['sequence']}",
                f"{first['log_ns']} ns",
                topic=channel.topic,
                steps=steps_at(messages["sequence"][run.start : run.stop]),
                byte=case.byte_of(first),
            )


@check("topic.count")
def every_step_once(case: Case) -> Iterator[Finding]:
    """Vectors have one message for every step, cameras and depth at most one, none outside the episode."""
    if case.header is None:
        return
    num_steps = case.header.num_steps
    for channel in case.channels:
        if group_of(channel) not in GRID_GROUPS or not is_complete(channel):
            continue
        messages = case.by_channel.get(channel.id, case.messages[:0])
        steps, count = np.unique(messages["sequence"], return_counts=True)
        if (count > 1).any():
            twice = steps_at(steps[count > 1])
            yield Finding("one message for a step", f"{count.max()}", topic=channel.topic, steps=twice)
        outside = steps[steps >= num_steps]
        if len(outside):
            what = f"steps below {num_steps:,}"
            yield Finding(what, "messages", topic=channel.topic, steps=steps_at(outside))
        if group_of(channel) == STATE_GROUP and case.survey.is_sound:
            missing = missing_from(range(num_steps), steps_at(steps))
            if missing:
                yield Finding("a message for every step", "none", topic=channel.topic, steps=missing)


@check("state.stride")
def constant_stride(case: Case) -> Iterator[Finding]:
    """A state chunk is an array of steps: all vectors in channel order, each record of a topic equally long."""
    channels = [channel for channel in case.channels if group_of(channel) == STATE_GROUP]
    if not all(is_complete(channel) for channel in channels):
        return
    ids = [channel.id for channel in channels]
    for chunk in case.survey.chunks:
        mine = np.isin(chunk.messages["channel"], ids)
        if mine.any():
            yield from _sizes(case, chunk, chunk.messages[mine], channels)
            if mine.all() and not chunk.problem:
                yield from _rows(case, chunk, ids)


def _sizes(case: Case, chunk: Chunk, messages: Messages, channels: list[Channel]) -> Iterator[Finding]:
    """Every message of a topic is one packed field of its floats, nothing else."""
    data = np.frombuffer(chunk.records(), np.uint8)
    for channel in channels:
        head, dim = vector_head(int(channel.metadata["dim"])), int(channel.metadata["dim"])
        topic = messages[messages["channel"] == channel.id]
        right = topic["size"] == len(head) + 4 * dim
        rows, at = np.flatnonzero(right), topic["at"][right]
        heads = data[at[:, None] + np.arange(len(head))]
        right[rows] = (heads == np.frombuffer(head, np.uint8)).all(axis=1)
        if not right.all():
            first = topic[~right][0]
            yield Finding(
                f"{len(head) + 4 * dim} bytes, {dim} packed floats",
                f"{first['size']} bytes of another form",
                topic=channel.topic,
                steps=steps_at(topic["sequence"][~right]),
                byte=chunk.record.at,
            )


def _rows(case: Case, chunk: Chunk, ids: list[int]) -> Iterator[Finding]:
    """The records stand step by step, within a step in channel order, without gaps."""
    messages = chunk.messages
    first, num_steps = int(messages["sequence"][0]), len(messages) // len(ids)
    expected_steps = np.repeat(np.arange(first, first + num_steps), len(ids))
    expected_ids = np.tile(ids, num_steps)
    if len(messages) % len(ids) or (messages["sequence"] != expected_steps).any():
        yield Finding("whole steps one after the other", "another order of steps", byte=chunk.record.at)
    elif (messages["channel"] != expected_ids).any():
        yield Finding("the vectors of a step in channel order", "another order", byte=chunk.record.at)
    elif chunk.others:
        yield Finding("nothing but messages of one length", "other records", byte=chunk.record.at)


@check("depth.message")
def depth_messages(case: Case) -> Iterator[Finding]:
    """A depth message is one picture of the channel's size, in 16 bits, taken at its publish_time."""
    for sent in case.payloads(DEPTH_GROUP):
        metadata = case.survey.channels[sent.channel].metadata
        try:
            image = parse_depth(sent.data)
        except CorruptEpisode as error:
            yield _at(sent, "a foxglove.RawImage", str(error))
            continue
        width, height = int(metadata["width"]), int(metadata["height"])
        expected = (width, height, DEPTH_ENCODING, 2 * width, 2 * width * height)
        found = (image.width, image.height, image.encoding, image.step, len(image.data))
        if found != expected:
            yield _at(sent, f"width, height, encoding, step, bytes {expected}", f"{found}")
        if image.timestamp_ns != sent.publish_ns:
            yield _at(sent, "timestamp as publish_time", f"{image.timestamp_ns - sent.publish_ns} ns off")


@check("event.message")
def event_messages(case: Case) -> Iterator[Finding]:
    """An event is JSON with a name and data."""
    for sent in case.payloads(EVENT_GROUP):
        try:
            parse_event(sent.log_ns, sent.publish_ns, sent.data)
        except CorruptEpisode as error:
            yield replace(_at(sent, "a dyna.Event", str(error)), steps=())


def _at(sent: Payload, expected: str, found: str) -> Finding:
    return Finding(expected, found, topic=sent.topic, steps=at_step(sent.step), byte=sent.byte)
