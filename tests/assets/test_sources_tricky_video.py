"""Every strange clip, from its file through the LeRobot readers' video code into an episode file and back.

References come from the clip's own planes, by the formulas of the standards in float64. HDR transfer (PQ, HLG)
is a tag: code values are kept, nothing is tone mapped, here and there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from row_samples import header

from dyna_assets.errors import RecordingError
from dyna_assets.landing.recording import Folder
from dyna_assets.landing.sources.video import Video
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.reader import Episode
from dyna_train.episode.span import fetch
from dyna_train.episode.tracks import CameraTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.decode import decode_gop
from dyna_train.video.encode import CameraEncoder, Quality

LAYOUT = EpisodeLayout(gop=6, gops_per_chunk=2, steps_per_block=24)
NEARLY_LOSSLESS = Quality(crf=4)


@dataclass(frozen=True)
class Clip:
    """What is true of a clip. num_frames: that are shown. width, height: as they are shown."""

    name: str
    num_frames: int
    width: int
    height: int
    codec: str
    pixel_format: str
    first_tick: int = 0
    quarter_turns: int = 0  # counterclockwise

    @property
    def num_steps(self) -> int:
        """How many frames are looked at; two GOPs, less of a large picture."""
        return min(self.num_frames, 12 if self.width * self.height < 200_000 else 4)


CLIPS = [
    Clip("av1_video.mkv", 125, 640, 360, "av1", "yuv420p"),
    Clip("bt2020_10bit.mp4", 60, 320, 240, "hevc", "yuv420p10le"),
    Clip("bt601_full_range.mp4", 60, 320, 240, "h264", "yuvj420p"),
    Clip("bt709_full_range.mp4", 30, 1280, 720, "h264", "yuvj420p"),
    Clip("discard_first_keyframe.mp4", 25, 64, 64, "h264", "yuv420p"),
    Clip("h264_10bits.mp4", 30, 200, 200, "h264", "yuv420p10le"),
    Clip("h265_10bits.mp4", 30, 200, 200, "hevc", "yuv420p10le"),
    Clip("h265_video.mp4", 10, 128, 128, "hevc", "yuv420p"),
    Clip("nasa_13013.mp4", 325, 320, 180, "h264", "yuv420p"),
    Clip("nasa_13013_rotated.mp4", 17, 270, 480, "h264", "yuv420p", quarter_turns=1),
    Clip("nasa_13013_vfr.mp4", 50, 480, 270, "h264", "yuv420p"),
    Clip("test_non_zero_start.mp4", 12, 200, 112, "h264", "yuv420p", first_tick=127_995),
    Clip("testsrc2_12bit_hdr.mp4", 60, 320, 180, "hevc", "yuv420p12le"),
    Clip("testsrc2_444_10bit_hevc.mp4", 25, 321, 241, "hevc", "yuv444p10le"),
    Clip("testsrc2_av1_10bit.mp4", 25, 320, 240, "av1", "yuv420p10le"),
    Clip("testsrc2_mpeg4.avi", 30, 1280, 720, "mpeg4", "yuv420p"),
    Clip("testsrc2_mpeg4.mp4", 1, 64, 64, "mpeg4", "yuv420p"),  # one black frame, made so by its authors
    Clip("testsrc2_odd_height_and_width_444.mp4", 25, 321, 241, "h264", "yuv444p"),
    Clip("testsrc2_odd_height_and_width_mpeg2.mp4", 10, 121, 81, "mpeg2video", "yuv420p"),
    Clip("testsrc2_odd_height_and_width_vp9_10bit.mp4", 25, 321, 241, "vp9", "yuv420p10le"),
    Clip("testsrc2_vp8.webm", 30, 1280, 720, "vp8", "yuv420p"),
]
LUMA_WEIGHTS = {1: (0.2126, 0.0722), 9: (0.2627, 0.0593)}  # red and blue; of BT.601 for every other matrix
READING_CUTS = np.array([1.0, 1.5, 1.0])
"""Levels of red, green, blue that the fast conversion to RGB, the one every reader has, cuts off at most."""

Planes = list[NDArray[np.float64]]


def unit_planes(frame: av.VideoFrame) -> Planes:
    """Luma in 0 .. 1 and two colour differences in -0.5 .. 0.5 of a planar YUV frame, not rounded, each of its size."""
    bits = frame.format.components[0].bits
    scale, planes = 1 << (bits - 8), []
    for plane in frame.planes:
        lines = np.frombuffer(memoryview(plane), np.uint8 if bits == 8 else "<u2")
        planes.append(lines.reshape(plane.height, -1)[:, : plane.width].astype(np.float64) / scale)
    low, luma_span, chroma_span = (0, 255, 255) if frame.color_range == 2 else (16, 219, 224)
    luma, blue, red = planes
    return [(luma - low) / luma_span, (blue - 128) / chroma_span, (red - 128) / chroma_span]


def rgb_by_standard(planes: Planes, matrix: int) -> NDArray[np.float64]:
    """RGB [H, W, 3] in 0 .. 255, not rounded; each chroma sample stands for its pixels."""
    height, width = planes[0].shape
    luma, blue_difference, red_difference = (
        plane.repeat(-(-height // plane.shape[0]), 0).repeat(-(-width // plane.shape[1]), 1)[:height, :width]
        for plane in planes
    )
    red_weight, blue_weight = LUMA_WEIGHTS.get(matrix, (0.299, 0.114))
    red = luma + (2 - 2 * red_weight) * red_difference
    blue = luma + (2 - 2 * blue_weight) * blue_difference
    green = (luma - red_weight * red - blue_weight * blue) / (1 - red_weight - blue_weight)
    return 255 * np.stack([red, green, blue], -1).clip(0, 1)


def rgb_by_standard_of_i420(planes: NDArray[np.uint8], matrix: int) -> NDArray[np.float64]:
    """The same of planes uint8 [H * 3 // 2, W] in limited range."""
    height, width = planes.shape[0] * 2 // 3, planes.shape[1]
    parts = np.split(planes.reshape(-1).astype(np.float64), [height * width, height * width * 5 // 4])
    luma = parts[0].reshape(height, width)
    blue, red = (part.reshape(height // 2, width // 2) for part in parts[1:])
    return rgb_by_standard([(luma - 16) / 219, (blue - 128) / 224, (red - 128) / 224], matrix)


def first_frames(path: Path, num_frames: int) -> list[av.VideoFrame]:
    """The first frames of a clip, decoded without our code."""
    with av.open(str(path)) as container:
        return list(islice(container.decode(video=0), num_frames))


def halved(rgb_NHWC: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over 2x2 pixels: what 4:2:0 can keep of 4:4:4."""
    height, width = (size // 2 * 2 for size in rgb_NHWC.shape[1:3])
    pairs = rgb_NHWC[:, :height, :width].reshape(-1, height // 2, 2, width // 2, 2, 3)
    return pairs.mean(axis=(2, 4))


def write_episode(path: Path, video: Video, num_steps: int) -> None:
    info, pts = video.info(), video.pts()
    described = header(num_steps, cameras=[CameraTrack("top", info.width, info.height)])
    with EpisodeWriter.create(path, described, LAYOUT, quality=NEARLY_LOSSLESS, vectors={}) as writer:
        for frame in islice(video.frames(pts), num_steps):
            writer.add_frame("top", frame, described.start_ns)
        writer.finish()


@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: clip.name)
def test_a_strange_clip_comes_back_upright_in_order_and_in_its_colours(tmp_path, shared_data, clip):
    video = Video(Folder.of(shared_data / "tricky_video"), clip.name)
    info, pts = video.info(), video.pts()
    assert (info.width, info.height, info.codec) == (clip.width, clip.height, clip.codec)
    assert (len(pts), pts[0]) == (clip.num_frames, clip.first_tick)
    write_episode(tmp_path / "e.mcap", video, clip.num_steps)

    frames = first_frames(shared_data / "tricky_video" / clip.name, clip.num_steps)
    matrix = frames[0].colorspace
    assert [frame.pts for frame in frames] == pts[: clip.num_steps].tolist()
    assert {frame.format.name for frame in frames} == {clip.pixel_format}
    expected = np.stack(
        [np.rot90(rgb_by_standard(unit_planes(frame), matrix), clip.quarter_turns) for frame in frames]
    )
    steps = range(clip.num_steps)
    with Episode.open(tmp_path / "e.mcap") as episode:
        rgb = episode.frames("top", steps).astype(np.float64)
        (span,) = fetch([episode.plan(frame_steps=steps)])
        stored = np.stack(
            [rgb_by_standard_of_i420(planes, matrix) for planes in span.frames("top", steps, output="yuv420")]
        )[:, : clip.height, : clip.width]
    if "444" in clip.pixel_format:
        rgb, stored, expected = halved(rgb), halved(stored), halved(expected)
    assert_same_colours(stored, expected, cuts=np.zeros(3), mean=1.4)
    assert_same_colours(rgb, expected, cuts=READING_CUTS, mean=1.8)
    assert_same_order(stored, expected)


def assert_same_colours(
    found: NDArray[np.float64], expected: NDArray[np.float64], *, cuts: NDArray[np.float64], mean: float
) -> None:
    """In levels of 255: each channel within 0.35 on the whole, every frame within `mean` on the average."""
    assert found.shape == expected.shape
    error = found - expected
    bias = error.mean(axis=(0, 1, 2))
    assert (bias > -0.35 - cuts).all() and (bias < 0.35).all(), f"channels are shifted by {bias} levels"
    assert np.abs(error).mean(axis=(1, 2, 3)).max() < mean


def assert_same_order(found: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    """Every frame is nearest to its own reference; others may be as near where nothing moves."""
    for number, frame in enumerate(found):
        errors = np.abs(expected[:, ::2, ::2] - frame[::2, ::2]).mean(axis=(1, 2, 3))
        assert errors[number] < errors.min() + 0.01


def test_frames_of_a_variable_rate_keep_their_times(shared_data):
    """The clip was made by leaving frames out."""
    pts = Video(Folder.of(shared_data / "tricky_video"), "nasa_13013_vfr.mp4").pts()
    assert len({later - earlier for earlier, later in pairwise(pts.tolist())}) > 1


def test_hdr_keeps_its_tags_for_whoever_shows_it(shared_data):
    video = Video(Folder.of(shared_data / "tricky_video"), "bt2020_10bit.mp4")
    info = video.info()
    encoder = CameraEncoder("top", info.width, info.height, rate_hz=30, gop=6, quality=Quality(crf=23))
    packets = [
        packet
        for step, frame in enumerate(islice(video.frames(video.pts()), 6))
        for packet in encoder.encode(frame, step)
    ]
    for frame in decode_gop(packets + encoder.flush(), what="bt2020"):
        assert (frame.color_primaries, frame.color_trc, frame.colorspace, frame.color_range) == (9, 16, 9, 1)


def write_turned(
    path: Path, degrees: float, *, hflip: bool = False, vflip: bool = False
) -> NDArray[np.uint8]:
    """A lossless video of one frame whose container turns it; returns its luma as it is stored."""
    frame = av.VideoFrame.from_ndarray(
        np.random.default_rng(0).integers(16, 235, (30, 32), np.uint8), "yuv420p"
    )
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = 32, 20, "yuv420p"
        stream.set_display_rotation(degrees, hflip=hflip, vflip=vflip)
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return frame.to_ndarray()[:20]


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
def test_frames_are_given_as_the_container_shows_them(tmp_path, degrees, mirrored):
    stored = write_turned(tmp_path / "v.mp4", degrees, vflip=mirrored)
    expected = np.rot90(stored, degrees // 90)  # both count counterclockwise
    expected = expected[::-1] if mirrored else expected
    video = Video(Folder.of(tmp_path), "v.mp4")
    (frame,) = video.frames(video.pts())
    assert (video.info().height, video.info().width) == expected.shape
    assert np.array_equal(frame.to_ndarray()[: frame.height], expected)


def test_a_video_that_lies_askew_is_refused_with_the_angle(tmp_path):
    write_turned(tmp_path / "v.mp4", 30)
    video = Video(Folder.of(tmp_path), "v.mp4")
    message = (
        r"v\.mp4: the display matrix .* turns the picture by -30\.0 degrees clockwise .*Re-encode the video"
    )
    with pytest.raises(RecordingError, match=message) as hit:
        video.info()
    assert hit.value.check == "video.decodable"
    with pytest.raises(RecordingError, match=message):
        list(video.frames(video.pts()))


def test_a_video_without_one_frame_is_refused(tmp_path):
    with av.open(str(tmp_path / "v.mp4"), "w", options={"movflags": "frag_keyframe+empty_moov"}) as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 32, 20, "yuv420p"
        container.start_encoding()
    with pytest.raises(RecordingError, match=r"v\.mp4: no frame inside, though a video stream"):
        Video(Folder.of(tmp_path), "v.mp4").info()


def test_a_video_whose_first_frame_is_damaged_is_refused_with_the_reason(tmp_path, shared_data):
    content = bytearray((shared_data / "tricky_video" / "h265_video.mp4").read_bytes())
    first = content.index(b"mdat") + 4
    content[first : first + 6000] = bytes(6000)
    (tmp_path / "v.mp4").write_bytes(bytes(content))
    with pytest.raises(RecordingError, match=r"v\.mp4: (the first frame does not decode|no frame inside)"):
        Video(Folder.of(tmp_path), "v.mp4").info()
