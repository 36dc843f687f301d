"""The step `labels` on an episode file: what it writes, and that it reads no video."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from label_samples import JOINTS, reaches, trace_of
from row_samples import header, row_of

from dyna_assets.labels import LABELLERS
from dyna_assets.labels.options import LabelOptions
from dyna_assets.labels.registry import Labeller
from dyna_assets.labels.view import EpisodeView
from dyna_assets.landing.profile import SourceProfile
from dyna_assets.steps.attempt import attempt
from dyna_assets.steps.labels import label
from dyna_assets.steps.work import Row
from dyna_assets.warehouse.store import Warehouse
from dyna_assets.warehouse.tables import TABLES
from dyna_train.episode.layout import EpisodeLayout
from dyna_train.episode.profile import VIDEO_GROUP, grid_times_ns
from dyna_train.episode.reader import Episode
from dyna_train.episode.tracks import CameraTrack, VectorTrack
from dyna_train.episode.writer import EpisodeWriter
from dyna_train.video.encode import Quality

NUM_STEPS = 240
UNITS = ("rad", "rad", "rad", "m")


def write_episode(path: Path) -> str:
    """An arm with a noisy camera; returns the sha256."""
    tracks = [VectorTrack("arm", role, JOINTS, UNITS) for role in ("state", "action")]
    described = header(NUM_STEPS, tracks, [CameraTrack("top", 192, 144)])
    grid_T = grid_times_ns(described.start_ns, described.rate_hz, NUM_STEPS)
    moves_TD = reaches(NUM_STEPS + 3, 4).astype(np.float32)
    vectors = {"/state/arm": (moves_TD[:-3], grid_T), "/action/arm": (moves_TD[3:], grid_T)}
    layout = EpisodeLayout(gop=30, gops_per_chunk=1, steps_per_block=60)
    rng = np.random.default_rng(0)
    with EpisodeWriter.create(path, described, layout, quality=Quality(18), vectors=vectors) as writer:
        for time_ns in grid_T.tolist():
            noise = rng.integers(0, 255, (144, 192, 3), np.uint8)
            writer.add_frame("top", av.VideoFrame.from_ndarray(noise, "rgb24"), time_ns)
        return writer.finish().sha256


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The episode file, and its sha256."""
    path = tmp_path_factory.mktemp("made") / "episode.mcap"
    return path, write_episode(path)


@pytest.fixture
def row(made: tuple[Path, str], tmp_path: Path) -> Row:
    """A row whose episode file lies in its lake, as the step gets it."""
    path, sha256 = made
    source = SourceProfile(
        name="lab",
        landing="x",
        reader="mcap",
        grid={"rate_hz": 30},
        cameras=({"name": "top", "topic": "top"},),
    )  # type: ignore[arg-type]
    texts = [{"key": "subtask", "text": "reach", "time_ns": 1_700_000_001_000_000_000}]
    trace = trace_of(np.ones(NUM_STEPS)).to_bytes()
    upstream = {
        "recordings": {"task": "reach", "success": True, "facts": json.dumps({"texts": texts})},
        "episodes": {"content_hash": sha256, "valid_starts": [0], "valid_ends": [NUM_STEPS]},
        "traces": [{"camera": "top", "content_hash": sha256, "trace": trace}],
    }
    row = row_of(source, tmp_path / "lake", upstream=upstream)
    place = Path(row.episode_uri(sha256))
    place.parent.mkdir(parents=True)
    shutil.copy(path, place)
    return row


def with_source(row: Row, **options: Any) -> Row:
    return replace(row, source=row.source.model_copy(update={"labels": LabelOptions(**options)}))


def test_the_step_writes_labels_and_annotations_that_the_tables_take(row: Row, tmp_path: Path) -> None:
    done = label(row)
    assert (done.status, done.reason) == ("ok", "")
    (stated,) = done.rows["labels"]
    assert stated == {"episode_id": 7, "task": "reach", "success": True, "origin": "recording"}
    labellers = {found["labeller"] for found in done.rows["annotations"]}
    assert labellers == set(LABELLERS) - {"embedding"}
    (lag,) = (
        found
        for found in done.rows["annotations"]
        if (found["key"], found["subject"]) == ("lag", "action/left_arm→state/left_arm")
    )
    assert lag["value"] == pytest.approx(100, abs=2)
    warehouse = Warehouse(str(tmp_path / "tables"))
    warehouse.create()
    for name, rows in done.rows.items():
        assert warehouse.append(TABLES[name], 0, 1, rows, run_id="r") == len(rows)


def test_labels_are_found_where_every_byte_of_video_is_destroyed(row: Row) -> None:
    before = label(row)
    path = Path(row.episode_uri(row.upstream["episodes"]["content_hash"]))
    with Episode.open(path) as episode:
        chunks = episode.index.chunks[VIDEO_GROUP]
    data = bytearray(path.read_bytes())
    for offset, length in zip(chunks.offset_K.tolist(), chunks.length_K.tolist(), strict=True):
        data[offset : offset + length] = bytes(length)
    path.write_bytes(data)
    assert label(row) == before


def test_labelling_reads_the_end_and_the_state_of_the_file_and_decodes_nothing(row: Row) -> None:
    path = Path(row.episode_uri(row.upstream["episodes"]["content_hash"]))
    with Episode.open(path) as episode:
        EpisodeView.of(episode, row.upstream["recordings"], row.upstream["episodes"], (), LabelOptions())
        assert episode.counters.decoded == 0
        assert episode.counters.bytes < 0.05 * path.stat().st_size


def test_a_failing_labeller_leaves_the_others_rows_and_the_step_to_be_done_again(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = label(row).rows["annotations"]

    def fails(view: EpisodeView) -> Any:
        raise RuntimeError(f"{view.num_steps} steps are odd")

    monkeypatch.setitem(LABELLERS, "odd", Labeller("odd", 1, fails))
    done = attempt("labels", row)
    assert done.status == "error"
    assert done.reason.startswith("labeller odd: RuntimeError: 240 steps are odd (fails, line")
    assert [found for found in done.rows["annotations"] if found["labeller"] != "odd"] == list(whole)
    assert [found["status"] for found in done.rows["annotations"] if found["labeller"] == "odd"] == ["error"]
    assert len(done.rows["labels"]) == 1


def test_a_model_that_is_not_installed_costs_its_captions_only(row: Row) -> None:
    done = label(with_source(row, captioner="no_such_module:Model"))
    assert done.status == "error"
    assert "labeller caption: [labels] names 'no_such_module:Model'" in done.reason
    assert {found["labeller"] for found in done.rows["annotations"] if found["status"] == "ok"} >= {
        "lag",
        "performance",
    }


def test_invalid_steps_of_the_episode_are_not_looked_at(row: Row) -> None:
    packed = {**row.upstream["episodes"], "valid_starts": [], "valid_ends": []}
    done = label(replace(row, upstream={**row.upstream, "episodes": packed}))
    assert done.status == "ok"
    paths = [found["value"] for found in done.rows["annotations"] if found["key"] == "path_length"]
    assert paths == [0.0, 0.0]


def test_an_episode_file_that_is_gone_is_the_rows_error(row: Row) -> None:
    Path(row.episode_uri(row.upstream["episodes"]["content_hash"])).unlink()
    done = attempt("labels", row)
    assert done.status == "error"
    assert "no such episode file" in done.reason
