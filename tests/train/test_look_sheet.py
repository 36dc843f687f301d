"""The contact sheet: pixels at known places, and the laws of what it is drawn with."""

from __future__ import annotations

import numpy as np
import pytest
from episode_samples import CAMERAS, LAYOUT, camera_capture_ns, header, paint, read_painting
from hypothesis import given, settings
from hypothesis import strategies as st
from look_samples import APP, ODD, write_of
from PIL import Image, ImageColor
from typer.testing import CliRunner

from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import VectorTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.look.axes import AXIS_LEFT, AXIS_RIGHT, PAGE_WIDTH, TimeAxis, dashes, outline, round_numbers
from dyna_train.look.bands import Band
from dyna_train.look.frames import frame_tiles, key_steps, spread_steps, tile_size
from dyna_train.look.ink import fit, line_height, text_width, wrap, write
from dyna_train.look.palette import BAD, LINES, PANEL, PAPER
from dyna_train.look.panels import plan_panels
from dyna_train.look.plot import draw_panel
from dyna_train.look.rows import draw_row
from dyna_train.look.sheet import draw_sheet
from dyna_train.look.summary import summarize_episode
from dyna_train.video.encode import Quality


def colours_at(picture: Image.Image, x: float, y: float, radius: int = 2) -> list[tuple[int, int, int]]:
    """All colours around a point."""
    box = (round(x) - radius, round(y) - radius, round(x) + radius + 1, round(y) + radius + 1)
    return [colour for _, colour in picture.crop(box).getcolors(10_000)]


def has_colour(picture: Image.Image, x: float, y: float, colour: str, radius: int = 2) -> bool:
    wanted = np.array(ImageColor.getrgb(colour))
    return any(np.abs(np.array(found) - wanted).max() < 30 for found in colours_at(picture, x, y, radius))


