"""Checks of our own indexes: the index attachment, the capture times and the sync record say what is there.

Array axes: N cameras in header order, T steps, G GOPs, K chunks of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from mcap.opcode import Opcode
from numpy.typing import NDArray

from dyna_train.doctor.case import Case
from dyna_train.doctor.check import Finding, check
from dyna_train.doctor.checks_chunks import chunk_groups
from dyna_train.doctor.survey import Chunk
from dyna_train.doctor.video import CameraVideo
from dyna_train.episode.arrays import unpack_arrays
from dyna_train.episode.index import CAPTURE_NAME, INDEX_NAME, EpisodeIndex
from dyna_train.episode.profile import (
    DEPTH_GROUP,
    MISSING_NS,
    RECORD_SYNC,
    STATE_GROUP,
    EpisodeHeader,
    grid_times_ns,
)
from dyna_train.episode.stretches import steps_at
from dyna_train.episode.sync import sync_record
from dyna_train.episode.tracks import CameraTrack
from dyna_train.errors import CorruptEpisode


@check("index.attachment")
def index_attachment(case: Case) -> Iterator[Finding]:
    """The index is there, stands last before the summary, and counts the steps and cameras of the header."""
    survey, index = case.survey, case.index
    if index is None:
        absent = INDEX_NAME not in survey.attachments
        if not (absent and survey.damages):
            yield Finding(f"attachment {INDEX_NAME}", case.index_problem.removeprefix("index attachment: "))
        return
    last = survey.of_kind(Opcode.ATTACHMENT)[-1]
    if last.content.name != INDEX_NAME:
        yield Finding(f"{INDEX_NAME} as the last attachment", last.content.name, byte=last.at)
    if case.header is None:
        return
    expected = (case.header.num_steps, len(case.header.cameras))
    found = (index.num_steps, len(index.frame_bytes_NT))
    if found != expected and not survey.damages:
        what = "index of {} steps and {} cameras".format(*expected)
        yield Finding(what, "{} steps and {} cameras".format(*found))
    if case.end_crc != index.metadata_crc and not survey.damages:
        what = f"metadata records with crc32 {index.metadata_crc:08x}, as the index says"
        yield Finding(what, f"{case.end_crc:08x}")


@check("index.chunks")
def index_chunks(case: Case) -> Iterator[Finding]:
    """The chunk tables of the index name every chunk on the grid, its place and its steps."""
    index, survey = case.index, case.survey
    if index is None:
        return
    by_place = {chunk.record.at: chunk for chunk in survey.chunks}
    named = set()
    for group, table in index.chunks.items():
        rows = zip(
            table.offset_K.tolist(),
            table.length_K.tolist(),
            table.first_step_K.tolist(),
            table.num_steps_K.tolist(),
            strict=True,
        )
        for at, length, first, num_steps in rows:
            chunk = by_place.get(at)
            named.add(at)
            if chunk is None:
                if not survey.is_damaged(at, at + length) and at < len(survey.data):
                    yield Finding(f"a {group} chunk at byte {at:,}, as the index says", "none", byte=at)
            elif not chunk.problem:
                yield from _row(case, chunk, group, length, range(first, first + num_steps))
    for at, chunk in by_place.items():
        if at not in named:
            yield Finding("a chunk that the index names", "one that it does not", byte=chunk.record.at)


def _row(case: Case, chunk: Chunk, group: str, length: int, steps: range) -> Iterator[Finding]:
    """One chunk against its row of the index. Groups that are not on the grid have no steps."""
    at = chunk.record.at
    if chunk.record.end - at != length:
        found = f"{chunk.record.end - at:,}"
        yield Finding(f"a chunk of {length:,} bytes, as the index says", found, byte=at)
    groups = chunk_groups(case, chunk)
    if groups and groups != [group]:
        found = ", ".join(name or "none" for name in groups)
        yield Finding(f"a chunk of group {group}, as the index says", found, byte=at)
    sequence = chunk.messages["sequence"]
    outside = sequence[(sequence < steps.start) | (sequence >= steps.stop)] if len(steps) else sequence[:0]
    if len(outside):
        what = f"steps {steps.start}-{steps.stop - 1} in the chunk, as the index says"
        yield Finding(what, "others", steps=steps_at(outside), byte=at)


@check("index.frames")
def index_frames(case: Case) -> Iterator[Finding]:
    """The index finds the H.264 bytes of every frame, and knows where there is none."""
    packed = {chunk.record.at for chunk in case.survey.chunks if chunk.raw.compression}
    for number, track, video, index in _indexed_cameras(case):
        stated_T2 = np.concatenate([index.frame_ranges(number, gop) for gop in range(index.num_gops)])
        frames = [one for one in video.frames if one.step < index.num_steps and one.byte not in packed]
        found_T2 = np.stack([stated_T2[:, 0]] * 2, axis=1)  # no bytes where there is no frame
        for frame in frames:
            found_T2[frame.step] = frame.byte, frame.byte + frame.size_bytes
        wrong_T = (found_T2 != stated_T2).any(axis=1)
        lost_T = found_T2[:, 0] == found_T2[:, 1]
        for step in np.flatnonzero(wrong_T & lost_T).tolist():
            start, end = stated_T2[step].tolist()
            if len(frames) < len(video.frames) or case.survey.is_damaged(start, end):
                wrong_T[step] = False  # its chunk is compressed or damaged, and that is said elsewhere
        for run in steps_at(np.flatnonzero(wrong_T)):
            expected, found = (_bytes_text(*places[run.start].tolist()) for places in (stated_T2, found_T2))
            yield Finding(f"{expected}, as the index says", found, topic=track.topic, steps=(run,))


def _bytes_text(start: int, end: int) -> str:
    return f"a frame at bytes {start:,}-{end:,}" if end > start else "no frame"


@check("index.crcs")
def index_crcs(case: Case) -> Iterator[Finding]:
    """The index has the checksum of every GOP of every camera, and of every state block and depth chunk."""
    for number, track, video, index in _indexed_cameras(case):
        for gop in range(index.num_gops):
            stated = int(index.gop_crc_NG[number, gop])
            crc = video.gop_crcs.get(gop, 0)
            if crc != stated and not (gop not in video.gop_crcs and case.survey.damages):
                expected = f"crc32 {stated:08x}, as the index says"
                yield Finding(expected, f"{crc:08x}", topic=track.topic, gop=gop)
    if case.index is None:
        return
    by_place = {chunk.record.at: chunk for chunk in case.survey.chunks}
    crcs = {STATE_GROUP: case.index.block_crc_K, DEPTH_GROUP: case.index.depth_crc_K}
    for group, crc_K in crcs.items():
        places = case.index.chunks[group].offset_K.tolist() if group in case.index.chunks else []
        for at, stated in zip(places, crc_K.tolist(), strict=False):
            chunk = by_place.get(at)
            if chunk is not None and not chunk.problem and chunk.crc != stated:
                what = f"{group} chunk with crc32 {stated:08x}, as the index says"
                yield Finding(what, f"{chunk.crc:08x}", byte=at)


@check("capture.times")
def capture_times(case: Case) -> Iterator[Finding]:
    """The capture attachment says when every step was captured: what publish_time says, grid time aside."""
    survey, header = case.survey, case.header
    attachment = survey.attachments.get(CAPTURE_NAME)
    if attachment is None:
        if not survey.damages:
            yield Finding(f"attachment {CAPTURE_NAME}", "none")
        return
    if len(set(survey.crc_of(attachment))) > 1:
        return  # which is said already
    try:
        _, stated = unpack_arrays(attachment.content.data, what=CAPTURE_NAME)
    except CorruptEpisode as error:
        yield Finding(f"readable attachment {CAPTURE_NAME}", str(error))
        return
    if header is None or not _is_countable(case):
        return
    grid_T = grid_times_ns(header.start_ns, header.rate_hz, header.num_steps)
    for topic, capture_T in _capture_ns(case, header).items():
        found_T, skew_T = stated.get(topic), capture_T - grid_T
        if not survey.is_sound and found_T is not None and found_T.shape == skew_T.shape:
            skew_T = np.where(capture_T == MISSING_NS, found_T, skew_T)  # it may have been there
        if found_T is None or found_T.shape != skew_T.shape:
            found = "none" if found_T is None else f"{found_T.shape[0]:,}"
            yield Finding(f"{len(skew_T):,} capture times", found, topic=topic)
        elif (found_T != skew_T).any():
            wrong = np.flatnonzero(found_T != skew_T)
            first = int(wrong[0])
            what = f"{_capture_text(int(skew_T[first]), int(grid_T[first]))}, as publish_time says"
            stated_text = _capture_text(int(found_T[first]), int(grid_T[first]))
            yield Finding(what, stated_text, topic=topic, steps=steps_at(wrong))


def _capture_text(skew_ns: int, grid_ns: int) -> str:
    return "no frame" if skew_ns + grid_ns == MISSING_NS else f"capture {skew_ns} ns after grid time"


@check("sync.record")
def capture_distance(case: Case) -> Iterator[Finding]:
    """The sync record says how far capture lies from the grid, and where a camera has no frames."""
    stated, header = case.survey.metadata.get(RECORD_SYNC), case.header
    if stated is None or header is None or not (case.survey.is_sound and _is_countable(case)):
        return
    grid_T = grid_times_ns(header.start_ns, header.rate_hz, header.num_steps)
    expected = sync_record(header.tracks, _capture_ns(case, header), grid_T)
    for key in sorted(expected.keys() | stated.keys()):
        if expected.get(key) != stated.get(key):
            topic, _, name = key.rpartition(".")
            yield Finding(f"{name} {expected.get(key, 'none')}", stated.get(key, "none"), topic=topic)


def _indexed_cameras(case: Case) -> Iterator[tuple[int, CameraTrack, CameraVideo, EpisodeIndex]]:
    """Number, track, video and index of every camera, if header and index agree on them."""
    if case.header is not None and case.index is not None:
        cameras = case.header.cameras
        if len(case.index.frame_bytes_NT) == len(cameras):
            for number, track in enumerate(cameras):
                yield number, track, case.videos[track.topic], case.index


def _is_countable(case: Case) -> bool:
    """True if the number of steps can be right: a damaged one must not fill the memory."""
    header = case.header
    return header is not None and case.index is not None and case.index.num_steps == header.num_steps


def _capture_ns(case: Case, header: EpisodeHeader) -> Mapping[str, NDArray[np.int64]]:
    """By topic publish_time of every step, int64 [T] ns, MISSING_NS in a gap."""
    capture_ns = {}
    for topic in header.topics:
        capture_T = np.full(header.num_steps, MISSING_NS, np.int64)
        messages = case.of_topic(topic)
        inside = messages[messages["sequence"] < header.num_steps]
        capture_T[inside["sequence"]] = inside["publish_ns"]
        capture_ns[topic] = capture_T
    return capture_ns
