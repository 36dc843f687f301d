"""The page of an episode: one picture on which a person sees in five seconds whether it is any good, and why not.

From top to bottom: verdict, name and headline; every finding; a row of frames per camera with its trace and its
skew; plots of states and actions; the clocks of the recording. Frames, traces, plots and the stretches that a
check speaks of share one time axis. The page is a stack of blocks, each as wide as the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PIL import Image

from dyna_assets.look.clocks import draw_clocks
from dyna_assets.look.facts import Finding, PageFacts
from dyna_assets.look.lanes import bands_of, draw_gap_lane, draw_lanes, gap_bands, of_subject
from dyna_assets.look.strips import draw_strips
from dyna_assets.look.verdicts import draw_title, draw_verdicts
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import VectorTrack
from dyna_train.look.axes import MARGIN, PAGE_WIDTH, TimeAxis
from dyna_train.look.palette import PAPER
from dyna_train.look.panels import Panel, plan_panels
from dyna_train.look.plot import draw_key, draw_panel, draw_time
from dyna_train.look.rows import draw_row, draw_skew_key
from dyna_train.look.summary import skew_ms, summarize_camera, summarize_depth


def draw_page(episode: Episode | None, facts: PageFacts) -> Image.Image:
    """The page, PAGE_WIDTH pixels wide and as high as it needs; episode: None where there is no file.

    Reads the vectors and a few GOPs of each camera. Raises EpisodeError for a damaged file.
    """
    blocks = list(_without_file(facts) if episode is None else _with_file(episode, facts))
    page = Image.new("RGB", (PAGE_WIDTH, sum(block.height for block in blocks) + 2 * MARGIN), PAPER)
    top = MARGIN
    for block in blocks:
        page.paste(block, (0, top))
        top += block.height
    return page


def _without_file(facts: PageFacts) -> Iterator[Image.Image]:
    yield draw_title(facts)
    yield draw_verdicts(facts)
    yield from draw_clocks(facts)


def _with_file(episode: Episode, facts: PageFacts) -> Iterator[Image.Image]:
    header = episode.header
    axis = TimeAxis(header.num_steps, header.rate_hz)
    yield draw_title(facts, header.num_steps, header.rate_hz)
    yield draw_verdicts(facts)
    yield from _camera_rows(episode, facts, axis)
    if header.vectors:
        yield from _plots(episode, facts, axis)
    yield from draw_clocks(facts)


def _camera_rows(episode: Episode, facts: PageFacts, axis: TimeAxis) -> Iterator[Image.Image]:
    """Frames, trace, skew and findings of each camera."""
    header = episode.header
    num_rows = len(header.cameras) + len(header.depths)
    for camera in header.cameras:
        findings = of_subject(facts.findings, [camera.name, camera.topic])
        yield draw_row(episode, camera, summarize_camera(episode, camera), axis, num_rows, keyframes=True)
        yield draw_lanes(findings, axis)
        bands = bands_of([*findings, *of_subject(facts.findings, [""])], axis.rate_hz)
        yield draw_strips(facts.traces.get(camera.name), skew_ms(episode, camera.topic), axis, bands)
    for depth in header.depths:
        yield draw_row(episode, depth, summarize_depth(episode, depth), axis, num_rows)
        yield draw_lanes(of_subject(facts.findings, [depth.name, depth.topic]), axis)
    if num_rows:
        yield draw_skew_key(header.rate_hz)


def _plots(episode: Episode, facts: PageFacts, axis: TimeAxis) -> Iterator[Image.Image]:
    """States and actions, shaded where a finding or a gap concerns them."""
    header = episode.header
    cameras = {name for camera in header.cameras for name in (camera.name, camera.topic)}
    findings = [one for one in facts.findings if one.subject not in cameras]
    yield draw_key({vector.role for vector in header.vectors})
    yield draw_gap_lane(facts.invalid, axis, "not usable")
    yield draw_lanes(findings, axis)
    values = {vector.topic: episode.vector(vector.topic) for vector in header.vectors}
    for panel in plan_panels(header.vectors):
        bands = bands_of(_of_panel(findings, panel, header.vectors), axis.rate_hz)
        yield draw_panel(panel, values, axis, [*bands, *gap_bands(facts.invalid)])
    yield draw_time(axis)


def _of_panel(findings: Sequence[Finding], panel: Panel, vectors: Sequence[VectorTrack]) -> list[Finding]:
    """The findings that a panel shows: about its vectors, or about something that has no panel of its own."""
    topics = {line.topic for line in panel.lines}
    here = {name for track in vectors if track.topic in topics for name in (track.name, track.topic)}
    everywhere = {name for track in vectors for name in (track.name, track.topic)}
    return [one for one in findings if one.subject in here or one.subject not in everywhere]
