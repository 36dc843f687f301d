"""Text in every encoding in a task name: whole in tables and episode file, or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lab import SAYS, Lab
from recordings import write_aloha, write_lerobot_v21, write_text

from dyna_assets.catalog.catalog import Catalog
from dyna_assets.landing.upload import MAX_TEXT, commit_upload
from dyna_train.episode.reader import Episode

LONG = "fold the towel, then put it on the pile to the left of the basket. " * 160
TEXTS = {
    "latin-1": ("café".encode("latin-1"), r"caf\xe9"),
    "utf-16 with its mark": ("fold 毛巾".encode("utf-16"), "fold 毛巾"),
    "utf-8 with its mark": (b"\xef\xbb\xbffold", "fold"),
    "nul": (b"fo\0ld", "fo\0ld"),
    "emoji": ("🤖 fold 👨‍👩‍👧".encode(), "🤖 fold 👨‍👩‍👧"),
    "right to left": ("קפל את המגבת ‏(x)".encode(), "קפל את המגבת ‏(x)"),
    "10 kB": (LONG.encode(), LONG),
}


@pytest.mark.parametrize("name", list(TEXTS))
def test_a_task_in_any_encoding_comes_through_to_the_episode_file(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    data, expected = TEXTS[name]
    write_aloha(tmp_path / "set/a.hdf5", 60, task=np.void(data))
    lab = Lab.of(catalog, tmp_path / "set", tmp_path / "lake")
    lab.register()
    results = lab.through(lab.row(), "episodes")
    assert results["recordings"].rows["recordings"][0]["task"] == expected
    assert results["episodes"].status == "ok", results["episodes"]
    assert pa.array([expected]).to_pylist() == [expected]  # as the tables of the warehouse hold it
    (path,) = (tmp_path / "lake").rglob("*.mcap")
    with Episode.open(str(path)) as made:
        assert made.header.task == expected


def test_half_a_surrogate_pair_in_a_data_sets_task_is_spelled_out(catalog: Catalog, tmp_path: Path) -> None:
    root = write_lerobot_v21(tmp_path / "set", [30])
    line = json.dumps({"episode_index": 0, "tasks": ["fo\ud800ld"], "length": 30})
    write_text(root / "meta/episodes.jsonl", line + "\n")
    lab = Lab.of(catalog, root, tmp_path / "lake")
    lab.register()
    found = lab.through(lab.row(), "recordings")["recordings"].rows["recordings"][0]
    assert found["task"] == r"fo\ud800ld"


REFUSED_MARKERS = {
    "latin-1": (
        lambda text: text.replace("TASK", "café").encode("latin-1"),
        r"not JSON .*can't decode byte 0xe9",
    ),
    "nul": (
        lambda text: text.replace("TASK", "fo\\u0000ld").encode(),
        r"task: 'fo\\x00ld' holds a NUL or half",
    ),
    "half a surrogate pair": (
        lambda text: text.replace("TASK", "\\ud800").encode(),
        r"holds a NUL or half a surrog",
    ),
    "100 kB": (
        lambda text: text.replace("TASK", "x" * 100_000).encode(),
        r"task: String should have at most 65536",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED_MARKERS))
def test_a_marker_whose_task_no_table_can_hold_is_refused(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    change, reason = REFUSED_MARKERS[name]
    lab = marked(catalog, tmp_path, change)
    lab.register()
    assert re.search(reason, lab.refusal("one"))


TAKEN_MARKERS = {
    "utf-16": (lambda text: text.replace("TASK", "叠毛巾").encode("utf-16"), "叠毛巾"),
    "emoji": (lambda text: text.replace("TASK", "🤖").encode(), "🤖"),
    "right to left": (lambda text: text.replace("TASK", "קפל").encode(), "קפל"),
    "10 kB": (lambda text: text.replace("TASK", LONG).encode(), LONG),
}


@pytest.mark.parametrize("name", list(TAKEN_MARKERS))
def test_a_markers_task_is_whole_in_the_warehouse_and_short_in_the_catalog(
    catalog: Catalog, tmp_path: Path, name: str
) -> None:
    change, task = TAKEN_MARKERS[name]
    lab = marked(catalog, tmp_path, change)
    lab.register()
    (row,) = lab.episodes()
    assert len(row.task) <= MAX_TEXT and row.task[:400] == task[:400]
    found = lab.through(lab.row(), "recordings")["recordings"].rows["recordings"][0]
    assert found["task"] == task


def marked(catalog: Catalog, tmp_path: Path, change: Callable[[str], bytes]) -> Lab:
    write_aloha(tmp_path / "landing/one/a.hdf5", 60)
    commit_upload(tmp_path / "landing/one", **SAYS, task="TASK")
    marker = tmp_path / "landing/one/upload.json"
    lab = Lab.of(catalog, tmp_path / "landing", tmp_path / "lake")
    marker.write_bytes(change(marker.read_text()))
    return lab
