"""LeRobot recordings through `pack`: which cameras are copied, bit for bit, and why others are not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import row_samples
from mcap.reader import make_reader
from numpy.typing import NDArray
from recordings import (
    HEIGHT,
    WIDTH,
    change_info,
    episode_table,
    lerobot_info,
    number_in,
    painted,
    write_lerobot_v30,
    write_table,
    write_text,
    write_video,
)

from dyna_assets.landing.profile import ActionRole, CameraRole, Encoding, Grid, SourceProfile, VectorRole
from dyna_assets.landing.recording import CodedRecording, Folder
from dyna_assets.landing.sources import reader_named
from dyna_assets.steps.attempt import attempt
from dyna_assets.steps.probe import probe
from dyna_assets.steps.readback import read_back
from dyna_assets.steps.work import Row, StepResult
from dyna_train.episode.reader import Episode
from dyna_train.errors import CorruptEpisode
from dyna_train.video.decode import decode_gop
from dyna_train.video.nal import PPS, SPS, split_annexb, split_avcc

CLOSED = "scenecut=0:open-gop=0:bframes=0:threads=1:lookahead-threads=1"


def write_closed(
    path: Path, numbers: Sequence[int], gop: int, *, more: str = "", size: tuple[int, int] = (WIDTH, HEIGHT)
) -> Path:
    """An mp4 that an episode file can hold: closed GOPs of one length, painted numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        assert isinstance(stream, av.VideoStream)
        (stream.width, stream.height), stream.pix_fmt = size, "yuv420p"
        params = f"keyint={gop}:min-keyint={gop}:{CLOSED}" + (f":{more}" if more else "")
        stream.options = {"preset": "veryfast", "crf": "14", "x264-params": params}
        stream.time_base = stream.codec_context.time_base = Fraction(1, 15360)
        for step, number in enumerate(numbers):
            frame = av.VideoFrame.from_ndarray(painted(number), format="rgb24").reformat(*size)
            frame.pts, frame.time_base = step * 512, stream.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_v21(root: Path, num_steps: int, gops: dict[str, int | None]) -> Path:
    """One episode with a camera for each entry, of that GOP; None: with B-frames, which cannot be copied."""
    write_text(root / "meta/info.json", json.dumps(lerobot_info("v2.1", cameras=list(gops))))
    write_table(root / "data/chunk-000/episode_000000.parquet", episode_table(0, num_steps))
    for number, (camera, gop) in enumerate(gops.items()):
        path = video_of(root, camera)
        numbers = [40 * number + step for step in range(num_steps)]
        if gop is None:
            write_video(path, numbers, b_frames=2)
        else:
            write_closed(path, numbers, gop)
    line = {"episode_index": 0, "tasks": ["stack the cups"], "length": num_steps}
    write_text(root / "meta/episodes.jsonl", json.dumps(line) + "\n")
    return root


def video_of(root: Path, camera: str) -> Path:
    return root / f"videos/chunk-000/observation.images.{camera}/episode_000000.mp4"


def row_of(
    root: Path, cameras: Sequence[str], *, episode: int = 0, rate_hz: float = 30.0, **encoding: Any
) -> Row:
    """The row of one recording, as the catalog would give it to `pack`."""
    reader = "lerobot_v30" if (root / "meta/episodes").is_dir() else "lerobot_v21"
    ref = reader_named(reader).recordings(Folder.of(root))[episode]
    source = SourceProfile(
        name="lab",
        landing=str(root),
        reader=reader,
        grid=Grid(rate_hz=rate_hz),
        cameras=tuple(CameraRole(name=name, topic=f"observation.images.{name}") for name in cameras),
        states=(VectorRole(name="arm", topic="observation.state"),),
        actions=(ActionRole(name="arm", topic="action"),),
        encoding=Encoding(**encoding),
    )
    about = {"name": ref.name, "recording_name": ref.name, "files": ref.files, "upload_uri": str(root)}
    row = row_samples.row_of(source, root.parent / "lake", **about)
    (found,) = probe(row).rows["recordings"]
    return replace(row, upstream={"recordings": found})


def packed(row: Row) -> tuple[StepResult, Path]:
    result = attempt("episodes", row)
    assert result.status == "ok", result.reason
    return result, Path(row.episode_uri(result.rows["episodes"][0]["content_hash"]))


def messages_of(path: Path, camera: str) -> list[bytes]:
    """The payload of every video message, as a stock reader finds it: `data` is the last field."""
    with path.open("rb") as file:
        found = make_reader(file).iter_messages([f"/camera/{camera}/video"])
        return [message.data[message.data.index(b"\0\0\0\1") :] for _, _, message in found]


def channel_of(path: Path, camera: str) -> dict[str, str]:
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    (channel,) = [c for c in summary.channels.values() if c.topic == f"/camera/{camera}/video"]
    return dict(channel.metadata)


