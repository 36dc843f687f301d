"""The page of an episode: what it says, and that marks are where they should be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from page_samples import (
    CAMERAS,
    DARK,
    GAP,
    HAND,
    NUM_STEPS,
    RATE_HZ,
    facts,
    header,
    near,
    trace,
    write_episode,
)
from PIL import Image

from dyna_assets.look.badge import LOOKS, draw_badge, draw_mark
from dyna_assets.look.clocks import clock_cells
from dyna_assets.look.facts import Failure, GateFacts
from dyna_assets.look.lanes import LANE, bands_of, draw_gap_lane, draw_lanes
from dyna_assets.look.page import draw_page
from dyna_assets.look.strips import draw_strips
from dyna_assets.look.verdicts import MOST_FINDINGS, checked_line, draw_verdicts, facts_line, verdict_lines
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.look.axes import AXIS_LEFT, AXIS_RIGHT, PAGE_WIDTH, TimeAxis
from dyna_train.look.bands import tint
from dyna_train.look.palette import BAD, GREY, PANEL, PAPER, WARN
from dyna_train.look.panels import plan_panels
from dyna_train.look.plot import draw_panel

AXIS = TimeAxis(NUM_STEPS, RATE_HZ)


def page_of(tmp_path, described=None, **changed) -> Image.Image:
    path = write_episode(tmp_path / "episode.mcap", described)
    with Episode.open(path) as episode:
        return draw_page(episode, facts(**changed))


def test_a_finding_says_check_subject_value_unit_limit_and_note():
    (line,) = verdict_lines(facts(findings=(DARK,)))
    assert (line.outcome, line.check, line.subject) == ("reject", "camera.dark", "wrist")
    assert line.measured == "3.1 levels (limit 32)"
    assert line.note == "camera 'wrist' is dark"


def test_a_check_has_one_line_however_many_subjects_fail_it():
    findings = (DARK, replace(DARK, subject="top", value=9.0), GAP)
    assert [(line.check, line.subject) for line in verdict_lines(facts(findings=findings))] == [
        ("camera.dark", "wrist and 1 more"),
        ("time.gap", "arm"),
    ]


def test_steps_that_failed_stand_before_findings_with_their_reason():
    failed = facts(findings=(DARK,), failures=(Failure("episodes", "error", "the disk ate it"),))
    first, second = verdict_lines(failed)
    assert (first.outcome, first.check, first.note) == ("error", "step episodes", "the disk ate it")
    assert second.check == "camera.dark"


def test_the_head_says_how_much_was_checked_and_what_was_not():
    said = checked_line(facts())
    assert said.startswith("checked 31 of 34")
    assert "gate before: 18 of 20" in said and "policy default@1" in said
    assert said.endswith("not checked: time.drift, video.clock, hands.present")


def test_an_episode_that_no_gate_met_says_so():
    assert checked_line(facts(gates=())) == "nothing was checked: no gate has judged it"
    said = facts_line(facts(duration_s=0.0, size_bytes=0, raw_bytes=0, robot="", success=None))
    assert said.startswith("robot unknown   ·   length unknown   ·   outcome unknown   ·   2026")
    assert "MB" not in said


def test_the_headline_is_the_worst_note_or_says_which_gate_is_missing():
    assert facts(findings=(DARK, GAP)).headline == "camera 'wrist' is dark"
    assert facts(findings=(replace(DARK, note=""),)).headline == "camera.dark: 3.1 levels (limit 32)"
    assert facts().headline == "nothing measured lies beyond its limit"
    before = GateFacts("before", "default@1", "pass", 18, 20)
    assert facts(outcome="unchecked", gates=(before,)).headline == "gate after has not judged it yet"


def test_the_facts_say_robot_length_outcome_and_size():
    said = facts_line(facts(size_bytes=2_000_000, success=False), 60, 30.0)
    assert said.startswith(
        "bimanual   ·   2.00 s (60 steps at 30 Hz)   ·   failure   ·   2026-03-02 09:00:00 UTC"
    )
    assert "2.00 MB" in said and "id 17" in said and "shard 3" in said


def test_more_findings_than_fit_are_counted():
    many = facts(findings=tuple(replace(GAP, check=f"check.{number}") for number in range(30)))
    few = facts(findings=many.findings[:MOST_FINDINGS])
    assert draw_verdicts(many).height == draw_verdicts(few).height + 20


def test_a_note_that_is_longer_than_its_line_takes_two():
    short = draw_verdicts(facts(findings=(DARK,)))
    long = draw_verdicts(facts(findings=(replace(DARK, note="its cap is on, " * 15),)))
    assert short.height < long.height < short.height + 20
    assert near(long, (PAGE_WIDTH - 4, 8), PAPER)


def test_marks_differ_in_shape_without_their_colours():
    shapes = []
    for outcome in LOOKS:
        page = Image.new("RGB", (40, 40), PAPER)
        draw_mark(page, (4, 4), outcome, 32)
        grey = np.asarray(page.convert("L"))
        shapes.append(grey < 250)
    for number, shape in enumerate(shapes):
        for other in shapes[:number]:
            assert (shape != other).sum() > 60
    assert len({look.word for look in LOOKS.values()}) == len(LOOKS)


@pytest.mark.parametrize("outcome", LOOKS)
def test_the_verdict_stands_as_a_filled_plate_in_the_upper_left_corner(tmp_path, outcome):
    page = draw_page(None, facts(outcome=outcome))
    plate = Image.new("RGB", (PAGE_WIDTH, 60), PAPER)
    right = draw_badge(plate, (16, 0), outcome, 46)
    assert 120 < right < 300
    assert near(page, (16 + 60, 16 + 4), LOOKS[outcome].ground)
    assert near(page, (right + 4, 16 + 30), PAPER)


def test_a_lane_covers_the_seconds_that_its_check_names_and_no_others():
    lane = draw_lanes([DARK], AXIS)
    assert lane.size == (PAGE_WIDTH, LANE)
    inside = [x for x in range(AXIS_LEFT, AXIS_RIGHT) if not near(lane, (x, LANE / 2), PANEL, far=3)]
    assert inside[0] == pytest.approx(AXIS.x(0.5 * RATE_HZ), abs=1)
    assert inside[-1] == pytest.approx(AXIS.x(1.0 * RATE_HZ), abs=1.5)
    assert len(inside) == inside[-1] - inside[0] + 1


def test_a_lane_has_the_mark_and_the_name_of_its_check_on_the_left():
    lane = draw_lanes([DARK], AXIS)
    assert near(lane, (16 + 2, 8), BAD)
    name = np.asarray(lane.crop((36, 0, 200, LANE)).convert("L"))
    assert (name < 100).sum() > 80


def test_rejects_are_hatched_and_warnings_plain():
    reject, warn = bands_of([replace(GAP, spans=DARK.spans), DARK], RATE_HZ)[::-1]
    assert (reject.colour, reject.hatched, warn.colour, warn.hatched) == (BAD, True, WARN, False)


def test_findings_without_a_stretch_have_no_lane():
    assert draw_lanes([replace(DARK, spans=())], AXIS).height == 0
    assert draw_gap_lane((), AXIS, "not usable").height == 0


def test_a_stretch_outside_the_episode_is_left_out_and_a_short_one_still_seen():
    outside = draw_lanes([replace(DARK, spans=((-2.0, -1.0), (2.5, 3.0)))], AXIS)
    assert all(near(outside, (x, LANE / 2), PANEL, far=3) for x in range(AXIS_LEFT, AXIS_RIGHT))
    long = TimeAxis(108_000, RATE_HZ)
    short = draw_lanes([replace(DARK, spans=((1800.0, 1800.1),))], long)
    seen = [x for x in range(AXIS_LEFT, AXIS_RIGHT) if not near(short, (x, LANE / 2), PANEL, far=3)]
    assert len(seen) >= 3 and seen[0] == pytest.approx(long.x(54_000), abs=2)


def test_strips_shade_what_the_checks_name_and_hatch_what_the_camera_did_not_see():
    unseen = range(40, 50)
    strips = draw_strips(trace(unseen=unseen), np.zeros(NUM_STEPS), AXIS, bands_of([DARK], RATE_HZ))

    def column(step: float) -> list[tuple[int, ...]]:
        return [strips.getpixel((round(AXIS.x(step)), y)) for y in range(60, 80)]

    assert any(
        max(abs(a - b) for a, b in zip(pixel, tint(BAD, 0.18), strict=True)) < 4 for pixel in column(22)
    )
    assert any(
        max(abs(a - b) for a, b in zip(pixel, tint(GREY, 0.18), strict=True)) < 4 for pixel in column(45)
    )
    assert column(5) == column(35)


def test_a_plot_is_shaded_behind_its_lines():
    (panel,) = plan_panels((HAND,))
    values = {"/state/hand": np.zeros((NUM_STEPS, 1), np.float32)}
    picture = draw_panel(panel, values, AXIS, bands_of([GAP], RATE_HZ))
    assert near(picture, (AXIS.x(1.35 * RATE_HZ), 40), tint(WARN, 0.18))
    assert near(picture, (AXIS.x(1.07 * RATE_HZ), 40), PANEL)


def test_only_the_plots_of_the_vector_that_a_finding_names_are_shaded(tmp_path):
    page = page_of(tmp_path, findings=(GAP,))
    x = round(AXIS.x(1.35 * RATE_HZ))
    shaded = [y for y in range(page.height) if near(page, (x, y), tint(WARN, 0.18), far=2)]
    everywhere = page_of(tmp_path, findings=(replace(GAP, subject="whoever"),))
    shaded_all = [y for y in range(everywhere.height) if near(everywhere, (x, y), tint(WARN, 0.18), far=2)]
    assert 80 < len(shaded) < 130 and len(shaded_all) > 1.7 * len(shaded)


def test_steps_that_are_not_usable_are_hatched_in_every_plot(tmp_path):
    page = page_of(tmp_path, invalid=(range(30, 40),))
    x = round(AXIS.x(35))
    grey = [y for y in range(page.height) if near(page, (x, y), tint(GREY, 0.18), far=2)]
    assert len(grey) > 120


def test_the_clocks_are_a_table_with_an_empty_cell_for_what_is_not_known():
    known = {
        "num_messages": 1277,
        "rate_hz": 99.987,
        "jitter_s": 0.0021,
        "max_gap_s": 0.0664,
        "lost_share": 0.012,
    }
    assert clock_cells(known) == ["1,277", "99.99", "2.10", "", "0.066", "1.2"]
    assert clock_cells({**known, "lost_share": None})[-1] == ""
    assert clock_cells({"drift_ppm": -0.2})[3] == "+0"


def test_a_row_without_a_file_has_a_page_with_its_reason_and_its_clocks():
    topics = {
        "/top": {
            "role": "camera",
            "name": "top",
            "num_messages": 60,
            "rate_hz": 30.0,
            "first_s": 0.0,
            "last_s": 2.0,
        },
        "/arm": {"role": "state", "name": "arm", "reason": "not in the recording; topics there: /top"},
    }
    rejected = facts(outcome="reject", content_hash="", failures=(Failure("episodes", "rejected", "no arm"),))
    bare, page = draw_page(None, rejected), draw_page(None, replace(rejected, topics=topics))
    assert page.height > bare.height + 2 * 19
    lower = np.asarray(page.crop((0, bare.height - 16, PAGE_WIDTH, page.height)).convert("L"))
    assert (lower < 120).sum() > 1000


def many(num: int) -> VectorTrack:
    return VectorTrack("body", "state", tuple(f"joint_{number:02d}" for number in range(num)), ("rad",) * num)


ODD = {
    "no cameras": header(cameras=()),
    "no vectors": header(vectors=()),
    "one step": header(num_steps=1),
    "20 cameras": header(
        [CameraTrack(f"camera_{number:02d}", 32, 24) for number in range(20)], (), num_steps=7
    ),
    "60 joints": header(CAMERAS[:1], (many(60),)),
}
TEXTS = {
    "nothing": {"name": "", "task": "", "robot": "", "source": ""},
    "long": {"name": "a very long name " * 40, "task": "wipe the table " * 200, "source": "vendor" * 50},
    "scripts": {"name": "研究室 تجربة", "task": ("赤いコップ ضع الكوب 🤖 " * 40)[:400]},
}


@pytest.mark.parametrize("name", ODD)
def test_a_page_can_be_drawn_of(name, tmp_path):
    page = page_of(tmp_path, ODD[name], findings=(DARK, GAP), traces={})
    assert page.width == PAGE_WIDTH and 150 < page.height < 5000
    assert_margins_are_empty(page)


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_leaves_the_page(name, tmp_path):
    texts = TEXTS[name]
    finding = replace(DARK, note=texts["task"], subject=texts["name"], check="camera.dark")
    failure = Failure("episodes", "rejected", texts["task"])
    page = page_of(tmp_path, **texts, outcome="reject", findings=(finding,), failures=(failure,))
    assert_margins_are_empty(page)


def assert_margins_are_empty(page: Image.Image) -> None:
    for box in ((0, 0, PAGE_WIDTH, 8), (0, 0, 8, page.height), (PAGE_WIDTH - 8, 0, PAGE_WIDTH, page.height)):
        part = page.crop(box)
        assert part.getcolors() == [(part.width * part.height, (255, 255, 255))]
