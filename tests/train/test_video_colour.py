"""Colours survive: RGB read from an episode file is RGB of the source frame, whatever its pixel format.

References are independent of our conversion and of swscale: Pillow for JPEG, the formulas of the standards
in NumPy for YUV, the source picture itself elsewhere.
"""

from __future__ import annotations

import io
from pathlib import Path

import av
import numpy as np
import pytest
from episode_samples import LAYOUT, START_NS, header
from numpy.typing import NDArray
from PIL import Image

from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import Quality

LUMA = {6: (0.299, 0.587, 0.114), 1: (0.2126, 0.7152, 0.0722), 9: (0.2627, 0.6780, 0.0593)}


def picture(width: int = 96, height: int = 80) -> NDArray[np.uint8]:
    """Smooth and colourful, with a dark and a bright end: chroma subsampling costs it little."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    red, green, blue = 255 * x, 255 * y, 255 * (0.5 + 0.5 * np.sin(3 * (x + y)))
    return np.stack([red, green, blue], axis=-1).round().astype(np.uint8)


def psnr(found: NDArray[np.uint8], expected: NDArray[np.uint8]) -> float:
    error = ((found.astype(np.float64) - expected) ** 2).mean()
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def assert_same_colours(
    found: NDArray[np.uint8], expected: NDArray[np.uint8], *, at_least: float, shift: float = 2.5
) -> None:
    assert found.shape == expected.shape
    # Reading rounds down, as every reader's fast path does: up to 1.5 levels. A wrong range or matrix is 5 and more.
    bias = np.abs((found.astype(np.float64) - expected).mean(axis=(-3, -2)))
    assert bias.max() < shift, f"channels are shifted by {bias} levels"
    assert psnr(found, expected) >= at_least


def through_a_file(folder: Path, frames: list[av.VideoFrame], crf: int = 14) -> NDArray[np.uint8]:
    camera = CameraTrack("top", frames[0].width, frames[0].height)
    described = header(len(frames), [camera], [])
    with EpisodeWriter.create(
        folder / "e.mcap", described, LAYOUT, quality=Quality(crf), vectors={}
    ) as writer:
        for frame in frames:
            writer.add_frame("top", frame, START_NS)
        writer.finish()
    with Episode.open(folder / "e.mcap") as episode:
        return episode.frames("top", range(len(frames)))


def yuv_frame(rgb: NDArray[np.uint8], matrix: int, *, full_range: bool) -> av.VideoFrame:
    """A yuv420p frame by the formulas of ITU-R BT.601, BT.709, BT.2020."""
    red_weight, green_weight, blue_weight = LUMA[matrix]
    red, green, blue = np.moveaxis(rgb.astype(np.float64) / 255, -1, 0)
    luma = red_weight * red + green_weight * green + blue_weight * blue
    chroma = [(blue - luma) / (2 - 2 * blue_weight), (red - luma) / (2 - 2 * red_weight)]
    low, luma_span, chroma_span = (0, 255, 255) if full_range else (16, 219, 224)
    planes = [low + luma_span * luma]
    for plane in chroma:  # 2x2 mean
        half = plane.reshape(plane.shape[0] // 2, 2, plane.shape[1] // 2, 2).mean(axis=(1, 3))
        planes.append(128 + chroma_span * half)
    packed = np.concatenate([plane.round().clip(0, 255).astype(np.uint8).reshape(-1) for plane in planes])
    shaped = packed.reshape(rgb.shape[0] * 3 // 2, rgb.shape[1])
    frame = av.VideoFrame.from_ndarray(shaped, "yuvj420p" if full_range else "yuv420p")
    frame.colorspace, frame.color_range = matrix, 2 if full_range else 1
    return frame


@pytest.mark.parametrize("matrix", [6, 1, 9])
@pytest.mark.parametrize("full_range", [False, True], ids=["limited", "full"])
def test_yuv_of_each_matrix_and_range_comes_back_as_the_rgb_it_was_made_from(tmp_path, matrix, full_range):
    rgb = picture()
    found = through_a_file(tmp_path, [yuv_frame(rgb, matrix, full_range=full_range)] * 8)
    for frame in found:
        assert_same_colours(frame, rgb, at_least=36)


def test_limited_yuv420p_reaches_the_encoder_untouched(tmp_path):
    frame = yuv_frame(picture(), 6, full_range=False)
    found = through_a_file(tmp_path, [frame], crf=0)  # lossless: only a conversion could change a value
    assert np.array_equal(found[0], frame.to_ndarray(format="rgb24"))


@pytest.mark.parametrize("subsampling", [0, 1, 2], ids=["444", "422", "420"])
def test_jpeg_frames_come_back_as_pillow_sees_them(tmp_path, subsampling):
    stream = io.BytesIO()
    Image.fromarray(picture()).save(stream, "JPEG", quality=95, subsampling=subsampling)
    decoder = av.CodecContext.create("mjpeg", "r")
    (frame,) = [*decoder.decode(av.Packet(stream.getvalue())), *decoder.decode(None)]
    assert frame.format.name.startswith("yuvj4")
    expected = np.asarray(Image.open(stream).convert("RGB"))
    assert_same_colours(through_a_file(tmp_path, [frame])[0], expected, at_least=36)


def test_rgb_frames_come_back_as_they_were(tmp_path):
    rgb = picture()
    found = through_a_file(tmp_path, [av.VideoFrame.from_ndarray(rgb, "rgb24")] * 3)
    for frame in found:
        assert_same_colours(frame, rgb, at_least=36)


@pytest.mark.parametrize(
    "pixel_format",
    [
        "bgr24",
        "rgba",
        "gbrp",
        "yuv422p",
        "yuv444p",
        "yuvj444p",
        "nv12",
        "yuyv422",
        "yuv420p10le",
        "yuv444p12le",
    ],
)
def test_other_pixel_formats_come_back_as_the_source_picture(tmp_path, pixel_format):
    rgb = picture()
    frame = av.VideoFrame.from_ndarray(rgb, "rgb24").reformat(format=pixel_format)
    assert_same_colours(through_a_file(tmp_path, [frame])[0], rgb, at_least=36)


@pytest.mark.parametrize("pixel_format", ["gray", "gray10le"])
def test_grey_frames_come_back_grey_over_their_whole_range(tmp_path, pixel_format):
    grey = np.linspace(0, 255, 96).round().astype(np.uint8)[None, :].repeat(80, axis=0)
    frame = av.VideoFrame.from_ndarray(grey, "gray").reformat(format=pixel_format)
    assert_same_colours(through_a_file(tmp_path, [frame])[0], np.stack([grey] * 3, -1), at_least=40)


@pytest.mark.parametrize("size", [(95, 80), (96, 79), (95, 79), (1, 1), (3, 2)])
def test_odd_sizes_keep_their_size_and_their_last_row_and_column(tmp_path, size):
    rgb = picture(*size)
    found = through_a_file(tmp_path, [av.VideoFrame.from_ndarray(rgb, "rgb24")] * 3, crf=4)
    edge = np.abs(found[0].astype(int) - rgb)
    assert found[0].shape == rgb.shape
    if min(size) > 3:  # below, one chroma sample covers half the picture
        assert_same_colours(found[0], rgb, at_least=36)
        assert max(edge[-1].mean(), edge[:, -1].mean()) < 5


def test_a_camera_whose_frames_change_format_midway_keeps_its_colours(tmp_path):
    rgb = picture()
    frames = [
        yuv_frame(rgb, 1, full_range=False),
        yuv_frame(rgb, 6, full_range=False),
        yuv_frame(rgb, 6, full_range=True),
        av.VideoFrame.from_ndarray(rgb, "rgb24"),
    ]
    for frame in through_a_file(tmp_path, frames):
        assert_same_colours(frame, rgb, at_least=34, shift=3.5)  # two conversions and the reader's


def test_resizing_keeps_the_colours(tmp_path):
    rgb = picture(95, 79)
    through_a_file(tmp_path, [av.VideoFrame.from_ndarray(rgb, "rgb24")])
    expected = np.asarray(Image.fromarray(rgb).resize((48, 40), Image.Resampling.BILINEAR))
    with Episode.open(tmp_path / "e.mcap") as episode:
        assert_same_colours(episode.frames("top", [0], size=(40, 48))[0], expected, at_least=32)
