"""MCAP files that other tools wrote: our own, rewritten, read as before; all others, as far as MCAP goes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from doctor_samples import stock_copy, write_rich
from episode_samples import read_painting
from full_episodes import Script, full_script, in_time_order, scripts
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.writer import CompressionType, IndexType, Writer

from dyna_train.episode.foreign import ForeignFile
from dyna_train.episode.foreign_episode import ForeignEpisode
from dyna_train.episode.open import open_episode
from dyna_train.episode.reader import Episode
from dyna_train.episode.schemas import schemas
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError, MissingFrame, TruncatedEpisode

VIDEO_SCHEMA = schemas()[0]


def rewrite(
    source: Path,
    target: Path,
    *,
    in_log_order: bool = True,
    by_arrival: bool = False,
    attachments: bool = True,
    metadata: bool = True,
    **options: Any,
) -> None:
    """What a tool does that reads messages and writes them: groups meet, chunks are cut by size.

    by_arrival: channels are numbered as their first messages come.
    """
    with source.open("rb") as stream, target.open("wb") as out:
        reader = make_reader(stream)
        summary, head = reader.get_summary(), reader.get_header()
        writer = Writer(out, **{"chunk_size": 4000, **options})
        writer.start(head.profile, head.library)
        ids: dict[int, int] = {}

        def id_of(channel: Any) -> int:
            if channel.id not in ids:
                schema = summary.schemas.get(channel.schema_id)
                number = writer.register_schema(schema.name, schema.encoding, schema.data) if schema else 0
                ids[channel.id] = writer.register_channel(
                    channel.topic, channel.message_encoding, number, channel.metadata
                )
            return ids[channel.id]

        if not by_arrival:
            for channel in summary.channels.values():
                id_of(channel)
        for _, channel, message in reader.iter_messages(log_time_order=in_log_order):
            writer.add_message(
                id_of(channel), message.log_time, message.data, message.publish_time, message.sequence
            )
        for record in reader.iter_metadata() if metadata else ():
            writer.add_metadata(record.name, record.metadata)
        for one in reader.iter_attachments() if attachments else ():
            writer.add_attachment(one.create_time, one.log_time, one.name, one.media_type, one.data)
        writer.finish()


def assert_reads_the_same(found: ForeignEpisode, episode: Episode, script: Script) -> None:
    steps = np.arange(episode.num_steps)
    assert (found.header, found.tracks, found.num_steps) == (
        episode.header,
        episode.tracks,
        episode.num_steps,
    )
    for camera in episode.tracks.cameras:
        present = steps[episode.has_frame(camera.name)]
        assert np.array_equal(found.has_frame(camera.name), episode.has_frame(camera.name))
        assert np.array_equal(found.frames(camera.name, present), episode.frames(camera.name, present))
        for step in steps[~episode.has_frame(camera.name)][:1].tolist():
            with pytest.raises(MissingFrame, match=rf"camera {camera.name} has no frame at step {step}"):
                found.frames(camera.name, [step])
    for topic in episode.tracks.topics:
        assert np.array_equal(found.capture_ns(topic), episode.capture_ns(topic))
    for vector in episode.tracks.vectors:
        assert np.array_equal(found.vector(vector.topic), episode.vector(vector.topic))
    assert np.array_equal(found.state_TD, episode.state_TD)
    assert np.array_equal(found.action_TA, episode.action_TA)
    assert found.events() == in_time_order(script.events)


@pytest.fixture(scope="module")
def script() -> Script:
    return full_script(40)


@pytest.fixture(scope="module")
def whole(script, tmp_path_factory) -> Path:
    return script.write(tmp_path_factory.mktemp("episode") / "whole.mcap").path


@pytest.fixture(scope="module")
def rewritten(whole, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rewritten") / "rewritten.mcap"
    rewrite(whole, path)
    return path


def test_an_episode_file_opens_as_an_episode(whole):
    with open_episode(whole) as episode:
        assert isinstance(episode, Episode)
        assert episode.num_steps == 40


def test_a_rewritten_episode_reads_as_it_did_though_its_index_was_copied_along(whole, rewritten, script):
    with Episode.open(whole) as episode, open_episode(rewritten) as found:
        assert isinstance(found, ForeignEpisode)
        assert_reads_the_same(found, episode, script)
        assert found.extra_topics() == episode.extra_topics()
        for topic in script.extras:
            assert list(found.extra_messages(topic.topic)) == list(episode.extra_messages(topic.topic))
        assert np.array_equal(
            found.frames("top", [7, 30], size=(24, 32)), episode.frames("top", [7, 30], (24, 32))
        )


@given(
    script=scripts(max_steps=16),
    in_log_order=st.booleans(),
    by_arrival=st.booleans(),
    options=st.fixed_dictionaries(
        {
            "attachments": st.booleans(),
            "chunk_size": st.sampled_from([1, 700, 10**9]),
            "compression": st.sampled_from(CompressionType),
            "enable_crcs": st.booleans(),
            "use_chunking": st.sampled_from([True, True, True, False]),
            "use_statistics": st.booleans(),
            "repeat_channels": st.booleans(),
            "repeat_schemas": st.booleans(),
            "use_summary_offsets": st.booleans(),
            "index_types": st.sampled_from(
                [IndexType.ALL, IndexType.NONE, IndexType.CHUNK, IndexType.METADATA]
            ),
        }
    ),
)
@settings(max_examples=50)
def test_any_episode_reads_the_same_however_a_tool_rewrote_it(
    script, in_log_order, by_arrival, options, tmp_path_factory
):
    # Of a file without any message the stock writer forgets channels and schemas.
    assume(script.header.vectors or script.events or script.extra_messages)
    folder = tmp_path_factory.mktemp("any")
    made = script.write(folder / "whole.mcap")
    # A camera without a message at the first step would be numbered behind the others.
    by_arrival = by_arrival and all(has_T[0] for has_T in script.has_T.values())
    rewrite(made.path, folder / "re.mcap", in_log_order=in_log_order, by_arrival=by_arrival, **options)
    with Episode.open(made.path) as episode, open_episode(folder / "re.mcap") as found:
        assert isinstance(found, ForeignEpisode)
        assert_reads_the_same(found, episode, script)


def test_frames_of_a_rewritten_episode_fill_an_array_and_count_what_they_cost(rewritten):
    with open_episode(rewritten) as found:
        out = np.zeros((4, 48, 64, 3), np.uint8)
        frames = found.frames("top", [8, 7, 8, 14], out=out)
        assert frames is out
        assert [read_painting(frame) for frame in out] == [(8, 0), (7, 0), (8, 0), (14, 0)]
        assert (found.counters.decoded, found.counters.kept) == (6, 3)
        assert found.counters.requests > 0 < found.counters.bytes
        assert found.frames("top", []).shape == (0, 48, 64, 3)
        with pytest.raises(BadInput, match=r"out is uint8 \[3, 48, 64, 3\], expected uint8 \[4, 48, 64, 3\]"):
            found.frames("top", [8, 7, 8, 14], out=out[:3])


def test_what_is_not_there_is_refused_with_what_is(rewritten):
    with open_episode(rewritten) as found:
        with pytest.raises(BadInput, match=r"rewritten\.mcap: no camera 'front'; its cameras: top"):
            found.frames("front", [0])
        with pytest.raises(BadInput, match=r"step 40 is outside the episode; expected 0 <= step < 40"):
            found.frames("top", [3, 40])
        with pytest.raises(BadInput, match="no vector topic '/state/leg'; its vector topics: /state/arm"):
            found.vector("/state/leg")
        with pytest.raises(BadInput, match="no topic '/state/leg'; its topics: /camera/top/video"):
            found.capture_ns("/state/leg")
        with pytest.raises(BadInput, match="no extra topic '/event'; its extra topics: /lidar"):
            found.extra_messages("/event")
        with pytest.raises(ValueError, match="read-only"):
            found.state_TD[0] = 0


def test_a_rewritten_episode_is_read_from_any_filesystem_and_survives_pickling(rewritten):
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/foreign/rewritten.mcap", rewritten.read_bytes())
    inside = fsspec.filesystem("dir", path="/foreign", fs=memory)
    with open_episode("rewritten.mcap", fs=inside) as far, open_episode(rewritten) as near:
        copy = pickle.loads(pickle.dumps(far))
        assert np.array_equal(copy.frames("top", [33]), near.frames("top", [33]))
        assert (copy.header, repr(copy)) == (
            near.header,
            repr(near).replace(str(rewritten), "rewritten.mcap"),
        )
    memory.rm("/foreign", recursive=True)


def write_changed(rewritten: Path, target: Path, change: Any) -> None:
    """The rewritten file once more, each message as `change(topic, message)` gives it back, or without it."""
    with rewritten.open("rb") as stream, target.open("wb") as out:
        reader = make_reader(stream)
        writer = Writer(out)
        writer.start()
        for schema, channel, message in reader.iter_messages():
            number = writer.register_schema(schema.name, schema.encoding, schema.data) if schema else 0
            ids = writer.register_channel(channel.topic, channel.message_encoding, number, channel.metadata)
            for one in change(channel.topic, message):
                writer.add_message(ids, one.log_time, one.data, one.publish_time, one.sequence)
        for record in reader.iter_metadata():
            writer.add_metadata(record.name, record.metadata)
        writer.finish()


def moved(message: Any, by_ns: int) -> Any:
    message.log_time += by_ns
    return message


def with_data(message: Any, data: bytes) -> Any:
    message.data = data
    return message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda topic, m: [] if (topic, m.sequence) == ("/state/arm", 7) else [m],
            "/state/arm has no message at step 7",
        ),
        (
            lambda topic, m: [moved(m, 1)] if (topic, m.sequence) == ("/state/arm", 7) else [m],
            "/state/arm has a message off the grid, at .* ns",
        ),
        (
            lambda topic, m: [m, m] if (topic, m.sequence) == ("/state/arm", 7) else [m],
            "/state/arm has a second message at step 7",
        ),
        (
            lambda topic, m: [with_data(m, m.data[:-4])] if topic == "/state/arm" else [m],
            "/state/arm, step 0: protobuf field 1 of 12 bytes at byte 2 ends after 10",
        ),
        (
            lambda topic, m: [with_data(m, b"\n\4abcd")] if topic == "/state/arm" else [m],
            "/state/arm, step 0: 4 bytes of values, expected 3 floats",
        ),
    ],
)
def test_a_rewritten_vector_that_is_not_whole_is_refused_with_its_step(rewritten, tmp_path, change, message):
    write_changed(rewritten, tmp_path / "changed.mcap", change)
    with open_episode(tmp_path / "changed.mcap") as found:
        assert isinstance(found, ForeignEpisode)
        with pytest.raises(CorruptEpisode, match=rf"changed\.mcap: {message}"):
            _ = found.state_TD
        assert len(found.frames("top", [3])) == 1


def test_a_rewritten_camera_that_lost_a_keyframe_is_refused_with_its_gop(rewritten, tmp_path):
    def change(topic: str, message: Any) -> list[Any]:
        return [] if (topic, message.sequence) == ("/camera/top/video", 12) else [message]

    write_changed(rewritten, tmp_path / "changed.mcap", change)
    with open_episode(tmp_path / "changed.mcap") as found:
        with pytest.raises(
            CorruptEpisode, match="camera top, GOP 2: its first frame, step 13, is no keyframe"
        ):
            found.frames("top", [14])
        assert read_painting(found.frames("top", [18])[0]) == (18, 0)


def test_a_file_without_our_metadata_is_a_foreign_file(whole, tmp_path):
    rewrite(whole, tmp_path / "bare.mcap", metadata=False)
    with open_episode(tmp_path / "bare.mcap") as found, Episode.open(whole) as episode:
        assert isinstance(found, ForeignFile)
        frames = found.frames("/camera/top/video", [39, 3, 3])
        assert np.array_equal(frames, episode.frames("top", [39, 3, 3]))
        # The stream has even sizes; only our channel metadata say where a picture of odd size ends.
        assert found.frames("/camera/right_wrist/video", [0]).shape == (1, 48, 64, 3)


def test_a_rewritten_file_cut_anywhere_is_truncated_at_its_last_byte(rewritten, tmp_path):
    whole = rewritten.read_bytes()
    for cut in (9, 40, 4000, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.mcap").write_bytes(whole[:cut])
        with pytest.raises(TruncatedEpisode, match=rf"cut\.mcap: file ends at byte {cut:,}"):
            open_episode(tmp_path / "cut.mcap")


def read_everything(path: Path) -> Iterator[Any]:
    with open_episode(path) as found:
        yield type(found)
        if isinstance(found, ForeignFile):
            yield from ((topic, list(found.messages(topic.topic))) for topic in found.topics)
            return
        yield found.header.tracks
        yield found.state_TD.tobytes()
        yield found.action_TA.tobytes()
        yield found.events()
        for track in found.tracks.cameras:
            yield found.capture_ns(track.topic).tobytes()
            yield found.frames(track.name, np.flatnonzero(found.has_frame(track.name))).tobytes()
        for topic in found.extra_topics():
            yield (topic, list(found.extra_messages(topic.topic)))


@pytest.fixture(scope="module")
def expected(rewritten) -> list[Any]:
    return list(read_everything(rewritten))


@given(data=st.data())
@settings(max_examples=60)
def test_a_flipped_byte_of_a_rewritten_episode_is_a_typed_error_or_changes_nothing(
    rewritten, expected, tmp_path_factory, data
):
    """But for the metadata records, which MCAP gives no checksum."""
    damaged = bytearray(rewritten.read_bytes())
    first = damaged.find(b"\x0c", damaged.find(b"dyna.profile") - 30)  # metadata stand behind all chunks
    last = damaged.find(b"dyna.capture/1")
    at = data.draw(st.integers(0, len(damaged) - 1).filter(lambda at: not first <= at < last))
    damaged[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("flipped") / "flipped.mcap"
    path.write_bytes(damaged)
    try:
        found = list(read_everything(path))
    except EpisodeError as error:
        assert str(path) in str(error)
        return
    assert found == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"compression": CompressionType.NONE},
            r"its first chunk, of [\d,]+ bytes from byte \d+, is none of dyna\.index/1",
        ),
        ({"enable_crcs": False}, "without summary, summary offsets or checksum of the summary"),
        ({"use_summary_offsets": False}, "without summary, summary offsets or checksum of the summary"),
        ({"use_statistics": False}, "is none of dyna"),
    ],
)
def test_the_reader_of_episode_files_says_that_another_tool_rewrote_it(tmp_path, options, text):
    write_rich(tmp_path / "rich.mcap")
    stock_copy(tmp_path / "rich.mcap", tmp_path / "stock.mcap", attachments=True, **options)
    with pytest.raises(
        EpisodeError, match=rf"stock\.mcap: .*{text}.* rewrote one, dyna-train regroup restores it"
    ):
        Episode.open(tmp_path / "stock.mcap")
    with open_episode(tmp_path / "stock.mcap") as opened:
        assert isinstance(opened, ForeignEpisode)
