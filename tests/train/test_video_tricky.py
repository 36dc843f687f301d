"""Range, turns and output arrays: what the colour tests do not see.

References are independent of our code: the formulas of the standards in float64, moves of single pixels,
Pillow's reading of EXIF.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dyna_train.errors import BadInput
from dyna_train.video.pixels import UPRIGHT, FrameConverter, Orientation, orientation_of, turned

ONE = 1 << 16
MATRICES_OF_TURNS = {
    "nothing": (ONE, 0, 0, ONE),
    "mirror left to right": (-ONE, 0, 0, ONE),
    "half turn": (-ONE, 0, 0, -ONE),
    "mirror top to bottom": (ONE, 0, 0, -ONE),
    "mirror at the main diagonal": (0, ONE, ONE, 0),
    "quarter turn clockwise": (0, ONE, -ONE, 0),
    "mirror at the other diagonal": (0, -ONE, -ONE, 0),
    "quarter turn counterclockwise": (0, -ONE, ONE, 0),
}
FORMATS = ["yuv420p", "yuvj420p", "yuv420p10le", "yuv422p", "yuv422p10le", "yuv444p", "yuv444p12le", "gray"]
FORMATS += ["gbrp", "yuv410p", "yuv411p", "yuv440p"]


def planes(frame: av.VideoFrame) -> Iterator[NDArray[Any]]:
    dtype = np.dtype(np.uint8 if frame.format.components[0].bits == 8 else np.uint16)
    for plane in frame.planes:
        lines = np.frombuffer(memoryview(plane), dtype).reshape(-1, plane.line_size // dtype.itemsize)
        yield lines[: plane.height, : plane.width]


def noise(width: int, height: int, pixel_format: str, *, flat: bool = False) -> av.VideoFrame:
    """A frame with every sample drawn from the whole range; `flat`: one chroma for the whole picture."""
    frame = av.VideoFrame(width, height, pixel_format)
    rng = np.random.default_rng(width * 1000 + height)
    most = 1 << frame.format.components[0].bits
    for number, plane in enumerate(planes(frame)):
        plane[:] = rng.integers(0, most, () if flat and number else plane.shape)
    frame.pts, frame.colorspace, frame.color_range = 7, 1, 2 if pixel_format.startswith("yuvj") else 1
    return frame


def with_matrix(folder: Any, matrix: tuple[int, int, int, int], frame: av.VideoFrame) -> av.VideoFrame:
    """The frame as a file with this display matrix gives it back (lossless)."""
    a, b, c, d = matrix
    path = str(folder / "turned.mp4")
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, frame.format.name
        stream.set_display_matrix([a, b, 0, c, d, 0, 0, 0, 1 << 30])
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with av.open(path) as container:
        return next(container.decode(video=0))


def moved(plane: NDArray[Any], matrix: tuple[int, int, int, int]) -> NDArray[Any]:
    """By the definition, pixel by pixel: column p, row q goes to column ap + cq, row bp + dq, from zero up."""
    a, b, c, d = (part // ONE for part in matrix)
    row, column = np.indices(plane.shape)
    to_column, to_row = a * column + c * row, b * column + d * row
    to_column, to_row = to_column - to_column.min(), to_row - to_row.min()
    target = np.empty((to_row.max() + 1, to_column.max() + 1), plane.dtype)
    target[to_row, to_column] = plane
    return target


@pytest.mark.parametrize("name", MATRICES_OF_TURNS)
def test_a_display_matrix_moves_every_pixel_to_where_its_definition_says(tmp_path, name):
    stored = with_matrix(tmp_path, MATRICES_OF_TURNS[name], noise(32, 20, "yuv420p"))
    upright = turned(stored, orientation_of(stored))
    assert (upright.format.name, upright.pts, upright.colorspace) == (
        "yuv420p",
        stored.pts,
        stored.colorspace,
    )
    for source, target in zip(planes(stored), planes(upright), strict=True):
        assert np.array_equal(target, moved(source, MATRICES_OF_TURNS[name]))
    assert (upright is stored) == (name == "nothing")


@pytest.mark.parametrize("name", [name for name in MATRICES_OF_TURNS if name != "nothing"])
@pytest.mark.parametrize("pixel_format", FORMATS)
def test_planes_of_every_format_and_odd_size_turn_together(name, pixel_format):
    matrix = MATRICES_OF_TURNS[name]
    swaps = matrix[0] == 0
    across, down = (matrix[2], matrix[1]) if swaps else (matrix[0], matrix[3])
    orientation = Orientation(swaps, rows_reversed=down < 0, columns_reversed=across < 0)
    for size in [(32, 20), (21, 13), (20, 13), (21, 12)]:
        frame = noise(*size, pixel_format)
        upright = turned(frame, orientation)
        assert (upright.width, upright.height) == (size[::-1] if swaps else size)
        assert (upright.color_range, upright.pts) == (frame.color_range, 7)
        for source, target in zip(planes(frame), planes(upright), strict=True):
            assert target.dtype == source.dtype
            # every sample stands for its pixels, before and after
            shown = whole(target, upright.width, upright.height)
            assert np.array_equal(shown, moved(whole(source, *size), matrix))


def whole(plane: NDArray[Any], width: int, height: int) -> NDArray[Any]:
    """A plane with a value for every pixel."""
    rows, columns = -(-height // plane.shape[0]), -(-width // plane.shape[1])
    return plane.repeat(rows, 0).repeat(columns, 1)[:height, :width]


@pytest.mark.parametrize("pixel_format", ["rgb24", "bgr24", "rgba", "nv12", "yuyv422", "rgb48le"])
def test_interleaved_formats_turn_too(pixel_format):
    rgb = np.asarray(Image.linear_gradient("L").resize((48, 32)))[..., None] * np.array([1.0, 0.5, 0.8])
    frame = av.VideoFrame.from_ndarray(rgb.astype(np.uint8), "rgb24").reformat(format=pixel_format)
    upright = turned(frame, Orientation(transposed=True, columns_reversed=True))
    found = upright.reformat(format="rgb24").to_ndarray().astype(float)
    expected = np.rot90(frame.reformat(format="rgb24").to_ndarray(), -1)
    assert np.abs(found - expected).mean() < 1.5


@pytest.mark.parametrize("exif", [3, 6, 8])
def test_the_sign_of_a_turn_is_the_one_that_pillow_reads_from_exif(tmp_path, exif):
    """FFmpeg gives the angle of a JPEG's EXIF orientation; the same angle as a matrix must do the same."""
    picture = Image.fromarray(np.stack(list(planes(noise(32, 20, "gray"))) * 3, -1))
    tags = Image.Exif()
    tags[0x0112] = exif
    stream = io.BytesIO()
    picture.save(stream, "JPEG", exif=tags, quality=95)
    decoder = av.CodecContext.create("mjpeg", "r")
    (still,) = [*decoder.decode(av.Packet(stream.getvalue())), *decoder.decode(None)]
    same = next(
        name for name, matrix in MATRICES_OF_TURNS.items() if _angle(tmp_path, matrix) == still.rotation
    )
    stored = with_matrix(tmp_path, MATRICES_OF_TURNS[same], noise(32, 20, "gray"))
    upright = turned(stored, orientation_of(stored))
    assert np.array_equal(
        next(planes(upright)), np.asarray(ImageOps.exif_transpose(_tagged(picture, exif)))[..., 0]
    )
    with pytest.raises(
        BadInput, match=r"is to be turned by -?\d+ degrees, and whether it is mirrored too cannot"
    ):
        orientation_of(still)


