"""Episode files for looking at: with gaps, depth, events and extra topics, and strange ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import typer
from episode_samples import LAYOUT, camera_capture_ns, header, paint, vectors_of

from dyna_train.commands import look
from dyna_train.episode.profile import EpisodeHeader
from dyna_train.episode.schemas import Event
from dyna_train.episode.tracks import CameraTrack, DepthTrack, VectorTrack
from dyna_train.episode.writer import EpisodeWriter, ExtraTopic
from dyna_train.video.encode import Quality

APP = typer.Typer()
"""The commands that look."""
APP.command()(look.inspect)
APP.command("foxglove-layout")(look.foxglove_layout)
APP.command()(look.rerun)

GAPS = {"left.wrist": [(10, 20), (58, 60)]}


def write_rich(path: Path) -> Path:
    """60 steps with gaps, a depth camera, an event and an extra topic; three values of one dimension are none."""
    described = replace(header(60), depths=(DepthTrack("head", 32, 24),))
    vectors = vectors_of(described)
    vectors["/state/arm"][0][5:8, 1] = np.nan
    extra = ExtraTopic("/tf", "json", "pose", "jsonschema", b"{}")
    with EpisodeWriter.create(
        path,
        described,
        LAYOUT,
        quality=Quality(18),
        vectors=vectors,
        events=[Event(described.start_ns + 7, "grasp")],
        extras=[extra],
    ) as writer:
        add_frames(writer, described, GAPS)
        for step in range(described.num_steps):
            ramp_HW = np.tile(np.arange(32, dtype=np.uint16) * 10, (24, 1))
            writer.add_depth("head", ramp_HW, described.start_ns + step)
        writer.add_extra("/tf", described.start_ns, described.start_ns, b"{}")
        writer.finish()
    return path


def write_of(path: Path, described: EpisodeHeader) -> Path:
    """A painted episode of any header without depth."""
    with EpisodeWriter.create(
        path, described, LAYOUT, quality=Quality(30), vectors=vectors_of(described)
    ) as writer:
        add_frames(writer, described, {})
        writer.finish()
    return path


def add_frames(
    writer: EpisodeWriter, described: EpisodeHeader, gaps: Mapping[str, Sequence[tuple[int, int]]]
) -> None:
    for number, camera in enumerate(described.cameras):
        missing = {step for gap in gaps.get(camera.name, ()) for step in range(*gap)}
        capture_T = camera_capture_ns(described, number).tolist()
        for step in range(described.num_steps):
            if step in missing:
                writer.skip_steps(camera.name)
            else:
                writer.add_frame(
                    camera.name, paint(step, number, camera.width, camera.height), capture_T[step]
                )


def many(num: int, role="state") -> VectorTrack:
    return VectorTrack("hand", role, tuple(f"joint_{number}" for number in range(num)), ("",) * num)


ODD = {
    "no cameras": header(40, cameras=()),
    "no vectors": header(40, vectors=()),
    "one step": header(1),
    "two steps": header(2),
    "20 cameras": header(9, [CameraTrack(f"camera_{number:02d}", 32, 24) for number in range(20)], ()),
    "60 dimensions": header(40, (), (many(60), many(23, "action"))),
    "wide and high": header(9, [CameraTrack("panorama", 256, 16), CameraTrack("pole", 16, 256)], ()),
    "no words": replace(header(5), name="", robot="", task="", source="", success=None, quality={}),
    "long name": replace(header(5), name="a very long name " * 40, task="wipe the table " * 200),
    "other scripts": replace(header(5), name="größe", task="把杯子放在盘子上 поставь ضع الكوب 🙂 " * 30),
    "failed gates": replace(header(5), success=False, quality={f"gate_{n}": "too dark" for n in range(9)}),
}
