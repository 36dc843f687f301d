"""Damage in a file of every topic group, opened by its footer or by a GOP table: refused, or it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import places_of, put, records
from full_episodes import Script
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.opcode import Opcode

from dyna_train.episode.index import GopTable
from dyna_train.episode.reader import Episode
from dyna_train.episode.span import fetch
from dyna_train.episode.tracks import Tracks
from dyna_train.errors import BadInput, CorruptEpisode, DynaError, EpisodeError, TruncatedEpisode

NUM_STEPS = 26


def reads_of(script: Script) -> dict[str, Callable[[Episode], Any]]:
    """Every read there is, each as small as it can be, so that damage in one does not hide another."""
    reads: dict[str, Callable[[Episode], Any]] = {
        "header": lambda episode: episode.header,
        "events": lambda episode: episode.events(),
        "extra topics": lambda episode: episode.extra_topics(),
    }
    for topic in script.extras:
        reads[topic.topic] = lambda episode, name=topic.topic: list(episode.extra_messages(name))
    for topic in script.header.topics:
        reads[f"capture of {topic}"] = lambda episode, name=topic: episode.capture_ns(name).tolist()
    for start in range(0, NUM_STEPS, 6):
        steps = np.arange(start, min(start + 6, NUM_STEPS))
        reads[f"state of {steps}"] = lambda episode, at=steps: _span(episode, at).state(at).tobytes()
        reads[f"action of {steps}"] = lambda episode, at=steps: _span(episode, at).action(at).tobytes()
        for track in script.header.cameras:
            present = steps[script.has_T[track.topic][steps]]
            reads[f"{track.name} at {steps}"] = lambda episode, at=present, name=track.name: episode.frames(
                name, at
            ).tobytes()
        for track in script.header.depths:
            present = steps[script.has_T[track.topic][steps]]
            reads[f"depth {track.name} at {steps}"] = lambda episode, at=present, name=track.name: (
                _span(episode, at).depth(name, at).tobytes()
            )
    return reads


def _span(episode: Episode, steps: np.ndarray) -> Any:
    (span,) = fetch([episode.plan(state_steps=steps, depth_steps=steps)])
    return span


@pytest.fixture(scope="module")
def right_answers(full, tmp_path_factory) -> dict[str, Any]:
    script, data, _ = full
    with Episode.open(put(tmp_path_factory.mktemp("damaged"), data)) as episode:
        return {name: read(episode) for name, read in reads_of(script).items()}


def open_by_table(path: Path, script: Script, table: bytes) -> Episode:
    tracks = Tracks.from_json(script.header.tracks.to_json())
    return Episode.open_at(path, tracks, GopTable.from_bytes(table, uri=str(path)))


def answers(episode: Episode, script: Script) -> Iterator[tuple[str, Any]]:
    """The answer of every read, or the error it raised."""
    for name, read in reads_of(script).items():
        try:
            yield name, read(episode)
        except DynaError as error:
            yield name, error


def assert_right_or_refused(episode: Episode, full: Any, right_answers: dict[str, Any]) -> None:
    for name, answer in answers(episode, full[0]):
        if isinstance(answer, EpisodeError):
            assert episode.uri in str(answer), name
        else:
            assert answer == right_answers[name], name


@given(data=st.data())
@settings(max_examples=60)
def test_a_flipped_byte_of_any_group_is_refused_or_changes_nothing_whichever_way_the_file_is_opened(
    full, right_answers, tmp_path_factory, data
):
    """Every record is hit alike; with a GOP table at hand the end of the file is not even read."""
    script, whole, table = full
    _, start, end = data.draw(st.sampled_from(records(whole)))
    at = data.draw(st.integers(start, end - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    path = put(tmp_path_factory.mktemp("damaged"), bytes(damaged))
    with open_by_table(path, script, table) as episode:
        assert_right_or_refused(episode, full, right_answers)
    try:
        episode = Episode.open(path)
    except EpisodeError as error:
        assert str(path) in str(error)
        return
    with episode:
        assert_right_or_refused(episode, full, right_answers)


def test_a_cut_file_that_is_opened_by_its_table_gives_what_lies_before_the_cut(full, right_answers, tmp_path):
    script, whole, table = full
    chunks = places_of(whole, Opcode.CHUNK)
    path = tmp_path / "cut.mcap"
    for cut in sorted({cut for start, end in chunks for cut in (start, (start + end) // 2, end - 1, end)}):
        path.write_bytes(whole[:cut])
        with open_by_table(path, script, table) as episode:
            found = dict(answers(episode, script))
            readable = set(_whole_gops(episode.table, cut, script))
        for name, answer in found.items():
            if isinstance(answer, DynaError) and name not in readable:
                assert isinstance(answer, TruncatedEpisode), (cut, name, answer)
                assert str(path) in str(answer)
            else:
                assert answer == right_answers[name], (cut, name)


def _whole_gops(table: GopTable, cut: int, script: Script) -> Iterator[str]:
    """The reads of frames that need nothing behind the byte `cut`."""
    video = table.groups["video"]
    for gop in range(len(video.range_K2)):
        if video.range(gop)[1] <= cut:
            steps = np.array(table.steps_of("video", gop))
            yield from (f"{track.name} at {steps}" for track in script.header.cameras)


@given(data=st.data())
@settings(max_examples=150)
def test_a_flipped_byte_of_a_gop_table_is_refused_or_changes_nothing(
    full, right_answers, tmp_path_factory, data
):
    """It lies in a manifest, far from the file it describes."""
    script, whole, table = full
    damaged = bytearray(table)
    damaged[data.draw(st.integers(0, len(table) - 1))] ^= data.draw(st.integers(1, 255))
    path = put(tmp_path_factory.mktemp("damaged"), whole)
    try:
        episode = open_by_table(path, script, bytes(damaged))
    except CorruptEpisode as error:
        assert f"{path}: GOP table" in str(error)
        return
    with episode:
        assert_right_or_refused(episode, full, right_answers)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"<i8"', b'",i8"'),
        (b'"state.crc":["<u4",[1,', b'"state.crc":["<u4",[9,'),
        (b'"depth.crc":["<u4",[1,', b'"depth.crc":["<u4",[0,'),
        (b'"layout":[6,', b'"layout":[7,'),
        (b'"num_steps":26', b'"num_steps":25'),
    ],
)
def test_a_gop_table_whose_head_was_changed_is_refused(full, tmp_path, old, new):
    _, _, table = full
    assert old in table
    with pytest.raises(CorruptEpisode, match="far: GOP table"):
        GopTable.from_bytes(table.replace(old, new), uri="far")


def test_tracks_of_another_size_are_refused_and_no_frame_is_cropped_to_them(full, tmp_path):
    """Whoever mixes up the tracks of two episodes must not train on a corner of the picture."""
    script, whole, table = full
    path = tmp_path / "full.mcap"
    path.write_bytes(whole)
    tracks = script.header.tracks
    wrong = replace(
        tracks,
        cameras=(replace(tracks.cameras[0], width=32), *tracks.cameras[1:]),
        depths=(replace(tracks.depths[0], height=12), *tracks.depths[1:]),
    )
    steps = np.arange(3)
    with Episode.open_at(path, wrong, GopTable.from_bytes(table, uri="far")) as episode:
        with pytest.raises(CorruptEpisode, match=r"full\.mcap: camera top.* 64x48.* 32x48"):
            episode.frames("top", steps)
        (span,) = fetch([episode.plan(depth_steps=steps)])
        with pytest.raises(CorruptEpisode, match=r"full\.mcap: depth "):
            span.depth("top", steps)


def test_tracks_with_a_role_that_is_none_are_refused(full):
    text = full[0].header.tracks.to_json()
    with pytest.raises(BadInput, match="not the tracks of an episode"):
        Tracks.from_json(text.replace('"role":"state"', '"role":"stats"'))