def _angle(folder: Any, matrix: tuple[int, int, int, int]) -> int | None:
    if matrix[0] * matrix[3] - matrix[1] * matrix[2] < 0:  # a mirror
        return None
    return with_matrix(folder, matrix, noise(32, 20, "gray")).rotation


def _tagged(picture: Image.Image, exif: int) -> Image.Image:
    copy = picture.copy()
    copy.getexif()[0x0112] = exif
    return copy


@pytest.mark.parametrize("exif", [None, 1])
def test_a_jpeg_with_exif_and_no_turn_is_upright(exif):
    tags = Image.Exif()
    tags[0x010F] = "a camera"
    if exif:
        tags[0x0112] = exif
    stream = io.BytesIO()
    Image.new("RGB", (32, 20)).save(stream, "JPEG", exif=tags)
    decoder = av.CodecContext.create("mjpeg", "r")
    (still,) = [*decoder.decode(av.Packet(stream.getvalue())), *decoder.decode(None)]
    assert orientation_of(still) == UPRIGHT


@pytest.mark.parametrize(
    ("matrix", "angle"),
    [
        ((46341, 46341, -46341, 46341), "45.0"),
        ((65496, 2287, -2287, 65496), "2.0"),
        ((2 * ONE, 0, 0, ONE), "0.0"),
        ((0, 0, 0, 0), "0.0"),
    ],
)
def test_a_turn_by_another_angle_or_a_stretch_is_refused_by_name(tmp_path, matrix, angle):
    stored = with_matrix(tmp_path, matrix, noise(32, 20, "yuv420p"))
    with pytest.raises(
        BadInput, match=rf"turns the picture by {angle} degrees clockwise or stretches it; expected"
    ):
        orientation_of(stored)