def bodies(nals: Sequence[Any]) -> list[bytes]:
    return [bytes(nal.data) for nal in nals if nal.type not in (SPS, PPS)]


def source_units(path: Path) -> list[list[bytes]]:
    with av.open(str(path)) as container:
        return [bodies(split_avcc(bytes(p), 4)) for p in container.demux(video=0) if p.size]


def plain_frames(path: Path) -> list[NDArray[np.uint8]]:
    with av.open(str(path)) as container:
        return [np.asarray(f.to_ndarray(format="rgb24"), np.uint8) for f in container.decode(video=0)]


def note_of(path: Path, camera: str) -> str:
    with Episode.open(str(path)) as episode:
        return episode.header.versions[f"video.{camera}"]


def test_a_lerobot_episode_is_copied_bit_for_bit_and_its_frames_are_those_of_a_direct_decode(
    tmp_path: Path,
) -> None:
    root = write_v21(tmp_path / "set", 35, {"top": 10, "wrist": 10})
    _, path = packed(row_of(root, ["top", "wrist"]))
    for number, camera in enumerate(("top", "wrist")):
        video = video_of(root, camera)
        assert [bodies(split_annexb(data)) for data in messages_of(path, camera)] == source_units(video)
        reference = plain_frames(video)
        with Episode.open(str(path)) as episode:
            assert episode.header.versions[f"video.{camera}"] == "copied"
            assert episode.layout.gop == 10
            frames = episode.frames(camera, range(35))
            assert all((ours == theirs).all() for ours, theirs in zip(frames, reference, strict=True))
            lone = episode.frames(camera, [23])[0]
            assert (lone == reference[23]).all()
        assert number_in(av.VideoFrame.from_ndarray(np.asarray(reference[23]), "rgb24")) == 40 * number + 23
        assert channel_of(path, camera)["codec_params"] == "copied: h264 High level 1.0 64x48 GOP 10"


def test_every_gop_of_a_copied_camera_decodes_alone(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 25, {"top": 6})
    _, path = packed(row_of(root, ["top"]))
    messages = messages_of(path, "top")
    numbers = [
        number_in(frame)
        for start in range(0, 25, 6)
        for frame in decode_gop(messages[start : start + 6], what="copied")
    ]
    assert numbers == list(range(25))


def test_an_episode_inside_a_shared_video_is_copied_where_it_starts_at_a_keyframe(tmp_path: Path) -> None:
    root = write_lerobot_v30(tmp_path / "set", [20, 17, 12])
    video = write_closed(root / "videos/observation.images.top/chunk-000/file-000.mp4", range(49), 10)
    units, reference = source_units(video), plain_frames(video)
    _, path = packed(row_of(root, ["top"], episode=1))
    assert [bodies(split_annexb(data)) for data in messages_of(path, "top")] == units[20:37]
    with Episode.open(str(path)) as episode:
        assert (episode.frames("top", range(17)) == np.stack(reference[20:37])).all()
    _, path = packed(row_of(root, ["top"], episode=2))
    assert note_of(path, "top") == ("encoded: the first frame that is used, 0 of the source, is no keyframe")
    with Episode.open(str(path)) as episode:
        shown = [number_in(av.VideoFrame.from_ndarray(f, "rgb24")) for f in episode.frames("top", range(12))]
    assert shown == list(range(37, 49))


def test_the_camera_that_cannot_be_copied_is_encoded_with_the_gop_of_the_others(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 30, {"top": 12, "wrist": None})
    _, path = packed(row_of(root, ["top", "wrist"]))
    assert note_of(path, "top") == "copied"
    assert note_of(path, "wrist") == "encoded: packet 2 holds B slices (B-frames)"
    assert channel_of(path, "wrist")["codec_params"].startswith("libx264 preset=veryfast crf=18 keyint=12:")
    with Episode.open(str(path)) as episode:
        assert episode.layout.gop == 12
        for camera, first in (("top", 0), ("wrist", 40)):
            frames = episode.frames(camera, range(30))
            shown = [number_in(av.VideoFrame.from_ndarray(frame, "rgb24")) for frame in frames]
            assert shown == list(range(first, first + 30))


def test_of_cameras_with_different_gops_the_ones_most_alike_are_copied(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 30, {"top": 15, "left": 10, "right": 10})
    _, path = packed(row_of(root, ["top", "left", "right"]))
    notes = [note_of(path, camera) for camera in ("top", "left", "right")]
    assert notes == ["encoded: its GOP is 15, that of the copied cameras 10", "copied", "copied"]


@pytest.mark.parametrize(
    ("rate_hz", "reason"),
    [
        (15.0, "step 1 shows frame 2 of the source, expected 1: not one new frame for each step"),
        (60.0, "step 1 shows frame 0 of the source, expected 1: not one new frame for each step"),
    ],
)
def test_a_grid_of_another_rate_is_encoded(tmp_path: Path, rate_hz: float, reason: str) -> None:
    root = write_v21(tmp_path / "set", 30, {"top": 10})
    _, path = packed(row_of(root, ["top"], rate_hz=rate_hz))
    assert note_of(path, "top") == f"encoded: {reason}"


