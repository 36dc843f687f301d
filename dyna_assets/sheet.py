"""A contact sheet small enough for a Dagster page; `dyna-train inspect --sheet` draws the large one."""

from __future__ import annotations

import io

from PIL import Image

from dyna_train.episode.reader import Episode
from dyna_train.look.frames import frame_tiles, spread_steps
from dyna_train.look.ink import SMALL_SIZE, line_height, write
from dyna_train.look.palette import PAPER

NUM_COLUMNS = 6
TILE_WIDTH = 144
MARGIN = 2
MAX_BYTES = 48_000


def contact_sheet(episode: Episode) -> bytes:
    """JPEG, at most 48,000 bytes: a row per camera, six frames from first to last, their times above.

    A step at which a camera has no frame is hatched.
    """
    header, caption = episode.header, line_height(SMALL_SIZE)
    steps = spread_steps(header.num_steps, NUM_COLUMNS)
    box = (TILE_WIDTH, 4 * TILE_WIDTH)
    rows = [(camera.name, frame_tiles(episode, camera, steps, box)) for camera in header.cameras]
    height = caption + sum(tiles[0].height + caption + MARGIN for _, tiles in rows)
    sheet = Image.new("RGB", (NUM_COLUMNS * (TILE_WIDTH + MARGIN), height), PAPER)
    lefts = [column * (TILE_WIDTH + MARGIN) for column in range(len(steps))]
    for left, step in zip(lefts, steps, strict=True):
        write(sheet, (left + 2, 0), f"{step / header.rate_hz:.2f} s", SMALL_SIZE)
    top = caption
    for name, tiles in rows:
        write(sheet, (2, top), name, SMALL_SIZE)
        top += caption
        for left, tile in zip(lefts, tiles, strict=True):
            sheet.paste(tile, (left, top))
        top += tiles[0].height + MARGIN
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
