"""A decoder conceals a picture that was taken out and shows the next ones wrong: frame_num tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doctor_samples import found, stock_copy, write_rich
from episode_samples import LAYOUT, header
from h264_samples import closed, encode, from_memory
from hypothesis import given
from hypothesis import strategies as st
from mcap.records import Message

from dyna_train.doctor.recover import recover
from dyna_train.doctor.regroup import regroup
from dyna_train.episode.foreign_episode import ForeignEpisode
from dyna_train.episode.open import open_episode
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.errors import BadInput, CorruptEpisode
from dyna_train.video.coded import read_facts
from dyna_train.video.copy import copy_fault
from dyna_train.video.encode import Quality
from dyna_train.video.frame_numbers import FrameNumbers
from dyna_train.video.nal import parse_access_unit

TOP = "/camera/top/video"
GOP = 6
PLAIN = closed(GOP, "repeat-headers=1:annexb=1")
GOOD = encode(3 * GOP, PLAIN).packets
BREAK = "a picture before it is absent, or stands twice"


def faults(packets: list[bytes]) -> list[str]:
    numbers = FrameNumbers()
    return [numbers.fault(parse_access_unit(packet)) for packet in packets]


@pytest.mark.parametrize(
    ("num_frames", "settings"),
    [
        (18, PLAIN),
        (18, closed(6, "repeat-headers=1:slices=3")),
        (12, "keyint=6:min-keyint=6:scenecut=0:open-gop=0:bframes=2:b-adapt=0:threads=1:repeat-headers=1"),
        (40, "keyint=infinite:scenecut=0:bframes=0:threads=1:repeat-headers=1:ref=1"),
        (20, "keyint=6:intra-refresh=1:bframes=0:repeat-headers=1:threads=1"),
        (12, closed(6, "repeat-headers=1:interlaced=1")),
    ],
    ids=["plain", "slices", "b-frames", "numbers that wrap", "intra refresh", "fields"],
)
def test_the_pictures_of_a_whole_stream_follow_each_other(num_frames: int, settings: str) -> None:
    assert faults(encode(num_frames, settings).packets) == [""] * num_frames


@given(data=st.data())
def test_pictures_that_were_taken_out_are_told_at_the_next_one_of_their_gop(data: st.DataObject) -> None:
    first = data.draw(st.integers(0, 2)) * GOP
    lost = data.draw(st.integers(1, GOP - 2))
    num_lost = data.draw(st.integers(1, GOP - 1 - lost))
    start = first + lost
    told = faults(GOOD[:start] + GOOD[start + num_lost :])
    assert told[start] == f"frame_num {lost + num_lost}, expected {lost}: {BREAK}"
    assert [place for place, fault in enumerate(told) if fault] == [start]


@given(place=st.integers(0, 2).flatmap(lambda gop: st.integers(gop * GOP + 1, gop * GOP + GOP - 1)))
def test_a_picture_that_stands_twice_is_told(place: int) -> None:
    told = faults([*GOOD[: place + 1], GOOD[place], *GOOD[place + 1 :]])
    assert [here for here, fault in enumerate(told) if fault] == [place + 1]


def test_a_picture_that_no_other_is_predicted_from_is_not_missed() -> None:
    stream = encode(12, "keyint=12:scenecut=0:bframes=1:b-adapt=0:threads=1:repeat-headers=1").packets
    units = [parse_access_unit(packet) for packet in stream]
    free = next(n for n, unit in enumerate(units) if not unit.slices[0].is_reference)
    assert faults(stream[:free] + stream[free + 1 :]) == [""] * 11


def test_a_source_with_a_break_is_not_copied() -> None:
    stream = encode(12, PLAIN)
    packets = stream.packets[:3] + stream.packets[4:]
    broken = replace(stream, packets=packets, pts=stream.pts[:11], keyframes=stream.keyframes[:11])
    facts = read_facts(from_memory(broken))
    fault = copy_fault(facts, np.arange(11), size=(96, 64), most_gop=60)
    assert fault == f"packet 3 has frame_num 4, expected 3: {BREAK}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "e.mcap"
    write_rich(path, gaps={"left.wrist": range(9, 31)})
    return path


@pytest.fixture(scope="module")
def thinned(whole: Path) -> Path:
    """What is left when a tool leaves out two messages."""

    def without(topic: str, message: Message) -> Message | None:
        return None if topic == TOP and message.sequence in (8, 20) else message

    path = whole.with_name("thinned.mcap")
    stock_copy(whole, path, messages=without)
    return path


def test_a_rewritten_file_without_some_frames_never_shows_a_wrong_one(whole: Path, thinned: Path) -> None:
    old = Episode.open(whole).frames("top", range(50))
    episode = open_episode(thinned)
    assert isinstance(episode, ForeignEpisode)
    good = [0, 7, 12, 19, 24, 49]
    assert (episode.frames("top", good) == old[good]).all()
    for step, gop, first, fault in [(9, 1, 9, "3, expected 2"), (23, 3, 21, "3, expected 2")]:
        with pytest.raises(CorruptEpisode, match=f"camera top, GOP {gop}, step {first}: frame_num {fault}"):
            episode.frames("top", [step])
    assert episode.frames("left.wrist", [8, 31]).shape[0] == 2


def test_the_doctor_finds_the_frames_that_were_left_out(thinned: Path) -> None:
    (line,) = found(thinned)["video.gop"]
    assert line.startswith(f"video.gop: {TOP}, steps 9, 21, byte ")
    assert line.endswith(
        f"expected every picture that it is predicted from; found frame_num 3, expected 2: {BREAK}"
    )


def test_regroup_refuses_a_file_without_some_frames(thinned: Path, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=f"top, step 9: frame_num 3, expected 2: {BREAK}. .*dyna-train recover"
    ):
        regroup(thinned, tmp_path / "out.mcap")
    assert list(tmp_path.iterdir()) == []


def test_recover_keeps_what_stands_before_a_break_and_counts_the_rest_of_the_gop_as_lost(
    whole: Path, thinned: Path, tmp_path: Path
) -> None:
    done = recover(thinned, tmp_path / "out.mcap")
    assert not done.is_whole
    assert done.lost == {TOP: (range(9, 12), range(21, 24))}
    assert found(done.made.path) == {}
    kept = [step for step in range(50) if step not in (*range(8, 12), *range(20, 24))]
    with Episode.open(done.made.path) as episode, Episode.open(whole) as old:
        assert np.flatnonzero(episode.has_frame("top")).tolist() == kept
        assert (episode.frames("top", kept) == old.frames("top", kept)).all()


def copied(path: Path, packets: list[Any]) -> None:
    """An episode of one camera whose packets are these."""
    described = header(len(packets), [CameraTrack("c", 96, 64)], ())
    with EpisodeWriter.create(
        path, described, LAYOUT, quality=Quality(18), vectors={}, copied={"c": "a test"}
    ) as writer:
        for number, packet in enumerate(packets):
            writer.add_packet("c", packet, number)
        writer.finish()


@pytest.mark.parametrize(
    ("packets", "message"),
    [
        ([*GOOD[:2], *GOOD[3:6]], f"step 2: frame_num 3, expected 2: {BREAK}"),
        ([*GOOD[:3], GOOD[2], *GOOD[4:]], f"step 3: frame_num 2, expected 3: {BREAK}"),
        ([*GOOD[:2], GOOD[3], GOOD[2]], f"step 2: frame_num 3, expected 2: {BREAK}"),
        (
            encode(6, "keyint=6:scenecut=0:bframes=2:b-adapt=0:threads=1:repeat-headers=1").packets,
            "step 2: expected I and P slices only, found B",
        ),
        (encode(6, PLAIN, size=(128, 96)).packets, "step 0: expected 96x64, .*; found 128x96"),
        (GOOD[:6] + encode(6, PLAIN, size=(64, 48)).packets, "step 6: expected 96x64, .*; found 64x48"),
        (encode(6, PLAIN, pixel_format="yuv422p").packets, "step 0: expected .*; found 96x64, 4:2:2, 8 bit"),
        (encode(6, PLAIN, pixel_format="yuv444p").packets, "step 0: expected .*; found 96x64, 4:4:4, 8 bit"),
        (encode(6, PLAIN, pixel_format="yuv420p10le").packets, "found 96x64, 4:2:0, 10 bit, limited range"),
        (encode(6, PLAIN, pixel_format="gray").packets, "found 96x64, 4:0:0, 8 bit, limited range"),
        (encode(6, PLAIN + ":fullrange=on").packets, "found 96x64, 4:2:0, 8 bit, full range, whole frames"),
        (encode(6, PLAIN + ":interlaced=1").packets, "found 96x64, 4:2:0, 8 bit, limited range, fields"),
        ([None], "step 0: expected the bytes of a frame, found NoneType"),
        ([*GOOD[:3], b""], "step 3: byte 0: expected an Annex B start code"),
    ],
    ids=[
        "left out", "twice", "swapped", "B", "larger", "size changes", "4:2:2", "4:4:4", "10 bit", "grey",
        "full range", "fields", "no bytes", "empty",
    ],
)  # fmt: skip
def test_packets_that_no_reader_would_show_right_are_refused_with_camera_and_step(
    tmp_path: Path, packets: list[Any], message: str
) -> None:
    with pytest.raises(BadInput, match=rf"e\.mcap: camera c, .*{message}"):
        copied(tmp_path / "e.mcap", packets)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_packets_that_keep_the_rules_are_written_whatever_holds_their_bytes(
    tmp_path: Path, kind: type
) -> None:
    copied(tmp_path / "e.mcap", [kind(packet) for packet in GOOD])
    assert found(tmp_path / "e.mcap") == {}
