from __future__ import annotations

import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from recordings import HEIGHT, WIDTH, number_in, still

from dyna_assets.errors import RecordingError
from dyna_assets.landing.stills import MAX_PIXELS, decode_still, exif_orientation, still_info
from dyna_train.video.pixels import UPRIGHT, Orientation


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_still_decodes_to_its_picture(form: str) -> None:
    frame = decode_still(still(0b10110, form))
    assert (frame.width, frame.height, number_in(frame)) == (WIDTH, HEIGHT, 0b10110)


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@given(width=st.integers(1, 70), height=st.integers(1, 70), progressive=st.booleans())
def test_the_header_gives_the_size_of_any_picture(
    form: str, width: int, height: int, progressive: bool
) -> None:
    buffer = BytesIO()
    options = {"progressive": progressive} if form == "JPEG" else {}
    Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(buffer, form, **options)
    assert still_info(buffer.getvalue()) == (form.lower(), width, height)


def test_padding_after_a_jpeg_is_ignored() -> None:
    assert number_in(decode_still(still(9) + b"\0" * 100)) == 9


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "cam 3: expected a JPEG or PNG, found bytes"),
        (b"BM123456", "cam 3: expected a JPEG or PNG, found bytes 42 4d"),
        (still(1)[:60], "cam 3: picture cut inside its header after 60 bytes"),
        (still(1, "PNG")[:12], "cam 3: picture cut inside its header after 12 bytes"),
        (still(1)[:-2], r"cam 3: JPEG of \d+ bytes has no end marker: the picture is cut"),
        (still(1, "PNG")[:-30], r"cam 3: png of \d+ bytes does not decode"),
    ],
)
def test_a_picture_that_is_cut_or_none_is_refused(payload: bytes, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        decode_still(payload, where="cam 3")


def taken_at(orientation: int, form: str, size: tuple[int, int] = (48, 32)) -> bytes:
    """A picture of four unlike corners, with this EXIF orientation."""
    width, height = size
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2] = (250, 30, 30)
    pixels[: height // 2, width // 2 :] = (30, 250, 30)
    pixels[height // 2 :, : width // 2] = (30, 30, 250)
    buffer, exif = BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95, "subsampling": 2} if form == "JPEG" else {}
    Image.fromarray(pixels).save(buffer, form, exif=exif, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(10))
def test_a_picture_comes_out_upright_as_its_exif_data_ask(form: str, orientation: int) -> None:
    payload = taken_at(orientation, form)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(BytesIO(payload))))
    frame = decode_still(payload)
    assert still_info(payload) == (form.lower(), frame.width, frame.height)
    found = frame.to_ndarray(format="rgb24").astype(int)
    assert found.shape == upright.shape
    assert np.median(abs(found - upright)) <= 3


def tiff(order: str, entries: list[tuple[int, int, int, int]], directory: int = 8) -> bytes:
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, directory)
    body = b"".join(struct.pack(order + "HHIHH", *entry, 0) for entry in entries)
    return head + struct.pack(order + "H", len(entries)) + body


@pytest.mark.parametrize("order", "<>")
def test_exif_data_are_read_in_both_byte_orders(order: str) -> None:
    made = exif_orientation(tiff(order, [(0x010F, 3, 1, 8), (0x0112, 3, 1, 6)]))
    assert made.size(3, 2) == (2, 3)
    assert (made.transposed, made.rows_reversed, made.columns_reversed) == (True, False, True)


@given(st.binary(max_size=60), st.integers(0, 26))
def test_exif_data_that_are_damaged_never_stop_a_picture(tail: bytes, cut: int) -> None:
    whole = tiff("<", [(0x0112, 3, 1, 6)])
    assert isinstance(exif_orientation(tail), Orientation)
    assert isinstance(exif_orientation(whole[:cut] + tail), Orientation)
    assert exif_orientation(whole[: min(cut, len(whole) - 3)]) == UPRIGHT


@pytest.mark.parametrize(
    "entry", [(0x0112, 4, 1, 6), (0x0112, 3, 2, 6), (0x0112, 3, 1, 0), (0x0112, 3, 1, 9), (0x0113, 3, 1, 6)]
)
def test_an_orientation_that_exif_does_not_know_turns_nothing(entry: tuple[int, int, int, int]) -> None:
    assert exif_orientation(tiff("<", [entry])) == UPRIGHT
    assert exif_orientation(tiff("<", [entry], directory=99)) == UPRIGHT


def png_of(width: int, height: int) -> bytes:
    """A PNG that declares a size, with few bytes behind it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99)))


def jpeg_of(width: int, height: int) -> bytes:
    """A JPEG that declares another size than it has."""
    payload = still(1)
    at = payload.index(b"\xff\xc0") + 5
    return payload[:at] + struct.pack(">HH", height, width) + payload[at + 4 :]


@pytest.mark.parametrize("payload", [png_of(65_500, 65_500), jpeg_of(65_500, 65_500)])
def test_a_picture_that_declares_a_huge_size_is_refused_before_it_is_decoded(payload: bytes) -> None:
    match = (
        rf"cam 3: (png|jpeg) of [\d,]+ bytes declares 65,500 x 65,500 pixels, expected 1 to {MAX_PIXELS:,}"
    )
    for read in (still_info, decode_still):
        with pytest.raises(RecordingError, match=match):
            read(payload, where="cam 3")


def test_a_picture_without_pixels_is_refused() -> None:
    with pytest.raises(RecordingError, match=r"declares 0 x 48 pixels, expected 1 to"):
        still_info(jpeg_of(0, HEIGHT))


def test_a_picture_of_another_size_than_its_header_says_is_refused() -> None:
    small, large = still(1), jpeg_of(WIDTH * 2, HEIGHT)
    segment = small[small.index(b"\xff\xc0") : small.index(b"\xff\xc4")]
    twice = large[: large.index(b"\xff\xc4")] + segment + large[large.index(b"\xff\xc4") :]
    with pytest.raises(RecordingError, match="cam 3: jpeg decodes to 64x48 pixels, its header says 128x48"):
        decode_still(twice, where="cam 3")
