"""A contact sheet small enough for a Dagster page; `dyna-train inspect --sheet` draws the large one."""

from __future__ import annotations

from PIL import Image

from dyna_assets.look.image import jpeg_within
from dyna_train.episode.reader import Episode
from dyna_train.look.frames import frame_tiles, key_steps
from dyna_train.look.ink import SMALL_SIZE, line_height, write
from dyna_train.look.palette import PAPER

NUM_COLUMNS = 6
TILE_WIDTH = 144
MARGIN = 2
MAX_BYTES = 36_000
"""48 kB in base64, as the event log keeps it."""


def contact_sheet(episode: Episode) -> bytes:
    """JPEG, at most 36,000 bytes: a row per camera, six frames from first to last, their times above.

    A step at which a camera has no frame is hatched.
    """
    header, caption = episode.header, line_height(SMALL_SIZE)
    steps = key_steps(header.num_steps, NUM_COLUMNS, episode.layout.gop)
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
    return jpeg_within(sheet, MAX_BYTES)