def test_a_painted_frame_stands_above_its_time(painted):
    with Episode.open(painted) as episode:
        summary, axis = summarize_episode(episode), TimeAxis(60, 30.0)
        row = draw_row(episode, CAMERAS[0], summary.cameras[0], axis, 3)
    width, height = 136, 102  # 64 x 48 in a box of 136 x 120
    for step in spread_steps(60, 8):
        x = axis.x(round(spread_steps(60, 8).index(step)) * 59 / 7)
        tile = row.crop((round(x) - width // 2, 0, round(x) + width // 2, height)).resize((64, 48))
        assert read_painting(np.asarray(tile)) == (step, 0)


def test_a_step_without_a_frame_is_hatched_and_its_strip_shows_the_gap(rich):
    with Episode.open(rich) as episode:
        summary, axis = summarize_episode(episode), TimeAxis(60, 30.0)
        tiles = frame_tiles(episode, CAMERAS[1], [9, 10, 19, 20], (66, 50))
        row = draw_row(episode, CAMERAS[1], summary.cameras[1], axis, 3)
    painted = [read_painting(np.asarray(tile)) for tile in tiles]
    assert (painted[0], painted[3]) == ((9, 1), (20, 1))
    assert {(9, 1), (20, 1)}.isdisjoint(painted[1:3])
    top = tile_size(CAMERAS[1], (136, 120))[1] + 3
    gap, frames = ([row.getpixel((round(axis.x(step)), top + y)) for y in range(7)] for step in (15, 30))
    assert len(set(frames)) == 1 and len(set(gap)) > 1 and frames[0] not in gap


def test_frames_captured_more_than_a_step_and_a_half_off_stand_out(tmp_path):
    described = header(30, CAMERAS[:1], (), rate_hz=600.0)  # a step and a half are 2.5 ms
    path = tmp_path / "late.mcap"
    with EpisodeWriter.create(path, described, LAYOUT, quality=Quality(30), vectors={}) as writer:
        for step in range(30):
            late = 3_000_000 if step >= 15 else 2_000_000
            capture = int(camera_capture_ns(described, 0)[step]) + late
            writer.add_frame("top", paint(step, 0, 64, 48), capture)
        writer.finish()
    with Episode.open(path) as episode:
        row = draw_row(episode, CAMERAS[0], summarize_episode(episode).cameras[0], TimeAxis(30, 600.0), 1)
    axis = TimeAxis(30, 600.0)
    on_time = [row.getpixel((round(axis.x(3)), y)) for y in range(row.height)]
    late = [row.getpixel((round(axis.x(25)), y)) for y in range(row.height)]
    assert ImageColor.getrgb(BAD) in late and ImageColor.getrgb(BAD) not in on_time


LEVELS = (
    VectorTrack("arm", "state", ("low", "high"), ("rad", "rad")),
    VectorTrack("arm", "action", ("low",), ("rad",)),
)


def level_plot(low_T: np.ndarray) -> tuple[Image.Image, float, float]:
    """A plot of a state at 0 and 2 and an action at 1; y of the top and the bottom line."""
    num_steps = len(low_T)
    values = {
        "/state/arm": np.stack([low_T, np.full(num_steps, 2.0)], axis=1).astype(np.float32),
        "/action/arm": np.ones((num_steps, 1), np.float32),
    }
    (panel,) = plan_panels(LEVELS)
    picture = draw_panel(panel, values, TimeAxis(num_steps, 30.0))
    return picture, 8 + 100 * 0.16 / 2.32, 8 + 100 * 2.16 / 2.32


def test_state_lines_are_solid_and_action_lines_dashed_in_the_colour_of_their_name():
    picture, top, bottom = level_plot(np.zeros(100))
    across = range(AXIS_LEFT + 10, AXIS_RIGHT - 10)
    assert all(has_colour(picture, x, bottom, LINES[0]) for x in across)
    assert all(has_colour(picture, x, top, LINES[1]) for x in across)
    dashed = [has_colour(picture, x, (top + bottom) / 2, LINES[0], radius=1) for x in across]
    assert 0.5 < np.mean(dashed) < 0.9 and np.abs(np.diff(dashed)).sum() > 100


def test_a_line_is_interrupted_where_values_are_not_finite():
    low_T = np.zeros(100)
    low_T[40:60] = np.nan
    picture, _, bottom = level_plot(low_T)
    axis = TimeAxis(100, 30.0)
    assert has_colour(picture, axis.x(30), bottom, LINES[0])
    assert has_colour(picture, axis.x(70), bottom, LINES[0])
    assert not has_colour(picture, axis.x(50), bottom, LINES[0])


def test_a_plot_without_a_finite_value_says_so():
    (panel,) = plan_panels((VectorTrack("arm", "state", ("low",), ("rad",)),))
    picture = draw_panel(panel, {"/state/arm": np.full((5, 1), np.inf, np.float32)}, TimeAxis(5, 30.0))
    assert picture.getpixel((AXIS_LEFT + 3, 40)) == ImageColor.getrgb(PANEL)
    assert len(picture.crop((600, 30, 830, 80)).getcolors(1000)) > 2  # text in the middle


@pytest.mark.parametrize("name", ODD)
def test_a_sheet_can_be_drawn_of(name, tmp_path):
    path = write_of(tmp_path / "odd.mcap", ODD[name])
    with Episode.open(path) as episode:
        page = draw_sheet(episode, summarize_episode(episode))
    assert page.width == PAGE_WIDTH and 100 < page.height < 4000
    edge = (
        page.crop((0, 0, PAGE_WIDTH, 8)),
        page.crop((0, 0, 8, page.height)),
        page.crop((1432, 0, 1440, page.height)),
    )
    assert all(part.getcolors() == [(part.width * part.height, (255, 255, 255))] for part in edge)


def test_the_command_writes_the_sheet_as_png(painted, tmp_path):
    target = tmp_path / "new folder" / "sheet.png"
    shown = CliRunner().invoke(APP, ["inspect", str(painted), "--sheet", str(target)])
    assert shown.exit_code == 0 and "sheet.png" in shown.stdout
    with Image.open(target) as page:
        assert (page.format, page.width) == ("PNG", PAGE_WIDTH)
    assert [file.name for file in target.parent.iterdir()] == ["sheet.png"]


@given(num_steps=st.integers(1, 5000), num_columns=st.integers(2, 20))
def test_frames_are_spread_from_the_first_to_the_last(num_steps, num_columns):
    steps = spread_steps(num_steps, num_columns)
    assert steps == sorted(set(steps)) and len(steps) == min(num_steps, num_columns)
    assert steps[0] == 0 and steps[-1] == num_steps - 1


@given(num_steps=st.integers(1, 5000), num_columns=st.integers(2, 20), gop=st.integers(1, 120))
def test_key_steps_are_keyframes_but_for_the_last(num_steps, num_columns, gop):
    steps = key_steps(num_steps, num_columns, gop)
    assert steps == sorted(set(steps)) and len(steps) <= num_columns
    assert steps[0] == 0 and steps[-1] == num_steps - 1
    if num_steps >= 4 * gop:
        assert all(step % gop == 0 for step in steps[:-1])
    else:
        assert steps == spread_steps(num_steps, num_columns)


@pytest.mark.parametrize(
    ("num_steps", "labels", "label"),
    [
        (301, "0 s 2 s 4 s 6 s 8 s 10 s", "9.00 s"),
        (108_001, "0 min 10 min 20 min", "0:09 min"),
    ],
)
def test_times_are_written_in_seconds_or_minutes(num_steps, labels, label):
    axis = TimeAxis(num_steps, 30.0)
    assert " ".join(text for _, text in axis.ticks()).startswith(labels)
    assert axis.label(270) == label


@given(start=st.floats(-50, 150), length=st.floats(0, 100), num_steps=st.integers(1, 120))
def test_a_band_lies_on_the_axis_and_is_wide_enough_to_be_seen(start, length, num_steps):
    axis = TimeAxis(num_steps, 30.0)
    columns = Band(start, start + length, BAD).columns(axis)
    if columns is None:
        assert start + length <= 0 or start >= num_steps
        return
    left, right = columns
    assert 0 <= left < right <= AXIS_RIGHT - AXIS_LEFT + 1 and right - left >= 3
    if num_steps > 1 and 3 < start < num_steps - 4:
        assert left == pytest.approx(axis.x(start) - AXIS_LEFT, abs=1)


@given(low=st.floats(-1e9, 1e9), span=st.floats(1e-3, 1e9), most=st.integers(2, 12))
def test_round_numbers_lie_in_the_range_evenly(low, span, most):
    numbers = round_numbers(low, low + span, most)
    tolerance = 1e-6 * span + 1e-9 * abs(low)
    assert 2 <= len(numbers) <= max(most, 5)
    assert low - tolerance <= numbers[0] and numbers[-1] <= low + span + tolerance
    assert np.ptp(np.diff(numbers)) <= tolerance


@given(
    values=st.lists(st.floats(-100, 100, width=32) | st.just(float("nan")), min_size=1, max_size=3000),
)
@settings(max_examples=50)
def test_an_outline_keeps_lowest_and_highest_value_and_leaves_out_what_is_none(values):
    values_T = np.array(values, np.float32)
    drawn = outline(values_T)
    finite = values_T[np.isfinite(values_T)]
    if not finite.size:
        assert drawn == []
        return
    points = np.concatenate(drawn)
    assert (points[:, 1].min(), points[:, 1].max()) == (finite.min(), finite.max())
    assert (points[:, 0] >= AXIS_LEFT).all() and (points[:, 0] <= AXIS_RIGHT + 1).all()


def test_dashes_lie_on_their_line_and_cover_their_share():
    x_P = np.linspace(0, 600, 50)
    line = np.stack([x_P, np.sin(x_P / 50)], axis=1)
    parts = list(dashes(line, on=7, off=5))
    assert sum(part[-1, 0] - part[0, 0] for part in parts) == pytest.approx(600 * 7 / 12, rel=0.03)
    for part in parts:
        assert part[:, 1] == pytest.approx(np.interp(part[:, 0], x_P, line[:, 1]))


@given(text=st.text(max_size=80), size=st.sampled_from([12, 16]), width=st.integers(60, 400))
@settings(max_examples=60)
def test_text_is_made_to_fit_its_width(text, size, width):
    assert text_width(fit(text, size, width), size) <= width
    lines = wrap(text, size, width, max_lines=3)
    assert len(lines) <= 3 and all(text_width(line, size) <= width for line in lines)


def test_a_text_that_fits_is_wrapped_without_a_loss():
    words = "pick up the yellow bottle and put it on the shelf beside the blue one"
    lines = wrap(words, 16, 200, max_lines=9)
    assert " ".join(lines) == words and len(lines) > 2


@pytest.mark.parametrize("text", ["plain", "größe", "杯子", "ضع", "a\tb\nc", "🙂", "\x00\u200b"])
def test_any_letter_can_be_written(text):
    page = Image.new("RGB", (200, line_height(16)), PAPER)
    write(page, (4, 0), text, 16)
    assert page.size == (200, line_height(16))
    if text.strip("\x00\u200b"):
        assert page.getcolors(10_000) != [(200 * line_height(16), (255, 255, 255))]
