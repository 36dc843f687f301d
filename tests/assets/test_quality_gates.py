"""The gate after on episode files: what it reads back, and what it finds of a file that is not what it should be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from picture_samples import exposed, film, scene
from quality_samples import beyond, worst
from row_samples import header

from dyna_assets.quality import measure
from dyna_assets.quality.registry import Measured
from dyna_assets.quality.trace import CameraEye, CameraTrace
from dyna_assets.steps.readback import NUM_GOPS, facts_after, read_back
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import VIDEO_GROUP, grid_times_ns
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import Quality

STEPS, RATE_HZ, GOP = 90, 30.0, 10
Found = dict[str, list[Measured]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CameraTrace]:
    """An episode file and the trace of what went into it."""
    path = tmp_path_factory.mktemp("episodes") / "good.mcap"
    return path, write(path)


def write(path: Path, *, skipped: range = range(0)) -> CameraTrace:
    arm = VectorTrack(name="arm", role="state", names=("joint",), units=("rad",))
    described = header(STEPS, [arm], [CameraTrack("top", 128, 96)], start_ns=0, rate_hz=RATE_HZ)
    grid_T = grid_times_ns(0, RATE_HZ, STEPS)
    arm_T1 = np.sin(np.arange(STEPS, dtype=np.float32) / 10)[:, None]
    eye, layout = CameraEye(STEPS), EpisodeLayout(gop=GOP, gops_per_chunk=1, steps_per_block=30)
    vectors, watch = {"/state/arm": (arm_T1, grid_T)}, {"top": eye.see}
    with EpisodeWriter.create(
        path, described, layout, quality=Quality(20), vectors=vectors, watch=watch
    ) as writer:
        for step, frame in enumerate(film(lambda step: exposed(scene(step), step), STEPS)):
            if step in skipped:
                writer.skip_steps("top")
            else:
                writer.add_frame("top", frame, int(grid_T[step]))
        writer.finish()
    return eye.trace


def found_in(path: Path, trace: CameraTrace | None, num_planned: int = STEPS) -> Found:
    with Episode.open(path) as episode:
        return measure(
            "after",
            facts_after(episode, num_planned, read_back(episode, {} if trace is None else {"top": trace})),
        )


def test_a_file_as_it_was_made_passes_and_every_check_after_is_measured(
    made: tuple[Path, CameraTrace],
) -> None:
    found = found_in(*made)
    assert beyond(found, "warn") == set()
    assert [name for name, subjects in found.items() if not subjects] == []
    assert worst(found, "video.readback").value < 1


def test_of_an_encoded_camera_a_few_gops_are_decoded_and_of_a_copied_one_all(
    made: tuple[Path, CameraTrace],
) -> None:
    path, trace = made
    with Episode.open(path) as episode:
        read_back(episode, {"top": trace})
        assert episode.counters.decoded == NUM_GOPS * GOP
    with Episode.open(path) as episode:
        again = read_back(episode, {})["top"]
        assert episode.counters.decoded == STEPS
    assert again.trace.seen_T.all()
    assert np.abs(again.trace.level_T - trace.level_T).max() < 1
    assert again.readback is None


def test_frames_that_are_not_what_was_encoded_are_found(made: tuple[Path, CameraTrace]) -> None:
    path, trace = made
    other = replace(trace, level_T=trace.level_T + np.float32(4))
    assert beyond(found_in(path, other), "warn") == {"video.readback"}
    far = replace(trace, level_T=trace.level_T + np.float32(10))
    assert "differs in mean level by" in worst(found_in(path, far), "video.readback").note
    assert beyond(found_in(path, far), "reject") == {"video.readback"}


def test_a_single_frame_that_the_file_lacks_rejects(made: tuple[Path, CameraTrace], tmp_path: Path) -> None:
    write(tmp_path / "gap.mcap", skipped=range(40, 41))
    one = worst(found_in(tmp_path / "gap.mcap", made[1]), "video.frames")
    assert one.value == 1
    assert "the file has 89 frames, 90 were seen" in one.note


def test_a_gap_that_was_there_when_it_was_made_is_none(tmp_path: Path) -> None:
    trace = write(tmp_path / "gap.mcap", skipped=range(40, 70))
    for taken in (trace, None):
        assert beyond(found_in(tmp_path / "gap.mcap", taken), "warn") == set()


def test_a_gop_that_does_not_decode_rejects_with_camera_and_byte(
    made: tuple[Path, CameraTrace], tmp_path: Path
) -> None:
    path, trace = made
    with Episode.open(path) as episode:
        start, stop = episode.table.groups[VIDEO_GROUP].range(0)
    data = bytearray(path.read_bytes())
    data[(start + stop) // 2] ^= 0xFF
    (tmp_path / "cut.mcap").write_bytes(data)
    one = worst(found_in(tmp_path / "cut.mcap", trace), "video.frames")
    assert one.value == GOP
    assert "camera top, GOP 0 from byte" in one.note


def test_a_file_with_fewer_steps_than_its_grid_rejects(made: tuple[Path, CameraTrace]) -> None:
    assert beyond(found_in(*made, num_planned=STEPS + 1), "reject") == {"episode.steps"}