@pytest.mark.parametrize(
    "pixel_format", ["yuvj420p", "yuvj422p", "yuvj444p", "yuv420p", "yuv420p10le", "yuv422p12le"]
)
def test_full_range_becomes_limited_to_within_half_a_level(pixel_format):
    frame = noise(64, 48, pixel_format, flat="420" not in pixel_format)
    frame.color_range = 2
    video = FrameConverter().to_video(frame, 1)
    assert (video.format.name, video.color_range, video.colorspace) == ("yuv420p", 1, 1)
    most = (1 << frame.format.components[0].bits) - 1
    for number, (full, limited) in enumerate(zip(planes(frame), planes(video), strict=True)):
        low, span, zero = (128, 224, (most + 1) // 2) if number else (16, 219, 0)
        exact = low + span * (full.astype(np.float64) - zero) / most
        exact = exact if exact.shape == limited.shape else exact[:1, :1]
        assert np.abs(limited - exact).max() <= 0.5 + 1e-9


def test_a_full_range_jpeg_of_odd_size_keeps_range_and_size(tmp_path):
    frame = noise(63, 47, "yuvj420p")
    video = FrameConverter().to_video(frame, 1)
    assert (video.width, video.height) == (64, 48)
    luma, limited = next(planes(frame)), next(planes(video))
    assert np.abs(limited[:47, :63] - (16 + 219 * luma.astype(np.float64) / 255)).max() <= 0.5
    assert np.array_equal(limited[47], limited[46])


@pytest.mark.parametrize("size", [None, (48, 64), (24, 32), (30, 50)])
@pytest.mark.parametrize(("width", "height"), [(64, 48), (63, 47)])
def test_rgb_written_into_an_array_is_the_rgb_of_a_new_one(width, height, size):
    converter, canvas = FrameConverter(), noise(64, 48, "yuv420p")
    fresh = converter.to_rgb(canvas, width, height, size)
    many = np.zeros((2, *(size or (height, width)), 3), np.uint8)
    assert converter.to_rgb(canvas, width, height, size, out=many[1]) is not None
    assert np.array_equal(many[1], fresh)
    assert not many[0].any()


def test_resized_rgb_is_as_near_to_exact_arithmetic_as_a_level():
    canvas = av.VideoFrame(128, 96, "yuv420p")
    for number, plane in enumerate(planes(canvas)):
        rows, columns = np.indices(plane.shape) / plane.shape[1]
        plane[:] = 128 + 60 * np.sin(3 * rows + (2 + number) * columns + number)
    canvas.colorspace, canvas.color_range = 1, 1
    luma, blue, red = (whole(plane, 128, 96).astype(np.float64) for plane in planes(canvas))
    luma, blue, red = (luma - 16) / 219, (blue - 128) / 224, (red - 128) / 224
    exact = [luma + 1.5748 * red, luma - 0.187324 * blue - 0.468124 * red, luma + 1.8556 * blue]
    found = FrameConverter().to_rgb(canvas, 128, 96, (48, 64))
    for channel, values in enumerate(exact):
        picture = Image.fromarray((255 * values).clip(0, 255).astype(np.float32))
        expected = np.asarray(picture.resize((64, 48), Image.Resampling.BILINEAR))
        error = found[..., channel] - expected
        assert abs(error.mean()) < 0.3
        assert np.abs(error).max() < 3


@pytest.mark.parametrize("out", [np.empty((48, 64), np.uint8), np.empty((48, 64, 3), np.float32)])
def test_an_output_array_of_another_shape_or_type_is_refused(out):
    with pytest.raises(
        BadInput, match=r"out is (uint8|float32) \[48, 64(, 3)?\], expected uint8 \[48, 64, 3\]"
    ):
        FrameConverter().to_rgb(noise(64, 48, "yuv420p"), 64, 48, None, out=out)


@pytest.mark.parametrize("size", [(64, 48), (63, 47)])
def test_yuv420_is_the_planes_of_the_canvas_one_after_the_other(size):
    canvas = noise(64, 48, "yuv420p")
    expected = np.concatenate([plane.reshape(-1) for plane in planes(canvas)]).reshape(72, 64)
    out = np.empty((3, 72, 64), np.uint8)
    assert np.array_equal(FrameConverter().to_yuv420(canvas, *size, None), expected)
    assert np.array_equal(FrameConverter().to_yuv420(canvas, *size, None, out=out[1]), expected)
    assert np.array_equal(out[1], canvas.to_ndarray())


@pytest.mark.parametrize("size", [(24, 32), (23, 31), (96, 128)])
@pytest.mark.parametrize(("width", "height"), [(64, 48), (63, 47)])
def test_resized_yuv420_has_even_sides_and_the_levels_of_the_picture(width, height, size):
    canvas = noise(64, 48, "yuv420p", flat=True)
    next(planes(canvas))[:] = 90
    found = FrameConverter().to_yuv420(canvas, width, height, size)
    high, wide = size[0] + size[0] % 2, size[1] + size[1] % 2
    assert found.shape == (high * 3 // 2, wide)
    values = [90, *(int(plane[0, 0]) for plane in list(planes(canvas))[1:])]
    parts = np.split(found.reshape(-1), [high * wide, high * wide * 5 // 4])
    for part, value in zip(parts, values, strict=True):
        assert np.abs(part.astype(int) - value).max() <= 1


def test_yuv420_into_an_array_that_is_not_contiguous_is_refused():
    out = np.empty((72, 128), np.uint8)[:, ::2]
    with pytest.raises(BadInput, match=r"out \[72, 64\] for output yuv420 is not contiguous in memory"):
        FrameConverter().to_yuv420(noise(64, 48, "yuv420p"), 64, 48, None, out=out)
