"""The summary of an episode file, and of MCAP files of other kinds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from doctor_samples import stock_copy
from episode_samples import write_painted
from look_samples import APP, GAPS
from mcap.writer import CompressionType, IndexType, Writer
from typer.testing import CliRunner

from dyna_train.episode.reader import Episode
from dyna_train.errors import BadInput, CorruptEpisode, EpisodeError, TruncatedEpisode
from dyna_train.look.contents import McapContents
from dyna_train.look.report import report
from dyna_train.look.summary import EpisodeSummary, as_json, summarize


def test_the_summary_repeats_what_the_writer_was_told(tmp_path):
    described, made = write_painted(tmp_path / "a.mcap", 45)
    summary = summarize(made.path)
    assert isinstance(summary, EpisodeSummary)
    assert (summary.episode_id, summary.task, summary.robot, summary.success) == (
        described.episode_id,
        described.task,
        "bimanual",
        True,
    )
    assert (summary.duration_s, summary.num_steps, summary.rate_hz) == (1.5, 45, 30.0)
    assert summary.start_utc == "2023-11-14 22:13:20.123"
    assert (summary.size_bytes, summary.quality) == (made.size_bytes, {"before": "pass", "after": "pass"})
    assert {camera.name: camera.video_bytes for camera in summary.cameras} == dict(made.video_bytes)
    assert (summary.layout.gop_steps, summary.layout.steps_per_chunk, summary.layout.steps_per_block) == (
        6,
        12,
        24,
    )
    assert summary.depths == summary.events == summary.extras == ()


def test_sizes_of_a_camera_follow_from_its_bytes(painted):
    top = summarize(painted).cameras[0]
    assert top.num_frames == 60 and top.gaps == ()
    assert top.mb_per_minute == pytest.approx(top.video_bytes / 1e6 * 30)  # 60 steps at 30 Hz are 2 s
    assert top.kbit_per_frame == pytest.approx(top.video_bytes * 8 / 1000 / 60)
    assert top.bits_per_pixel == pytest.approx(top.video_bytes * 8 / 60 / (64 * 48))
    assert "libx264" in top.codec_params and "crf=18" in top.codec_params


def test_skew_is_the_distance_of_capture_from_grid_in_ms(painted):
    summary = summarize(painted)
    assert [(camera.skew.max_ms, camera.skew.mean_ms) for camera in summary.cameras] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]
    assert all(0 < vector.skew.mean_ms < vector.skew.max_ms <= 4 for vector in summary.vectors)


def test_dimensions_have_name_unit_and_the_range_of_their_values(painted):
    with Episode.open(painted) as episode:
        values_TD = episode.vector("/state/arm")
    arm = summarize(painted).vectors[0]
    assert [(one.name, one.unit) for one in arm.dimensions] == [
        ("shoulder", "rad"),
        ("elbow", "rad"),
        ("größe", "m"),
    ]
    assert [one.max for one in arm.dimensions] == values_TD.max(axis=0).tolist()
    assert [one.mean for one in arm.dimensions] == pytest.approx(
        values_TD.mean(axis=0, dtype=np.float64).tolist()
    )


def test_gaps_are_named_and_left_out_of_rates_and_skew(rich):
    top, wrist, _ = summarize(rich).cameras
    assert wrist.gaps == tuple(range(*gap) for gap in GAPS["left.wrist"]) and top.gaps == ()
    assert wrist.num_frames == 48
    assert wrist.mb_per_minute == pytest.approx(wrist.video_bytes / 1e6 / (48 / 30 / 60))
    assert (wrist.skew.max_ms, wrist.skew.mean_ms) == (1, 1)


def test_values_that_are_not_numbers_are_counted_and_left_out(rich):
    elbow = summarize(rich).vectors[0].dimensions[1]
    assert elbow.num_not_finite == 3
    assert elbow.min is not None and np.isfinite([elbow.min, elbow.mean, elbow.max]).all()


def test_depth_event_and_extra_topics_are_listed(rich):
    summary = summarize(rich)
    (depth,) = summary.depths
    assert (depth.name, depth.width, depth.height, depth.unit_m, depth.num_frames) == (
        "head",
        32,
        24,
        0.001,
        60,
    )
    assert [(topic.topic, topic.num_messages) for topic in summary.events] == [("/event", 1)]
    assert [(topic.topic, topic.schema) for topic in summary.extras] == [("/tf", "pose")]


def test_json_is_one_object_with_stable_keys(rich):
    shown = CliRunner().invoke(APP, ["inspect", str(rich), "--json"])
    assert shown.exit_code == 0
    found = json.loads(shown.stdout)
    assert list(found) == [
        *("kind", "uri", "size_bytes", "episode_id", "name", "source", "robot", "task", "success"),
        *("start_ns", "start_utc", "duration_s", "num_steps", "rate_hz", "cameras", "depths", "vectors"),
        *("events", "extras", "layout", "versions", "quality", "profile"),
    ]
    assert found == json.loads(json.dumps(as_json(summarize(rich)), allow_nan=False))
    assert found["cameras"][1]["gaps"] == [[10, 20], [58, 60]]


def test_the_text_gives_every_number_its_unit(rich):
    shown = CliRunner().invoke(APP, ["inspect", str(rich)], env={"COLUMNS": "160"}).stdout
    for text in [
        "episode 4300000017  session 3/take 12",
        "2.000 s, 60 steps at 30 Hz",
        "GOP 6 steps, video chunk 12 steps, state block 24 steps",
        "MB/min",
        "66x50",
        "skew max ms",
        "steps 10-19 (0.33-0.67 s), steps 58-59 (1.93-2.00 s)",
        "32x24",
        "größe",
        "/event",
    ]:
        assert text in shown, text


def foreign(path: Path, *, use_summary: bool = True, **options) -> Path:
    """100 messages on two topics, 10 ms apart, by the stock writer."""
    with path.open("wb") as stream:
        writer = Writer(
            stream,
            use_statistics=use_summary,
            use_summary_offsets=use_summary,
            repeat_channels=use_summary,
            repeat_schemas=use_summary,
            **options,
        )
        writer.start(profile="ros2", library="somebody else")
        schema = writer.register_schema("pkg/Msg", "ros2msg", b"")
        channels = [writer.register_channel(name, "cdr", schema) for name in ("/a", "/b")]
        for number in range(100):
            writer.add_message(channels[number % 2], number * 10_000_000, b"x" * 100, number * 10_000_000)
        writer.finish()
    return path


@pytest.mark.parametrize("compression", [CompressionType.ZSTD, CompressionType.NONE])
@pytest.mark.parametrize("use_summary", [True, False])
def test_a_foreign_file_is_listed_with_or_without_a_summary(tmp_path, compression, use_summary):
    contents = summarize(foreign(tmp_path / "f.mcap", use_summary=use_summary, compression=compression))
    assert isinstance(contents, McapContents)
    assert [(topic.topic, topic.schema, topic.num_messages) for topic in contents.topics] == [
        ("/a", "pkg/Msg", 50),
        ("/b", "pkg/Msg", 50),
    ]
    assert (contents.num_messages, contents.duration_s) == (100, 0.99)
    assert [one.compression for one in contents.compressions] == [compression.name.lower()]
    assert not contents.tells_of_an_episode


def test_a_foreign_file_is_said_to_be_no_episode_file(tmp_path):
    file = str(foreign(tmp_path / "f.mcap"))
    shown = CliRunner().invoke(APP, ["inspect", file], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "not an episode file" in shown.stdout and "somebody else" in shown.stdout
    assert json.loads(CliRunner().invoke(APP, ["inspect", file, "--json"]).stdout)["kind"] == "mcap"
    refused = CliRunner().invoke(APP, ["inspect", file, "--sheet", str(tmp_path / "s.png")])
    with pytest.raises(BadInput, match=r"f\.mcap: not an episode file; a contact sheet can be made of"):
        raise refused.exception


@pytest.mark.parametrize("attachments", [False, True])
def test_an_episode_that_another_tool_rewrote_is_listed_with_the_way_back(
    rich_episode, tmp_path, attachments
):
    """Also where the tool carried our index along, whose places are those of the old file."""
    rewritten = tmp_path / "rewritten.mcap"
    stock_copy(rich_episode, rewritten, attachments=attachments)
    contents = summarize(rewritten)
    assert isinstance(contents, McapContents) and contents.tells_of_an_episode
    assert "dyna-train regroup" in CliRunner().invoke(APP, ["inspect", str(rewritten)]).stdout
    for command in (
        ["inspect", str(rewritten), "--sheet", str(tmp_path / "s.png")],
        ["foxglove-layout", str(rewritten)],
    ):
        refused = CliRunner().invoke(APP, command)
        with pytest.raises(
            BadInput, match=r"rewritten\.mcap: an episode that another tool rewrote; .*regroup"
        ):
            raise refused.exception


def test_every_shared_ros_bag_is_listed(shared_data):
    bags = sorted((shared_data / "rosbag2_bags").rglob("*.mcap"))
    assert bags
    for bag in bags:
        contents = summarize(bag)
        assert isinstance(contents, McapContents) and contents.profile == "ros2"
        assert contents.num_messages == sum(topic.num_messages for topic in contents.topics)


def test_a_file_that_is_cut_or_no_mcap_is_an_error_not_a_summary(painted, tmp_path):
    cut, other = tmp_path / "cut.mcap", tmp_path / "text.mcap"
    cut.write_bytes(foreign(tmp_path / "f.mcap").read_bytes()[:500])
    other.write_text("not mcap")
    with pytest.raises(TruncatedEpisode, match=r"cut\.mcap: file ends at byte 500, inside the CHUNK record"):
        summarize(cut)
    with pytest.raises(EpisodeError, match=r"text\.mcap: not an MCAP file"):
        summarize(other)
    with pytest.raises(EpisodeError, match=r"absent\.mcap: no such episode file"):
        summarize(tmp_path / "absent.mcap")


def test_a_footer_that_points_past_the_end_is_an_error_that_names_the_byte(tmp_path):
    path = foreign(tmp_path / "f.mcap")
    data = bytearray(path.read_bytes())
    data[-22] ^= 0xFF  # in the footer: where the summary begins
    path.write_bytes(data)
    with pytest.raises(
        CorruptEpisode, match=r"f\.mcap: the footer places the summary at byte [\d,]+, the file has"
    ):
        summarize(path)


def test_a_folder_is_refused_by_name(tmp_path):
    with pytest.raises(EpisodeError, match="a folder; expected an episode file"):
        summarize(tmp_path)


@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("is_bare", [False, True])
def test_a_flipped_byte_or_a_cut_of_a_foreign_file_is_listed_or_a_typed_error(tmp_path, compression, is_bare):
    """is_bare: without checksums and summary, so that nothing but the stock reader notices."""
    options = {"enable_crcs": not is_bare, "chunk_size": 1500}
    whole = foreign(
        tmp_path / "f.mcap", use_summary=not is_bare, compression=compression, **options
    ).read_bytes()
    damaged = tmp_path / "damaged.mcap"
    flips = [
        (at, 0xFF if at % 2 else 0x01)
        for at in (*range(0, len(whole), 29), *range(len(whole) - 60, len(whole)))
    ]
    for at, mask in flips:
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
        assert_listed_or_refused(damaged)
    for cut in range(0, len(whole), 97):
        damaged.write_bytes(whole[:cut])
        assert_listed_or_refused(damaged)


def assert_listed_or_refused(path: Path) -> None:
    try:
        summary = summarize(path)
    except EpisodeError as error:
        assert str(path) in str(error)
        return
    assert list(report(summary))
    json.dumps(as_json(summary), allow_nan=False)


def test_attachments_and_metadata_are_listed_also_without_a_summary(tmp_path):
    with (tmp_path / "f.mcap").open("wb") as stream:
        writer = Writer(stream, index_types=IndexType.NONE, use_statistics=False, use_summary_offsets=False)
        writer.start("", "somebody else")
        writer.add_attachment(0, 0, "calibration", "text/plain", b"12345")
        writer.add_metadata("robot", {"arm": "left"})
        writer.finish()
    contents = summarize(tmp_path / "f.mcap")
    assert isinstance(contents, McapContents)
    assert (contents.attachment_bytes, contents.metadata_names) == ({"calibration": 5}, ("robot",))
    assert (contents.library, contents.start_ns, contents.num_messages) == ("somebody else", None, 0)


def test_inspect_without_a_sheet_loads_no_pillow(painted):
    code = (
        "import sys; from dyna_train.commands.look import inspect; inspect(sys.argv[1]); "
        "print({'PIL', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, painted], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")
