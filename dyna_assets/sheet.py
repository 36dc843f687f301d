"""A contact sheet: one picture that shows an episode at a glance."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw

from dyna_train.episode.reader import Episode

NUM_COLUMNS = 6
TILE_WIDTH = 144
MARGIN = 2
CAPTION = 14
MAX_BYTES = 48_000


def contact_sheet(episode: Episode) -> bytes:
    """JPEG, at most 48,000 bytes: a row per camera, six frames from first to last, their times above."""
    header = episode.header
    steps = np.unique(np.linspace(0, header.num_steps - 1, NUM_COLUMNS).astype(int)).tolist()
    rows = []
    for camera in header.cameras:
        tile_height = max(2, round(TILE_WIDTH * camera.height / camera.width / 2) * 2)
        rows.append((camera.name, episode.frames(camera.name, steps, size=(tile_height, TILE_WIDTH))))
    height = CAPTION + sum(frames.shape[1] + CAPTION + MARGIN for _, frames in rows)
    sheet = Image.new("RGB", (NUM_COLUMNS * (TILE_WIDTH + MARGIN), height), "white")
    draw = ImageDraw.Draw(sheet)
    for column, step in enumerate(steps):
        draw.text((column * (TILE_WIDTH + MARGIN) + 2, 1), f"{step / header.rate_hz:.2f} s", fill="black")
    top = CAPTION
    for name, frames_NHWC in rows:
        draw.text((2, top), name, fill="black")
        top += CAPTION
        for column, frame_HWC in enumerate(frames_NHWC):
            sheet.paste(Image.fromarray(frame_HWC), (column * (TILE_WIDTH + MARGIN), top))
        top += frames_NHWC.shape[1] + MARGIN
    return _jpeg(sheet)


def _jpeg(sheet: Image.Image) -> bytes:
    """Encode at the best quality that keeps the limit, at a smaller size if no quality does."""
    while True:
        for quality in (80, 60, 40):
            buffer = io.BytesIO()
            sheet.save(buffer, "JPEG", quality=quality)
            if buffer.tell() <= MAX_BYTES:
                return buffer.getvalue()
        sheet = sheet.resize((sheet.width // 2, sheet.height // 2))
