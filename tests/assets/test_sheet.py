"""The small contact sheet of a Dagster page."""

from __future__ import annotations

import io
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from row_samples import header

from dyna_assets.look.sheet import MAX_BYTES, NUM_COLUMNS, TILE_WIDTH, contact_sheet
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import Quality

NUM_STEPS = 11
LAYOUT = EpisodeLayout(gop=5, gops_per_chunk=1, steps_per_block=5)


def write(path: Path, cameras: tuple[CameraTrack, ...], num_steps: int = NUM_STEPS) -> Path:
    """Frames as bright as their step x 20; camera `broken` has none after step 5."""
    described = header(num_steps, cameras=cameras, start_ns=0, rate_hz=10.0)
    with EpisodeWriter.create(path, described, LAYOUT, quality=Quality(18), vectors={}) as writer:
        for camera in cameras:
            for step in range(num_steps):
                if camera.name == "broken" and step > 5:
                    writer.skip_steps(camera.name)
                    continue
                picture = np.full((camera.height, camera.width, 3), step * 20, np.uint8)
                writer.add_frame(
                    camera.name, av.VideoFrame.from_ndarray(picture, "rgb24"), step * 100_000_000
                )
        writer.finish()
    return path


def sheet_of(path: Path) -> Image.Image:
    with Episode.open(path) as episode:
        data = contact_sheet(episode)
    assert len(data) <= MAX_BYTES
    return Image.open(io.BytesIO(data)).convert("RGB")


def test_six_frames_stand_side_by_side_from_the_first_to_the_last(tmp_path):
    sheet = sheet_of(write(tmp_path / "a.mcap", (CameraTrack("top", 64, 48),)))
    assert sheet.width == NUM_COLUMNS * (TILE_WIDTH + 2)
    middles = [sheet.getpixel((column * (TILE_WIDTH + 2) + 72, sheet.height - 40))[0] for column in range(6)]
    assert middles == pytest.approx([step * 20 for step in (0, 2, 4, 6, 8, 10)], abs=4)


def test_a_step_without_a_frame_is_hatched(tmp_path):
    sheet = sheet_of(write(tmp_path / "a.mcap", (CameraTrack("broken", 64, 48),)))
    for column in range(6):
        left = column * (TILE_WIDTH + 2) + 10
        tile = np.asarray(sheet.crop((left, sheet.height - 40, left + 40, sheet.height - 10)), np.float64)
        assert (tile.std() > 3) == (column >= 3), column


@pytest.mark.parametrize("num_steps", [1, 2])
def test_very_short_episodes_and_many_cameras_keep_the_limit(tmp_path, num_steps):
    cameras = tuple(CameraTrack(f"camera_{number}", 64, 48) for number in range(12))
    sheet = sheet_of(write(tmp_path / "a.mcap", cameras, num_steps))
    assert sheet.width > 400
