from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from recordings import HEIGHT, WIDTH, number_in, still

from dyna_assets.errors import RecordingError
from dyna_assets.landing.stills import decode_still, still_info


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