def test_a_gop_that_is_longer_than_two_seconds_of_the_grid_is_encoded(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 80, {"top": 70})
    _, path = packed(row_of(root, ["top"]))
    assert note_of(path, "top") == "encoded: a GOP of 70 frames, expected at most 60"


def test_a_copy_is_made_whatever_quality_the_profile_asks_for(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 20, {"top": 10})
    first, _ = packed(row_of(root, ["top"], quality="train"))
    second, _ = packed(row_of(root, ["top"], crf=45))
    sizes = [result.rows["episodes"][0]["video_bytes"] for result in (first, second)]
    assert sizes[0] == sizes[1] == sum(map(len, messages_of(packed(row_of(root, ["top"]))[1], "top")))


def test_a_video_of_one_frame_is_copied(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 1, {"top": 10})
    _, path = packed(row_of(root, ["top"]))
    assert note_of(path, "top") == "copied"


def test_a_video_that_ends_before_its_rows_is_copied_as_far_as_it_goes(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 30, {"top": 10})
    write_closed(video_of(root, "top"), range(24), 10)
    result, path = packed(row_of(root, ["top"]))
    assert result.rows["episodes"][0]["num_steps"] == 24
    assert note_of(path, "top") == "copied"


def test_what_the_gate_reads_back_of_a_copy_is_what_it_reads_of_an_encoded_camera(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 30, {"top": 10, "wrist": None})
    _, path = packed(row_of(root, ["top", "wrist"]))
    with Episode.open(str(path)) as episode:
        copied, encoded = (found.trace for found in read_back(episode, {}).values())
    assert copied.seen_T.sum() == encoded.seen_T.sum() == 30
    # the first one shows the number 0: a plain picture
    spread_T, expected_T = copied.high_T - copied.low_T, encoded.high_T - encoded.low_T
    np.testing.assert_allclose(spread_T[1:], expected_T[1:], atol=8)


def test_damage_that_the_framing_shows_is_refused_with_the_reason(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 20, {"top": 10})
    video = video_of(root, "top")
    with av.open(str(video)) as container:
        starts = [packet.pos or 0 for packet in container.demux(video=0) if packet.size]
    content = bytearray(video.read_bytes())
    content[starts[13] : starts[13] + 4] = (2**31).to_bytes(4, "big")
    video.write_bytes(bytes(content))
    result = attempt("episodes", row_of(root, ["top"]))
    assert result.status == "rejected"
    assert "observation.images.top/episode_000000.mp4" in result.reason
    assert "damaged" in result.reason


def test_damage_inside_a_picture_is_copied_and_the_reader_refuses_its_gop(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 20, {"top": 10})
    video = video_of(root, "top")
    with av.open(str(video)) as container:
        ends = [(packet.pos or 0) + packet.size for packet in container.demux(video=0) if packet.size]
    content = bytearray(video.read_bytes())
    for at in range(ends[10] - 16, ends[10] - 4):
        content[at] ^= 0x5A
    video.write_bytes(bytes(content))
    _, path = packed(row_of(root, ["top"]))
    with Episode.open(str(path)) as episode:
        assert len(episode.frames("top", range(10))) == 10
        with pytest.raises(
            CorruptEpisode, match=r"top.*not decodable|top.*does not decode|top.*in part only"
        ):
            episode.frames("top", range(10, 20))


def test_a_camera_of_odd_size_is_copied_and_read_in_its_size(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 12, {"top": 6})
    video, even = video_of(root, "top"), tmp_path / "even.mp4"
    video.rename(even)
    with av.open(str(even)) as source, av.open(str(video), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        stream.codec_context.width, stream.codec_context.height = WIDTH - 1, HEIGHT - 1
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    shown = np.stack(plain_frames(video))
    assert shown.shape == (12, HEIGHT - 1, WIDTH - 1, 3)
    _, path = packed(row_of(root, ["top"]))
    assert note_of(path, "top") == "copied"
    with Episode.open(str(path)) as episode:
        frames = episode.frames("top", range(12))
    assert (frames == np.stack(plain_frames(even))[:, : HEIGHT - 1, : WIDTH - 1]).all()
    assert np.abs(frames.astype(int) - shown).max() <= 1  # swscale rounds pictures of odd width otherwise


def test_only_cameras_stored_as_video_offer_their_packets(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "set", 5, {"top": 5})
    change_info(root, robot_type="other")
    reader = reader_named("lerobot_v21")
    with reader.open(Folder.of(root), reader.recordings(Folder.of(root))[0]) as recording:
        assert isinstance(recording, CodedRecording)
        video = recording.coded("observation.images.top")
        assert video is not None
        assert len(list(video.packets())) == len(recording.times("observation.images.top")) == 5
        assert recording.coded("observation.state") is None
