"""A damaged file raises one typed error that names the file and the place; never a wrong frame or value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import places_of, put, records
from episode_samples import CAMERAS, VECTORS, write_painted
from full_episodes import Script, full_script
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.opcode import Opcode
from mcap.writer import CompressionType, Writer

from dyna_train.episode.container import MAGIC
from dyna_train.episode.index import GopTable
from dyna_train.episode.open import open_episode
from dyna_train.episode.reader import Episode
from dyna_train.episode.source import open_source
from dyna_train.episode.span import fetch
from dyna_train.episode.tail import cut_error
from dyna_train.episode.tracks import Tracks
from dyna_train.errors import BadInput, CorruptEpisode, DynaError, EpisodeError, TruncatedEpisode

NUM_STEPS = 26


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("episode") / "whole.mcap"
    write_painted(path, NUM_STEPS, cameras=CAMERAS[:2])
    return path.read_bytes()


@pytest.fixture(scope="module")
def content(whole, tmp_path_factory) -> dict[str, Any]:
    return read_everything(put(tmp_path_factory.mktemp("damaged"), whole))


def read_everything(path: Path) -> dict[str, Any]:
    with Episode.open(path) as episode:
        found = {"header": episode.header, "state": episode.state_TD, "action": episode.action_TA}
        for camera in episode.header.cameras:
            found[camera.topic] = episode.capture_ns(camera.topic)
            found[camera.name] = episode.frames(camera.name, range(episode.num_steps))
        return found


@pytest.mark.parametrize("content", ["plain", "every group"])
def test_a_file_cut_at_any_record_or_inside_one_raises_truncated_and_names_the_byte(
    whole, full, tmp_path, content
):
    whole = whole if content == "plain" else full[1]
    cuts = {0, 5, len(MAGIC), len(whole) - 1}
    for _, start, end in records(whole):
        cuts |= {start, start + 1, start + 9, (start + end) // 2, end - 1}
    path = tmp_path / "cut.mcap"
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        with pytest.raises(TruncatedEpisode, match=rf"cut\.mcap: .*byte {cut:,}"):
            Episode.open(path)


def test_a_cut_inside_a_video_chunk_says_how_many_bytes_it_needs(whole, tmp_path):
    chunks = places_of(whole, Opcode.CHUNK)
    start, end = chunks[1]
    path = tmp_path / "cut.mcap"
    path.write_bytes(whole[: end - 7])
    message = rf"ends at byte {end - 7:,}, inside the CHUNK record at byte {start:,} that needs byte {end:,}"
    with pytest.raises(TruncatedEpisode, match=message):
        Episode.open(path)


@given(data=st.data())
@settings(max_examples=250, deadline=None)
def test_a_flipped_byte_raises_the_typed_error_or_changes_nothing(whole, content, tmp_path_factory, data):
    """Every record is hit alike, however small; a byte that nobody reads may change without harm."""
    _, start, end = data.draw(st.sampled_from(records(whole)))
    at = data.draw(st.integers(start, end - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    path = put(tmp_path_factory.mktemp("damaged"), bytes(damaged))
    try:
        found = read_everything(path)
    except EpisodeError as error:
        assert str(path) in str(error)
        return
    assert found.keys() == content.keys()
    for name, value in content.items():
        assert np.array_equal(found[name], value) if isinstance(value, np.ndarray) else found[name] == value


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def test_a_flipped_byte_of_a_frame_names_camera_and_gop_and_spares_the_others(whole, tmp_path):
    path = tmp_path / "flipped.mcap"
    path.write_bytes(whole)
    with Episode.open(path) as episode:
        first, end = episode.index.frame_ranges(1, 2)[4].tolist()
    path.write_bytes(_flip(whole, (first + end) // 2))
    with Episode.open(path) as episode:
        with pytest.raises(
            CorruptEpisode, match=r"flipped\.mcap: camera left\.wrist, GOP 2 from byte [\d,]+: crc32"
        ):
            episode.frames("left.wrist", [12])  # a frame before the damage: the whole GOP is checked
        assert len(episode.frames("left.wrist", [11, 18])) == 2
        assert len(episode.frames("top", [12])) == 1


def test_a_flipped_byte_of_a_state_block_names_its_steps(whole, tmp_path):
    blocks = places_of(whole, Opcode.CHUNK)
    start, end = blocks[0]
    path = tmp_path / "flipped.mcap"
    path.write_bytes(_flip(whole, (start + end) // 2))
    with (
        Episode.open(path) as episode,
        pytest.raises(CorruptEpisode, match=rf"state block of steps 0-23 from byte {start + 53:,}"),
    ):
        _ = episode.state_TD


@pytest.mark.parametrize(
    ("opcode", "which", "message"),
    [
        (Opcode.METADATA, 5, "the metadata records from byte .* have crc32"),
        (Opcode.ATTACHMENT, 1, "the attachment at byte .* fails its crc32"),
        (Opcode.CHANNEL, -1, "the summary from byte .* has crc32"),
        (Opcode.STATISTICS, 0, "the summary from byte .* has crc32"),
        (Opcode.FOOTER, 0, "the footer names a summary|the summary from byte"),
    ],
)
def test_a_flipped_byte_of_the_tail_names_the_part_that_is_damaged(whole, tmp_path, opcode, which, message):
    places = places_of(whole, opcode)
    start, end = places[which]
    path = tmp_path / "flipped.mcap"
    path.write_bytes(_flip(whole, (start + 9 + end) // 2))
    with pytest.raises(CorruptEpisode, match=rf"flipped\.mcap: {message}"):
        Episode.open(path)


def test_a_damaged_end_magic_is_corruption_not_truncation(whole, tmp_path):
    path = tmp_path / "flipped.mcap"
    path.write_bytes(_flip(whole, len(whole) - 3))
    with pytest.raises(CorruptEpisode, match=rf"the footer before byte {len(whole):,} is damaged"):
        Episode.open(path)


@pytest.mark.parametrize("data", [b"RIFF....WAVEfmt " * 20, b"{}", b"MCAP"])
def test_a_file_that_is_no_mcap_is_called_that(tmp_path, data):
    path = tmp_path / "sound.wav"
    path.write_bytes(data)
    with pytest.raises(EpisodeError, match=r"sound\.wav: not an MCAP file; expected an episode file"):
        Episode.open(path)


@pytest.mark.parametrize("num_messages", [0, 1, 3000])
def test_a_foreign_mcap_is_told_from_an_episode_file(tmp_path, num_messages):
    path = tmp_path / "bag.mcap"
    with path.open("wb") as stream:
        writer = Writer(stream, chunk_size=256, compression=CompressionType.NONE)
        writer.start()
        channel = writer.register_channel("/tf", "json", writer.register_schema("any", "jsonschema", b"{}"))
        for time_ns in range(num_messages):
            writer.add_message(channel, time_ns, b"{}", time_ns)
        writer.finish()
    with pytest.raises(EpisodeError, match=r"bag\.mcap: an MCAP file without the attachment dyna\.index/1"):
        Episode.open(path)


def test_a_file_that_shrank_after_it_was_opened_raises_truncated(whole, tmp_path):
    path = tmp_path / "shrinks.mcap"
    path.write_bytes(whole)
    with Episode.open(path) as episode:
        path.write_bytes(whole[:4000])
        with pytest.raises(
            TruncatedEpisode, match=r"shrinks\.mcap: file ends at byte 4,000, a read needs byte"
        ):
            episode.frames("top", [NUM_STEPS - 1])


def test_a_read_error_of_one_vector_topic_does_not_hide_the_frames(whole, tmp_path):
    assert [track.role for track in VECTORS] == ["state", "state", "action"]
    start = places_of(whole, Opcode.CHUNK)[0][0]
    path = tmp_path / "flipped.mcap"
    path.write_bytes(_flip(whole, start + 100))
    with Episode.open(path) as episode:
        with pytest.raises(CorruptEpisode, match="state block of steps 0-23"):
            episode.vector("/action/arm")
        assert len(episode.frames("top", range(NUM_STEPS))) == NUM_STEPS


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> tuple[Script, bytes, bytes]:
    """An episode with every topic group and with gaps: its script, its bytes, its GOP table."""
    script = full_script(NUM_STEPS)
    made = script.write(tmp_path_factory.mktemp("full") / "full.mcap")
    return script, made.path.read_bytes(), made.gop_table


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
@settings(max_examples=60, deadline=None)
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
@settings(max_examples=150, deadline=None)
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


@pytest.mark.parametrize("num_zeros", [9, 1 << 22])
def test_zeros_behind_a_cut_are_not_walked_but_named(whole, tmp_path, num_zeros):
    data = whole
    start, end = records(data)[2][1:]
    path = put(tmp_path, data[:end] + bytes(num_zeros))
    text = rf"no record at byte {end:,}, which is 0, and no closing magic at the end of the {end + num_zeros:,} bytes"
    for read in (Episode.open, open_episode):
        with pytest.raises(CorruptEpisode, match=text):
            read(path)
    source = open_source(path, None)
    cut_error(source, source.size())
    assert start < end and source.counters.requests < 4
    source.close()


def test_bytes_after_the_closing_magic_are_counted(whole, tmp_path):
    data = whole
    for more in (b"x", bytes(1 << 20)):
        text = rf"{len(more):,} bytes after the closing magic, which ends at byte {len(data):,}"
        for read in (Episode.open, open_episode):
            with pytest.raises(CorruptEpisode, match=text):
                read(put(tmp_path, data + more))
