"""From a file that was cut or damaged every whole chunk is saved, and what was lost is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from damage import flipped, places_of, put, records
from doctor_samples import DEPTHS, EXTRA, SentMessage, contents, stock_copy, write_rich
from episode_samples import CAMERAS, LAYOUT, header, read_painting
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.opcode import Opcode
from typer.testing import CliRunner

from dyna_train.cli import app
from dyna_train.doctor import recover as recovery
from dyna_train.doctor.report import examine
from dyna_train.doctor.survey import Survey
from dyna_train.episode.reader import Episode
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.errors import BadInput, EpisodeError, MissingFrame
from dyna_train.video.encode import Quality

NUM_STEPS = 74


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("episode") / "whole.mcap"
    write_rich(path, NUM_STEPS, gaps={"left.wrist": range(9, 31), "top": range(70, 74)})
    return path


def chunk_places(path: Path, group: str) -> list[tuple[int, int]]:
    """First and end byte of the chunks of one group of a healthy file."""
    survey = Survey.open(path)
    groups = {number: channel.metadata["group"] for number, channel in survey.channels.items()}
    return [
        (chunk.record.at, chunk.record.end)
        for chunk in survey.chunks
        if groups[int(chunk.messages["channel"][0])] == group
    ]


def assert_healthy(path: Path) -> None:
    report = examine(path)
    assert list(report.lines()) == [report.summary]


def messages_before(path: Path, cut: int) -> set[SentMessage]:
    """All messages of the chunks that end before byte `cut`."""
    survey = Survey.open(path)
    whole_chunks = [chunk for chunk in survey.chunks if chunk.record.end <= cut]
    return contents(survey, whole_chunks)


@given(data=st.data())
@settings(max_examples=60)
def test_of_a_file_cut_at_any_byte_every_whole_chunk_is_in_the_result(whole, tmp_path_factory, data):
    """At the ends of records, inside each kind of record, and anywhere."""
    healthy = whole.read_bytes()
    kind = data.draw(st.sampled_from(sorted({kind for kind, _, _ in records(healthy)})))
    start, end = data.draw(
        st.sampled_from([(start, end) for one, start, end in records(healthy) if one == kind])
    )
    cut = data.draw(st.sampled_from([start, end]) | st.integers(start, end) | st.integers(0, len(healthy)))
    path = put(tmp_path_factory.mktemp("cut"), healthy[:cut])
    expected = messages_before(whole, cut)
    if not expected:
        with pytest.raises(
            EpisodeError, match=rf"damaged\.mcap: nothing can be saved: .*ends at byte {cut:,}"
        ):
            recovery.recover(path)
        assert list(path.parent.iterdir()) == [path]
        return
    done = recovery.recover(path)
    assert_healthy(done.made.path)
    assert contents(Survey.open(done.made.path)) == expected
    assert done.is_whole == (expected == messages_before(whole, len(healthy)) and not done.records)


def test_a_cut_file_says_what_was_lost_topic_by_topic(whole, tmp_path):
    video = chunk_places(whole, "video")
    path = put(tmp_path, whole.read_bytes()[: video[3][1] - 5])
    done = recovery.recover(path)
    assert done.kept == range(48)
    assert list(done.lines()) == [
        f"{tmp_path}/damaged.recovered.mcap: 48 of 74 steps (1.6 of 2.5 s) of {path}",
        "lost: /camera/top/video: steps 36-73 (1.3 s)",
        "lost: /camera/left.wrist/video: steps 36-73 (1.3 s)",
        "lost: /camera/right_wrist/video: steps 36-73 (1.3 s)",
        "lost: /state/arm: steps 48-73 (0.9 s)",
        "lost: /state/gripper: steps 48-73 (0.9 s)",
        "lost: /action/arm: steps 48-73 (0.9 s)",
        "lost: /depth/top: steps 0-73 (2.5 s)",
        "lost: metadata record dyna.qc",
        f"damaged: byte {video[3][0]:,}: file ends at byte {video[3][1] - 5:,}, inside the CHUNK record at byte "
        f"{video[3][0]:,} that needs byte {video[3][1]:,}",
    ]
    with Episode.open(done.made.path) as episode, Episode.open(whole) as old:
        assert episode.header.quality == {"recovered": "steps 0-47 of 74"}
        assert (episode.header.task, episode.header.versions) == (old.header.task, old.header.versions)
        assert episode.layout == old.layout
        assert np.array_equal(episode.state_TD, old.state_TD[:48])
        assert np.array_equal(episode.frames("top", range(36)), old.frames("top", range(36)))
        with pytest.raises(MissingFrame, match="top"):
            episode.frames("top", [36])


def test_video_behind_a_damaged_chunk_is_kept_and_the_gap_recorded(whole, tmp_path):
    start, end = chunk_places(whole, "video")[1]
    done = recovery.recover(put(tmp_path, flipped(whole.read_bytes(), end - 20)))
    assert_healthy(done.made.path)
    assert (done.kept, done.records) == (range(74), ())
    assert done.lost == {camera.topic: (range(12, 24),) for camera in CAMERAS}
    assert done.damages == (f"byte {start:,}: a chunk of group video: its crc32 differs",)
    with Episode.open(done.made.path) as episode, Episode.open(whole) as old:
        kept = [*range(12), *range(24, 74)]
        assert np.array_equal(episode.frames("right_wrist", kept), old.frames("right_wrist", kept))
        assert episode.header.quality == {**old.header.quality, "recovered": "steps 0-73 of 74"}
        with pytest.raises(MissingFrame, match="right_wrist"):
            episode.frames("right_wrist", [12])


@pytest.mark.parametrize(("block", "kept"), [(0, range(24, 74)), (1, range(48, 74)), (3, range(72))])
def test_the_longest_stretch_with_state_is_kept(whole, tmp_path, block, kept):
    start, end = chunk_places(whole, "state")[block]
    done = recovery.recover(put(tmp_path, flipped(whole.read_bytes(), (start + end) // 2)))
    assert_healthy(done.made.path)
    assert done.kept == kept
    assert ("shifted: step" in "\n".join(done.lines())) == (kept.start > 0)
    with Episode.open(done.made.path) as episode, Episode.open(whole) as old:
        assert np.array_equal(episode.state_TD, old.state_TD[kept.start : kept.stop])
        steps = np.arange(60, 70)
        frames = episode.frames("top", steps - kept.start)
        assert np.array_equal(frames, old.frames("top", steps))
        assert [read_painting(frame)[0] for frame in frames] == steps.tolist()
        new_ns, old_ns = episode.capture_ns("/state/arm"), old.capture_ns("/state/arm")
        assert np.array_equal(new_ns, old_ns[kept.start : kept.stop])


def test_a_damaged_header_is_replaced_by_the_copy_at_the_other_end(whole, tmp_path):
    """Channels stand twice, and so do the metadata records that say whose file it is."""
    data = whole.read_bytes()
    channel, _ = places_of(data, Opcode.CHANNEL)[0]
    episode_record, _ = places_of(data, Opcode.METADATA)[5]
    for number, place in enumerate((channel + 16, channel + 5, episode_record + 60, episode_record + 11)):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = recovery.recover(put(folder, flipped(data, place)))
        assert_healthy(done.made.path)
        assert contents(Survey.open(done.made.path)) == contents(Survey.open(whole))
        with Episode.open(done.made.path) as episode, Episode.open(whole) as old:
            assert episode.header == old.header


def test_a_topic_whose_channel_is_lost_is_named_by_its_number(whole, tmp_path):
    data = whole.read_bytes()
    start, _ = places_of(data, Opcode.CHANNEL)[3]
    cut = chunk_places(whole, "video")[1][1]
    done = recovery.recover(put(tmp_path, flipped(data[:cut], start)))
    assert_healthy(done.made.path)
    assert done.lost["channel 4"] == (range(24),)


def test_a_whole_file_is_copied_and_nothing_is_lost(whole, tmp_path):
    out = tmp_path / "copy.mcap"
    done = recovery.recover(whole, out)
    assert (done.is_whole, done.lost, done.damages) == (True, {}, ())
    assert contents(Survey.open(out)) == contents(Survey.open(whole))
    with Episode.open(out) as episode, Episode.open(whole) as old:
        assert episode.extra_topics() == old.extra_topics() == (EXTRA,)
    again = recovery.recover(out, tmp_path / "again.mcap")
    assert again.made.path.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("vectors", [True, False])
def test_a_cut_copy_of_another_tool_is_saved_too(whole, tmp_path, vectors):
    source = whole
    if not vectors:
        source = tmp_path / "cameras.mcap"
        write_rich(source, 50, vectors=(), depths=())
    stock, out = tmp_path / "stock.mcap", tmp_path / "out.mcap"
    stock_copy(source, stock, chunk_size=2000)
    with pytest.raises(
        EpisodeError, match=r"stock\.mcap: nothing can be saved: no whole metadata record dyna\.ep"
    ):
        recovery.recover(cut(stock, 9000), out)
    stock_copy(source, stock, chunk_size=2000, metadata_first=True)
    expected = messages_before(stock, 9000)
    done = recovery.recover(cut(stock, 9000), out)
    assert_healthy(out)
    assert contents(Survey.open(out)) >= {one for one in expected if one.step < len(done.kept)}


def cut(path: Path, size_bytes: int) -> Path:
    path.write_bytes(path.read_bytes()[:size_bytes])
    return path


@given(data=st.data())
@settings(max_examples=30)
def test_a_gop_that_lost_its_keyframe_or_its_middle_is_not_kept_behind_the_hole(
    whole, tmp_path_factory, data
):
    """Other tools cut chunks inside GOPs; what is saved decodes, and to the same pictures."""
    folder = tmp_path_factory.mktemp("holes")
    stock = folder / "damaged.mcap"
    stock_copy(whole, stock, chunk_size=data.draw(st.integers(300, 3000)), attachments=True)
    places = places_of(stock.read_bytes(), Opcode.CHUNK)
    _, end = data.draw(st.sampled_from(places[1:]))
    put(folder, flipped(stock.read_bytes(), end - 3))
    done = recovery.recover(stock)
    assert_healthy(done.made.path)
    with Episode.open(done.made.path) as episode, Episode.open(whole) as old:
        for camera in CAMERAS:
            for step in range(episode.num_steps):
                try:
                    frame = episode.frames(camera.name, [step])
                except MissingFrame:
                    continue
                assert np.array_equal(frame, old.frames(camera.name, [step + done.kept.start]))


def test_nothing_is_overwritten(whole, tmp_path):
    path = put(tmp_path, whole.read_bytes()[:20_000])
    recovery.recover(path)
    with pytest.raises(
        BadInput, match=r"damaged\.recovered\.mcap: exists already; remove it, or name another"
    ):
        recovery.recover(path)
    with pytest.raises(BadInput, match=r"damaged\.mcap: exists already"):
        recovery.recover(path, path)
    assert path.read_bytes() == whole.read_bytes()[:20_000]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"", "none of its 0 chunks is whole (file ends at byte 0"),
        (lambda data: b"RIFF" * 99, "none of its 0 chunks is whole (b'RIFFRIFF')"),
        (
            lambda data: data.replace(b"dyna.episode", b"dyna.epizode"),
            "no whole metadata record dyna.episode",
        ),
        (
            lambda data: data.replace(b'"group', b'"grouq').replace(b"group\5", b"grouq\5"),
            "neither cameras nor",
        ),
    ],
)
def test_a_file_of_which_nothing_can_be_saved_says_why(whole, tmp_path, damage, reason):
    path = put(tmp_path, damage(whole.read_bytes()))
    with pytest.raises(EpisodeError) as raised:
        recovery.recover(path)
    assert f"{path}: nothing can be saved: " in str(raised.value)
    assert reason in str(raised.value)


def test_the_command_exits_0_whole_1_with_loss_and_prints_json(whole, tmp_path):
    path = put(tmp_path, whole.read_bytes()[: chunk_places(whole, "video")[3][1]])
    done = CliRunner().invoke(app, ["recover", str(path), "--out", str(tmp_path / "a.mcap")])
    assert (done.exit_code, done.stdout.splitlines()[0][:40]) == (
        1,
        f"{tmp_path}/a.mcap: 48 of 74 steps"[:40],
    )
    as_json = CliRunner().invoke(app, ["recover", str(path), "--json"])
    saved = json.loads(as_json.stdout)
    assert (saved["out"], saved["steps"]) == (f"{tmp_path}/damaged.recovered.mcap", [0, 48])
    assert saved["lost"]["/state/arm"] == [[48, 74]]
    healthy = CliRunner().invoke(app, ["recover", str(whole), "--out", str(tmp_path / "b.mcap")])
    assert (healthy.exit_code, len(healthy.stdout.splitlines())) == (0, 1)


@pytest.mark.parametrize("kind", ["cameras", "depths"])
def test_an_episode_that_is_one_gap_is_copied_and_nothing_is_lost(tmp_path, kind):
    tracks = {"cameras": CAMERAS[:1], "depths": DEPTHS}
    described = replace(header(50), **{"cameras": (), "vectors": (), kind: tracks[kind]})
    path = tmp_path / "gap.mcap"
    with EpisodeWriter.create(path, described, LAYOUT, quality=Quality(18), vectors={}) as writer:
        for camera in described.cameras:
            writer.skip_steps(camera.name, 50)
        for depth in described.depths:
            writer.skip_depth(depth.name, 50)
        writer.finish()
    assert not any(chunk.is_unchecked for chunk in Survey.open(path).chunks)
    done = recovery.recover(path)
    assert (done.is_whole, done.kept) == (True, range(50))


def test_a_file_without_chunks_is_pointed_to_regroup(whole, tmp_path):
    stock = tmp_path / "stock.mcap"
    stock_copy(whole, stock, use_chunking=False)
    with pytest.raises(
        EpisodeError, match=r"messages stand outside chunks, .* copy it with: dyna-train regroup"
    ):
        recovery.recover(stock)
