"""Checks of the video: what each message holds, where the keyframes stand, whether it decodes."""

from __future__ import annotations

from collections.abc import Iterator

from dyna_train.doctor.case import Case
from dyna_train.doctor.check import Finding, check
from dyna_train.doctor.video import CameraVideo, Frame
from dyna_train.episode.stretches import at_step
from dyna_train.episode.tracks import CameraTrack
from dyna_train.errors import CorruptEpisode
from dyna_train.video.decode import decode_gop
from dyna_train.video.nal import BadBitstream
from dyna_train.video.sps import parse_sps, plain_pictures

FORMAT = "h264"


@check("video.message")
def video_messages(case: Case) -> Iterator[Finding]:
    """Every message of a camera is H.264 under its camera's name, taken at its publish_time."""
    for topic, video in case.videos.items():
        for step, byte, why in video.unreadable:
            yield Finding("a foxglove.CompressedVideo", why, topic=topic, steps=at_step(step), byte=byte)
        name = topic.split("/")[2]
        for frame in video.frames:
            if frame.format != FORMAT:
                yield _of(topic, frame, f"format {FORMAT}", repr(frame.format))
            if frame.frame_id != name:
                yield _of(topic, frame, f"frame_id {name}", repr(frame.frame_id))
            if frame.timestamp_ns != frame.publish_ns:
                off_ns = frame.timestamp_ns - frame.publish_ns
                yield _of(topic, frame, "timestamp as publish_time", f"{off_ns} ns off")


@check("video.nal")
def nal_structure(case: Case) -> Iterator[Finding]:
    """One message is one frame in Annex B, and no frame waits for a later one: I and P slices only."""
    for topic, video in case.videos.items():
        for frame in video.frames:
            if frame.problem:
                yield _of(topic, frame, "Annex B NAL units", frame.problem)
                continue
            if frame.num_frames != 1:
                yield _of(topic, frame, "one frame in a message", f"{frame.num_frames}")
            if set(frame.kinds) - set("IP"):
                yield _of(topic, frame, "I and P slices only", f"{frame.kinds} slices")


@check("video.gop")
def gop_structure(case: Case) -> Iterator[Finding]:
    """A GOP begins with an IDR picture with SPS and PPS and has no other; each frame follows the one before it."""
    for topic, video in case.videos.items():
        gop, last = case.gops[topic], -1
        for frame in video.frames:
            starts, last = frame.step // gop != last, frame.step // gop
            if frame.problem:
                continue
            if starts and not frame.is_idr:
                yield _of(topic, frame, f"an IDR picture first in a GOP of {gop} steps", "none")
            elif starts and not frame.has_parameter_sets:
                yield _of(topic, frame, "SPS and PPS before the IDR picture", "not both")
            elif not starts and frame.is_idr:
                yield _of(topic, frame, f"an IDR picture only first in a GOP of {gop} steps", "one inside it")
            elif frame.break_:
                yield _of(topic, frame, "every picture that it is predicted from", frame.break_)


@check("video.size")
def picture_size(case: Case) -> Iterator[Finding]:
    """The SPS says the channel's size, and pictures as every reader shows them: 4:2:0, 8 bit, limited range."""
    for track, video in _tracks(case):
        for frame in video.frames:
            if not frame.sps:
                continue
            try:
                sps = parse_sps(frame.sps)
            except BadBitstream as error:
                yield _of(track.topic, frame, "a readable SPS", str(error))
                continue
            expected = plain_pictures(track.width, track.height)
            if sps.pictures != expected:
                yield _of(track.topic, frame, f"SPS with {expected}", f"SPS with {sps.pictures}")


@check("video.decode")
def first_gop_decodes(case: Case) -> Iterator[Finding]:
    """The first GOP of each camera decodes: one picture for each message, of the right size."""
    for track, video in _tracks(case):
        if not video.frames:
            continue
        first, size = video.frames[0], (track.width + track.width % 2, track.height + track.height % 2)
        try:
            pictures = list(decode_gop(video.first_gop, what=f"GOP {first.step // case.gops[track.topic]}"))
        except CorruptEpisode as error:
            yield _of(track.topic, first, f"{len(video.first_gop)} pictures from the first GOP", str(error))
            continue
        wrong = [(one.width, one.height) for one in pictures if (one.width, one.height) != size]
        if wrong:
            yield _of(track.topic, first, f"pictures of {size[0]}x{size[1]}", f"{wrong[0][0]}x{wrong[0][1]}")


def _tracks(case: Case) -> Iterator[tuple[CameraTrack, CameraVideo]]:
    for track in case.header.cameras if case.header else ():
        yield track, case.videos[track.topic]


def _of(topic: str, frame: Frame, expected: str, found: str) -> Finding:
    return Finding(expected, found, topic=topic, steps=at_step(frame.step), byte=frame.byte)
