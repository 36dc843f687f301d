"""A file that another tool rewrote gets its layout back, and nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from damage import flipped, put
from doctor_samples import EXTRA, contents, found, stock_copy, write_rich
from episode_samples import CAMERAS
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from typer.testing import CliRunner

from dyna_train.cli import app
from dyna_train.doctor import regroup as regrouping
from dyna_train.doctor.report import examine
from dyna_train.doctor.survey import Survey
from dyna_train.episode.foreign_episode import ForeignEpisode
from dyna_train.episode.open import open_episode
from dyna_train.episode.reader import Episode
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """As our writer makes it from packets, so that writing it again gives the same bytes."""
    folder = tmp_path_factory.mktemp("episode")
    write_rich(folder / "encoded.mcap", gaps={"left.wrist": range(9, 31)})
    return regrouping.regroup(folder / "encoded.mcap", folder / "whole.mcap").made.path


@given(
    chunk_size=st.integers(200, 40_000),
    compression=st.sampled_from(list(CompressionType)),
    by_time=st.booleans(),
    use_chunking=st.booleans(),
    enable_crcs=st.booleans(),
    keeps_sequence=st.booleans(),
)
@settings(max_examples=25)
def test_whatever_a_tool_made_of_it_the_same_file_comes_back(
    whole, tmp_path_factory, chunk_size, compression, by_time, use_chunking, enable_crcs, keeps_sequence
):
    """Byte for byte, where the tool kept the attachments, which know the layout."""
    folder = tmp_path_factory.mktemp("stock")
    stock_copy(
        whole,
        folder / "stock.mcap",
        chunk_size=chunk_size,
        compression=compression,
        by_time=by_time,
        use_chunking=use_chunking,
        enable_crcs=enable_crcs,
        attachments=True,
        messages=lambda name, one: one if keeps_sequence or name == "/imu" else replace(one, sequence=0),
    )
    assert examine(folder / "stock.mcap").level == "fault"
    done = regrouping.regroup(folder / "stock.mcap")
    assert done.made.path == folder / "stock.regrouped.mcap"
    assert done.made.path.read_bytes() == whole.read_bytes()


def test_without_the_attachments_content_is_the_same_and_the_layout_a_good_one(whole, tmp_path):
    stock = tmp_path / "stock.mcap"
    stock_copy(whole, stock)
    done = regrouping.regroup(stock)
    assert found(done.made.path) == {}
    assert contents(Survey.open(done.made.path)) == contents(Survey.open(whole))
    with Episode.open(done.made.path) as episode, Episode.open(whole) as old:
        assert episode.header == old.header
        assert episode.extra_topics() == old.extra_topics() == (EXTRA,)
        assert episode.layout.gop == old.layout.gop
        assert np.array_equal(episode.state_TD, old.state_TD)
        for topic in old.header.topics:
            assert np.array_equal(episode.capture_ns(topic), old.capture_ns(topic))
        for camera in CAMERAS:
            steps = [step for step in range(50) if camera.name != "left.wrist" or step not in range(9, 31)]
            assert np.array_equal(episode.frames(camera.name, steps), old.frames(camera.name, steps))


def test_an_encoded_file_says_in_its_channels_how_it_was_encoded_also_after_regrouping(tmp_path):
    write_rich(tmp_path / "encoded.mcap")
    done = regrouping.regroup(tmp_path / "encoded.mcap")
    params = [
        Survey.open(path).channels[1].metadata["codec_params"]
        for path in (tmp_path / "encoded.mcap", done.made.path)
    ]
    assert params[1] == params[0]


def test_topics_that_a_tool_added_are_kept_as_extra_ones(whole, tmp_path):
    stock = tmp_path / "stock.mcap"
    stock_copy(whole, stock, channels=lambda one: replace(one, metadata={}) if one.topic == "/imu" else one)
    done = regrouping.regroup(stock)
    assert found(done.made.path) == {}
    assert contents(Survey.open(done.made.path)) == contents(Survey.open(whole))


def test_what_has_no_place_in_an_episode_file_is_named(whole, tmp_path):
    stock = tmp_path / "stock.mcap"
    stock_copy(whole, stock, more_attachments={"notes.txt": b"wobbly"}, more_metadata={"tool": {"by": "me"}})
    done = regrouping.regroup(stock)
    assert done.dropped == ("attachment notes.txt", "metadata record tool")
    assert list(done.lines())[1:] == ["dropped: attachment notes.txt", "dropped: metadata record tool"]


@pytest.mark.parametrize("name", ["dyna.profile", "dyna.versions", "dyna.episode", "dyna.qc"])
def test_a_file_without_our_metadata_is_refused_with_what_is_missing(whole, tmp_path, name):
    stock = tmp_path / "stock.mcap"
    stock_copy(whole, stock, metadata=lambda one, values: None if one == name else values)
    with pytest.raises(
        EpisodeError, match=rf"stock\.mcap: not the messages .*: no metadata record {name}\. Ingest"
    ):
        regrouping.regroup(stock)
    assert list(tmp_path.iterdir()) == [stock]


def test_a_foreign_file_is_refused_with_all_that_is_missing(whole, tmp_path):
    stock = tmp_path / "stock.mcap"
    stock_copy(
        whole,
        stock,
        metadata=lambda name, values: None,
        channels=lambda one: replace(one, metadata={}),
    )
    with pytest.raises(EpisodeError) as raised:
        regrouping.regroup(stock)
    assert "no metadata record dyna.profile; no metadata record dyna.versions" in str(raised.value)
    assert "/camera/top/video: expected group, one of video, state, depth, event, extra, found None" in str(
        raised.value
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda name, one: None if (name, one.sequence) == ("/state/arm", 7) else one,
            "/state/arm: 49 messages",
        ),
        (
            lambda name, one: replace(one, log_time=one.log_time + 1),
            "/camera/top/video: a message at .* ns is on none",
        ),
        (
            lambda name, one: (
                replace(one, log_time=one.log_time // 10**9 * 10**9) if name == "/state/arm" else one
            ),
            "/state/arm: a message at .* is on none of the 50 steps",
        ),
        (
            lambda name, one: replace(one, data=one.data[:-4]) if name == "/state/arm" else one,
            "/state/arm, step 0: 10 bytes that are no dyna.JointVector of 3 floats",
        ),
        (
            lambda name, one: None if (name, one.sequence) == ("/camera/top/video", 12) else one,
            "camera/top/video|camera top",
        ),
    ],
)
def test_a_file_that_is_not_a_whole_episode_is_refused_and_nothing_is_written(whole, tmp_path, change, text):
    stock = tmp_path / "stock.mcap"
    stock_copy(whole, stock, messages=change)
    with pytest.raises((EpisodeError, BadInput), match=text):
        regrouping.regroup(stock)
    assert list(tmp_path.iterdir()) == [stock]


def test_two_messages_for_one_step_are_refused(whole, tmp_path):
    stock = tmp_path / "stock.mcap"
    stock_copy(whole, stock, repeats=True)
    with pytest.raises(EpisodeError, match="/camera/top/video, step 0: two messages, expected one at most"):
        regrouping.regroup(stock)


@pytest.mark.parametrize("place", [-3, 3000, 25_000])
def test_a_damaged_file_is_refused_and_recover_is_named(whole, tmp_path, place):
    path = put(tmp_path, flipped(whole.read_bytes(), place))
    with pytest.raises(CorruptEpisode, match=r"damaged\.mcap: damaged, first at byte .*: dyna-train recover"):
        regrouping.regroup(path)


def test_the_input_is_never_overwritten(whole, tmp_path):
    stock = tmp_path / "stock.mcap"
    stock_copy(whole, stock)
    before = stock.read_bytes()
    with pytest.raises(
        BadInput, match=r"stock\.mcap: exists already; remove it, or name another place with --out"
    ):
        regrouping.regroup(stock, stock)
    with pytest.raises(BadInput, match=r"memory://.*: a remote file; say with --out where to write"):
        regrouping.regroup("memory://somewhere/stock.mcap")
    assert stock.read_bytes() == before


def test_the_command_says_what_it_wrote(whole, tmp_path):
    stock, out = tmp_path / "stock.mcap", tmp_path / "out.mcap"
    stock_copy(whole, stock)
    done = CliRunner().invoke(app, ["regroup", str(stock), "--out", str(out)])
    assert (done.exit_code, done.stdout) == (0, f"{out}: 50 steps of {stock} in their own layout\n")
    as_json = CliRunner().invoke(app, ["regroup", str(stock), "--json"])
    made = json.loads(as_json.stdout)
    assert (made["file"], made["num_steps"], made["dropped"]) == (str(stock), 50, [])
    assert Path(made["out"]).read_bytes() == out.read_bytes()


def test_regroup_and_the_reader_of_a_rewritten_file_agree_on_what_the_extra_topics_are(whole, tmp_path):
    """Also on a topic that the tool added, which no group of ours claims."""
    with whole.open("rb") as old, (tmp_path / "rewritten.mcap").open("wb") as new:
        reader, writer = make_reader(old), Writer(new)
        writer.start()
        ids = {}
        for schema, channel, message in reader.iter_messages():
            if channel.id not in ids:
                number = writer.register_schema(schema.name, schema.encoding, schema.data) if schema else 0
                ids[channel.id] = writer.register_channel(
                    channel.topic, channel.message_encoding, number, channel.metadata
                )
            writer.add_message(
                ids[channel.id], message.log_time, message.data, message.publish_time, message.sequence
            )
        added = writer.register_channel("/diagnostics", "json", 0, {"from": "the tool", "group": "theirs"})
        writer.add_message(added, message.log_time, b"{}", message.log_time)
        for record in reader.iter_metadata():
            writer.add_metadata(record.name, record.metadata)
        writer.finish()
    regrouping.regroup(tmp_path / "rewritten.mcap", tmp_path / "again.mcap")
    with open_episode(tmp_path / "rewritten.mcap") as found, Episode.open(tmp_path / "again.mcap") as again:
        assert isinstance(found, ForeignEpisode)
        topics = sorted(found.extra_topics(), key=lambda topic: topic.topic)
        assert topics == sorted(again.extra_topics(), key=lambda topic: topic.topic)
        assert ("/diagnostics", {"from": "the tool", "group": "theirs"}) in [
            (t.topic, t.metadata) for t in topics
        ]
        for topic in topics:
            assert list(found.extra_messages(topic.topic)) == list(again.extra_messages(topic.topic))


def test_many_more_steps_than_the_messages_reach_are_refused(tmp_path):
    write_rich(tmp_path / "rich.mcap", vectors=())
    stock = tmp_path / "stock.mcap"
    stock_copy(
        tmp_path / "rich.mcap",
        stock,
        metadata=lambda name, values: (
            {**values, "num_steps": "4000000000"} if name == "dyna.episode" else values
        ),
    )
    text = r"says 4,000,000,000 steps, the messages end before step 50; expected at most 10,000,000 more"
    with pytest.raises(EpisodeError, match=text):
        regrouping.regroup(stock)
