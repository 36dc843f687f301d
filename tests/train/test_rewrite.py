"""A file that is written anew has all that the old one had; what has no place in it is named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_samples import remade, stock_copy, write_rich
from episode_samples import write_painted
from full_episodes import full_script, scripts
from hypothesis import given, settings
from hypothesis import strategies as st
from look_samples import write_rich as write_looked_at
from mcap.records import Channel

from dyna_train.doctor.recover import recover
from dyna_train.doctor.regroup import regroup
from dyna_train.doctor.survey import Survey
from dyna_train.episode.index import CAPTURE_NAME


def held(path: Path) -> dict[str, Any]:
    """All that a file says, and nothing of where in the file it lies."""
    survey = Survey.open(path)
    messages = defaultdict(list)
    for _, data, batch in survey.batches():
        for at, size, channel, step, log_ns, publish_ns in batch.tolist():
            sent = (step, log_ns, publish_ns, bytes(data[at : at + size]))
            messages[survey.channels[channel].topic].append(sent)
    channels = {}
    for channel in survey.channels.values():
        schema = survey.schemas.get(channel.schema_id)
        described = (schema.name, schema.encoding, schema.data) if schema else None
        channels[channel.topic] = (channel.message_encoding, channel.metadata, described)
    capture = survey.attachments[CAPTURE_NAME].content
    return {
        "messages": messages,
        "channels": channels,
        "records": survey.metadata,
        "capture": (capture.data, capture.media_type, capture.log_time),
        "attachments": set(survey.attachments),
    }


def by_regroup(path: Path) -> Path:
    done = regroup(path)
    assert done.dropped == ()
    return done.made.path


def by_recover(path: Path) -> Path:
    done = recover(path)
    assert (done.is_whole, done.lost, done.records, done.dropped) == (True, {}, (), ())
    return done.made.path


def by_another_tool(path: Path) -> Path:
    stock_copy(path, path.with_name("stock.mcap"), attachments=True, by_time=False)
    return by_regroup(path.with_name("stock.mcap"))


WAYS = (by_regroup, by_recover, by_another_tool)


@given(script=scripts(), way=st.sampled_from(WAYS))
@settings(max_examples=30)
def test_whatever_an_episode_holds_a_rewrite_holds_too(tmp_path_factory, script, way):
    old = script.write(tmp_path_factory.mktemp("rewrite") / "old.mcap").path
    assert held(way(old)) == held(old)


SAMPLES: dict[str, Callable[[Path], object]] = {
    "full": lambda path: full_script().write(path, by_step=True),
    "gaps": lambda path: write_rich(path, gaps={"left.wrist": range(9, 31)}),
    "painted": lambda path: write_painted(path, 70),
    "looked at": write_looked_at,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_rewrite_of_every_sample_holds_the_same(tmp_path, sample, way):
    SAMPLES[sample](tmp_path / "old.mcap")
    assert held(way(tmp_path / "old.mcap")) == held(tmp_path / "old.mcap")


def without_gop(topic: str) -> Callable[[Channel], Channel]:
    """The channel of one camera forgets its GOP."""

    def changed(channel: Channel) -> Channel:
        kept = {
            key: value for key, value in channel.metadata.items() if key != "gop" or channel.topic != topic
        }
        return replace(channel, metadata=kept)

    return changed


def test_a_camera_whose_channel_says_too_little_is_named_among_the_lost(tmp_path):
    write_rich(tmp_path / "old.mcap")
    remade(tmp_path / "old.mcap", tmp_path / "bare.mcap", channels=without_gop("/camera/top/video"))
    done = recover(tmp_path / "bare.mcap")
    assert (done.is_whole, done.lost) == (False, {"/camera/top/video": (range(50),)})


def test_entries_that_the_profile_does_not_have_are_named(tmp_path):
    write_rich(tmp_path / "old.mcap")
    more = {"/camera/top/video": {"lens": "wide"}, "/imu": {"rate": "200"}}
    remade(
        tmp_path / "old.mcap",
        tmp_path / "more.mcap",
        channels=lambda one: replace(one, metadata={**one.metadata, **more.get(one.topic, {})}),
        metadata=lambda name, values: {**values, "room": "7"} if name == "dyna.episode" else values,
    )
    expected = ("'room' of metadata record dyna.episode", "'lens' of channel /camera/top/video")
    assert regroup(tmp_path / "more.mcap").dropped == expected
    assert recover(tmp_path / "more.mcap").dropped == expected
