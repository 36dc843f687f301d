"""Rows done in processes: what a death of one of them costs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import write_aloha, write_mcap
from row_samples import row_of

from dyna_assets.landing.draft import draft_source
from dyna_assets.landing.recording import Folder
from dyna_assets.steps.pool import results
from dyna_assets.steps.work import Row


class Deadly(str):
    """The name of a row that ends the process which it is sent to."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return signal.raise_signal, (signal.SIGKILL,)


def rows_of(root: Path, names: list[str]) -> list[Row]:
    source = draft_source("lab", str(root), Folder.of(root)).profile
    files = sorted(root.iterdir())
    return [
        row_of(
            source, root, episode_id=number, name=name, recording_name=file.stem, files=(file.name,),
            upload_uri=str(root),
        )
        for number, (name, file) in enumerate(zip(names, files, strict=True))
    ]  # fmt: skip


@pytest.mark.parametrize(("num_workers", "num_rows"), [(1, 4), (2, 2)])
def test_a_row_that_ends_its_process_costs_itself_and_says_what_to_do(
    tmp_path: Path, num_workers: int, num_rows: int
) -> None:
    names = ["ep0", Deadly("ep1"), "ep2", "ep3"][:num_rows]
    for name in names:
        write_aloha(tmp_path / f"set/{name}.hdf5", 3)
    found = list(results("recordings", rows_of(tmp_path / "set", names), num_workers))
    assert [result.episode_id for result in found] == list(range(num_rows))
    assert [result.status for result in found] == ["ok", "error", "ok", "ok"][:num_rows], found
    assert found[1].reason.startswith("lab: ep1: its process died in step 'recordings', twice")
    assert "record or upload them again" in found[1].reason and "lower 'workers'" in found[1].reason


def test_a_single_row_needs_no_process_where_its_reader_does_not_crash(tmp_path: Path) -> None:
    write_mcap(tmp_path / "set/a.mcap", 3)
    (row,) = rows_of(tmp_path / "set", [Deadly("a")])
    (result,) = results("recordings", [row], 8)
    assert result.status == "ok", result.reason
